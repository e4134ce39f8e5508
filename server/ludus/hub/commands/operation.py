"""The commands `ludus hub backup`, `restore` and `check`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ludus.hub.commands.options import DATA, BlobsUrl, Data, DatabaseUrl


def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE|FOLDER", help="New file, or a folder to make one in.")],
    data: Data = DATA,
    database: DatabaseUrl = None,
    blobs: BlobsUrl = None,
) -> None:
    """Write database and files of a hub, which may run, into one file.

    [bold]ludus hub backup /backups[/bold]
    """
    from ludus.hub.operation.backup import write_backup
    from ludus.hub.operation.parts import open_parts

    with open_parts(data, database, blobs) as parts:
        path, index = write_backup(parts, target)
    rows = sum(index.tables.values())
    typer.echo(f"Wrote {path}: {rows} rows of {len(index.tables)} tables, {len(index.members)} members")


def restore(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="Backup.", exists=True, dir_okay=False)],
    data: Data = DATA,
    database: DatabaseUrl = None,
    blobs: BlobsUrl = None,
) -> None:
    """Fill an empty hub from a backup, over the same database or another one.

    [bold]ludus hub restore ludus-hub-20260101T000000Z.tar --database postgresql://ludus@db/hub[/bold]
    """
    from ludus.hub.operation.parts import open_parts
    from ludus.hub.operation.restore import restore_backup

    with open_parts(data, database, blobs, new=True) as parts:
        index = restore_backup(parts, source)
    typer.echo(f"Restored {sum(index.tables.values())} rows and {len(index.members)} members into {data}")


def check(
    data: Data = DATA,
    database: DatabaseUrl = None,
    blobs: BlobsUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check digests and signatures of everything that a hub keeps; the exit code is 1 if something is wrong.

    [bold]ludus hub check[/bold]
    """
    from ludus.hub.operation.check import check_hub
    from ludus.hub.operation.parts import open_parts

    with open_parts(data, database, blobs) as parts:
        report = check_hub(parts)
    if as_json:
        typer.echo(json.dumps({"ok": report.ok, **asdict(report)}))
    else:
        for problem in report.problems:
            typer.echo(f"{problem.kind}: {problem.subject}: {problem.message}")
        state = "all is well" if report.ok else "something is wrong"
        typer.echo(f"Checked {report.versions} versions and {report.blobs} files: {state}")
    raise typer.Exit(0 if report.ok else 1)
