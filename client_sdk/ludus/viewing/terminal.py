"""Episodes in the terminal: a list of many, or one in full."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ludus.protocol.text import printable
from ludus.viewing.conversation import Image, components, entries, reward_text
from ludus.viewing.page import shorten
from ludus.viewing.reading import ViewedEpisode


def print_list(console: Console, episodes: Iterable[ViewedEpisode]) -> None:
    """Print one row per episode: its line in the file, task, reward, end and number of turns."""
    table = Table("#", box=None, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("task", no_wrap=True, overflow="ellipsis")
    for title in ("reward", "end", "turns", "calls"):
        table.add_column(title)
    for viewed in episodes:
        trajectory = viewed.trajectory
        reward = "unscored" if trajectory.value is None else f"{trajectory.value:zg}"
        task = f"{trajectory.environment}/{trajectory.split}/{trajectory.task.id}"
        task += f" #{trajectory.sample}" if trajectory.sample else ""
        table.add_row(
            str(viewed.number),
            _text(task),
            Text(reward, style=_style(trajectory.value)),
            _text(trajectory.outcome),
            str(len(trajectory.turns)),
            str(len(trajectory.steps)),
        )
    console.print(table)


def print_episode(console: Console, viewed: ViewedEpisode) -> None:
    """Print an episode in full: its reward with components, its conversation, and how it ended."""
    trajectory = viewed.trajectory
    title = f"{trajectory.environment}/{trajectory.split}/{trajectory.task.id}  policy {trajectory.policy}"
    console.print(_text(f"line {viewed.number}  {title}", "bold"), soft_wrap=True)
    for entry in entries(trajectory):
        if entry.kind == "turn":
            console.print(_text(f"\nturn {entry.who}", "dim"))
        elif entry.kind == "call":
            console.print(_text(shorten(f"  {entry.shown[0]}"), "cyan"), soft_wrap=True)
        else:
            words = "\n".join("[an image]" if isinstance(part, Image) else part for part in entry.parts)
            remarks = "" if entry.kind == "output" else f"{entry.who}: "
            console.print(_text(shorten(f"  {remarks}{words}").replace("\n", "\n  ")), soft_wrap=True)
        if entry.step is not None:
            step = entry.step
            notes = [step.error] if step.error else []
            notes += [f"noise: {step.noise}"] if step.noise else []
            if step.reward is not None:
                notes.append(f"reward {step.reward.value:zg}" if step.reward.value is not None else "unscored")
            if notes:
                console.print(_text(f"    → {', '.join(notes)}", "dim"), soft_wrap=True)
    console.print(_text(f"\nended: {trajectory.outcome}"), soft_wrap=True)
    console.print(_text(f"reward: {reward_text(trajectory)}", _style(trajectory.value)), soft_wrap=True)
    for name, value, weight, evidence in components(trajectory.reward):
        detail = f" (weight {weight})" if weight else ""
        console.print(_text(f"  {name}: {value}{detail}{f'  {evidence}' if evidence else ''}"), soft_wrap=True)


def _text(text: str, style: str = "") -> Text:
    """Return text without markup and without control characters, with which a policy could write to the terminal."""
    return Text(printable(text), style=style)


def _style(value: float | None) -> str:
    return "red" if value is None or value < 0 else "green" if value > 0 else ""
