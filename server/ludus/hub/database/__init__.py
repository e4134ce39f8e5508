"""The hub's database: tables, connections, migrations and full-text search, for SQLite and PostgreSQL."""
