"""The journal, which makes episodes durable, and its stores.

journal.py          the interface, its entries, and the journal in memory; journals.py finds the one that settings name
codec.py            entries as JSON
rows.py             what stores of rows share; garbage.py: which rows to forget, counts.py: how long commits take
sqlite_journal.py   a SQLite file; sqlite_copies.py reads one that is written meanwhile
postgres.py         connections to PostgreSQL; postgres_journal.py, postgres_lease.py, postgres_snapshots.py,
                    postgres_recorded.py stand on it
snapshot_store.py   where snapshots are kept
database_urls.py    addresses of databases
"""
