"""Recorded episodes as text for the terminal, and as JSON values."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from ludus.cli.common import console, reward_text, shown
from ludus.protocol.content import Message, text_of
from ludus.protocol.episodes import StepError, StepResult
from ludus.protocol.errors import LudusError, to_wire
from ludus.protocol.rewards import Reward
from ludus.protocol.text import truncate

if TYPE_CHECKING:  # the extra `server` may be missing
    from ludus.server.recovery.recorded import Recorded
    from ludus.server.recovery.reexecution import Departure, Repeated
    from ludus.server.runtime.episode import StepRecord

SHOWN_CHARS: Final = 400
"""The most characters of a value that are shown, unless all of it is asked for."""

DIFF_LINES: Final = 24
"""The most lines of a difference that are shown, unless all of it is asked for."""

EXCERPT_CHARS: Final = 100
"""The most characters of a line in which two values differ that are shown, unless all of it is asked for."""

_KIB: Final = 1024


def print_list(episodes: Sequence[Recorded], count: int) -> None:
    """Print one row for each episode; `count` is the number of all that match."""
    table = Table(box=None, padding=(0, 1))
    for title in ("episode", "environment", "task", "steps", "end", "reward", "when", "size"):
        table.add_column(title, no_wrap=title in ("episode", "when", "size"), overflow="fold")
    for one in episodes:
        started = one.history.started
        reward = one.reward.value
        table.add_row(
            shown(one.id), shown(started.environment), shown(f"{started.split}/{started.task}"), str(one.steps),
            shown(one.end + (" (secrets)" if started.has_secrets else "")), "–" if reward is None else f"{reward:g}",
            _when(one.history.began), f"{one.size / _KIB:,.1f} KiB",
        )  # fmt: skip
    console.print(table)
    if len(episodes) < count:
        console.print(shown(f"{len(episodes):,} of {count:,} episodes; --limit shows more", "dim"))


def list_item(one: Recorded) -> dict[str, Any]:
    """Return an episode of a journal as a JSON value."""
    started, reward = one.history.started, one.reward
    return {
        "episode": one.id, "group": started.group, "environment": started.environment, "version": started.version,
        "split": started.split, "task": started.task, "seed": started.seed, "steps": one.steps, "end": one.end,
        "reward": reward.value, "started": one.history.began, "last": one.history.last, "bytes": one.size,
        "fork": started.fork, "secrets": started.has_secrets,
    }  # fmt: skip


def print_head(one: Recorded) -> None:
    """Print which episode it is, and its prompt."""
    started = one.history.started
    title = f"{started.environment}/{started.split}/{started.task}"
    console.print(shown(f"{one.id}  {title}  seed {started.seed}  version {started.version}", "bold"), soft_wrap=True)
    console.print(
        shown(f"started {_when(one.history.began)}, {one.steps} steps, {one.end}, reward {reward_text(one.reward)}"),
        soft_wrap=True,
    )


def print_prompt(prompt: Sequence[Message], *, full: bool) -> None:
    """Print a prompt."""
    _print_indented("prompt", _prompt(prompt), full=full)


def print_call(past: StepRecord, *, full: bool) -> None:
    """Print a recorded call without its outcome."""
    name = "the final message" if past.tool is None else f"step {past.number}"
    arguments = _compact(past.arguments) if past.digest is None else "(refused, and too large to keep)"
    call = arguments if past.tool is None else f"{past.tool}({arguments})"
    console.print(shown(f"{name}  {_cut(call, full)}", "cyan"), soft_wrap=True)


def print_outcome(outcome: StepResult | LudusError | None, *, full: bool) -> None:
    """Print what a call gave."""
    if outcome is None:
        console.print(shown("  (no outcome was recorded)", "dim"))
        return
    if isinstance(outcome, LudusError):
        console.print(shown(f"  {type(outcome).__name__}: {_cut(outcome.message, full)}", "red"), soft_wrap=True)
        return
    console.print(shown("  " + _cut(text_of(outcome.content), full).replace("\n", "\n  ")), soft_wrap=True)
    notes = [f"{outcome.error.code}"] if outcome.error is not None else []
    notes += [f"noise: {outcome.noise}"] if outcome.noise is not None else []
    notes += [f"reward {reward_text(outcome.reward)}"] if outcome.reward is not None else []
    notes += [f"end: {outcome.end_reason}"] if outcome.end_reason is not None else []
    if notes:
        console.print(shown(f"    → {', '.join(notes)}", "dim"), soft_wrap=True)


def print_departure(departure: Departure, *, full: bool) -> None:
    """Print that something is not as it was recorded, and both values."""
    console.print(shown(f"  ✗ another {departure.what}", "bold red"))
    for line in difference(value_text(departure.before), value_text(departure.now), full=full):
        style = {"-": "red", "+": "green"}.get(line[:1], "dim")
        console.print(shown(f"    {line}", style), soft_wrap=True)


def print_repeated(repeated: Repeated, *, full: bool) -> None:
    """Print a call that was executed again: its outcome, or how that differs from the recorded one."""
    print_call(repeated.past, full=full)
    if repeated.outcome is None:
        if repeated.departures:
            console.print(shown(f"  ✗ not executed: the episode has ended ({repeated.departures[0].now})", "red"))
        else:
            console.print(shown("  not executed: it never ran, or the clock cut it off", "dim"))
        return
    if not repeated.departures:
        print_outcome(repeated.outcome, full=full)
    for one in repeated.departures:
        print_departure(one, full=full)


def repeated_item(repeated: Repeated) -> dict[str, Any]:
    """Return a call that was executed again as a JSON value."""
    return {
        **call_item(repeated.past),
        "now": outcome_json(repeated.outcome),
        "departures": [departure_item(one) for one in repeated.departures],
    }


def call_item(past: StepRecord) -> dict[str, Any]:
    """Return a recorded call with its outcome as a JSON value."""
    return {
        "step": past.number, "tool": past.tool, "arguments": past.arguments, "recorded": outcome_json(past.outcome)
    }  # fmt: skip


def departure_item(departure: Departure) -> dict[str, Any]:
    """Return a departure as a JSON value."""
    return {"what": departure.what, "recorded": _json(departure.before), "now": _json(departure.now)}


def outcome_json(outcome: StepResult | LudusError | None) -> Any:
    """Return an outcome as a JSON value."""
    return None if outcome is None else _json(outcome)


def difference(before: str, now: str, *, full: bool) -> Iterator[str]:
    """Yield the lines that show how two texts differ: `-` for the recorded one, `+` for the present one."""
    old, new = before.splitlines() or [""], now.splitlines() or [""]
    if len(old) == len(new) == 1:
        start = 0 if full else _start_of_difference(old[0], new[0])
        for sign, line in (("- recorded", old[0]), ("+ now     ", new[0])):
            excerpt = line[start:] if full else truncate(line[start:], EXCERPT_CHARS)
            yield f"{sign}  {'…' if start else ''}{excerpt}"
        return
    yield "- recorded, + now"
    lines = list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]
    for line in lines if full else lines[:DIFF_LINES]:
        yield line if full else truncate(line, EXCERPT_CHARS)
    if not full and len(lines) > DIFF_LINES:
        yield f"… and {len(lines) - DIFF_LINES} more lines; --full shows them"


def _start_of_difference(one: str, other: str) -> int:
    """Return where to begin so that the first difference of two lines is seen."""
    place = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return max(0, place - EXCERPT_CHARS // 3)


def value_text(value: Any) -> str:
    """Return a part of an outcome as text."""
    if isinstance(value, Reward):
        return f"{reward_text(value)}" + ("" if value.reason is None or value.value is None else f": {value.reason}")
    if isinstance(value, StepError):
        return f"{value.code}: {value.message}"
    if isinstance(value, StepResult):
        return text_of(value.content)
    if isinstance(value, LudusError):
        return f"{type(value).__name__}: {value.message}"
    if isinstance(value, tuple):
        return _prompt(value) if value and isinstance(value[0], Message) else text_of(value)
    return "none" if value is None else str(value)


def _prompt(prompt: Sequence[Message]) -> str:
    return "\n".join(f"{one.role}: {text_of(one.content)}" for one in prompt)


def _print_indented(name: str, text: str, *, full: bool) -> None:
    console.print(shown(name, "cyan"))
    console.print(shown("  " + _cut(text, full).replace("\n", "\n  ")), soft_wrap=True)


def _cut(text: str, full: bool) -> str:
    return text if full else truncate(text, SHOWN_CHARS)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _json(value: Any) -> Any:
    if isinstance(value, LudusError):
        return {"error": to_wire(value).model_dump(mode="json", by_alias=True)}
    if isinstance(value, tuple):
        return [_json(one) for one in value]
    dump = getattr(value, "model_dump", None)
    return value if dump is None else dump(mode="json", by_alias=True, exclude_none=True)


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")
