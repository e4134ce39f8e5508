"""What a policy can remember of the tasks that it was trained on: their prompts, and the actions that solved them.

How this works:

* Prompts are read from episodes that are started and closed again, as many as `PROMPT_SECONDS` allow.
* Solutions are the oracle's actions. An oracle that needs no observations, such as one that submits a program, is asked
  in this process, thousands of times if need be. That it needs none is tested: on the tasks that it has played, it must
  yield the same actions. Any other oracle plays.
* Two texts are compared by the cosine of their word counts, weighted by the words' rarity (TF-IDF: Spärck Jones 1972).
* A solution is carried over to another task with the values of its public fields, such as a package's name in a path.
  This is done only for actions that have more to them: an action that consists of public values alone solves the task.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ludus.protocol.actions import Action, Answer, Call
from ludus.protocol.content import TextBlock, text_of
from ludus.protocol.episodes import StepResult, TaskRow
from ludus.protocol.errors import LudusError
from ludus.validation.core.checks import NotApplicable
from ludus.validation.core.target import ValidationTarget, spread
from ludus.validation.core.transcripts import script_of
from ludus.validation.reward_hacking.slots import texts_in

PROMPTS: Final = 400
"""The most training tasks whose prompts are read."""

PROMPT_SECONDS: Final = 12.0

SOLUTIONS: Final = 2_000
"""The most training tasks whose solutions are asked of an oracle that needs no observations."""

SOLUTION_SECONDS: Final = 8.0

PLAYED_SOLUTIONS: Final = 24
"""The most training tasks that any other oracle plays."""

LONGEST_ORACLE: Final = 500
"""The most actions of an oracle that is asked without observations."""

TITLE: Final = 120
"""The most characters of a line that may be a prompt's title."""

RARE: Final = 0.1
"""A title is a line that at most this share of the prompts have."""

TITLES: Final = 6
"""The most titles of one prompt."""

CONTENT: Final = 16
"""The characters of a text that only a solved task shows, from which an action is more than its public values."""

_NOTHING: Final = StepResult(step=0, content=(TextBlock(text=""),))

_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Remembered:
    """A training task, with its prompt if an episode of it was started."""

    row: TaskRow
    prompt: str
    fields: Mapping[str, Any]
    """The task's public fields."""


@dataclass(slots=True)
class Memory:
    """The training tasks of an environment, and the test tasks on which shortcuts are tried."""

    target: ValidationTarget
    training: Sequence[Remembered]
    tests: Sequence[Remembered]
    blind_oracle: bool
    """Whether the oracle needs no observations."""
    _solutions: dict[tuple[str, str], tuple[Action, ...] | None] = field(default_factory=dict)

    async def solution(self, row: TaskRow) -> tuple[Action, ...] | None:
        """Return the oracle's actions on a training task; None if it earned nothing."""
        key = (row.split, row.id)
        if key not in self._solutions:
            if self.blind_oracle:
                self._solutions[key] = await asyncio.to_thread(actions_without_observations, self.target, row)
            else:
                self._solutions.update(await self._played([row]))
        return self._solutions[key]

    async def solutions(self) -> list[tuple[TaskRow, tuple[Action, ...]]]:
        """Return the solutions of many training tasks, as far as the time allows."""
        rows = await self._rows_to_solve()
        if self.blind_oracle:
            deadline = time.monotonic() + SOLUTION_SECONDS
            for row in rows:
                if time.monotonic() > deadline:
                    break
                await self.solution(row)
        else:
            missing = [row for row in rows if (row.split, row.id) not in self._solutions]
            self._solutions.update(await self._played(missing))
        solved = [(row, self._solutions.get((row.split, row.id))) for row in rows]
        return [(row, actions) for row, actions in solved if actions]

    async def _rows_to_solve(self) -> list[TaskRow]:
        limit = SOLUTIONS if self.blind_oracle else PLAYED_SOLUTIONS
        rows = [remembered.row for remembered in self.training]
        if self.blind_oracle and len(rows) < limit:
            return await self.target.once("rows to solve", lambda: _rows(self.target, ("train",), limit))
        return [rows[index] for index in spread(len(rows), limit)]

    async def _played(self, rows: Sequence[TaskRow]) -> dict[tuple[str, str], tuple[Action, ...] | None]:
        played: dict[tuple[str, str], tuple[Action, ...] | None] = {(row.split, row.id): None for row in rows}
        assert self.target.oracle is not None
        deadline = time.monotonic() + SOLUTION_SECONDS
        step = self.target.settings.concurrency
        for start in range(0, len(rows), step):
            if time.monotonic() > deadline:
                break
            for play in await self.target.play(self.target.oracle, tasks=rows[start : start + step]):
                if play.value is not None and play.failure is None and play.value > self.target.random_baseline:
                    played[play.split, play.task.id] = script_of(play).actions
        return played


