"""`triples:FILE`: questions of several hops about a knowledge graph, given as facts of subject, relation and object.

FILE has one fact a line: `.tsv` and `.csv` with three columns, `.jsonl` with three values or the names `subject`,
`relation` and `object`. A question follows relations from a named entity, forward where the subject has one object,
and backward where the object has one subject, so its answer is the only one.
"""

from __future__ import annotations

import csv
import hashlib
import json
import random
import re
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from pydantic import BaseModel, ConfigDict, Field

from ludus.protocol.errors import AuthoringError, EnvironmentNotFound
from ludus.server import (
    Answer,
    Call,
    Environment,
    EpisodeLimits,
    Private,
    Result,
    Split,
    StepResult,
    Task,
    ToolError,
    tool,
)
from ludus.server.tasks.formats import FormatSource

SHOWN: Final = 40
"""The most facts or entities that a tool shows."""
COUNTS: Final = {"train": 200, "validation": 50, "test": 50}
"""The most tasks of each split."""
_MOST_FACTS: Final = 1_000_000
_LONGEST: Final = 200
_TRIES: Final = 400
_NAME_CHARS: Final = re.compile(r"[^a-z0-9_.-]+")
_FIELDS: Final = ("subject", "relation", "object")


class TriplesSettings(BaseModel):
    """The options of `triples:`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    hops: int = Field(default=2, ge=1, le=8)
    """The number of hops of the questions in its splits."""
    name: str | None = None
    """The published name; that of the file by default."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a path: a relation, from its subject to its object or backward."""

    relation: str
    forward: bool
    to: str


class Graph:
    """The facts of a file.

    Args:
        facts: the facts, each once or several times.
    """

    def __init__(self, facts: Iterable[tuple[str, str, str]]) -> None:
        self.objects: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        self.subjects: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for subject, relation, target in dict.fromkeys(facts):
            self.objects[subject][relation].append(target)
            self.subjects[target][relation].append(subject)
        self.entities = sorted({*self.objects, *self.subjects})
        self.by_name = {name.casefold(): name for name in self.entities}

    def walk(self, rng: random.Random, hops: int) -> tuple[str, list[Hop]] | None:
        """Return a start and a path with one end, which no fact of the start names; None if this draw found none."""
        start = here = rng.choice(self.entities)
        path: list[Hop] = []
        seen = {start}
        for _ in range(hops):
            ways = [way for way in self._ways(here) if way.to not in seen]
            if not ways:
                return None
            step = rng.choice(ways)
            path.append(step)
            seen.add(step.to)
            here = step.to
        if hops > 1 and here in self._neighbors(start):
            return None
        question = question_of(start, path).casefold()
        return None if here.casefold() in question else (start, path)

    def _ways(self, entity: str) -> Iterator[Hop]:
        for relation, found in sorted(self.objects.get(entity, {}).items()):
            if len(found) == 1:
                yield Hop(relation, True, found[0])
        for relation, found in sorted(self.subjects.get(entity, {}).items()):
            if len(found) == 1:
                yield Hop(relation, False, found[0])

    def _neighbors(self, entity: str) -> set[str]:
        tables = (self.objects.get(entity, {}), self.subjects.get(entity, {}))
        return {other for table in tables for found in table.values() for other in found}

    def facts_of(self, entity: str) -> list[str]:
        """Return the facts that name an entity, as lines."""
        own = [
            f"{entity} | {relation} | {one}"
            for relation, found in self.objects.get(entity, {}).items()
            for one in found
        ]
        others = [
            f"{one} | {relation} | {entity}"
            for relation, found in self.subjects.get(entity, {}).items()
            for one in found
        ]
        return own + others


def question_of(start: str, path: Sequence[Hop]) -> str:
    """Return the question for the end of a path."""
    text = start
    for step in path:
        relation = step.relation.replace("_", " ")
        text = f"the {relation} of {text}" if step.forward else f"the one whose {relation} is {text}"
    return f"What is {text}?"


