"""Import of other programs' cells, objects and regions as maps; export of maps."""
