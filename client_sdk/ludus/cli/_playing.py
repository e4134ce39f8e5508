"""Helpers that the commands that play tasks share: options, policies, limits of the agent loop, trajectory files."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Self

import typer

from ludus.cli._app import ExitCode
from ludus.cli._common import errors, is_local, parse_pairs, shown
from ludus.client import Harness, Policy, RandomPolicy, Summary, TrajectoryWriter
from ludus.client.loading import load_object
from ludus.protocol import errors as e
from ludus.protocol.episodes import EnvironmentInfo
from ludus.validation.oracle import OraclePolicy

PolicyName = Annotated[
    str, typer.Option("--policy", "-p", help="random, oracle, openai, module:callable or file.py:callable.")
]
Model = Annotated[str | None, typer.Option("--model", "-m", help="Model, for openai.")]
BaseUrl = Annotated[
    str, typer.Option("--base-url", envvar="OPENAI_BASE_URL", help="Endpoint up to and with /v1, for openai.")
]
ApiKey = Annotated[
    str | None, typer.Option("--api-key", envvar="OPENAI_API_KEY", show_default=False, help="Key, for openai.")
]
Temperature = Annotated[float | None, typer.Option("--temperature", help="For openai.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", help="Per turn, for openai.", min=1)]
RequestOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=JSON", help="Further field of each request, for openai; repeatable."),
]
Source = Annotated[
    str | None,
    typer.Option("--source", help="The environment's class (module:Class or file.py:Class), for oracle."),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="File for the trajectories (JSON lines).")]
Resume = Annotated[bool, typer.Option("--resume", help="Play only what --out does not hold yet.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Overwrite --out.")]
Concurrency = Annotated[int, typer.Option("--concurrency", "-c", help="Episodes at once.", min=1)]
Retries = Annotated[int, typer.Option("--retries", help="Further attempts after infrastructure failures.")]
MaxTurns = Annotated[int, typer.Option("--max-turns", help="Turns of the policy in an episode.", min=1)]
TurnSeconds = Annotated[float | None, typer.Option("--turn-seconds", help="Limit of one turn.")]
EpisodeSeconds = Annotated[float | None, typer.Option("--episode-seconds", help="Limit of one episode.")]

KeepGoing = Annotated[
    bool, typer.Option("--keep-going", help="Play on when every attempt so far left no reward for the same reason.")
]

SAME_ATTEMPTS: Final = 8
"""A run stops early after this many attempts, if all of them left no reward for the same reason."""

SHOWN_CAUSES: Final = 2

DEFAULT_BASE_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """The policy that a command's options select."""

    name: str
    endpoint: dict[str, Any]
    """The arguments of `OpenAIPolicy`."""
    source: str | None
    seed: int

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Make the choice from a command's parameters by name.

        Raises:
            BadParameter: an option is missing or malformed.
        """
        if options["policy"] == "openai" and not options["model"]:
            raise typer.BadParameter("--policy openai needs --model")
        if options["policy"] == "openai":
            _check_endpoint(options["base_url"], options["api_key"])
        fields = {name: options[name] for name in ("temperature", "max_tokens") if options[name] is not None}
        given = parse_pairs("--option", options["option"] or (), "NAME=JSON")
        fields |= {name: value for name, text in given.items() if (value := json_or_text(text)) is not None}
        endpoint = {name: options[name] for name in ("model", "base_url", "api_key")} | {"options": fields}
        return cls(options["policy"], endpoint, options["source"], options["seed"] or 0)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Policy]:
        """Open the policy; its connections are closed when the block is left.

        Raises:
            BadParameter: there is no policy of that name.
            ConnectionFailed: no server listens at the model's endpoint.
        """
        if self.name == "random":
            yield RandomPolicy(self.seed)
        elif self.name == "oracle":
            yield OraclePolicy(self.source)
        elif self.name == "openai":
            from ludus.client.policies.openai import OpenAIPolicy  # aiohttp takes longer to import than all the rest

            async with OpenAIPolicy(**self.endpoint) as model:
                await model.check()
                yield model
        elif ":" in self.name:
            loaded: Any = load_object(self.name)
            chosen: Any = loaded() if inspect.isclass(loaded) else loaded
            yield chosen
        else:
            raise typer.BadParameter(
                f"there is no policy {self.name!r}; choose random, oracle, openai, module:callable or file.py:callable"
            )


def source_of_target(target: str) -> str | None:
    """Return the class of a command's target, for its oracle; None for the address of a server."""
    from ludus.validation.local_environments import source_of

    return source_of(target) if is_local(target) else None


def _check_endpoint(base_url: str, api_key: str | None) -> None:
    """Check the endpoint's address and key.

    Raises:
        BadParameter: no request could succeed with them.
    """
    from ludus.client.policies.openai import OpenAIPolicy

    try:
        OpenAIPolicy("", base_url, api_key)
    except ValueError as error:
        raise typer.BadParameter(f"--base-url {error}") from None
    if base_url.strip().startswith(DEFAULT_BASE_URL) and not api_key:
        raise typer.BadParameter(
            f"{DEFAULT_BASE_URL} needs a key: give --api-key or set OPENAI_API_KEY, or name another endpoint with "
            "--base-url"
        )


