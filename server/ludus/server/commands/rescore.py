"""The commands `ludus rescore` and `ludus checklist`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from ludus.server.hosting.rescoring import Summary

COMMANDS: Final = {
    "rescore": "Score stored trajectories again, with today's rubric.",
    "checklist": "Check a checklist file.",
}
"""One line of help for each command; the command line reads them without importing this module."""


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("rescore")(rescore_command)
    app.command("checklist")(checklist_command)


def rescore_command(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Trajectories (JSON lines).")],
    env: Annotated[
        list[str] | None,
        typer.Option("--env", help="module:Class or file.py:Class of an environment that has no name; repeatable."),
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay/--no-replay", help="Make the calls again, or apply the rubric to what is stored.")
    ] = True,
    noise: Annotated[
        list[str] | None, typer.Option("--noise", help="The noise that they were played with; as for `ludus serve`.")
    ] = None,
    unscored: Annotated[bool, typer.Option("--unscored", help="Only those that have no reward's value yet.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write them there, with today's rewards.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 when anything changed.")] = False,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Trajectories at once.")] = 16,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score stored trajectories again, with today's rubric, and show what changed.

    Exits with 1 when a trajectory could not be scored again or its replay came out differently.
    """
    from ludus.server.hosting.rescoring import classes_for, read_stored, rescore
    from ludus.server.tasks.loading import load_environments
    from ludus.server.tasks.noisy import all_with_noise

    if out is not None and out.exists():
        raise typer.BadParameter(f"{out} exists; name another file", param_hint="--out")
    stored = list(read_stored(file))
    chosen = [episode for episode in stored if not unscored or episode.reward is None or episode.reward.value is None]
    classes = all_with_noise(classes_for(chosen, load_environments(env or [])), noise or ())
    summary = asyncio.run(rescore(chosen, classes, replay=replay, concurrency=concurrency)) if chosen else None
    if out is not None:
        new = {rescored.stored.line: rescored.record() for rescored in summary.rescored} if summary else {}
        lines = [json.dumps(new.get(episode.line, episode.raw), ensure_ascii=False) + "\n" for episode in stored]
        out.write_text("".join(lines), encoding="utf-8")
    if summary is None:
        typer.echo(json.dumps({"trajectories": 0}) if as_json else "There is nothing to score again.")
        return
    if as_json:
        typer.echo(json.dumps(summary.json(), ensure_ascii=False))
    else:
        _show(summary, len(chosen) - len(summary.rescored))
    if summary.problems or (check and summary.changed):
        raise typer.Exit(1)


def checklist_command(
    file: Annotated[Path, typer.Argument(help="A .json or .toml file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a checklist file: each mistake with its line. Imports the modules that it names.

    Exits with 1 when it has errors.
    """
    import sys

    from ludus.server.rewards.checklist import lint_checklist

    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    problems = lint_checklist(file)
    if as_json:
        entries = [{"line": p.line, "severity": p.severity, "item": p.item, "message": p.message} for p in problems]
        typer.echo(json.dumps({"file": str(file), "problems": entries}, ensure_ascii=False))
    else:
        for problem in problems:
            typer.echo(f"{file}:{problem.line}: {problem.severity}: {problem.message}")
        if not problems:
            typer.echo(f"{file}: nothing is wrong")
    if any(problem.severity == "error" for problem in problems):
        raise typer.Exit(1)


def _show(summary: Summary, left_out: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    totals = summary.json()
    console.print(
        f"{totals['trajectories']} trajectories scored again, {totals['changed']} changed; "
        f"mean {_number(totals['mean']['before'])} → {_number(totals['mean']['now'])}; "
        f"unscored {totals['unscored']['before']} → {totals['unscored']['now']}"
        + (f"; {left_out} failed ones left out" if left_out else "")
    )
    if summary.changed:
        table = Table("trajectory", "before", "now", "what changed")
        for rescored in summary.changed[:50]:
            parts = ", ".join(f"{name} {_number(a)} → {_number(b)}" for name, (a, b) in rescored.components().items())
            cause = rescored.new.reason if rescored.new is not None and rescored.now is None else ""
            line = Text("; ".join(filter(None, (parts, cause))))
            table.add_row(Text(rescored.stored.name), _number(rescored.before), _number(rescored.now), line)
        console.print(table)
    for problem in summary.problems:
        cause = problem.problem or f"step {problem.diverged} shows something else than it did"
        console.print(Text(f"{problem.stored.name} (line {problem.stored.line}): {cause}"))


def _number(value: Any) -> str:
    return "unscored" if value is None else f"{value:.4g}"
