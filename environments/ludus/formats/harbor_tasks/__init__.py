"""Harbor's task folders: reading them, their sandboxes, and their verifiers."""
