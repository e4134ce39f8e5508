"""Recorded episodes as training data: reading files, and saying what was left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from ludus.cli.common import console, shown
from ludus.client import read_trajectories
from ludus.client.demonstrations import Report, latest_of_each_policy
from ludus.protocol.errors import ParseError
from ludus.protocol.trajectory import Trajectory

__all__ = ["print_report", "stored_episodes"]


def stored_episodes(paths: Sequence[Path], option: str) -> Iterator[Trajectory]:
    """Yield the last trajectory of each episode and policy of some files, and print how many others are left out.

    Args:
        paths: the files.
        option: what needs them, for messages.

    Raises:
        BadParameter: there is no such file, or it holds something else.
    """

    def everything() -> Iterator[Trajectory]:
        for path in paths:
            try:
                yield from read_trajectories(path)
            except OSError as error:
                raise typer.BadParameter(f"{option} needs a file of trajectories: {path}: {error.strerror}") from None
            except ParseError as error:
                raise typer.BadParameter(error.message) from None

    kept, hidden = latest_of_each_policy(everything())
    if hidden:
        note = (
            f"note: {hidden:,} scored episodes are left out, because later ones have the same policy, task and number"
        )
        console.print(shown(note), soft_wrap=True)
    yield from kept


def print_report(report: Report) -> None:
    """Print what was left out, and a note if better completions of pairs are mostly longer or shorter."""
    if report.left_out:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.left_out.most_common())
        flag = " (`ludus demos --held-out` keeps them)" if report.left_out["held-out split"] else ""
        console.print(shown(f"left out: {reasons}{flag}"), soft_wrap=True)
    if report.length_bias is not None:
        console.print(shown(f"note: {report.length_bias}"), soft_wrap=True)
