"""The journal, which makes episodes durable, and its stores: memory, SQLite and PostgreSQL."""
