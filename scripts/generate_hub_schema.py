"""Write the newest schema of a hub in SQLite, as the migrations make it, for databases that are new.

python scripts/generate_hub_schema.py            write it
python scripts/generate_hub_schema.py --check    fail if it is stale
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from ludus.hub.database.engine import open_engine, sqlite_url
from ludus.hub.database.migrate import NEWEST_SQLITE, migrate_in, newest_revision, statements_of


def generate() -> str:
    """Return the statements."""
    with tempfile.TemporaryDirectory() as folder:
        engine = open_engine(sqlite_url(Path(folder) / "hub.sqlite"))
        with engine.execution_options(ludus_writes=True).begin() as connection:
            migrate_in(connection, newest_revision())
            text = "\n\n".join(statements_of(connection)) + "\n"
        engine.dispose()
    return text


def main() -> None:
    """Write, or with `--check` compare."""
    text = generate()
    if "--check" not in sys.argv[1:]:
        NEWEST_SQLITE.write_text(text, "utf-8")
    elif not NEWEST_SQLITE.exists() or NEWEST_SQLITE.read_text("utf-8") != text:
        raise SystemExit(f"{NEWEST_SQLITE.name} is stale: run `python scripts/generate_hub_schema.py`")


if __name__ == "__main__":
    main()
