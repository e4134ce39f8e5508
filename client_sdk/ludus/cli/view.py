"""`ludus view`: look at recorded episodes, in the terminal or as an HTML page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from ludus.cli.common import console, errors, shown
from ludus.viewing.html import write_page
from ludus.viewing.reading import Selection, Totals, ViewedEpisode, read_lines
from ludus.viewing.terminal import print_episode, print_list

COMMANDS: Final = {"view": "Look at recorded episodes, in the terminal or as an HTML page."}
LISTED: Final = 50
"""How many episodes the terminal lists by default."""
ON_A_PAGE: Final = 1_000
"""How many episodes a page holds by default."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("view")(view)


def view(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Trajectories of `ludus run --out`, a training run's rollouts.jsonl, or results of `ludus eval`.",
        ),
    ],
    html: Annotated[Path | None, typer.Option("--html", help="Write a self-contained page into this file.")] = None,
    episode: Annotated[
        str | None, typer.Option("--episode", help="Show one episode in full: its line in the file, or its id.")
    ] = None,
    task: Annotated[str | None, typer.Option("--task", help="Only this task; * stands for any characters.")] = None,
    reward_below: Annotated[
        float | None, typer.Option("--reward-below", help="Only episodes with a reward less than this.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only episodes that failed or are unscored.")] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help=f"How many to show; {LISTED} in the terminal, {ON_A_PAGE} on a page."),
    ] = None,
) -> None:
    """Look at recorded episodes: rewards, end reasons, and each turn with its calls and answers.

    For the results of an evaluation it shows their tables. Exits with 1 when lines of the file are broken; all others
    are shown.
    """
    if _is_evaluation(file):
        _show_evaluation(file, html)
        return
    selection = Selection(task=task, reward_below=reward_below, failed=failed, episode=episode)
    if html is not None:
        title = f"Episodes of {file.name}"
        totals = write_page(read_lines(file), html, title=title, selection=selection, limit=limit or ON_A_PAGE)
        count = min(totals.chosen, limit or ON_A_PAGE)
        console.print(shown(f"{html}: {count:,} of {totals.episodes:,} episodes"), soft_wrap=True)
    else:
        totals = _print(file, selection, limit or LISTED)
    for line in totals.broken[:20]:
        errors.print(shown(f"{file}, line {line.number}: {line.problem}"), soft_wrap=True)
    if totals.broken_count > 20:
        errors.print(shown(f"{file}: {totals.broken_count - 20:,} more broken lines"), soft_wrap=True)
    if totals.broken_count or (episode is not None and not totals.chosen):
        raise typer.Exit(1)


def _is_evaluation(path: Path) -> bool:
    """Return whether a path is a folder, or a file that begins like the results of `ludus eval`."""
    if path.is_dir():
        return True
    with path.open("rb") as file:
        return re.match(rb'\s*{\s*"format"\s*:\s*"ludus\.evaluation/', file.read(200)) is not None


def _show_evaluation(path: Path, html: Path | None) -> None:
    from ludus.cli.evaluation_tables import show_results
    from ludus.evaluation.folder import read_results
    from ludus.viewing.evaluation import write_evaluation_page

    results = read_results(path)
    if html is None:
        show_results(results)
    else:
        write_evaluation_page(results, html)
        console.print(shown(f"{html}: {len(results.cells)} cells"), soft_wrap=True)
    for problem in results.problems():
        errors.print(shown(problem), soft_wrap=True)


def _print(file: Path, selection: Selection, limit: int) -> Totals:
    totals, kept = Totals(), list[ViewedEpisode]()
    for viewed in read_lines(file):
        if totals.count(viewed, selection) and len(kept) < limit and isinstance(viewed, ViewedEpisode):
            kept.append(viewed)
    if selection.episode is not None:
        for viewed in kept:
            print_episode(console, viewed)
        if not kept:
            errors.print(shown(f"{file} has no episode {selection.episode!r} that matches"), soft_wrap=True)
        return totals
    print_list(console, kept)
    console.print(shown(" · ".join(totals.facts(len(kept))), "dim"), soft_wrap=True)
    if kept:
        errors.print(shown(f"ludus view {file} --episode {kept[0].number}  shows one in full", "dim"), soft_wrap=True)
    return totals
