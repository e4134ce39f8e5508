"""A hub as the last landed version of Ludus has made it: its database as SQL, its files, and what it answered.

    python tests/support/landed_hub.py    write tests/hub/landed/ with the version that is checked out

A person runs this when a commit with a migration has landed, and commits the three files. Older ones stay valid: a
newer version must still upgrade them. `sqlite.sql` and `postgres.sql` begin with the commit and the schema's revision.

How this works: a hub over SQLite is used (`lived_hub.py`) until each table has rows. While it runs, its database is
copied as SQL, and a backup of it, which has its files, is restored over PostgreSQL and dumped there. Then the copy is
loaded and started as a hub of its own, and what it answers is recorded.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg
from hub_people import PASSWORD
from hubs import HubProcess
from lived_hub import BOARDS, OWN, PUBLIC, lived_hub
from postgres_server import PostgresServer, name_of, programs
from sqlalchemy import Engine, MetaData, inspect, select

from ludus.hub.database.engine import open_engine, sqlite_url
from ludus.hub.operation.archive import ArchiveReader
from ludus.hub.operation.backup import newest_revision, write_backup
from ludus.hub.operation.parts import open_parts
from ludus.hub.operation.restore import restore_backup
from ludus.hub.parts.hub import DATABASE_FILE

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "tests" / "hub" / "landed"
KINDS: Final = ("sqlite", "postgres")
OWN_TABLES: Final = ("package_search", "alembic_version")
"""The beginnings of the names of tables that hold no data of the hub."""

Rows = dict[str, list[dict[str, Any]]]
"""The rows of tables."""

HEADER: Final = re.compile(r"-- commit: (?P<commit>[0-9a-f]{40})\n-- revision: (?P<revision>[0-9]{4})\n")


@dataclass(frozen=True)
class LandedHub:
    """What is recorded besides the database.

    Attributes:
        name: an account.
        password: its password.
        token: a token of it, which never expires.
        files: the files of the data folder, in base64.
        public: the answers that everyone gets, by path.
        own: the answers that the account gets, by path.
        boards: the paths of boards among the public ones.
    """

    name: str
    password: str
    token: str
    files: dict[str, str]
    public: dict[str, Any]
    own: dict[str, Any]
    boards: list[str]

    def write_files(self, data: Path) -> None:
        """Write the files into a data folder."""
        for name, content in self.files.items():
            path = data / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(content))


def load_landed() -> LandedHub:
    """Return what is recorded."""
    return LandedHub(**json.loads((FOLDER / "hub.json").read_text("utf-8")))


def landed_sql(kind: str) -> tuple[str, str]:
    """Return the revision and the statements of a database."""
    text = (FOLDER / f"{kind}.sql").read_bytes().decode()
    header = HEADER.search(text)
    assert header is not None, f"{kind}.sql does not begin with its commit and its revision"
    return header["revision"], text


def fill_database(url: str, sql: str) -> None:
    """Run the statements of a dump in an empty database."""
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(sql)
    else:
        with psycopg.connect(url) as connection:
            connection.execute(sql.encode())


# ── what a database and a hub hold ─────────────────────────────────────────────────────────────────────────────────


def rows_in(engine: Engine) -> Rows:
    """Return the rows of all tables, in the order of their keys."""
    metadata = MetaData()
    names = [name for name in inspect(engine).get_table_names() if not name.startswith(OWN_TABLES)]
    metadata.reflect(engine, only=names)
    with engine.connect() as connection:
        return {
            table.name: [dict(row) for row in connection.execute(select(table).order_by(*table.primary_key)).mappings()]
            for table in metadata.sorted_tables
        }


def lost_rows(before: Rows, after: Rows) -> list[str]:
    """Return what a migration has lost: tables, columns and rows, and values that have changed."""
    lost = []
    for table, rows in before.items():
        if table not in after:
            lost.append(table)
        elif len(after[table]) != len(rows):
            lost.append(f"{table}: {len(after[table])} of {len(rows)} rows")
        else:
            for old, new in zip(rows, after[table], strict=True):
                lost += [f"{table}.{column}" for column in old if column not in new or new[column] != old[column]]
    return sorted(set(lost))


def answers_of(hub: HubProcess, paths: list[str], token: str | None = None) -> dict[str, Any]:
    """Return what a hub answers at paths, which does not depend on where it listens."""
    answers = {}
    with hub.client(token) as client:
        for path in paths:
            answer = client.get(path, headers={"host": "localhost"})
            assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
            is_json = answer.headers["content-type"].startswith("application/json")
            answers[path] = answer.json() if is_json else answer.text
    return answers


def differences(recorded: Any, current: Any, where: str = "") -> Iterator[str]:
    """Yield where an answer is not what was recorded. It may have more fields."""
    if isinstance(recorded, dict) and isinstance(current, dict):
        for name, value in recorded.items():
            if name in current:
                yield from differences(value, current[name], f"{where}.{name}")
            else:
                yield f"{where}.{name} is missing"
    elif isinstance(recorded, list) and isinstance(current, list) and len(recorded) == len(current):
        for index, (old, new) in enumerate(zip(recorded, current, strict=True)):
            yield from differences(old, new, f"{where}[{index}]")
    elif recorded != current:
        yield f"{where}: {recorded!r} is now {current!r}"


def wheels_in(answers: dict[str, Any]) -> dict[str, str]:
    """Return the digests of wheels by the path of the wheel."""
    versions = [one for path, one in answers.items() if re.search(r"/versions/[0-9.]+$", path)]
    return {httpx.URL(one["url"]).path: one["sha256"] for one in versions}


def digest_at(client: httpx.Client, path: str) -> str:
    """Return the digest of a file that a hub hands out."""
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return hashlib.sha256(answer.content).hexdigest()


# ── writing it ─────────────────────────────────────────────────────────────────────────────────────────────────────


def dump_sqlite(path: Path) -> str:
    """Return a SQLite database as statements, which include the full-text index and not the tables below it."""
    with closing(sqlite3.connect(path)) as connection:
        listed = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type = 'index', rowid"
        parts = [(kind, name, sql) for kind, name, sql in connection.execute(listed) if "package_search_" not in name]
        statements = [sql for kind, _, sql in parts if kind == "table"]
        for kind, name, _ in parts:
            if kind == "table":
                columns = [f'"{row[1]}"' for row in connection.execute(f'PRAGMA table_info("{name}")')]
                columns = ["rowid", *columns] if name == "package_search" else columns
                values = " || ', ' || ".join(f"quote({column})" for column in columns)
                for (row,) in connection.execute(f'SELECT {values} FROM "{name}" ORDER BY rowid'):
                    statements.append(f'INSERT INTO "{name}" ({", ".join(columns)}) VALUES ({row})')
        statements += [sql for kind, _, sql in parts if kind == "index"]
    return "".join(f"{statement};\n" for statement in ["BEGIN", *statements, "COMMIT"])


def dump_postgres(server: PostgresServer, url: str) -> str:
    """Return a PostgreSQL database as statements that name the schema, without the settings of one version."""
    options = ["--column-inserts", "--no-owner", "--no-privileges", "-h", str(server.folder), "-U", "postgres"]
    text = server._run("pg_dump", *options, name_of(url))
    head, first, rest = text.partition("CREATE TABLE")
    assert first, head
    return first + re.sub(r"\n\\unrestrict [^\n]*\n|\n-- PostgreSQL database dump complete\n", "\n", rest)


def write_landed(commit: str) -> None:
    """Write the three files."""
    folder_of_programs = programs()
    assert folder_of_programs is not None, "this needs PostgreSQL"
    server = PostgresServer(folder_of_programs)
    try:
        server.start()
        with tempfile.TemporaryDirectory() as temporary:
            landed, dumps = asyncio.run(_record(Path(temporary), server))
    finally:
        server.close()
    FOLDER.mkdir(exist_ok=True)
    for kind, sql in dumps.items():
        head = f"-- The database of a hub, written by tests/support/landed_hub.py.\n-- commit: {commit}\n"
        (FOLDER / f"{kind}.sql").write_bytes(f"{head}-- revision: {newest_revision()}\n\n{sql}".encode())
    (FOLDER / "hub.json").write_text(json.dumps(asdict(landed), indent=1, ensure_ascii=False) + "\n", "utf-8")


async def _record(folder: Path, server: PostgresServer) -> tuple[LandedHub, dict[str, str]]:
    copy, restored = folder / "copy.sqlite", server.new_url()
    async with lived_hub(folder) as lived:
        with open_parts(lived.data) as parts:
            backup, _ = write_backup(parts, folder / "backup.tar")
        with closing(sqlite3.connect(lived.data / DATABASE_FILE)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
    with open_parts(folder / "restored", restored, new=True) as parts:
        restore_backup(parts, backup)
    dumps = {"sqlite": dump_sqlite(copy), "postgres": dump_postgres(server, restored)}
    archive, files = ArchiveReader(backup), {}
    for digest, _, content in archive.members("blobs"):
        files[f"blobs/{digest[:2]}/{digest}"] = base64.b64encode(content.read()).decode()
    for name, _, content in archive.members("files"):
        if name != "tokens.json":  # the operator's file, which is not the hub's
            files[name] = base64.b64encode(content.read()).decode()
    landed = LandedHub("alice", PASSWORD, lived.token, files, {}, {}, list(BOARDS))
    data = folder / "loaded"
    landed.write_files(data)
    fill_database(sqlite_url(data / DATABASE_FILE), dumps["sqlite"])
    before, after = open_engine(sqlite_url(copy)), open_engine(sqlite_url(data / DATABASE_FILE))
    assert rows_in(after) == rows_in(before)
    before.dispose()
    after.dispose()
    hub = HubProcess(data, "--no-seed")
    landed.public.update(answers_of(hub, [*PUBLIC, *lived.public]))
    landed.own.update(answers_of(hub, [*OWN], lived.token))
    assert hub.stop() == 0
    return landed, dumps


def main() -> None:
    """Write the files, if what is checked out is a commit."""
    changed = subprocess.run(
        ["git", "status", "--porcelain", "protocol", "server", "client_sdk", "environments"], cwd=ROOT, check=True,
        capture_output=True, text=True,
    ).stdout  # fmt: skip
    if changed:
        sys.exit(f"these files differ from the commit, whose version would not be what is recorded:\n{changed}")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    write_landed(head.strip())


if __name__ == "__main__":
    main()
