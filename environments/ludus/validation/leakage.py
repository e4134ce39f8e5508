"""Checks that the policy sees no private fields and no rewards.

A private value counts as leaked if it appears in the texts that the policy reads before the episode has ended and
before the policy has said the value itself. A long value counts by itself. A short one, such as a 7, appears in many
texts by chance; it counts if the tasks' own values appear in their texts far more often than the values of other tasks
do (Fisher's exact test). A list of choices contains the right one, which is not a leak.

In some tasks, such as a search, calls are meant to reveal a value. So a value that only observations show is a
warning, and it is accepted if the class lists its field in `discoverable_fields`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from ludus.client.policies.base import Conversation, PolicyResult
from ludus.protocol.actions import Call
from ludus.protocol.tasks import PRIVATE
from ludus.protocol.trajectory import Trajectory
from ludus.validation.checks import Evidence, NotApplicable, Problem, Suite, error, short, warning
from ludus.validation.target import ValidationTarget, evidence
from ludus.validation.transcripts import prompt_of

suite = Suite()

LONG: Final = 8
"""The number of characters from which a value does not appear in a text by chance."""

SIGNIFICANCE: Final = 1e-3
"""The significance level: short values are leaked if the probability of so many hits by chance is lower than this."""

CHOICES: Final = 2
"""A text with this many list items, or values of other tasks, offers choices."""

Key = tuple[str, str]
"""The name of a split and the id of a task."""

_OBSERVATION: Final = "an observation"

_REWARD: Final = re.compile(r"\b(?:reward|score)\b\s*(?:is|was|of|[:=])\s*[-+]?\d", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts that a policy reads of one task, by place."""

    prompt: str
    tools: str
    observations: str
    errors: str
    fields: str

    def places(self) -> Iterator[tuple[str, str]]:
        yield "the prompt", self.prompt
        yield "the tools", self.tools
        yield _OBSERVATION, self.observations
        yield "an error", self.errors
        yield "the public fields", self.fields


async def error_policy(conversation: Conversation) -> PolicyResult:
    """Make every kind of mistake: an unknown tool, no arguments, wrong types, extra names."""
    names = [tool.name for tool in conversation.tools]
    number, kind = divmod(conversation.turn - 1, 3)
    if number >= len(names):
        return Call("no_such_tool", {})
    wrong: tuple[dict[str, Any], ...] = ({}, {"no_such_argument": 1}, {})
    arguments = wrong[kind]
    if kind == 2:
        properties = conversation.tools[number].input_schema.get("properties", {})
        arguments = {name: {"wrong": ["type"]} for name in properties}
    return Call(names[number], arguments)


@suite.check("leakage", "No private field appears in what the policy reads", "semantic.no_solution_leakage",
             "runtime.oracle_containment")  # fmt: skip
async def leakage(target: ValidationTarget) -> AsyncIterator[Problem]:
    long_secrets = {name: value for name, value in target.settings.secrets.items() if _is_long(value)}
    if target.local is None and not long_secrets:
        raise NotApplicable(target.no_class_reason)
    plays = await _gather(target)
    texts = {key: _read(found) for key, found in plays.items()}
    if shown := _secrets_shown(long_secrets, plays):
        yield error("secrets of the episode are shown to the policy: keep them out of what it reads", shown)
    if target.local is None:
        return
    private: dict[str, dict[Key, str]] = {}
    for row in target.tasks:
        for path, value in _private(target.task(row)):
            private.setdefault(path, {})[row.split, row.id] = value
    if not private and not long_secrets:
        raise NotApplicable("the tasks have no private fields")
    sought = frozenset(target.local.cls.discoverable_fields)
    names = {name for path in private for name in _names(path)}
    if sought - names:
        yield error(f"`discoverable_fields` names fields that are not private: {', '.join(sorted(sought - names))}")
    found: list[Evidence] = []
    observed: list[Evidence] = []
    for path, values in private.items():
        for place in ("the prompt", "the tools", _OBSERVATION, "an error", "the public fields"):
            texts_here = {key: dict(read.places())[place] for key, read in texts.items()}
            leaked = leaks(path, values, texts_here, place, significance=SIGNIFICANCE / len(private))
            shown = [_with_episode(plays, one, values[one.split or "", one.task or ""], place) for one in leaked]
            if place != _OBSERVATION:
                found += shown
            elif not sought & _names(path):
                observed += shown
    if found:
        yield error(
            "private fields are shown to the policy: keep them out of prompts, observations and messages until the "
            "episode has ended",
            found,
        )
    if observed:
        yield warning(
            "observations show private fields: keep them out until the episode has ended; or, if finding them is the "
            'task, declare it in the class (`discoverable_fields = ("answer",)`)',
            observed,
        )


