"""The commands of the trainer: `ludus train`, and `ludus doctor` from `ludus.trainer.doctor`."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ludus.protocol.text import printable
from ludus.trainer.core.errors import ConfigError, DidNotLearn, TrainerError

if TYPE_CHECKING:
    from ludus.client.mix import MixFile

COMMANDS: Final = {
    "train": "Train a policy with GRPO on environments that are served.",
    "doctor": "Check that training works on this machine.",
}
"""One line of help per command. The command line reads it without importing this module."""
BRIEF_SPINS: Final = {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "10000"}
"""Variables that make torch's idle threads spin for tens of microseconds and then sleep, unless the environment sets
them. By default the threads spin for milliseconds, which takes the CPU from the environment and from the engine.
Threads that sleep at once (PASSIVE) wake too slowly for small models: a step takes a third longer."""
WHERE_SERVED: Final = "http://127.0.0.1:8000"
"""The address that `--print-config` prints for environments that a run would serve at a free port."""


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    from ludus.trainer.doctor.commands import doctor

    app.command("train", context_settings={"ignore_unknown_options": True})(train)
    app.add_typer(doctor, name="doctor")


def train(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CONFIG [--SECTION.KEY=VALUE]...",
            help="The run's TOML file, and values in place of its own, such as --rollouts.group_size=4.",
            show_default=False,
        ),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print every value that would be used, as commented TOML; no run.")
    ] = False,
    mix: Annotated[
        Path | None,
        typer.Option(
            "--mix",
            metavar="FILE",
            help="Learn from the sources of this mix file (`ludus mix`), in place of the environments of CONFIG.",
        ),
    ] = None,
    tiny_from: Annotated[
        list[Path] | None,
        typer.Option(
            "--tiny-from",
            metavar="FILE",
            help="Make a tiny model and its tokenizer from these demonstrations (`ludus demos`), and train it; CONFIG "
            "can be left out. Repeatable with --mix, once for each environment.",
        ),
    ] = None,
    serve: Annotated[
        str | None,
        typer.Option(
            "--serve",
            metavar="TARGET",
            help="Serve this environment during the run: NAME, module:Class or file.py:Class.",
        ),
    ] = None,
) -> None:
    """Train a policy with GRPO on environments that are served.

    [bold]ludus train run.toml[/bold]
    [bold]ludus train run.toml --steps=10 --environments.0.split=easy --model.lora=none[/bold]
    [bold]ludus train --print-config > run.toml[/bold]
    [bold]ludus train --tiny-from games.jsonl --serve my_env.py:MyEnv[/bold]
    [bold]ludus train run.toml --mix mix.toml[/bold]
    """
    from ludus.rendering.errors import RenderingError  # here, because `--help` must work without the extra

    try:
        _train(arguments or [], print_config, tiny_from or [], serve, mix)
    except (TrainerError, RenderingError) as error:
        if os.environ.get("LUDUS_DEBUG"):
            raise
        if isinstance(error, RenderingError):
            error.add_note("model.chat_template sets another template, rollouts.tool_calls the format of tool calls")
        # Under torchrun every rank finds the same error in the configuration; only the first one prints it.
        if not isinstance(error, ConfigError) or os.environ.get("RANK", "0") == "0":
            lines = [f"ludus: {error}", *getattr(error, "__notes__", ())]
            for text in reversed(lines) if isinstance(error, DidNotLearn) else lines:
                typer.echo(printable(text), err=True)
        raise typer.Exit(getattr(error, "exit_code", 1)) from None
    except KeyboardInterrupt:  # before the run's handler was installed, or a second Ctrl-C
        typer.echo("ludus: stopped by SIGINT; what was not saved before is lost", err=True)
        raise typer.Exit(130) from None


def _train(
    arguments: list[str], print_config: bool, tiny_from: list[Path], serve: str | None, mix: Path | None
) -> None:
    from ludus.trainer.core.settings import config_toml, mix_tables, read_config

    files = [argument for argument in arguments if not argument.startswith("-")]
    overrides = [argument for argument in arguments if argument.startswith("-")]
    if len(files) > 1:
        raise ConfigError(
            f"one configuration file is enough, not {', '.join(map(repr, files))}; a value is written --key=value"
        )
    file = Path(files[0]) if files else None
    mixed = None if mix is None else _read_mix(mix, serve)
    if file is None and not print_config and not tiny_from:
        raise ConfigError("which configuration file? `ludus train --print-config` prints one to begin with")
    if print_config and not tiny_from:
        tables = None if mixed is None else mix_tables(mixed, WHERE_SERVED)
        typer.echo(config_toml(read_config(file, overrides, tables)), nl=False)
        return
    targets = [serve] if serve is not None else [] if mixed is None else list(mixed.serve)
    if targets and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            "one process can serve, not several: start `ludus serve`, and set environments.0.url or the mix's url"
        )
    if not BRIEF_SPINS.keys() & os.environ.keys():
        os.environ.update(BRIEF_SPINS)  # torch reads them when it is loaded
    from ludus.trainer.quickstart import Demonstrations, prepare, serving

    demonstrations = Demonstrations.read(tiny_from, mixed=mixed is not None) if tiny_from else None
    remarks = [] if demonstrations is None or demonstrations.remark is None else [demonstrations.remark]
    with ExitStack() as stack:
        served = stack.enter_context(serving(*targets)) if targets else None
        tables = None if mixed is None else mix_tables(mixed, served)
        if serve is not None:
            overrides.insert(0, f"--environments.0.url={served}")
        if demonstrations is None:
            config = read_config(file, overrides, tables)
        else:
            config = prepare(demonstrations, file, overrides, tables)
            demonstrations = None  # many episodes take gigabytes
        if print_config:
            typer.echo(config_toml(config), nl=False)
            return
        from ludus.trainer.train import run

        run(config, remarks)


def _read_mix(path: Path, serve: str | None) -> MixFile:
    from ludus.client.mix import read_mix
    from ludus.protocol.errors import LudusError

    if serve is not None:
        raise ConfigError("--serve and --mix exclude each other: name what to serve under `serve` in the mix file")
    try:
        return read_mix(path)
    except LudusError as error:
        raise ConfigError(f"--mix: {error.message}") from None
