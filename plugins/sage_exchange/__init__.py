"""Exchange: relations and vocabularies of other collections in, graphs in other formats out."""
