"""Helpers that the commands that play tasks share: options, limits of the agent loop, trajectory files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ludus.cli.app import ExitCode
from ludus.cli.common import errors, is_local, shown
from ludus.client import Harness, Policy, Summary, TrajectoryWriter
from ludus.protocol import errors as e
from ludus.protocol.episodes import EnvironmentInfo
from ludus.validation.core.oracle import DemonstratorPolicy, OraclePolicy

__all__ = [
    "EpisodeSeconds",
    "MaxTurns",
    "Out",
    "Overwrite",
    "TurnSeconds",
    "interruptible",
    "interval_text",
    "print_out",
    "source_of_target",
    "writer_of",
]


Source = Annotated[
    str | None,
    typer.Option("--source", help="The environment's class (module:Class or file.py:Class), for its oracle."),
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


def source_of_target(target: str) -> str | None:
    """Return the class of a command's target, for its oracle; None for the address of a server."""
    from ludus.validation.core.local_environments import source_of

    return source_of(target) if is_local(target) else None


def check_policy(policy: Policy, environment: str) -> None:
    """Check before the first episode for a problem that would make every episode fail.

    Raises:
        EnvironmentNotFound, AuthoringError: the oracle's environment cannot be imported here.
    """
    if isinstance(policy, (OraclePolicy, DemonstratorPolicy)):
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
