"""What the policy is shown and should not be: private fields, and rewards.

A private value counts as leaked where it stands in what the policy reads before the episode is over and before the
policy has said it itself. Long values are recognised by themselves. Short ones, such as a 7, stand in many texts by
chance: they count where a task's own value stands in its texts far more often than the values of other tasks do
(Fisher's exact test). Whoever offers choices shows the right one among them, which is no leak.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel

from ludus.client.policies.base import Conversation, PolicyResult
from ludus.client.trajectory import Trajectory
from ludus.client.validation.checks import Evidence, NotApplicable, Problem, Suite, error, short, warning
from ludus.client.validation.subject import Subject, evidence
from ludus.client.validation.transcripts import prompt_of
from ludus.protocol.actions import Call
from ludus.protocol.tasks import PRIVATE

suite = Suite()

LONG: Final = 8
"""Characters from which on a value does not stand in a text by chance."""

CHANCE: Final = 1e-3
"""Of finding so many short values of a task in its own texts, were they nothing to do with each other."""

CHOICES: Final = 2
"""So many values of other tasks of the split in one public field make it a list of choices."""

_REWARD: Final = re.compile(r"\b(?:reward|score)\b\s*(?:is|was|of|[:=])\s*[-+]?\d", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Texts:
    """What a policy reads of one task, by place."""

    prompt: str
    tools: str
    observations: str
    errors: str
    fields: str

    def places(self) -> Iterator[tuple[str, str]]:
        yield "the prompt", self.prompt
        yield "the tools", self.tools
        yield "an observation", self.observations
        yield "an error", self.errors
        yield "the public fields", self.fields


@dataclass(slots=True)
class _Read:
    """Texts of a task while they are gathered."""

    prompt: str = ""
    tools: str = ""
    observations: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


async def clumsy(conversation: Conversation) -> PolicyResult:
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


@suite.check("leakage", "No private field stands in what the policy reads", "semantic.no_solution_leakage",
             "runtime.oracle_containment")  # fmt: skip
async def leakage(subject: Subject) -> AsyncIterator[Problem]:
    if subject.authored is None:
        raise NotApplicable(subject.unauthored)
    texts = await _gather(subject)
    secrets: dict[str, dict[tuple[str, str], str]] = {}
    for row in subject.tasks:
        for path, value in _private(subject.task(row)):
            secrets.setdefault(path, {})[row.split, row.id] = value
    if not secrets:
        raise NotApplicable("the tasks have no private fields")
    found: list[Evidence] = []
    for path, values in secrets.items():
        for place in ("the prompt", "the tools", "an observation", "an error", "the public fields"):
            found += leaks(path, values, {key: dict(read.places())[place] for key, read in texts.items()}, place)
    if found:
        yield error(
            "private fields are shown to the policy: keep them out of prompts, observations and messages until the "
            "episode is over",
            found,
        )


def leaks(
    path: str, values: Mapping[tuple[str, str], str], texts: Mapping[tuple[str, str], str], place: str
) -> list[Evidence]:
    """Where the private values under a path stand in the texts of their own tasks, and not by chance.

    Args:
        path: the private field.
        values: its value by split and task.
        texts: what the policy reads, by split and task.
        place: which text it is, in words.
    """
    own = [key for key, value in values.items() if key in texts and _stands(value, texts[key])]
    if not own:
        return []
    cross = total = 0
    for key, value in values.items():
        for other, text in texts.items():
            if other != key and other in values and values[other] != value:
                total += 1
                cross += _stands(value, text)
    found = [Evidence(f"{path} {short(values[key], 60)!r} in {place}: …{_near(values[key], texts[key])}…", *key)
             for key in own]  # fmt: skip
    if total and cross / total > 0.5:
        return []  # choices, or words of the rules: the texts of all tasks hold it
    clear = [
        one for key, one in zip(own, found, strict=True) if _is_long(values[key]) and not _offered(key, values, texts)
    ]
    if clear:
        return clear
    tried = sum(key in texts for key in values)
    distinct = len(set(values.values()))
    if distinct > 1 and fisher(len(own), tried, cross, total) < CHANCE:
        offered = sum(_offered(key, values, texts) for key in own)
        return [] if offered > len(own) / 2 else found
    return []


def _offered(key: tuple[str, str], values: Mapping[tuple[str, str], str], texts: Mapping[tuple[str, str], str]) -> bool:
    """Whether the text of a task offers choices: a list in which the value is one of several items of like kind."""
    value, text = values[key], texts[key]
    for match in _LIST_LINE.finditer(text):
        if _stands(value, match[0]):
            marks = len(_LIST_LINE.findall(text))
            return marks >= CHOICES
    others = {other for other in values.values() if other != value and _stands(other, text)}
    return len(others) >= CHOICES


_LIST_LINE: Final = re.compile(r"^[ \t]*(?:[-*•]|\(?[A-Za-z0-9]{1,2}[.):])[ \t]+.*$", re.MULTILINE)


def _stands(value: str, text: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(value)}(?![\w]|\.\d)", text, re.IGNORECASE) is not None


def _near(value: str, text: str) -> str:
    place = text.lower().find(value.lower())
    return short(text[max(0, place - 20) : place + len(value) + 20], 100)


def _is_long(value: str) -> bool:
    return len(value) >= LONG


def fisher(own: int, tried: int, cross: int, total: int) -> float:
    """The chance of at least `own` of `tried` hits, given all hits (Fisher's exact test, one-sided)."""
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


async def _gather(subject: Subject) -> dict[tuple[str, str], _Texts]:
    reads: dict[tuple[str, str], _Read] = {}
    plays = [*await subject.played("random"), *await subject.played("empty"), *await subject.play(clumsy)]
    for play in plays:
        read = reads.setdefault((play.split, play.task.id), _Read())
        _note(play, read)
    rows = {(row.split, row.id): row for row in subject.tasks}
    return {
        key: _Texts(read.prompt, read.tools, "\n".join(read.observations), "\n".join(read.errors),
                    _fields(rows[key].fields))
        for key, read in reads.items()
        if key in rows
    }  # fmt: skip


def _note(play: Trajectory, read: _Read) -> None:
    ended = play.end_reason is not None and play.stopped is None and play.grade is None
    outputs = [item for item in play.items if item.get("type") == "function_call_output"]
    said = " ".join(str(item.get("arguments")) for item in play.items if item.get("type") == "function_call")
    read.prompt = prompt_of(play)
    read.tools = json.dumps([tool for tool in play.tools], ensure_ascii=False)
    errors = {step.call_id for step in play.steps if step.error is not None}
    # What the last step of an episode says may tell the answer: it is over.
    for item in outputs[: -1 if ended else None]:
        text = _unsaid(str(item.get("output")), said)
        (read.errors if item.get("call_id") in errors else read.observations).append(text)


def _unsaid(text: str, said: str) -> str:
    """The text without the words that the policy had said itself."""
    own = {word for word in re.findall(r"[\w.+*/()-]+", said) if len(word) > 0}
    return re.sub(r"[\w.+*/()-]+", lambda match: "" if match[0] in own else match[0], text)


def _fields(fields: Mapping[str, Any]) -> str:
    return "\n".join(text for _, text in _leaves("", fields))


def _private(task: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The texts and numbers in private fields, those of models within the task included."""
    for name, known in sorted(type(task).model_fields.items()):
        value = getattr(task, name)
        if PRIVATE in known.metadata:
            yield from _leaves(path + name, value)
        else:
            for part in value if isinstance(value, list | tuple) else (value,):
                if isinstance(part, BaseModel):
                    yield from _private(part, f"{path}{name}.")


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """The texts and numbers in a value, each under its path."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, str | int | float):
        if text := str(value).strip():
            yield path, text
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(f"{path}.{name}", part)
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        for part in value:
            yield from _leaves(f"{path}[]", part)
    elif hasattr(value, "__dict__"):
        for name, part in vars(value).items():
            yield from _leaves(f"{path}.{name}", part)


@suite.check("reward-visible", "No observation tells the reward", "runtime.oracle_containment")
async def reward_visible(subject: Subject) -> AsyncIterator[Problem]:
    told: list[Evidence] = []
    for name in ("oracle", "random", "empty"):
        try:
            plays: Sequence[Trajectory] = await subject.played(name)
        except NotApplicable:
            continue
        for play in plays:
            for item in play.items:
                if item.get("type") == "function_call_output" and (match := _REWARD.search(str(item.get("output")))):
                    told.append(evidence(play, short(str(item.get("output"))[max(0, match.start() - 20) :], 100)))
                    break
    if told:
        yield warning(
            "observations tell the reward: return it beside the text (`Result(text, reward=…)`), or the policy learns "
            "to please the number",
            told,
        )
