"""Campaign policy."""