def _names(path: str) -> frozenset[str]:
    """Return the names of the fields on the path to a leaf."""
    return frozenset(re.split(r"\[\d+\]|\.", path)) - {""}


def _secrets_shown(secrets: Mapping[str, str], plays: Mapping[Key, Sequence[Trajectory]]) -> list[Evidence]:
    """Return the places where the policy reads the values of secrets, one for each secret and kind of place."""
    found: dict[tuple[str, str], Evidence] = {}
    for name, value in secrets.items():
        for play in [play for those in plays.values() for play in those]:
            for place, text in _read([play]).places():
                if value in text:
                    found.setdefault((name, place), evidence(play, f"the secret {name} in {place}"))
    return list(found.values())


def _with_episode(plays: Mapping[Key, Sequence[Trajectory]], leak: Evidence, value: str, place: str) -> Evidence:
    """Return evidence of a leak with the episode that shows it; a leak in public fields needs no episode."""
    for play in plays[leak.split or "", leak.task or ""]:
        if place != "the public fields" and _contains(value, dict(_read([play]).places())[place]):
            return evidence(play, leak.detail)
    return leak


def leaks(
    path: str, values: Mapping[Key, str], texts: Mapping[Key, str], place: str, *, significance: float = SIGNIFICANCE
) -> list[Evidence]:
    """Return the tasks whose own texts contain their private value under a path, unless this is by chance.

    Args:
        path: the private field.
        values: its value by split and task.
        texts: the text that the policy reads, by split and task.
        place: the kind of text, in words.
        significance: the significance level of the test for short values.
    """
    own = [key for key, value in values.items() if key in texts and _contains(value, texts[key])]
    if not own:
        return []
    cross = total = 0
    for key, value in values.items():
        for other, text in texts.items():
            if other != key and other in values and values[other] != value:
                total += 1
                cross += _contains(value, text)
    found = [Evidence(f"{path} {short(values[key], 60)!r} in {place}: …{_excerpt(values[key], texts[key])}…", *key)
             for key in own]  # fmt: skip
    if total and cross / total > 0.5:
        return []  # choices, or words of the rules, which the texts of most tasks contain
    clear = [
        one for key, one in zip(own, found, strict=True) if _is_long(values[key]) and not _is_choice(key, values, texts)
    ]
    if clear:
        return clear
    tried = sum(key in texts for key in values)
    distinct = len(set(values.values()))
    if distinct > 1 and fisher(len(own), tried, cross, total) < significance:
        offered = sum(_is_choice(key, values, texts) for key in own)
        return [] if offered > len(own) / 2 else found
    return []


def _is_choice(key: Key, values: Mapping[Key, str], texts: Mapping[Key, str]) -> bool:
    """Return whether the text of a task offers choices: several list items or values, of which its own is one."""
    value, text = values[key], texts[key]
    for match in _LIST_LINE.finditer(text):
        if _contains(value, match[0]):
            marks = len(_LIST_LINE.findall(text))
            return marks >= CHOICES
    others = {other for other in values.values() if other != value and _contains(other, text)}
    return len(others) >= CHOICES


_LIST_LINE: Final = re.compile(r"^[ \t]*(?:[-*•]|\(?[A-Za-z0-9]{1,2}[.):])[ \t]+.*$", re.MULTILINE)


def _contains(value: str, text: str) -> bool:
    if value.lower() not in text.lower():  # far faster for tasks with thousands of private values
        return False
    return re.search(rf"(?<![\w.]){re.escape(value)}(?![\w]|\.\d)", text, re.IGNORECASE) is not None


def _excerpt(value: str, text: str) -> str:
    place = text.lower().find(value.lower())
    return short(text[max(0, place - 20) : place + len(value) + 20], 100)


