"""A file of trajectories as one HTML page, written episode by episode."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from shutil import copyfileobj

from ludus.protocol.trajectory import Trajectory
from ludus.viewing import page
from ludus.viewing.conversation import Image, components, entries, reward_text
from ludus.viewing.reading import BrokenLine, Selection, Totals, ViewedEpisode


def write_page(
    lines: Iterable[ViewedEpisode | BrokenLine],
    file: Path,
    *,
    title: str,
    selection: Selection | None = None,
    limit: int = 1_000,
) -> Totals:
    """Write a self-contained page with the first `limit` episodes of a selection; an existing file is replaced.

    One episode at a time is in memory.

    Raises:
        OSError: the page cannot be written.
    """
    chosen, totals, shown = selection or Selection(), Totals(), 0
    with tempfile.TemporaryFile("w+", encoding="utf-8") as body:
        for viewed in lines:
            if totals.count(viewed, chosen) and shown < limit and isinstance(viewed, ViewedEpisode):
                body.write(episode(viewed, is_open=chosen.episode is not None))
                shown += 1
        body.seek(0)
        temporary = file.with_name(f"{file.name}.new")
        with temporary.open("w", encoding="utf-8") as whole:
            whole.write(page.head(title, totals.facts(shown)))
            whole.write(_overview(totals))
            whole.write("<section><h2>Episodes</h2>")
            copyfileobj(body, whole)
            whole.write("</section>\n" if shown else '<p class="soft">No episode matches.</p></section>\n')
            whole.write(page.foot())
    temporary.replace(file)
    return totals


def episode(viewed: ViewedEpisode, *, is_open: bool = False, notes: str = "", below: str = "") -> str:
    """Return one episode that a click unfolds: its rewards, its conversation, and how it ended.

    Args:
        viewed: the episode.
        is_open: whether it is unfolded at first.
        notes: HTML for its title line.
        below: HTML after the conversation.
    """
    trajectory = viewed.trajectory
    title = f"{viewed.number} · {trajectory.environment} · {trajectory.task.id}"
    if viewed.step is not None:
        title = f"step {viewed.step} · {trajectory.environment} · {trajectory.task.id}"
    turns = len(trajectory.turns)
    reward = page.reward_chip(trajectory.value, "reward ") or page.chip("unscored", "bad")
    outcome = page.chip(trajectory.outcome, "bad" if trajectory.failure else "")
    chips = f"{reward}{outcome}{page.chip(f'{turns} turn' + 's' * (turns != 1))}{notes}"
    if viewed.held_out:
        chips += page.chip("held-out")
    body = f"{_result(trajectory)}{''.join(_conversation(trajectory))}{below}"
    head = f"<summary><strong>{page.escape(title)}</strong>{chips}</summary>"
    return f'<details class="episode"{" open" if is_open else ""}>{head}{body}</details>\n'


def _overview(totals: Totals) -> str:
    ends = [(outcome, f"{count:,}", f"{count / totals.chosen:.1%}") for outcome, count in totals.ends.most_common(20)]
    parts = [page.section("How episodes ended", page.table(("end", "episodes", "share"), ends))] if ends else []
    if totals.broken:
        rows = [(line.number, line.problem) for line in totals.broken]
        parts.append(page.section("Broken lines", page.table(("line", "problem"), rows)))
    return "".join(parts)


def _result(trajectory: Trajectory) -> str:
    """Return what the episode earned and how it ended."""
    parts = []
    if trajectory.value is None:
        parts.append(f'<p class="bad small">{page.escape(reward_text(trajectory))}</p>')
    facts = [f"policy {trajectory.policy}", f"split {trajectory.split}", f"{trajectory.seconds:.1f} s"]
    facts += [f"seed {trajectory.seed}"] if trajectory.seed is not None else []
    facts += [f"episode {trajectory.episode}"] if trajectory.episode else []
    facts += [f"{trajectory.attempts} attempts"] if trajectory.attempts > 1 else []
    if trajectory.failure is not None and trajectory.failure.incident:
        facts.append(f"incident {trajectory.failure.incident}")
    parts.append(f'<p class="facts small">{"".join(f"<span>{page.escape(fact)}</span>" for fact in facts)}</p>')
    if rows := components(trajectory.reward):
        parts.append(page.table(("component", "value", "weight", "evidence"), rows))
    return "".join(parts)


def _conversation(trajectory: Trajectory) -> Iterator[str]:
    for entry in entries(trajectory):
        if entry.kind == "turn":
            yield f'<p class="turn">turn {entry.who}</p>'
            continue
        shown = "".join(page.image(p) if isinstance(p, Image) else page.text_block(p) for p in entry.shown)
        who = f"{page.escape(entry.title)}{page.step_chips(entry.step)}"
        yield f'<div class="said {entry.style}"><div class="who">{who}</div>{shown}</div>'
