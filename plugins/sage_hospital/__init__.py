"""Queue, workers, audit log, archives, removal of outputs and patient data, and server checks."""
