"""Policies that walk through the pages: they look elements up in what the pages show, as an agent does."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import Final

from ludus.environments.browser.goals import Step, click, enter
from ludus.protocol import Answer, Call, StepResult, text_of

SEARCH: Final = click('button "Search"')

Policy = Generator[Call | Answer, StepResult, None]


def walk(steps: Sequence[Step], *, strict: bool = True) -> Policy:
    """Yield the calls of steps; elements are looked up in what the pages show.

    Args:
        steps: what to do.
        strict: whether it matters if a step cannot be taken.

    Raises:
        RuntimeError: a call was refused, or a page does not show what a step needs.
    """
    shown = ""
    for step in steps:
        ref: str | None = ""
        if step.tool != "navigate":
            ref, shown = yield from _look(step, shown)
        if ref is None and strict:
            raise RuntimeError(f"{step} is not on the page: {shown[:3000]}")
        if ref is None or step.tool == "see":
            continue
        result = yield _call(step, ref)
        if result.error is not None and strict:
            raise RuntimeError(f"{step} was refused: {text_of(result.content)}")
        shown = text_of(result.content)


def _look(step: Step, shown: str) -> Generator[Call | Answer, StepResult, tuple[str | None, str]]:
    """Return the reference of the element of a step, and the part of the page that shows it; None if none does."""
    for part in range(2, 50):
        found = _found(shown, step)
        more = re.search(r"\[part \d+ of (\d+);", shown)
        if found is not None or more is None or part > int(more[1]):
            return found, shown
        shown = text_of((yield Call("snapshot", {"page": part})).content)
    return None, shown


def _call(step: Step, ref: str) -> Call:
    if step.tool == "navigate":
        return Call("navigate", {"url": step.target})
    if step.tool == "enter":
        return Call("type", {"ref": ref, "text": step.text, "submit": True})
    more = {"type": {"text": step.text}, "select": {"option": step.text}}.get(step.tool, {})
    return Call(step.tool, {"ref": ref, **more})


def searched_by_key(steps: Sequence[Step]) -> list[Step]:
    """Return steps that press Enter in a search field in place of a click on the button next to it."""
    found: list[Step] = []
    for step in steps:
        before = found[-1] if found else None
        if step == SEARCH and before is not None and before.tool == "type" and before.target.startswith("searchbox "):
            found[-1] = enter(before.target, before.text)
        else:
            found.append(step)
    return found


def _found(shown: str, step: Step) -> str | None:
    if step.tool == "see":
        return "" if step.target in shown else None
    element, _, number = step.target.partition(" #")  # the second of two equal elements is `button "Update" #2`
    found = re.findall(rf"- {re.escape(element)} \[ref=(e\d+)\]", shown)
    place = int(number or 1) - 1
    return found[place] if place < len(found) else None
