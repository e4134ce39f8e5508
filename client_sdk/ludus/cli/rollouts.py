"""`ludus rollouts serve`: episodes over HTTP for trainers that cannot import Ludus."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ludus.cli.common import errors, parse_pairs, shown
from ludus.protocol.errors import AuthoringError

if TYPE_CHECKING:
    from ludus.gateway.service import ServiceSettings

COMMANDS: Final = {"rollouts": "Serve trajectories as tokens to trainers that cannot import Ludus."}

group = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group, name="rollouts", help=COMMANDS["rollouts"])


@group.command("serve")
def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; any address except loopback needs tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8100,
    token_file: Annotated[
        Path | None, typer.Option(help="File of tokens for callers; see `ludus token create`.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes that play episodes.")] = 1,
    concurrency: Annotated[int, typer.Option(min=1, help="Most episodes at the same time, over all jobs.")] = 64,
    max_jobs: Annotated[int, typer.Option(min=1, help="Most jobs that are kept.")] = 64,
    keep_seconds: Annotated[
        float, typer.Option(min=1, help="Seconds for which a job is kept without a reader.")
    ] = 3600.0,
    spool_bytes: Annotated[
        int, typer.Option(min=1, help="Most bytes of lines that are kept of a job after they were sent.")
    ] = 1024 * 1024 * 1024,
    spool_folder: Annotated[
        Path | None, typer.Option(help="Folder for lines; a temporary one by default.", show_default=False)
    ] = None,
    drain_seconds: Annotated[
        float, typer.Option(min=0, help="Seconds for which episodes may go on when the service stops.")
    ] = 30.0,
    worker_seconds: Annotated[
        float, typer.Option(min=1, help="Seconds for which a worker may hang before it is replaced.")
    ] = 60.0,
    template_seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds that a caller's chat template may take to render a conversation.")
    ] = 5.0,
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder or name of the tokenizer of requests that name none.")
    ] = None,
    harness: Annotated[
        list[str] | None,
        typer.Option(help="Harness that requests may name: NAME='command PROGRAM …' or 'worker …'; repeatable."),
    ] = None,
    any_harness: Annotated[
        bool, typer.Option("--any-harness", help="Run any program that a request names; callers are then trusted.")
    ] = False,
) -> None:
    """Play episodes for trainers that ask over HTTP, and stream trajectories with the exact tokens.

    Ends on Ctrl-C or SIGTERM, after the episodes that run; a second signal cancels them.

    [bold]ludus rollouts serve --tokenizer ./my-model --workers 4[/bold]
    """
    from ludus.gateway.harness import HarnessFailed, make_harness
    from ludus.gateway.service import ServiceSettings
    from ludus.gateway.service.processes import become_subreaper

    harnesses = parse_pairs("--harness", harness or (), "NAME=COMMAND")
    for name, text in harnesses.items():
        try:
            make_harness(text)
        except HarnessFailed as error:
            raise typer.BadParameter(f"--harness {name}: {error}") from None
    settings = ServiceSettings(
        host, port, token_file, workers, concurrency, max_jobs, keep_seconds, spool_bytes, spool_folder,
        drain_seconds, worker_seconds, template_seconds, tokenizer, harnesses, any_harness,
    )  # fmt: skip
    become_subreaper()
    asyncio.run(_serve(settings))


@group.command("schema")
def schema() -> None:
    """Print the JSON Schema of requests and lines."""
    from ludus.gateway.service import json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")


async def _serve(settings: ServiceSettings) -> None:
    """Serve until a signal arrives. The second one cancels what still runs."""
    from ludus.gateway.service import RolloutService
    from ludus.gateway.service.pool import WorkerNotStarted

    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    service = RolloutService(settings)

    def on_signal() -> None:
        if stop.is_set():
            service.hurry.set()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        async with service:
            errors.print(shown(f"The rollout service listens at {service.url}"), soft_wrap=True)
            await stop.wait()
            errors.print("The rollout service stops when its episodes have ended; a second signal cancels them.")
    except WorkerNotStarted as error:
        raise AuthoringError(f"the rollout service cannot start: {error}") from None
