"""The command `ludus sandboxd`."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
from pathlib import Path
from typing import Annotated, Final

import typer

from ludus.protocol.text import escape_record
from ludus.sandbox.core.registry import find_provider
from ludus.sandbox.remote.daemon import Daemon, SandboxdError, check_binding, serving_sandboxes
from ludus.sandbox.remote.session import HostLimits
from ludus.sandbox.remote.tokens import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, read_token

COMMANDS: Final = {"sandboxd": "Run sandboxes on this machine for Ludus servers on others."}
"""One line of help for each command, as a literal that the command line reads without importing this module."""


class _RecordFormatter(logging.Formatter):
    """A formatter of records for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line and the traceback, with control characters as escapes."""
        return escape_record(super().format(record))


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("sandboxd")(sandboxd)


def sandboxd(
    host: Annotated[
        str, typer.Option(help="Address to listen on; any address except loopback needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8765,
    provider: Annotated[str, typer.Option(help="Backend of the sandboxes: a name as in SandboxSettings.")] = (
        "bubblewrap"
    ),
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar=TOKEN_FILE_VARIABLE, help=f"File with the token of the clients; or set {TOKEN_VARIABLE} to a token."
        ),
    ] = None,
    tls_certificate: Annotated[Path | None, typer.Option(help="File of the TLS certificate and its chain.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="File of the certificate's private key.")] = None,
    max_boxes: Annotated[int, typer.Option(min=1, help="Most sandboxes at one time.")] = 256,
    max_boxes_per_client: Annotated[
        int | None, typer.Option(min=1, help="Most sandboxes of one client; by default as --max-boxes.")
    ] = None,
    max_clients: Annotated[int, typer.Option(min=1, help="Most clients at one time.")] = 64,
    max_client_bytes: Annotated[
        int, typer.Option(min=1024 * 1024, help="Most bytes of requests of one client in progress.")
    ] = 1024 * 1024 * 1024,
    readonly: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of this machine that sandboxes may show read-only; repeatable, by default none."),
    ] = None,
    grace_seconds: Annotated[
        float, typer.Option(min=0.0, help="Seconds for which sandboxes stay when their client's connection is lost.")
    ] = 5.0,
) -> None:
    """Run sandboxes on this machine for Ludus servers on others, until SIGTERM or SIGINT.

    A server uses it with `SandboxSettings(provider="sandboxd")`, the address in LUDUS_SANDBOXD, and the same token.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_RecordFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    limits = HostLimits(
        max_clients, max_boxes, max_boxes_per_client or max_boxes, max_client_bytes,
        tuple(os.path.realpath(path) for path in readonly or ()),
    )  # fmt: skip
    token = read_token(token_file)
    check_binding(host, token)
    asyncio.run(_serve(provider, token, limits, grace_seconds, host, port, _tls(tls_certificate, tls_key)))


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise SandboxdError("TLS needs both --tls-certificate and --tls-key")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise SandboxdError(f"the certificate {certificate} with the key {key} cannot be used: {error}") from None
    return context


async def _serve(
    name: str, token: str | None, limits: HostLimits, grace: float, host: str, port: int, tls: ssl.SSLContext | None
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if name == "sandboxd":
        raise SandboxdError("sandboxd cannot use itself as its backend: choose bubblewrap, docker or unsafe-local")
    provider = find_provider(name)
    await provider.open()
    daemon = Daemon(provider, token=token, limits=limits, grace=grace)
    async with serving_sandboxes(daemon, host=host, port=port, tls=tls) as address:
        typer.echo(f"{name} sandboxes at {address}")
        await stop.wait()
