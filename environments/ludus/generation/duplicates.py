"""Exact and near duplicates among tasks, and held-out tasks that must not be among them.

Two texts are nearly the same if their sets of three successive words have a Jaccard similarity of at least a threshold
(Broder 1997). Candidate pairs are found by the prefix filter (Chaudhuri et al. 2006): two sets that similar share one
of the first |S| - ceil(t|S|) + 1 shingles in a common order. So the search is exact, where MinHash would miss some.
"""

from __future__ import annotations

import json
import math
import re
import time
import unicodedata
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from ludus.generation.candidates import Rejection
from ludus.protocol.tasks import Task
from ludus.server.authoring.generation import whole_fields
from ludus.server.tasks.catalog import Published

READ_SECONDS: Final = 60.0
"""The longest time to read the environment's own training tasks, which may have no end."""
TRAINING_TASKS: Final = 10_000
"""The most training tasks of the environment that new tasks are compared with."""
HELD_OUT_TASKS: Final = 100_000
SAMPLE: Final = 200
_ALIKE: Final = 0.05

_WORD: Final = re.compile(r"\d+(?:[.,]\d+)*|\w+|[^\w\s.,;:!?'\"]")
"""Matches a number, a word, or a sign that is not the punctuation of prose."""
Shingle = tuple[str, str, str]
Origin = Literal["held-out", "training", "generated"]


def words(value: Any) -> list[str]:
    """Return the words, numbers and signs of all texts in a value, in lower case and in one form of Unicode."""
    found: list[str] = []
    for text in _texts(value):
        plain = unicodedata.normalize("NFKC", text).casefold()
        found += _WORD.findall(plain if plain.isascii() else "".join(filter(_is_seen, plain)))
    return found


def _is_seen(letter: str) -> bool:
    """Return whether a character is not one of those that show nothing, such as a space without width."""
    return unicodedata.category(letter) != "Cf"


def shingles(tokens: list[str]) -> frozenset[Shingle]:
    """Return each run of three words; the ends count as words, so that short texts have runs, too."""
    padded = ["", "", *tokens, "", ""]
    return frozenset(zip(padded, padded[1:], padded[2:], strict=False))


class Duplicates:
    """The tasks that new ones are compared with.

    Args:
        similarity: the Jaccard similarity from which two tasks are nearly the same; above 1, only equal ones count.
        whole: whether the private fields define a task, too, since its public ones do not tell tasks apart.
    """

    def __init__(self, similarity: float = 0.8, *, whole: bool = False) -> None:
        self.similarity = similarity
        self.whole = whole
        self._exact: dict[str, tuple[Origin, str]] = {}
        self._texts: list[tuple[frozenset[Shingle], Origin, str]] = []
        self._holders: dict[Shingle, list[int]] = defaultdict(list)

    def add(self, task: Task, origin: Origin, name: str) -> None:
        """Add a task with which later ones are compared."""
        tokens = self._tokens(task)
        self._exact.setdefault(" ".join(tokens), (origin, name))
        if self.similarity > 1:
            return
        runs = shingles(tokens)
        self._texts.append((runs, origin, name))
        for run in self._prefix(runs):
            self._holders[run].append(len(self._texts) - 1)

    def find(self, task: Task) -> Rejection | None:
        """Return why a task is not new; None if it is. A held-out task is named before others."""
        tokens = self._tokens(task)
        if (found := self._exact.get(" ".join(tokens))) is not None:
            return _rejection(*found, 1.0)
        if self.similarity > 1:
            return None
        runs = shingles(tokens)
        near: list[tuple[bool, float, Origin, str]] = []
        for place in {place for run in self._prefix(runs) for place in self._holders.get(run, ())}:
            other, origin, name = self._texts[place]
            shared = len(runs & other)
            similarity = shared / (len(runs) + len(other) - shared)
            if similarity >= self.similarity:
                near.append((origin == "held-out", similarity, origin, name))
        if not near:
            return None
        _, similarity, origin, name = max(near)
        return _rejection(origin, name, similarity)

    def _tokens(self, task: Task) -> list[str]:
        return words(whole_fields(task) if self.whole else task.public())

    def _prefix(self, runs: frozenset[Shingle]) -> list[Shingle]:
        ordered = sorted(runs, key=lambda run: (zlib.crc32("\0".join(run).encode("utf-8", "replace")), run))
        least = math.ceil(self.similarity * len(ordered) - 1e-6)  # 0.55 × 100 is 55.00000000000001
        return ordered[: len(ordered) - least + 1]


def known_tasks(published: Published, similarity: float, *, whole: bool = False) -> Duplicates:
    """Return an environment's own tasks: all held-out ones, and as many training tasks as can be read in a minute.

    Args:
        published: the environment.
        similarity: see `Duplicates`.
        whole: whether all fields define a task; also if its public fields do not tell its own tasks apart.
    """
    held_out, training = list[tuple[str, Task]](), list[tuple[str, Task]]()
    for name, split in published.splits.items():
        into, most = (training, TRAINING_TASKS) if split.type == "train" else (held_out, HELD_OUT_TASKS)
        into += ((f"{name}/{task.id}", task) for task in _read(split, most))
    found = Duplicates(similarity, whole=whole or _alike([task for _, task in (training + held_out)[:SAMPLE]]))
    for origin, tasks in (("held-out", held_out), ("training", training)):
        for name, task in tasks:
            found.add(task, origin, name)  # type: ignore[arg-type]
    return found


def _read(split: Any, most: int) -> Iterator[Task]:
    split.prepare()
    began = time.monotonic()
    for index in range(most if split.count is None else min(split.count, most)):
        yield split.get(index)
        if split.type == "train" and time.monotonic() - began > READ_SECONDS:
            return


def _alike(tasks: Iterable[Task]) -> bool:
    """Return whether the public fields of tasks are often equal, so that they do not define a task."""
    texts = [json.dumps(words(task.public())) for task in tasks]
    return len(texts) - len(set(texts)) > _ALIKE * len(texts)


def _rejection(origin: Origin, name: str, similarity: float) -> Rejection:
    how = "the same as" if similarity == 1.0 else f"{similarity:.0%} the same as"
    if origin == "held-out":
        return Rejection("contaminated", f"{how} the held-out task {name}")
    what = "the environment's own" if origin == "training" else "the generated"
    return Rejection("duplicate" if similarity == 1.0 else "near_duplicate", f"{how} {what} task {name}")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name in sorted(value):
            yield from _texts(value[name])
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _texts(part)
    elif value is not None:
        yield str(value)
