"""`ludus box`: a harness that runs an agent in a sandbox, where only its model and its episode are reachable."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import BaseModel, ConfigDict, ValidationError

from ludus.cli._relay import HOST, Relay
from ludus.cli.common import run
from ludus.protocol.harness import HarnessExit
from ludus.protocol.text import printable
from ludus.sandbox import (
    Limits,
    RunResult,
    Sandbox,
    SandboxFailed,
    SandboxSettings,
    SandboxUnavailable,
    SandboxUnsupported,
    find_provider,
)

COMMANDS: Final = {"box": "Run an agent in a sandbox, as a harness of `ludus train`."}

_MIB: Final = 2**20
_TASK_BYTES: Final = 64 * _MIB
_SHOWN_OUTPUT: Final = 64 * 1024
_PASSED: Final = ("LUDUS_MODEL", "LUDUS_PROMPT", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")
"""The variables of a harness that the agent gets unchanged. Its addresses are those of the relay."""
_OWN_FOLDERS: Final = ("/tmp", "/box", "/proc", "/dev")
_PARENT_DEATH_SIGNAL: Final = 1


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("box", context_settings={"allow_interspersed_args": False})(box)


def box(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND…", help="The agent and its arguments.")],
    show: Annotated[
        list[str] | None,
        typer.Option(
            "--show", metavar="PATH[:INSIDE]", help="What the agent sees, read-only, such as its venv. Repeatable."
        ),
    ] = None,
    provider: Annotated[str, typer.Option("--provider", help="Kind of sandbox: bubblewrap or docker.")] = "bubblewrap",
    image: Annotated[str | None, typer.Option("--image", help="Container image, for docker.")] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="Most seconds of the agent.", min=0.1)] = 3600.0,
    memory: Annotated[int, typer.Option("--memory", help="Most memory, in MiB.", min=16)] = 2048,
    processes: Annotated[int, typer.Option("--processes", help="Most processes and threads.", min=1)] = 128,
    disk: Annotated[int, typer.Option("--disk", help="Most bytes of files, in MiB.", min=1)] = 512,
    output: Annotated[int, typer.Option("--output", help="Most output that is kept, in MiB.", min=1)] = 16,
    traffic: Annotated[int, typer.Option("--traffic", help="Most bytes to and from servers, in MiB.", min=1)] = 8192,
    env: Annotated[
        list[str] | None, typer.Option("--env", help="Variable that the agent gets, NAME or NAME=VALUE. Repeatable.")
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", help="Host, such as *.example.org, that it may ask for in vain. Repeatable."),
    ] = None,
) -> None:
    """Run an agent in a sandbox, as a harness: rollouts.harness = "command ludus box --show VENV -- AGENT".

    Reads the harness's JSON object on its input, and gives it to the agent with the same variables. The agent reaches
    the policy gateway and its episode, and nothing else. Ends with the agent's exit code, or with 120 if it asked for
    another destination, 121 if a limit ended it, 122 if the sandbox was lost; the last line names the reason.

    [bold]ludus box --show ~/agent-venv -- python -m my_agent[/bold]
    """
    _end_with_parent()
    limits = Limits(
        seconds=seconds, cpu_seconds=seconds * (os.cpu_count() or 1), memory=memory * _MIB, processes=processes,
        file_size=disk * _MIB, disk=disk * _MIB, output=output * _MIB, traffic=traffic * _MIB,
    )  # fmt: skip
    agent = Agent(command, _task(), _variables(env or ()), tuple(ignore or ()), limits)
    settings = SandboxSettings(
        provider=provider, image=image, limits=limits, readonly=tuple(_shown(show or ())), warm=0
    )
    try:
        code, line = run(agent.run(settings))
    except (SandboxFailed, SandboxUnavailable, SandboxUnsupported) as error:
        code, line = HarnessExit.SANDBOX, f"the agent has no sandbox: {error.message}"
    if line:
        typer.echo(printable(" ".join(line.split()))[:900], err=True)
    raise typer.Exit(code)


class HarnessInput(BaseModel):
    """The JSON object that a harness reads, as far as `ludus box` uses it; the agent gets all of it."""

    model_config = ConfigDict(extra="allow")

    play_url: str
    openai_base_url: str
    anthropic_base_url: str


@dataclass(frozen=True, slots=True)
class Agent:
    """A command that plays an episode in a sandbox.

    Args:
        command: the program and its arguments.
        task: the object of the harness.
        variables: further environment variables.
        ignored: patterns of hosts whose refusal is no end.
        limits: the limits of the sandbox.
    """

    command: list[str]
    task: HarnessInput
    variables: Mapping[str, str]
    ignored: tuple[str, ...]
    limits: Limits

    async def run(self, settings: SandboxSettings) -> tuple[int, str]:
        """Run the agent until it ends. Return the exit code and the sentence for it, "" if the agent just ended.

        Raises:
            SandboxUnavailable, SandboxUnsupported, SandboxFailed: see `SandboxProvider`.
        """
        async with AsyncExitStack() as stack:
            relay = await stack.enter_async_context(Relay(self.task.anthropic_base_url, self.task.play_url))
            provider = find_provider(settings.provider)
            stack.push_async_callback(provider.aclose)
            await provider.open()
            allowed = settings.model_copy(update={"network": (f"{HOST}:{relay.port}",)})
            sandbox = await stack.enter_async_context(await provider.create(allowed))
            result = await self._run_in(sandbox, relay)
            _write_output(result)
            return self._end_of(result, relay)

    async def _run_in(self, sandbox: Sandbox, relay: Relay) -> RunResult:
        own = {
            "play_url": relay.play_url,
            "openai_base_url": f"{relay.model_url}/v1",
            "anthropic_base_url": relay.model_url,
        }
        variables = {
            "LUDUS_PLAY_URL": relay.play_url,
            "OPENAI_BASE_URL": own["openai_base_url"],
            "ANTHROPIC_BASE_URL": own["anthropic_base_url"],
            "NODE_USE_ENV_PROXY": "1",
        }
        if folders := _programs(sandbox.settings):
            usual = (await sandbox.run(["printenv", "PATH"])).text.strip()
            variables["PATH"] = ":".join([*folders, usual])
        line = json.dumps({**self.task.model_dump(), **own}).encode() + b"\n"
        return await sandbox.run(self.command, stdin=line, env={**variables, **self.variables})

    def _end_of(self, result: RunResult, relay: Relay) -> tuple[int, str]:
        asked = [use.target for use in result.refused if not self._may_ask(use.target)]
        if asked:
            names = ", ".join(dict.fromkeys(asked[:3]))
            return HarnessExit.NETWORK, f"the agent called {names}, which is neither the policy gateway nor the episode"
        if relay.refused:
            return HarnessExit.NETWORK, f"the agent asked its servers for {relay.refused[0]!r}, which is not its own"
        if result.limit == "output":  # the rest of its output was dropped, and the agent went on
            if result.seconds >= self.limits.seconds:
                return HarnessExit.LIMIT, "the agent was ended by its limit on seconds of its sandbox"
        elif result.limit is not None:
            return HarnessExit.LIMIT, f"the agent was {result.ending} of its sandbox"
        if result.signal is not None:
            return 128 + result.signal, f"the agent was {result.ending}"
        code = result.exit_code or 0
        if code in set(HarnessExit):  # these say what the sandbox has observed, and an agent cannot claim it
            return 1, f"the agent ended with exit code {code}"
        return code, ""

    def _may_ask(self, target: str) -> bool:
        host = target.rpartition(":")[0]
        return target == "any host" or any(fnmatchcase(host, pattern.lower()) for pattern in self.ignored)


def _task() -> HarnessInput:
    """Return the object on standard input.

    Raises:
        BadParameter: there is none.
    """
    what = (
        "`ludus box` is a harness: it needs one line of JSON on its input, with play_url, openai_base_url and "
        'anthropic_base_url, which `ludus train --rollouts.harness="command ludus box …"` gives it'
    )
    if sys.stdin.isatty():
        raise typer.BadParameter(what)
    try:
        return HarnessInput.model_validate_json(sys.stdin.buffer.readline(_TASK_BYTES))
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        place = " ".join([*map(str, found["loc"]), found["msg"]])
        raise typer.BadParameter(f"{what}; it got something else: {place}") from None


def _variables(given: Sequence[str]) -> dict[str, str]:
    """Return the variables that the agent gets.

    Raises:
        BadParameter: a variable is named, and not set here.
    """
    found = {name: os.environ[name] for name in _PASSED if name in os.environ}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals and name not in os.environ:
            raise typer.BadParameter(
                f"--env {name}: it is not set; a trainer passes on the variables in `rollouts.harness_variables`"
            )
        found[name] = value if equals else os.environ[name]
    return found


def _shown(paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what to show of this machine: paths, what they lead to, and the Python of a virtual environment.

    Raises:
        BadParameter: there is no such path, or the sandbox has a folder of its own there.
    """
    for path in paths:
        here, _, inside = path.partition(":")
        place = Path(os.path.abspath(Path(here).expanduser()))
        if not place.exists():
            raise typer.BadParameter(f"--show {path}: there is no such file or folder")
        real = place.resolve()
        for shown in [Path(inside)] if inside else dict.fromkeys((place, real)):
            if not shown.is_absolute() or any(shown.is_relative_to(own) for own in _OWN_FOLDERS):
                raise typer.BadParameter(
                    f"--show {path}: {shown} cannot be shown, since the sandbox has folders of its own "
                    f"at {' and '.join(_OWN_FOLDERS)}; choose another with --show {here}:/opt/{place.name}"
                )
            yield str(real), str(shown)
        settings = real / "pyvenv.cfg"
        if settings.is_file():
            yield from ((base, base) for base in _bases(settings))


def _bases(settings: Path) -> Iterator[str]:
    """Yield the folders of the Python that a virtual environment is made from, unless a sandbox has them already."""
    for line in settings.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home" and value.strip():
            base = Path(value.strip()).parent
            for folder in dict.fromkeys((base, base.resolve())):
                if folder != Path(sys.base_prefix).resolve() and not folder.is_relative_to("/usr"):
                    yield str(folder)


def _programs(settings: SandboxSettings) -> list[str]:
    """Return the folders of programs in what is shown."""
    return [f"{inside}/bin" for outside, inside in settings.readonly if os.path.isdir(f"{outside}/bin")]


def _write_output(result: RunResult) -> None:
    """Pass on the end of what the agent printed."""
    for data in (result.stdout, result.stderr):
        if data:
            text = data[-_SHOWN_OUTPUT:].decode(errors="replace")
            typer.echo(text, err=True, nl=not text.endswith("\n"))


def _end_with_parent() -> None:
    """Ask the kernel to end this process when the thread that started it ends, so that kill -9 of a trainer does."""
    parent = os.getppid()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        raise typer.Exit(128 + signal.SIGTERM)
