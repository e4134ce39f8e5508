"""A server as one process: its settings, its HTTP application over the transports, and its start and end."""