class TriplesTask(Task):
    """A question."""

    question: str
    start: str
    """The entity that the question names."""
    hops: int
    answer: Private[str]
    between: Private[list[str]]
    """The entities between it and the answer, in order."""


class Triples(Environment[TriplesTask]):
    """Answer a question of several hops with the facts of a knowledge graph."""

    reward_range = (0.0, 1.0)
    blocking = False
    forkable = True
    discoverable_fields = ("answer", "between")
    limits = EpisodeLimits(max_steps=40)
    graph: Graph

    def prompt(self) -> str:
        """Return the question and how to answer it."""
        return (
            "Answer the question below from a collection of facts. Call `find` to find entities by words, and `facts` "
            "to read all facts about an entity. When you know the answer, call `submit` once, with the name of one "
            f"entity exactly as the facts write it.\n\nQuestion: {self.task.question}"
        )

    @tool
    def find(self, words: str) -> str:
        """List entities whose names have all of some words.

        Args:
            words: the words, in any order.
        """
        wanted = words.casefold().split()
        if not wanted:
            raise ToolError("Give at least one word.")
        found = [name for low, name in self.graph.by_name.items() if all(word in low for word in wanted)]
        if not found:
            raise ToolError("No entity has these words in its name. Try fewer or other words.")
        more = f"\n({len(found) - SHOWN} more; use more words)" if len(found) > SHOWN else ""
        return "\n".join(found[:SHOWN]) + more

    @tool
    def facts(self, entity: str, page: int = 1) -> str:
        """Read the facts about an entity, as lines of subject, relation and object.

        Args:
            entity: the name of the entity.
            page: which 40 of the facts to show, from 1.
        """
        name = self.graph.by_name.get(entity.strip().casefold())
        if name is None:
            raise ToolError("There is no entity of this name. Use a name that `find` or `facts` shows.")
        lines = self.graph.facts_of(name)
        last = -(-len(lines) // SHOWN)
        if not 1 <= page <= last:
            raise ToolError(f"There are {last} pages of facts about it, so none at {page}.")
        more = "" if page == last else f"\n(page {page} of {last})"
        return "\n".join(lines[SHOWN * (page - 1) : SHOWN * page]) + more

    @tool(ends=True)
    def submit(self, answer: str) -> Result:
        """Give your answer. This ends the episode.

        Args:
            answer: the name of one entity.
        """
        right = " ".join(answer.split()).casefold() == self.task.answer.casefold()
        return Result("Your answer is recorded.", reward=float(right), finished=True)

    @classmethod
    def oracle(cls, task: TriplesTask) -> Generator[Call | Answer, StepResult, None]:
        """Read the facts along the path, and submit its end."""
        for entity in (task.start, *task.between):
            yield Call("facts", {"entity": entity})
        yield Call("submit", {"answer": task.answer})

    @classmethod
    def task_from_hops(cls, id: str, rng: random.Random, hops: int) -> TriplesTask | None:
        """Return a training task of a walk through the graph."""
        for _ in range(_TRIES):
            found = cls.graph.walk(rng, hops)
            if found is not None and split_of(*found) == "train":
                return task_of(id, *found)
        return None


def task_of(id: str, start: str, path: Sequence[Hop]) -> TriplesTask:
    """Return the task of a path."""
    return TriplesTask(
        id=id, question=question_of(start, path), start=start, hops=len(path), answer=path[-1].to,
        between=[step.to for step in path[:-1]],
    )  # fmt: skip


def split_of(start: str, path: Sequence[Hop]) -> str:
    """Return the split of a path, which follows from its answer: no held-out answer is trained on."""
    bucket = hashlib.sha256(f"triples:{path[-1].to}".encode()).digest()[0] % 10
    return "validation" if bucket == 8 else "test" if bucket == 9 else "train"


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return the environment of a file.

    Raises:
        EnvironmentNotFound: there is no such file.
        AuthoringError: the file, a line or an option cannot be used, or there are no questions.
    """
    path, settings = Path(source.target), source.settings(TriplesSettings)
    graph = Graph(read_triples(path))
    name = settings.name or _NAME_CHARS.sub("-", path.stem.lower()).strip("-._")[:100] or "triples"
    loads = {split: partial(draw_tasks, graph, settings.hops, split, count) for split, count in COUNTS.items()}
    found = {split: tasks for split, load in loads.items() if (tasks := load())}
    if "train" not in found:
        raise AuthoringError(
            f"{path} has no questions of {settings.hops} hops with one answer; give #hops=1, or more facts"
        )
    digest = hashlib.sha256(
        repr(sorted((s, r, o) for s, t in graph.objects.items() for r, f in t.items() for o in f)).encode()
    )
    fields: dict[str, Any] = {
        "__doc__": f"Questions of {settings.hops} hops about the facts of {path.name}, {len(graph.entities)} entities.",
        "__module__": __name__, "name": name, "version": f"1-{digest.hexdigest()[:8]}", "graph": graph,
        "splits": {split: Split(tasks) for split, tasks in found.items()},
    }  # fmt: skip
    return [cast("type[Environment[Any]]", type("TriplesOfFile", (Triples,), fields))]


def draw_tasks(graph: Graph, hops: int, split: str, count: int) -> list[TriplesTask]:
    """Return up to `count` different tasks of a split."""
    rng = random.Random(f"triples:{split}:{hops}")
    found: dict[str, TriplesTask] = {}
    for _ in range(20 * count):
        walked = graph.walk(rng, hops)
        if walked is not None and split_of(*walked) == split:
            task = task_of(f"{split}-{len(found)}", *walked)
            found.setdefault(task.question, task)
        if len(found) == count:
            break
    return list(found.values())


def read_triples(path: Path) -> list[tuple[str, str, str]]:
    """Return the facts of a file.

    Raises:
        EnvironmentNotFound: there is no such file.
        AuthoringError: it cannot be read, or a line is no fact.
    """
    found: list[tuple[str, str, str]] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for number, row in enumerate(_rows(path, file), 1):
                found.append(_fact(row, f"{path}:{number}"))
                if len(found) > _MOST_FACTS:
                    raise AuthoringError(f"{path} has more than {_MOST_FACTS:,} facts")
    except FileNotFoundError:
        raise EnvironmentNotFound(f"there is no file {path}", environment=str(path)) from None
    except OSError as error:
        raise AuthoringError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise AuthoringError(f"{path} is not text in UTF-8 with one fact a line: {error}") from None
    if not found:
        raise AuthoringError(f"{path} has no facts")
    return found


def _rows(path: Path, file: Iterable[str]) -> Iterator[Any]:
    match path.suffix.lower():
        case ".jsonl":
            for number, line in enumerate(file, 1):
                if line.strip():
                    try:
                        yield json.loads(line)
                    except (ValueError, RecursionError):
                        raise AuthoringError(f"{path}:{number} is not JSON") from None
        case ".csv" | ".tsv":
            yield from (
                row for row in csv.reader(file, delimiter="," if path.suffix.lower() == ".csv" else "\t") if row
            )
        case suffix:
            raise AuthoringError(f"{path} ends in {suffix or 'nothing'}; triples are in .tsv, .csv or .jsonl files")


def _fact(row: Any, place: str) -> tuple[str, str, str]:
    values = [row.get(name) for name in _FIELDS] if isinstance(row, dict) else row
    if not isinstance(values, list) or len(values) != 3:
        raise AuthoringError(f"{place} is no fact, which has a subject, a relation and an object: {str(row)[:80]!r}")
    texts = [" ".join(value.split()) if isinstance(value, str) else "" for value in values]
    for name, text in zip(_FIELDS, texts, strict=True):
        if not 1 <= len(text) <= _LONGEST or not text.isprintable() or "|" in text:
            raise AuthoringError(f"{place}: its {name} must be text of 1 to {_LONGEST} characters without |")
    return texts[0], texts[1], texts[2]