def _is_long(value: str) -> bool:
    return len(value) >= LONG


def fisher(own: int, tried: int, cross: int, total: int) -> float:
    """Return the p-value of Fisher's exact test, one-sided: the probability of at least `own` hits in `tried` texts.

    Args:
        own: the number of texts that contain the value of their own task.
        tried: the number of pairs of a value and the text of its own task.
        cross: the number of texts that contain the value of another task.
        total: the number of pairs of a value and the text of another task.
    """
    if not total:
        return 1.0
    hits, everything = own + cross, tried + total
    ways = math.comb(everything, hits)
    return (
        sum(
            math.comb(tried, k) * math.comb(total, hits - k)
            for k in range(own, min(tried, hits) + 1)
            if hits - k <= total
        )
        / ways
    )


async def _gather(target: ValidationTarget) -> dict[Key, list[Trajectory]]:
    """Return the episodes of policies that solve nothing, by task."""
    plays: dict[Key, list[Trajectory]] = {}
    for play in [*await target.played("random"), *await target.played("empty"), *await target.play(error_policy)]:
        plays.setdefault((play.split, play.task.id), []).append(play)
    return plays


def _read(plays: Sequence[Trajectory]) -> _Texts:
    """Return the texts that a policy reads in the episodes of one task."""
    observations: list[str] = []
    errors: list[str] = []
    for play in plays:
        ended = play.end_reason is not None and play.stopped is None and play.grade is None
        outputs = [item for item in play.items if item.get("type") == "function_call_output"]
        said = " ".join(str(item.get("arguments")) for item in play.items if item.get("type") == "function_call")
        mistakes = {step.call_id for step in play.steps if step.error is not None}
        # The last output may reveal the answer, because the episode has ended.
        for item in outputs[: -1 if ended else None]:
            text = _without_own_words(str(item.get("output")), said)
            (errors if item.get("call_id") in mistakes else observations).append(text)
    return _Texts(
        prompt_of(plays[-1]),
        json.dumps(list(plays[-1].tools), ensure_ascii=False),
        "\n".join(observations),
        "\n".join(errors),
        "\n".join(text for _, text in _leaves("", plays[0].task.fields)),
    )


def _without_own_words(text: str, said: str) -> str:
    """Return the text without the words that the policy has said itself."""
    own = set(re.findall(r"[\w.+*/()-]+", said))
    return re.sub(r"[\w.+*/()-]+", lambda match: "" if match[0] in own else match[0], text)


def _private(task: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts and numbers in private fields with their paths, including those of models within the task."""
    for name, known in sorted(type(task).model_fields.items()):
        value = getattr(task, name)
        if PRIVATE in known.metadata:
            yield from _leaves(path + name, value)
        else:
            parts = [(f"[{at}]", part) for at, part in enumerate(value)] if isinstance(value, (list, tuple)) else None
            for place, part in parts or [("", value)]:
                if isinstance(part, BaseModel):
                    yield from _private(part, f"{path}{name}{place}.")


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts and numbers in a value, each with its path."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, str | int | float):
        if text := str(value).strip():
            yield path, text
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(f"{path}.{name}", part)
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        # Sets have no order, but leaves of different tasks are compared by their paths, so the order must be fixed.
        parts = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        for number, part in enumerate(parts):
            yield from _leaves(f"{path}[{number}]", part)
    elif hasattr(value, "__dict__"):
        for name, part in vars(value).items():
            yield from _leaves(f"{path}.{name}", part)


@suite.check("reward-visible", "No observation shows the reward", "runtime.oracle_containment")
async def reward_visible(target: ValidationTarget) -> AsyncIterator[Problem]:
    found: list[Evidence] = []
    for name in ("oracle", "random", "empty"):
        try:
            plays: Sequence[Trajectory] = await target.played(name)
        except NotApplicable:
            continue
        for play in plays:
            for item in play.items:
                if item.get("type") == "function_call_output" and (match := _REWARD.search(str(item.get("output")))):
                    found.append(evidence(play, short(str(item.get("output"))[max(0, match.start() - 20) :], 100)))
                    break
    if found:
        yield warning(
            "observations show the reward: return it next to the text (`Result(text, reward=…)`), or the policy learns "
            "to optimize the number",
            found,
        )
