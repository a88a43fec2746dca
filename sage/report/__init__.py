"""The report, built only if every number has a key and every citation a source record."""
