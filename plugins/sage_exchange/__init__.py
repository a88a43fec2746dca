"""Exchange: relations of other collections in, graphs in other formats out."""