def check_policy(policy: Policy, environment: str) -> None:
    """Check before the first episode for a problem that would make every episode fail.

    Raises:
        EnvironmentNotFound, AuthoringError: the oracle's environment cannot be imported here.
    """
    if isinstance(policy, OraclePolicy):
        policy.check(environment)


def print_causes(summary: Summary, out: Path | None, stopped: e.EveryAttemptFailed | None) -> None:
    """Print on stderr why episodes have no reward: the most frequent causes, with counts."""
    missing = summary.episodes - summary.scored
    if missing:
        errors.print(shown(f"{missing} of {summary.episodes} episodes have no reward and count in no mean:"))
    for cause in summary.causes[:SHOWN_CAUSES]:
        kind = cause.kind if cause.kind == "unscored" else f"{cause.kind} failure"
        errors.print(shown(f"  {cause.count} × {kind}: {' '.join(cause.message.split())}"), soft_wrap=True)
    rest = missing - sum(cause.count for cause in summary.causes[:SHOWN_CAUSES])
    where = f"{out} has the cause of each" if out else "--out FILE records the cause of each"
    if missing:
        errors.print(shown(f"  {rest} × something else; {where}" if rest else f"  {where}"), soft_wrap=True)
    if stopped is not None:
        print_stopped_early()


def print_stopped_early() -> None:
    """Print on stderr that a run stopped because of `SAME_ATTEMPTS`."""
    errors.print(shown("stopped early: every attempt failed for the same reason; go on with --keep-going"))


def exit_code(summary: Summary) -> ExitCode:
    """Return exit code 0 if every episode was scored, 1 if some were not, 5 if none was."""
    if summary.episodes and not summary.scored:
        return ExitCode.FAILED
    return ExitCode.OK if summary.scored == summary.episodes else ExitCode.UNSUCCESSFUL


def success_threshold(success_at: float | None, info: EnvironmentInfo | None) -> float:
    """Return the reward that counts as success: the one given, else the environment's greatest, else 1."""
    if success_at is not None:
        return success_at
    return info.reward_range[1] if info is not None and info.reward_range is not None else 1.0


def harness_of(options: Mapping[str, Any]) -> Harness:
    """Return the limits of the agent loop from a command's parameters by name."""
    return Harness(**{name: options[name] for name in ("max_turns", "turn_seconds", "episode_seconds")})


def check_out(out: Path | None, resume: bool, overwrite: bool) -> None:
    """Check that `--resume` and `--overwrite` are given only with `--out`.

    Raises:
        BadParameter: they are given without it.
    """
    if (resume or overwrite) and out is None:
        raise typer.BadParameter("--resume and --overwrite need --out")


@contextmanager
def interruptible(out: Path | None, *, resumable: bool = True) -> Iterator[None]:
    """Print at Ctrl-C what is kept of the run, and exit; open episodes are closed by then.

    Args:
        out: the file of the trajectories.
        resumable: whether the command has the option `--resume`.
    """
    try:
        yield
    except KeyboardInterrupt:
        kept = f"{out} has what was played" if out else "nothing is kept without --out"
        how = ", and --resume goes on from it" if out and resumable else ""
        errors.print(shown(f"interrupted: {kept}{how}"), soft_wrap=True)
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def print_out(out: Path | None) -> None:
    """Print on stderr where the trajectories are."""
    if out is not None:
        errors.print(shown(f"trajectories: {out} (JSON lines)"), soft_wrap=True)


def writer_of(path: Path, overwrite: bool, *, resume: bool | None = None) -> TrajectoryWriter:
    """Open a writer of trajectories, and print on stderr what a resumed file holds.

    Args:
        path: the file.
        overwrite: whether to replace an existing file.
        resume: whether to append to an existing file; None for a command without the option `--resume`.

    Raises:
        BadParameter: the file exists and neither option is set, or the file cannot be written.
    """
    try:
        writer = TrajectoryWriter(path, resume=resume or False, overwrite=overwrite)
    except FileExistsError:
        ways = "--overwrite" if resume is None else "--resume, --overwrite"
        raise typer.BadParameter(f"{path} exists; say {ways} or another --out") from None
    except OSError as error:
        raise typer.BadParameter(f"cannot write {path}: {error.strerror}") from None
    if resume:
        errors.print(shown(f"resuming: {path} has {len(writer.done)} scored episodes, which are not played again"))
    return writer


def interval_text(interval: tuple[float, float] | None, *, percent: bool = False) -> str:
    """Return an interval as `  (95 %: 0.1000 to 0.2000)`; an empty string for None."""
    if interval is None:
        return ""
    low, high = (f"{bound:.1%}" if percent else f"{bound:.4f}" for bound in interval)
    return f"  (95 %: {low} to {high})"


def json_or_text(value: str) -> Any:
    """Parse JSON; a value that is not JSON is text."""
    try:
        return json.loads(value)
    except ValueError:
        return value
