"""Queue, workers, audit log, archives, removal of outputs and patients, checks of a server."""
