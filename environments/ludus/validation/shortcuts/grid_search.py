"""Blind searches over the calls that solve training tasks, where each argument has few values.

How this works. From solutions of training tasks, each tool is known with the values of its arguments: those that occur
again and again, or words of the prompt of a certain form, such as the number of a truck. Three searches use them:

* **All combinations** are called one after another, where the limit on steps allows it.
* **Position by position**: a tool says whether a value is right at a position of a list, such as the third of four
  notes. What it says of right values is learned on training tasks; the list of right values is then submitted.
* **Step by step**: a tool shows the state, such as a test of all lines of a board. What it shows once the task is
  solved is learned, and each argument keeps the value that brings what it shows closest to that.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ludus.client import Episode
from ludus.protocol.actions import Action, Answer, Call
from ludus.protocol.content import text_of
from ludus.protocol.errors import LudusError
from ludus.validation.core.target import ValidationTarget
from ludus.validation.shortcuts.memory import Memory, Remembered
from ludus.validation.shortcuts.search import PROBED, reply

Solutions = Sequence[tuple[Any, Sequence[Action]]]

FEW: Final = 16
"""The most values of an argument that are tried."""

MOST_WORDS: Final = 40
"""The most words of a prompt that are tried as values."""

LONGEST: Final = 60
"""The most characters of a value; a longer one is a text, and no choice."""

MOST_CALLS: Final = 300
"""The most calls of one search."""

SHARE: Final = 0.8
"""The share of training tasks on which what was learned must hold."""


@dataclass(frozen=True, slots=True)
class Domain:
    """The values of an argument: those of training tasks, or the words of a prompt that have their form."""

    values: tuple[Any, ...]
    form: re.Pattern[str] | None = None

    def on(self, prompt: str) -> tuple[Any, ...]:
        """Return the values that may be right on a task with a prompt."""
        if self.form is None:
            return self.values
        number = not isinstance(self.values[0], str)
        words = dict.fromkeys(match[0] for match in self.form.finditer(prompt))
        return tuple(int(word) if number else word for word in words)[:MOST_WORDS]


def domain_of(values: Sequence[Any], prompts: Sequence[str]) -> Domain | None:
    """Return the domain of an argument, from its values on training tasks and their prompts; None if it is too large.

    Args:
        values: a value for each call.
        prompts: the prompt of the task of each call.
    """
    if not values or not all(isinstance(value, str | int) and len(str(value)) <= LONGEST for value in values):
        return None
    counted = Counter(values)
    if len(counted) <= FEW:
        return Domain(tuple(value for value, _ in counted.most_common()))
    in_prompt = sum(_occurs(str(value), prompt) for value, prompt in zip(values, prompts, strict=True))
    forms = {_form(str(value)) for value in counted}
    if in_prompt < SHARE * len(values) or len(forms) > FEW:
        return None
    alternatives = "|".join(sorted(forms, key=len, reverse=True))
    return Domain(tuple(counted)[:1], re.compile(rf"(?<![\w-])(?:{alternatives})(?![\w-])"))


def _occurs(word: str, prompt: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", prompt) is not None


def _form(word: str) -> str:
    """Return a pattern for words like a word: with letters and digits in the same order."""
    parts = re.findall(r"\d+|[A-Z]+|[a-z]+|.", word, re.DOTALL)
    classes = (("[0-9]", str.isdigit), ("[A-Z]", str.isupper), ("[a-z]", str.islower))
    return "".join(
        next((f"{kind}+" for kind, matches in classes if matches(part) and part.isascii()), re.escape(part))
        for part in parts
    )


def domains_of(memory: Memory, solutions: Solutions) -> dict[str, dict[str, Domain]]:
    """Return the domains of the arguments of the tools that training tasks need, except tools with a large one."""
    prompts = {(task.row.split, task.row.id): task.prompt for task in memory.training}
    calls: dict[str, list[tuple[Call, str]]] = {}
    for row, actions in solutions:
        for action in actions:
            if isinstance(action, Call):
                calls.setdefault(action.tool, []).append((action, prompts.get((row.split, row.id), "")))
    tools: dict[str, dict[str, Domain]] = {}
    for tool, calls_made in calls.items():
        domains: dict[str, Domain] = {}
        for name in dict.fromkeys(name for call, _ in calls_made for name in call.arguments):
            with_it = [(call.arguments[name], prompt) for call, prompt in calls_made if name in call.arguments]
            domain = domain_of([value for value, _ in with_it], [prompt for _, prompt in with_it])
            if domain is None:
                break
            domains[name] = domain
        else:
            tools[tool] = domains
    return tools


@dataclass(frozen=True, slots=True)
class Combinations:
    """Calls the tools of training with all combinations of their arguments, and ends as most solutions do."""

    tools: Mapping[str, Mapping[str, Domain]]
    last: str | None
    """The tool with which solutions end, which alone is called if there are too many combinations."""
    end: Action
    most: int

    def applies(self, task: Remembered) -> bool:
        """Return whether there are several combinations, and not too many."""
        return 1 < len(self._calls(task)) < self.most

    def _calls(self, task: Remembered) -> list[Call]:
        calls = [
            Call(tool, dict(zip(domains, values, strict=True)))
            for tool, domains in self.tools.items()
            for values in itertools.islice(
                itertools.product(*(domain.on(task.prompt) for domain in domains.values())), self.most
            )
        ]
        return calls if len(calls) < self.most else [call for call in calls if call.tool == self.last]

    async def __call__(self, task: Remembered) -> Sequence[Action] | None:
        """Return all calls."""
        return [*self._calls(task), self.end]


async def all_combinations(target: ValidationTarget, memory: Memory) -> Combinations | None:
    """Return the search that calls everything; None if no tool with arguments has few values."""
    solutions = await memory.solutions()
    end = common_end(solutions)
    if end is None:
        return None
    tools = {
        tool: domains
        for tool, domains in domains_of(memory, solutions).items()
        if len(domains) > 1 or any(domain.form is not None for domain in domains.values())
    }
    lasts = Counter(actions[-1].tool for _, actions in solutions if isinstance(actions[-1], Call))
    final = lasts.most_common(1)[0][0] if lasts else None
    return Combinations(tools, final, end, step_limit(target)) if tools else None


def common_end(solutions: Solutions) -> Action | None:
    """Return the last action of most training tasks if it has no content of its own; None if it differs."""
    ends = Counter(str(actions[-1]) for _, actions in solutions)
    if not ends:
        return None
    text, number = ends.most_common(1)[0]
    final = next(actions[-1] for _, actions in solutions if str(actions[-1]) == text)
    if number >= SHARE * len(solutions):
        return final
    # An episode that ends with the last right call needs no end of its own.
    return Answer("") if isinstance(final, Call) and final.arguments else None


def step_limit(target: ValidationTarget) -> int:
    """Return the most calls of a search."""
    limit = target.local.cls.limits.max_steps if target.local is not None else None
    return min(MOST_CALLS, limit or MOST_CALLS)


# ── position by position ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Positions:
    """Asks at each position of a list which value is right, and submits the list."""

    target: ValidationTarget
    tool: str
    place: str
    """The argument that takes the position."""
    value: str
    first: int
    """The number of the first position."""
    right: frozenset[str]
    """What the tool says of right values."""
    values: Sequence[Any]
    length: int
    end: Call
    list_argument: str

    def applies(self, task: Remembered) -> bool:
        """Return that it can be tried on every task."""
        return True

    async def __call__(self, task: Remembered) -> Sequence[Action] | None:
        """Ask in an episode, and return the calls with the list that was called right."""
        actions: list[Action] = []
        right: list[Any] = []
        async with self.target.episode(task.row) as episode:
            for position in range(self.first, self.first + self.length):
                for value in self.values:
                    call = Call(self.tool, {self.place: position, self.value: value})
                    actions.append(call)
                    if len(actions) >= step_limit(self.target):
                        return None
                    if reply(await episode.call(call), *call.arguments.values()) in self.right:
                        right.append(value)
                        break
        return [*actions, Call(self.end.tool, {**self.end.arguments, self.list_argument: right})]


async def position_by_position(target: ValidationTarget, memory: Memory) -> Positions | None:
    """Return the search for the values of a list; None if no solution ends with one, or no tool says what is right."""
    lists: list[tuple[Any, Call, str, list[Any]]] = []
    for row, actions in await memory.solutions():
        final = actions[-1]
        names = [name for name, value in final.arguments.items() if isinstance(value, (list, tuple))] if isinstance(
            final, Call) else []  # fmt: skip
        if not isinstance(final, Call) or len(names) != 1:
            return None
        lists.append((row, final, names[0], list(final.arguments[names[0]])))
    lengths = Counter(len(values) for *_, values in lists)
    domain = domain_of([value for *_, values in lists for value in values], [""] * sum(lengths.elements()))
    if domain is None or lengths.most_common(1)[0][1] < SHARE * len(lists):
        return None
    length = lengths.most_common(1)[0][0]
    _, end, list_argument, _ = lists[0]
    for tool in target.info.tools:
        properties = tool.input_schema.get("properties", {})
        numbers = [name for name, schema in properties.items() if _type(schema) == "integer"]
        if tool.name == end.tool or len(properties) != 2 or not numbers:
            continue
        position_name = numbers[0]
        value = next(name for name in properties if name != position_name)
        for start in (1, 0):
            right = await _replies_to_right(target, (tool.name, position_name, value, start), lists, domain.values)
            if right:
                return Positions(target, tool.name, position_name, value, start, right, domain.values, length, end,
                                 list_argument)  # fmt: skip
    return None


def _type(schema: Any) -> str | None:
    return schema.get("type") if isinstance(schema, dict) else None


async def _replies_to_right(
    target: ValidationTarget,
    probe: tuple[str, str, str, int],
    lists: Sequence[tuple[Any, Call, str, list[Any]]],
    values: Sequence[Any],
) -> frozenset[str]:
    """Return what a tool says of right values and never of wrong ones; nothing if it does not tell them apart."""
    tool, position_name, value, start = probe
    right: set[str] = set()
    wrong: set[str] = set()
    try:
        for row, _, _, solution in lists[:PROBED]:
            async with target.episode(row) as episode:
                for number, element in enumerate(solution):
                    different = next((value for value in values if value != element), None)
                    for tried, replies in ((element, right), (different, wrong)):
                        call = Call(tool, {position_name: number + start, value: tried})
                        result = await episode.call(call)
                        if result.error is not None or result.end_reason is not None:
                            return frozenset()
                        replies.add(reply(result, *call.arguments.values()))
    except LudusError:
        return frozenset()
    return frozenset() if right & wrong or len(right) > len(lists[0][3]) else frozenset(right)


# ── step by step ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Climb:
    """Changes one argument after another, and keeps what brings an observer closest to what it shows when solved."""

    target: ValidationTarget
    observer: Call
    solved: Sequence[str]
    calls: Sequence[Sequence[Call]]
    """The calls to choose from, by what they change."""
    end: Action

    def applies(self, task: Remembered) -> bool:
        """Return that it can be tried on every task."""
        return True

    async def __call__(self, task: Remembered) -> Sequence[Action] | None:
        """Change and look in an episode, and return the calls."""
        actions: list[Action] = []

        async def closeness(episode: Episode, call: Call) -> int:
            actions.extend((call, self.observer))
            await episode.call(call)
            lines = text_of((await episode.call(self.observer)).content).splitlines()
            return sum(a == b for a, b in zip(lines, self.solved, strict=False))

        async with self.target.episode(task.row) as episode:
            for choices in self.calls:
                if len(actions) + 2 * len(choices) + 2 > step_limit(self.target):
                    return None
                closest = [(await closeness(episode, call), -number) for number, call in enumerate(choices)]
                actions.append(choices[-max(closest)[1]])
                await episode.call(choices[-max(closest)[1]])
        return [*actions, self.end]


async def step_by_step(target: ValidationTarget, memory: Memory) -> Climb | None:
    """Return the search by an observer; None if no tool shows that a task is solved."""
    solutions = await memory.solutions()
    end = common_end(solutions)
    settings = [(tool, domains) for tool, domains in domains_of(memory, solutions).items()
                if len(domains) == 2 and all(domain.form is None for domain in domains.values())]  # fmt: skip
    if end is None or not settings:
        return None
    tool, domains = settings[0]
    position_name = max(domains, key=lambda name: (_is_place(tool, name, solutions), len(domains[name].values)))
    value = next(name for name in domains if name != position_name)
    calls = [[Call(tool, {position_name: position, value: content}) for content in domains[value].values]
             for position in domains[position_name].values]  # fmt: skip
    for spec in target.info.tools:
        if spec.input_schema.get("required") or (isinstance(end, Call) and spec.name == end.tool):
            continue
        observer = Call(spec.name, {})
        solved = await _seen_when_solved(target, observer, solutions)
        if solved is not None:
            return Climb(target, observer, solved, calls, end)
    return None


def _is_place(tool: str, name: str, solutions: Solutions) -> bool:
    """Return whether an argument says what is changed: each of its values occurs once in a solution."""
    used = [[action.arguments.get(name) for action in actions if isinstance(action, Call) and action.tool == tool]
            for _, actions in solutions]  # fmt: skip
    return all(len(values) == len({*map(str, values)}) for values in used)


async def _seen_when_solved(target: ValidationTarget, observer: Call, solutions: Solutions) -> list[str] | None:
    """Return the lines of an observer on solved training tasks; None if they differ, or are there at the start."""
    counts: Counter[str] = Counter()
    before: set[str] = set()
    probed = solutions[:PROBED]
    try:
        for row, actions in probed:
            async with target.episode(row) as episode:
                before.add(text_of((await episode.call(observer)).content))
                for action in actions[:-1]:
                    if not isinstance(action, Call) or (await episode.call(action)).end_reason is not None:
                        return None
                counts[text_of((await episode.call(observer)).content)] += 1
    except LudusError:
        return None
    text, number = counts.most_common(1)[0] if counts else ("", 0)
    if not text or number < SHARE * len(probed) or text in before:
        return None
    return text.splitlines()
