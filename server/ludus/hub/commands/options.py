"""Options that the commands below `ludus hub` share: where a hub keeps what it has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from ludus.hub.core.secret_files import PASSWORD_FILE, with_password

DATA: Final = Path("ludus-hub")
"""The default of `Data`."""

Data = Annotated[Path, typer.Option(envvar="LUDUS_HUB_DATA", help="Folder of the hub's data.")]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database", envvar="LUDUS_HUB_DATABASE", metavar="URL",
        help="postgresql://USER@HOST/DATABASE; by default a SQLite file in the data folder. Its password may lie in a "
        f"file that {PASSWORD_FILE} names.", callback=with_password,
    ),
]  # fmt: skip
BlobsUrl = Annotated[
    str | None,
    typer.Option(
        "--blobs", envvar="LUDUS_HUB_BLOBS", metavar="URL",
        help="s3://BUCKET/PREFIX for wheels in an object store; by default they lie in the data folder.",
    ),
]  # fmt: skip
