"""A progress bar for rollouts."""

from __future__ import annotations

import sys
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from ludus.client import Progress


class ProgressBar:
    """`with ProgressBar() as bar: rollout(…, on_progress=bar)`: a bar on a terminal, nothing elsewhere."""

    def __init__(self, file: TextIO | None = None) -> None:
        console = Console(file=file or sys.stderr)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("playing", total=None)

    def __call__(self, progress: Progress) -> None:
        """Show the progress of the rollout."""
        mean = "" if progress.mean is None else f", mean reward {progress.mean:.3f}"
        failed = f", {progress.failed} failed" if progress.failed else ""
        self._bar.update(
            self._task, completed=progress.done, total=progress.total, description=f"playing{mean}{failed}"
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