async def remember(target: ValidationTarget) -> Memory:
    """Read the training tasks of an environment; this is done once for all shortcuts.

    Raises:
        NotApplicable: there is no oracle, no training split or no other split, or no episode starts.
    """
    return await target.once("memory", lambda: _remember(target))


async def _remember(target: ValidationTarget) -> Memory:
    if target.local is not None and target.local.cls.varies_by == "seed":
        raise NotApplicable("episodes differ by their seed, as the class says (`varies_by`)")
    plays = [play for play in await target.played("oracle") if play.failure is None and play.value is not None]
    if not plays:
        raise NotApplicable("no episode of the oracle was scored")
    types = [split.info.type for split in target.splits]
    if "train" not in types or not {"test", "validation"} & {*types}:
        raise NotApplicable("there is no training split, or no split to test on")
    tests = await _rows(target, ("test",) if "test" in types else ("validation",), target.settings.shortcut_tasks)
    training = await _rows(target, ("train",), PROMPTS)
    with_prompts = await _with_prompts(target, [*tests, *training])
    remembered_rows = [remembered for remembered in with_prompts if remembered is not None]
    rows = {(row.split, row.id): row for row in target.tasks}
    blind = True
    for play in plays:
        actions = await asyncio.to_thread(actions_without_observations, target, rows[play.split, play.task.id])
        blind = blind and actions == script_of(play).actions
    held_out = {(row.split, row.id) for row in tests}
    return Memory(
        target,
        [remembered for remembered in remembered_rows if (remembered.row.split, remembered.row.id) not in held_out],
        [remembered for remembered in remembered_rows if (remembered.row.split, remembered.row.id) in held_out],
        blind,
    )


