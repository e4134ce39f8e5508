"""The command `ludus hub`, and those below it. Without the name of one, it runs a hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer
import typer.core

from ludus.hub.commands.blocking import block, list_blocks, unblock
from ludus.hub.commands.operation import backup, check, restore
from ludus.hub.commands.options import DATA, BlobsUrl, Data, DatabaseUrl
from ludus.server.auth.tokens import TOKEN_FILE_VARIABLE

COMMANDS: Final = {"hub": "Run a hub: publish, find and install environments."}
"""One line of help for each command, as a literal that the command line reads without importing this module."""


class _Group(typer.core.TyperGroup):
    """Commands of which `run` is meant where none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Put `run` in front of arguments that name no command."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


hub_group = typer.Typer(cls=_Group, rich_markup_mode="rich")


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    from ludus.hub.commands.people import accounts

    hub_group.add_typer(accounts, name="accounts")
    app.add_typer(hub_group, name="hub", help=COMMANDS["hub"])


def verify(
    receipt: Annotated[Path, typer.Argument(metavar="RECEIPT", help="File with the receipt of a run.")],
    rows: Annotated[
        Path | None, typer.Option("--rows", metavar="FILE", help="File with the rows, in place of the receipt's own.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="The hub's public key, as you know it (ed25519:…).")] = None,
) -> None:
    """Check a receipt of a played run without the hub, and say what it proves.

    [bold]curl -o receipt.json https://hub.example.org/api/v1/runs/RUN/receipt[/bold]
    [bold]ludus hub verify receipt.json --key ed25519:…[/bold]
    """
    from ludus.registry.results import read_receipt, read_rows
    from ludus.registry.types.receipts import describe_receipt, verify_receipt

    found = read_receipt(receipt)
    verify_receipt(found, found.episodes if rows is None else read_rows(rows), key)
    for line in describe_receipt(found, key_is_known=key is not None):
        typer.echo(line)


hub_group.command("backup")(backup)
hub_group.command("restore")(restore)
hub_group.command("check")(check)
hub_group.command("verify")(verify)
hub_group.command("block")(block)
hub_group.command("unblock")(unblock)
hub_group.command("blocks")(list_blocks)


@hub_group.command("run")
def hub(
    host: Annotated[str, typer.Option(help="Address to listen on; others than loopback need accounts.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8400,
    data: Data = DATA,
    database: DatabaseUrl = None,
    blobs: BlobsUrl = None,
    public_url: Annotated[
        str | None, typer.Option(envvar="LUDUS_PUBLIC_URL", help="Address that clients use when a proxy forwards.")
    ] = None,
    peer_url: Annotated[
        str | None,
        typer.Option(envvar="LUDUS_HUB_PEER_URL", help="Address at which other hubs on the same database reach it."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(envvar=TOKEN_FILE_VARIABLE, help="Operator's tokens; their names are owners (`ludus token`)."),
    ] = None,
    allow_host: Annotated[list[str] | None, typer.Option(help="Additional Host name to accept; repeatable.")] = None,
    registration: Annotated[
        str,
        typer.Option(envvar="LUDUS_HUB_REGISTRATION", help="Who may register: closed, invite or open."),
    ] = "closed",
    openid: Annotated[
        Path | None,
        typer.Option(envvar="LUDUS_HUB_OPENID", metavar="FILE", help="TOML file of an OpenID provider."),
    ] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="How many requests to answer, such as token_minute=6000; repeatable."),
    ] = None,
    seed: Annotated[bool, typer.Option("--seed/--no-seed", help="Publish the built-in library at startup.")] = True,
    settings_file: Annotated[
        Path | None,
        typer.Option("--settings", envvar="LUDUS_HUB_SETTINGS", metavar="FILE",
                     help="TOML file with all limits, and the settings of endpoints."),
    ] = None,
    endpoints: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file with the settings of endpoints.")
    ] = None,
    unsafe_own_packages: Annotated[
        bool,
        typer.Option(
            "--unsafe-own-packages",
            help="Run packages without a sandbox, with the rights of the hub. Only if all of them are your own.",
        ),
    ] = False,
    log_format: Annotated[str, typer.Option(envvar="LUDUS_LOG_FORMAT", help="console or json.")] = "console",
    log_level: Annotated[str, typer.Option(envvar="LUDUS_LOG_LEVEL", help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:  # fmt: skip
    """Run a hub, until SIGTERM or SIGINT. With nothing configured it has the built-in library and serves this machine.

    [bold]ludus hub[/bold]
    [bold]ludus hub accounts create alice --admin[/bold]
    [bold]ludus hub --host 0.0.0.0 --database postgresql://ludus@db/hub[/bold]
    """
    from pydantic import ValidationError

    from ludus.hub.settings.endpoints import read_settings
    from ludus.hub.settings.file import read_settings_file
    from ludus.hub.settings.hub import HubSettings
    from ludus.hub.settings.openid import read_openid
    from ludus.protocol.messages import describe_invalid

    file = read_settings_file(settings_file)
    if endpoints is not None and file.endpoints is not None:
        raise typer.BadParameter(f"--endpoints: {settings_file} has the table 'endpoints', too; keep one of them")
    given: dict[str, Any] = {
        "host": host, "port": port, "data": data, "database_url": database, "blobs": blobs, "public_url": public_url,
        "peer_url": peer_url,
        "token_file": token_file, "allow_hosts": tuple(allow_host or ()), "seed": seed,
        "limits": file.uploads, "results": file.results,
        "people": {"registration": registration, "rates": {**dict(file.rates), **dict(map(_pair, rate or ()))}},
    }  # fmt: skip
    given["openid"] = read_openid(openid)
    runs = file.endpoints or read_settings(endpoints)
    given["endpoints"] = runs.model_copy(update={"unsafe_own_packages": True}) if unsafe_own_packages else runs
    try:
        settings = HubSettings(**given)
    except ValidationError as error:
        first: Any = error.errors(include_url=False)[0]
        loc = first["loc"] or ("database",)
        place = f"rate {loc[-1]}" if "rates" in loc else str(loc[-1]).replace("_url", "").replace("_", "-")
        raise typer.BadParameter(f"--{place}: {describe_invalid(first)}") from None
    if log_format not in ("console", "json"):
        raise typer.BadParameter(f"--log-format: {log_format!r} is not one of 'console' or 'json'")
    if log_level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise typer.BadParameter(f"--log-level: {log_level!r} is not one of DEBUG, INFO, WARNING, ERROR")
    from ludus.hub.serve import run

    raise typer.Exit(run(settings, log_format, log_level.upper()))  # type: ignore[arg-type]


def _pair(text: str) -> tuple[str, str]:
    from ludus.hub.core.rates import RateSettings

    name, separator, number = text.partition("=")
    if not separator:
        raise typer.BadParameter(f"--rate: {text!r} is not NAME=NUMBER, such as token_minute=6000")
    if name not in RateSettings.model_fields:
        raise typer.BadParameter(f"--rate: there is no rate {name!r}; there are {', '.join(RateSettings.model_fields)}")
    return name, number
