"""Checks for equal tasks: in two splits, where they distort the measured scores, or repeated in one split.

Two tasks are near-duplicates if each public field is the same except for case, punctuation, spacing and order, and the
private fields are the same. Words that most tasks share belong to a template and are left out of the comparison. Long
texts are compared by their overlap in runs of three words (Broder 1997, "On the resemblance and containment of
documents").

A public field that differs in each task and that prompts do not show, such as a row number, is a label. Tasks that
differ only in labels are the same.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from ludus.protocol.errors import LudusError
from ludus.validation.core.checks import Evidence, NotApplicable, Problem, Suite, error, short, warning
from ludus.validation.core.target import ValidationTarget, spread
from ludus.validation.core.transcripts import prompt_of

suite = Suite()

READ_SECONDS: Final = 20.0
"""The longest time to read the tasks of one split; a split may have very many tasks that take milliseconds each."""

LONG_TEXT: Final = 20
"""The number of words outside of the template from which a task is compared by its overlap with other tasks."""

ALIKE: Final = 0.8
"""The Jaccard similarity of runs of three words from which two long texts are near-duplicates."""

SHARED: Final = 0.5
"""A word that more than this share of the tasks contain belongs to their template."""

REWORDED: Final = 0.3
"""The share of tests with the numbers and the answer of a training task from which they are the same tasks."""

SAME_TASKS: Final = frozenset({"split-overlap", "near-duplicates", "floor-gap"})
"""The kinds of findings that say that tests contain training tasks, or that all tasks have one answer."""

CHANCE: Final = 3.0
"""How many times as often as among training tasks this must occur."""

GIST: Final = 4
"""The digits and letters from which numbers and answers tell tasks apart."""

MANY: Final = 0.05
"""The share of repeated tasks within a split above which there is a warning."""


@dataclass(frozen=True, slots=True)
class _Problem:
    split: str
    task: str
    public: Mapping[str, Any]
    private: Mapping[str, Any]
    content: str
    """All fields except the id, as JSON."""

    def without(self, labels: frozenset[str]) -> _Problem:
        """Return the same task without some public fields."""
        public = {name: value for name, value in self.public.items() if name not in labels}
        return _problem(self.split, self.task, public, self.private)

    @property
    def words(self) -> tuple[str, ...]:
        """The words of all fields."""
        return _words([*self.public.values(), *self.private.values()])

    @property
    def gist(self) -> tuple[Any, ...] | None:
        """The numbers of the public fields, in digits, and the private fields; None if that says little."""
        numbers = sorted(number for text in _texts(self.public) for number in _numbers(text))
        private = tuple((name, _words(value)) for name, value in sorted(self.private.items()))
        size = sum(map(len, numbers)) + sum(len(word) for _, words in private for word in words)
        return (tuple(numbers), private) if private and size >= GIST else None

    def canonical_form(self, common: frozenset[str]) -> tuple[Any, ...]:
        """Return the task without case, punctuation and order; empty if its public fields hold only template words."""
        fields = [
            (name, tuple(_in_any_order(value, [word for word in _words(value) if word not in common])))
            for name, value in sorted(self.public.items())
        ]
        if not any(words for _, words in fields):
            return ()
        return (*fields, *((name, _words(value)) for name, value in sorted(self.private.items())))


async def _scan(target: ValidationTarget) -> list[_Problem]:
    """Return tasks of all splits, with private fields if the code is available, else as the server shows them."""
    problems: list[_Problem] = []
    for split in target.splits:
        count = split.info.count if split.info.count is not None else target.settings.scan
        indices = spread(count, target.settings.scan)
        if target.local is not None:
            split_problems = await asyncio.to_thread(
                _read, target.local.split(split.info.name), split.info.name, indices
            )
        else:
            split_problems = await _read_remote(target, split.info.name, len(indices))
        problems += split_problems
    return problems


def _read(split: Any, name: str, indices: Iterable[int]) -> list[_Problem]:
    began = time.monotonic()
    problems = []
    for index in indices:
        try:
            task = split.get(index)
        except Exception:  # the author's code; `task-list` reports what it raises
            continue
        private = {
            field: value.model_dump(mode="json") if isinstance(value := getattr(task, field), BaseModel) else value
            for field in type(task).private_fields()
        }
        problems.append(_problem(name, task.id, task.public(), private))
        if time.monotonic() - began > READ_SECONDS:
            break
    return problems


async def _read_remote(target: ValidationTarget, name: str, limit: int) -> list[_Problem]:
    problems = []
    try:
        async for row in target.environment.tasks(name, page=500):
            if row.fields:
                problems.append(_problem(name, row.id, row.fields, {}))
            if len(problems) >= limit or (not row.fields and row.index > 0):
                break
    except LudusError:
        pass  # `task-list` reports it
    return problems


def _problem(split: str, task: str, public: Mapping[str, Any], private: Mapping[str, Any]) -> _Problem:
    content = json.dumps({**public, **private}, sort_keys=True, ensure_ascii=False, default=str)
    return _Problem(split, task, public, private, content)


_WORD: Final = re.compile(r"(?<![\w)])-?\d+(?:\.\d+)*\w*|\w+")
"""Matches a number with its sign, or a word."""


def _words(value: Any) -> tuple[str, ...]:
    return tuple(word for text in _texts(value) for word in _WORD.findall(text.lower()))


def _in_any_order(value: Any, words: list[str]) -> list[str]:
    """Return words without their order, except for those of a grid, where the order says what is where."""
    is_grid = isinstance(value, (list, tuple)) and any(isinstance(part, (list, tuple, dict)) for part in value)
    return words if is_grid else sorted(words)


_UNITS: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_NUMBER_WORD: Final = re.compile(
    rf"\b(?:({'|'.join(_TENS)})(?:[- ]({'|'.join(_UNITS[1:10])}))?|({'|'.join(_UNITS)}))\b"
)


def _numbers(text: str) -> list[str]:
    """Return the numbers of a text, up to 99 also if they are written as words."""
    spelled = [
        str(_UNITS.index(unit) if unit else 20 + 10 * _TENS.index(ten) + (_UNITS.index(digit) if digit else 0))
        for ten, digit, unit in _NUMBER_WORD.findall(text.lower())
    ]
    return [*re.findall(r"\d+(?:\.\d+)?", text), *spelled]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for part in value:
            yield from _texts(part)
    elif value is not None:
        yield str(value)


def _require_two_splits(target: ValidationTarget) -> None:
    """Raise `NotApplicable` if there is one split, or if tasks may be equal because the seed makes the difference."""
    if target.local is not None and target.local.cls.varies_by == "seed":
        raise NotApplicable("episodes differ by their seed, as the class says (`varies_by`): test with other seeds")
    if len(target.splits) < 2:
        raise NotApplicable("there is one split")


@suite.check("split-overlap", "No task appears in two splits", "contamination")
async def split_overlap(target: ValidationTarget) -> AsyncIterator[Problem]:
    _require_two_splits(target)
    problems = await _unlabeled(target)
    first_of: dict[str, _Problem] = {}
    repeats: list[Evidence] = []
    for problem in problems:
        earlier = first_of.setdefault(problem.content, problem)
        if earlier.split != problem.split:
            repeats.append(Evidence(f"is also {earlier.split}/{earlier.task}", problem.split, problem.task))
    if repeats:
        yield error(
            "tasks appear in two splits, so the tests contain training tasks: split by content, not by index", repeats
        )


@suite.check("near-duplicates", "No task of a split is a paraphrase of a task of another split", "contamination")
async def near_duplicates(target: ValidationTarget) -> AsyncIterator[Problem]:
    _require_two_splits(target)
    problems = await _unlabeled(target)
    common = _template(problems)
    exact = Counter(problem.content for problem in problems)
    near: list[Evidence] = []
    earliest: dict[tuple[Any, ...], _Problem] = {}
    long: list[tuple[_Problem, tuple[str, ...]]] = []
    for problem in problems:
        canonical_form = problem.canonical_form(common)
        if not canonical_form or exact[problem.content] > 1:
            continue
        rare_words = tuple(word for word in problem.words if word not in common)
        if len(rare_words) >= LONG_TEXT:
            long.append((problem, rare_words))
        earlier = earliest.setdefault(canonical_form, problem)
        if earlier.split != problem.split:
            near.append(_pair_evidence(problem, earlier))
    near += _overlapping(long, {(pair.split or "", pair.task or "") for pair in near})
    if near:
        yield error(
            "tasks of two splits differ only in case, punctuation, order or a few words: split by what the tasks ask, "
            "not by their wording",
            near,
        )


@suite.check(
    "rewordings", "Tests do not repeat the numbers and answers of training tasks in other words", "contamination"
)
async def rewordings(target: ValidationTarget) -> AsyncIterator[Problem]:
    _require_two_splits(target)
    if target.local is None:
        raise NotApplicable(target.no_class_reason)
    if repeating := target.failed & SAME_TASKS:
        raise NotApplicable(f"tests repeat training tasks (see `{min(repeating)}`)")
    problems = await _unlabeled(target)
    training = {split.info.name for split in target.splits if split.info.type == "train"}
    counts: Counter[tuple[Any, ...]] = Counter()
    first_of: dict[tuple[Any, ...], _Problem] = {}
    for problem in problems:
        if problem.split in training and (key := problem.gist) is not None:
            counts[key] += 1
            first_of.setdefault(key, problem)
    repeated = sum(count for count in counts.values() if count > 1) / max(1, counts.total())
    for split in [split.info.name for split in target.splits if split.info.name not in training]:
        tests = [problem for problem in problems if problem.split == split and problem.gist is not None]
        alike = [problem for problem in tests if counts[problem.gist or ()]]
        # Small numbers and few answers repeat by chance, and then they do so among training tasks, too.
        if len(alike) > 2 and len(alike) / len(tests) >= max(REWORDED, CHANCE * repeated):
            yield error(
                f"{len(alike)} of {len(tests)} tasks of {split} have the numbers and the answer of a training task: "
                "draw other content for tests, and not other words",
                [_pair_evidence(problem, first_of[problem.gist or ()]) for problem in alike],
            )


def _pair_evidence(problem: _Problem, earlier: _Problem) -> Evidence:
    detail = f"{short(problem.content, 80)} and {earlier.split}/{earlier.task} {short(earlier.content, 80)}"
    return Evidence(detail, problem.split, problem.task)


def _template(problems: Iterable[_Problem]) -> frozenset[str]:
    counted: Counter[str] = Counter()
    number = 0
    for problem in problems:
        number += 1
        counted.update(set(problem.words))
    return frozenset(word for word, count in counted.items() if number > 4 and count > SHARED * number)


def _overlapping(long: list[tuple[_Problem, tuple[str, ...]]], skipped: set[tuple[str, str]]) -> list[Evidence]:
    """Return evidence of pairs of long texts in different splits that share most runs of three words."""
    runs = [frozenset(zip(words, words[1:], words[2:], strict=False)) for _, words in long]
    holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
    pairs: list[Evidence] = []
    for index, (problem, _) in enumerate(long):
        shared: Counter[int] = Counter()
        for run in runs[index]:
            if len(holders[run]) < 50:
                shared.update(holders[run])
                holders[run].append(index)
        for neighbor, count in shared.most_common(3):
            union = len(runs[index]) + len(runs[neighbor]) - count
            earlier = long[neighbor][0]
            if (
                count / union >= ALIKE
                and earlier.split != problem.split
                and (problem.split, problem.task) not in skipped
            ):
                pairs.append(_pair_evidence(problem, earlier))
                break
    return pairs


@suite.check("duplicates", "A split does not repeat its tasks", "static.task_distribution_pinning")
async def duplicates(target: ValidationTarget) -> AsyncIterator[Problem]:
    if target.local is not None and target.local.cls.varies_by == "seed":
        raise NotApplicable("episodes differ by their seed, as the class says (`varies_by`)")
    problems = await _scanned(target)
    repeated: list[Evidence] = []
    for split in target.splits:
        contents = Counter(problem.content for problem in problems if problem.split == split.info.name)
        number = contents.total()
        extra = number - len(contents)
        if number and extra / number > MANY:
            worst = contents.most_common(1)[0]
            repeated.append(Evidence(f"{extra} of {number} are repeats; {worst[1]} times {short(worst[0], 80)}",
                                     split.info.name))  # fmt: skip
    if repeated:
        yield warning(
            "splits repeat their tasks: draw without repetition, or, if the seed makes the difference, declare "
            '`varies_by = "seed"`',
            repeated,
        )


async def _scanned(target: ValidationTarget) -> list[_Problem]:
    """Return the tasks of the scan, which is made once for all checks.

    Raises:
        NotApplicable: no task could be read.
    """
    problems = await target.once("scan", lambda: _scan(target))
    if not problems:
        raise NotApplicable("the server shows no fields of tasks; name the environment's code with --source")
    return problems


async def _unlabeled(target: ValidationTarget) -> list[_Problem]:
    """Return the scanned tasks without their labels.

    Raises:
        NotApplicable: no task could be read.
    """
    problems = await _scanned(target)
    labels = await target.once("labels", lambda: _labels(target, problems))
    return [problem.without(labels) for problem in problems] if labels else problems


async def _labels(target: ValidationTarget, problems: Sequence[_Problem]) -> frozenset[str]:
    """Return the public fields that are labels; the tasks of each split still differ without them.

    If tasks have no private fields, any public field may define the task, so no field counts as a label.
    """
    if not all(problem.private for problem in problems):
        return frozenset()
    names = {name for problem in problems for name in problem.public}
    unlike = [name for name in sorted(names) if _all_differ([problem.public.get(name) for problem in problems])]
    if not unlike:
        return frozenset()
    prompts = {(play.split, play.task.id): prompt_of(play) for play in await target.played("no-op")}
    labels: set[str] = set()
    for name in unlike:
        differing = [
            bool({*_words(problem.public.get(name))} & {*_words(prompts[problem.split, problem.task])})
            for problem in problems
            if (problem.split, problem.task) in prompts
        ]
        if sum(differing) <= len(differing) / 2 and _still_differ(
            [problem.without(frozenset({*labels, name})) for problem in problems]
        ):
            labels.add(name)
    return frozenset(labels)


def _all_differ(values: Sequence[Any]) -> bool:
    rendered = {json.dumps(value, sort_keys=True, ensure_ascii=False, default=str) for value in values}
    return len(values) > 1 and len(rendered) == len(values)


def _still_differ(problems: Sequence[_Problem]) -> bool:
    """Return whether no split has more repeated tasks than may occur by chance."""
    sizes = Counter(problem.split for problem in problems)
    different = Counter(split for split, _ in {(problem.split, problem.content) for problem in problems})
    return all(size - different[split] <= MANY * size for split, size in sizes.items())