async def _rows(target: ValidationTarget, types: Sequence[str], limit: int) -> list[TaskRow]:
    """Return up to `limit` tasks of the splits of some types, evenly spread."""
    splits = [split.info for split in target.splits if split.info.type in types]
    rows: list[TaskRow] = []
    for split in splits:
        share = max(1, limit // len(splits))
        for index in range(share) if split.count is None else spread(split.count, share):
            try:
                rows.append(await target.environment.task(split.name, index=index))
            except LudusError:
                continue  # `task-list` reports the task and the reason
    return rows


async def _with_prompts(target: ValidationTarget, rows: Sequence[TaskRow]) -> list[Remembered | None]:
    """Start an episode of each task for its prompt, until the time is up; None where none starts."""
    deadline = time.monotonic() + PROMPT_SECONDS
    turns = asyncio.Semaphore(target.settings.concurrency)

    async def read(row: TaskRow) -> Remembered | None:
        async with turns:
            if time.monotonic() > deadline:
                return None
            try:
                async with target.episode(row) as episode:
                    prompt = "\n".join(text_of(message.content) for message in episode.prompt)
                    return Remembered(row, prompt, target.task(row).public())
            except LudusError:
                return None

    return list(await asyncio.gather(*(read(row) for row in rows)))


def actions_without_observations(target: ValidationTarget, row: TaskRow) -> tuple[Action, ...] | None:
    """Return the actions that the oracle yields if each result is empty; None if it raises or never ends."""
    actions: list[Action] = []
    try:
        moves = target.local.cls.oracle(target.task(row))
        try:
            actions.append(next(moves))
            while len(actions) < LONGEST_ORACLE and not isinstance(actions[-1], Answer):
                actions.append(moves.send(_NOTHING))
        finally:
            moves.close()
    except StopIteration:
        return tuple(actions)
    except Exception:  # the author's code, which reads something from a result that is empty
        return None
    return tuple(actions) if isinstance(actions[-1], Answer) else None


# ── similarity ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Similarity:
    """Finds the most similar of some texts.

    Args:
        texts: the texts to choose from.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        counts = [Counter(words(text)) for text in texts]
        occurrences = Counter(word for count in counts for word in count)
        self._rarity = {word: math.log(len(texts) / number) for word, number in occurrences.items()}
        self._vectors = [self._vector(count) for count in counts]

    def nearest(self, text: str) -> int | None:
        """Return the number of the most similar text; None if no text shares a word that not all of them have."""
        vector = self._vector(Counter(words(text)))
        scores = [
            sum(weight * other_vector.get(word, 0.0) for word, weight in vector.items())
            for other_vector in self._vectors
        ]
        best = max(range(len(scores)), key=scores.__getitem__, default=None)
        return best if best is not None and scores[best] > 0 else None

    def _vector(self, count: Counter[str]) -> dict[str, float]:
        weighted = {word: number * self._rarity.get(word, 0.0) for word, number in count.items()}
        length = math.sqrt(sum(weight * weight for weight in weighted.values())) or 1.0
        return {word: weight / length for word, weight in weighted.items() if weight}


def words(text: str) -> list[str]:
    """Return the words and numbers of a text in lower case."""
    return _WORD.findall(text.lower())


def rare_lines(prompts: Sequence[str]) -> list[list[str]]:
    """Return for each prompt its headings that few other prompts have, or its first short line of this kind.

    These are what a reader would call titles: of a report, of each of several reports, of a question.
    """
    lines = Counter(line for prompt in prompts for line in {*_lines(prompt)})
    limit = max(1, RARE * len(prompts))
    rare = [[line for line in _lines(prompt) if lines[line] <= limit] for prompt in prompts]
    return [
        [line for line in prompt_lines if line.startswith(("#", "**"))][:TITLES] or prompt_lines[:1]
        for prompt_lines in rare
    ]


def _lines(prompt: str) -> list[str]:
    return [line for line in map(str.strip, prompt.splitlines()) if 0 < len(line) <= TITLE and len(words(line)) > 1]


# ── carrying a solution over to another task ─────────────────────────────────────────────────────────────────────────


def carried_over(actions: Iterable[Action], source: Mapping[str, Any], task: Remembered) -> tuple[Action, ...]:
    """Return actions that solved one task with the public values of another one, where they have more to them.

    Args:
        actions: what solved it.
        source: the public fields of the task that it solved.
        task: the other task.
    """
    values = _exchanged(source, task.fields)
    return tuple(
        Call(action.tool, _exchange(action.arguments, values))
        if isinstance(action, Call) and values and _has_content(action, task.prompt)
        else action
        for action in actions
    )


def _exchanged(source: Mapping[str, Any], destination: Mapping[str, Any]) -> dict[str, str]:
    return {
        value: str(destination[name])
        for name, value in source.items()
        if isinstance(value, str)
        and len(value) > 2
        and isinstance(destination.get(name), str)
        and destination[name] != value
    }


def _has_content(action: Call, prompt: str) -> bool:
    return any(len(text) >= CONTENT and text not in prompt for text in texts_in(action.arguments))


def _exchange(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        pattern = "|".join(rf"(?<!\w){re.escape(text)}(?!\w)" for text in sorted(values, key=len, reverse=True))
        return re.sub(pattern, lambda match: values[match[0]], value)
    if isinstance(value, Mapping):
        return {name: _exchange(part, values) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_exchange(part, values) for part in value]
    return value
