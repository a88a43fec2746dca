"""Queue, workers, audit log, archives, data removal, and server checks."""
