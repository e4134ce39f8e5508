"""The commands `ludus hub block`, `unblock` and `blocks`: over the API of a hub, or in its database."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ludus.hub.commands.options import DATA, Data, DatabaseUrl
from ludus.protocol.text import printable

if TYPE_CHECKING:
    from ludus.hub.blocking.store import Blocks
    from ludus.registry.types.packages import BlockInfo

_DIGEST: Final = re.compile(r"(?:sha256:)?([0-9a-f]{64})")

Target = Annotated[
    str, typer.Argument(metavar="OWNER/NAME@VERSION|sha256:DIGEST", help="The version, or the digest of its wheel.")
]
Hub = Annotated[
    str | None,
    typer.Option(
        "--hub", metavar="URL", help="Address of a running hub; without it, the hub of the data folder is meant."
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", envvar="LUDUS_HUB_TOKEN", help="With --hub: an administrator's token with the scope 'admin'."
    ),
]


def block(
    target: Target,
    reason: Annotated[str, typer.Option("--reason", help="Why; everyone who asks for the version sees it.")],
    hub: Hub = None,
    token: Token = None,
    data: Data = DATA,
    database: DatabaseUrl = None,
) -> None:
    """Block a wheel by its digest: nothing installs or runs it from now on, also where its version is pinned.

    [bold]ludus hub block mallory/maze@1.2.0 --reason "it sends prompts to a stranger"[/bold]
    [bold]ludus hub block sha256:… --reason TEXT --hub https://hub.example.org[/bold]
    """
    from pydantic import ValidationError

    from ludus.registry.types.packages import BlockParams

    try:
        reason = BlockParams(reason=reason).reason
    except ValidationError:
        raise typer.BadParameter("--reason takes one line of 1 to 500 characters") from None
    if hub is not None:
        info = asyncio.run(_over_api(hub, token, target, reason))
    else:
        with _blocks_of(data, database) as blocks:
            info = blocks.block(_digest_in(blocks, target), reason)
    typer.echo(f"Blocked {_line(info)}")


def unblock(
    target: Target, hub: Hub = None, token: Token = None, data: Data = DATA, database: DatabaseUrl = None
) -> None:
    """Undo a block. What it has ended stays ended."""
    if hub is not None:
        info = asyncio.run(_over_api(hub, token, target, None))
    else:
        with _blocks_of(data, database) as blocks:
            info = blocks.unblock(_digest_in(blocks, target))
    typer.echo(f"Unblocked {_line(info)}")


def list_blocks(hub: Hub = None, token: Token = None, data: Data = DATA, database: DatabaseUrl = None) -> None:
    """List the blocked wheels of a hub, the last one first."""
    from ludus.registry.client import RegistryClient
    from ludus.registry.credentials import saved_token

    async def over_api(address: str) -> tuple[BlockInfo, ...]:
        async with RegistryClient(address, token or saved_token(address)) as client:
            return (await client.blocks()).blocks

    if hub is not None:
        infos = asyncio.run(over_api(hub))
    else:
        with _blocks_of(data, database) as blocks:
            infos = tuple(blocks.all())
    for info in infos:
        typer.echo(f"{info.at:%Y-%m-%d %H:%M}  {_line(info)}")


async def _over_api(hub: str, token: str | None, target: str, reason: str | None) -> BlockInfo:
    """Block a wheel of a running hub for a reason; without one, undo that."""
    from ludus.registry.client import RegistryClient
    from ludus.registry.credentials import saved_token

    digest = _DIGEST.fullmatch(target)
    async with RegistryClient(hub, token or saved_token(hub)) as client:
        sha256 = digest[1] if digest is not None else (await client.version(*_version_of(target))).sha256
        return await (client.unblock(sha256) if reason is None else client.block(sha256, reason))


@contextmanager
def _blocks_of(data: Path, database: str | None) -> Iterator[Blocks]:
    """Yield the blocked wheels in a hub's database. Processes of the hub that run act on a change within a second.

    Raises:
        BackupFailed: there is no hub, or its database is one of another version of Ludus.
        HubUnavailable: the database cannot be used.
    """
    from ludus.hub.blocking.store import Blocks
    from ludus.hub.database.engine import Database, available
    from ludus.hub.operation.backup import check_revision
    from ludus.hub.operation.parts import open_parts

    with open_parts(data, database) as parts:
        with available(), parts.engine.connect() as connection:
            check_revision(connection)
        yield Blocks(Database(parts.engine))


def _digest_in(blocks: Blocks, target: str) -> str:
    """Return the digest that a command names, or that of the version that it names.

    Raises:
        BadParameter: it names no version.
        PackageNotFound: there is no such version.
    """
    digest = _DIGEST.fullmatch(target)
    return digest[1] if digest is not None else blocks.digest_of_version(*_version_of(target))


def _version_of(target: str) -> tuple[str, str]:
    """Return the package and the version of `OWNER/NAME@VERSION`.

    Raises:
        BadParameter: it has another form.
    """
    from ludus.protocol.errors import InvalidParams
    from ludus.registry.installing import parse_request

    try:
        package, version = parse_request(target)
    except InvalidParams as error:
        raise typer.BadParameter(f"{error.message}, and no sha256:DIGEST") from None
    if version is None:
        raise typer.BadParameter(f"name the version: {package}@VERSION")
    return package, version


def _line(info: BlockInfo) -> str:
    versions = ", ".join(info.versions) or "no version of this hub"
    return printable(f"sha256:{info.sha256} ({versions}): {info.reason}")
