"""The report, built only if every number has a key and every citation has a source record."""
