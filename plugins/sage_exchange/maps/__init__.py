"""Import of cells, objects, and regions from other programs as maps, and map export."""
