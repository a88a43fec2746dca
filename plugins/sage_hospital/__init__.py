"""Hospital: people, roles, quotas, audit, backup, restore, forget, deployment checks."""
