"""Checks environment classes and publishes them; mistakes are reported at startup, with the fix."""

from __future__ import annotations

import difflib
import inspect
import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import to_jsonable_python

from ludus.protocol.episodes import EnvironmentInfo, SeatInfo, SplitInfo, SplitType, TaskRow, ToolSpec, WorldsInfo
from ludus.protocol.errors import AuthoringError, EnvironmentNotFound, SplitNotFound, Unsupported
from ludus.protocol.identifiers import SUBMIT_TOOL
from ludus.protocol.messages import VALIDATION_NAMES, did_you_mean
from ludus.protocol.tasks import Task
from ludus.protocol.text import is_unicode, json_problem, replace_surrogates
from ludus.server.authoring.durability import check_durability
from ludus.server.authoring.environment import Environment, Toolset
from ludus.server.authoring.noise import Noise
from ludus.server.authoring.seat_checks import check_seats
from ludus.server.authoring.seats import WAIT_TOOL, Match, SeatedEnvironment
from ludus.server.authoring.splits import SPLIT_TYPES, Split
from ludus.server.authoring.tools import Tool, collect, collect_shared
from ludus.server.authoring.worlds import WorldEnvironment, check_no_seats_with_worlds, check_worlds
from ludus.server.execution import user_code
from ludus.server.tasks.curriculum import Curriculum

__all__ = ["Catalog"]


_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")
_ROOT_PATHS = frozenset(
    {
        "health", "ready", "metrics", "ping", "version", "list_environments", "create", "delete", "create_session",
        "delete_session", "docs", "redoc", "openapi.json", "mcp", "play", "channel",
    }
)  # fmt: skip
"""First path segments of the server's own routes. ORS uses environment names as first segments too."""
_TYPE_OF_NAME: dict[str, SplitType] = {name: "validation" for name in VALIDATION_NAMES}
_TYPE_OF_NAME.update((name, name) for name in SPLIT_TYPES)
_ROWS_KEPT = 1024
_SHOWN_NAME: Final = 200

SUBMIT_SPEC = ToolSpec(
    name=SUBMIT_TOOL,
    description="Hand in your final answer. This ends the episode.",
    input_schema={
        "type": "object",
        "properties": {"answer": {"type": "string", "description": "The final answer."}},
        "required": ["answer"],
        "additionalProperties": False,
    },
)
"""The tool that passes a final message to `grade` on transports without a message for it."""


@dataclass(slots=True)
class Published:
    """An environment that passed its checks, with all data that its episodes share."""

    name: str
    cls: type[Environment[Any]]
    splits: dict[str, Split[Any]]
    tools: dict[str, Tool]
    gradable: bool
    has_setup: bool
    has_teardown: bool
    sandboxed: bool
    """Whether its episodes may have a sandbox."""
    has_task_tools: bool
    group_scoring: bool
    judges_turns: bool = False
    overlaps: bool = False
    """Whether calls of one episode may run at the same time."""
    written_ahead: bool = False
    """Whether a journal has a call before it has an outcome: calls may overlap, or act on the outside."""
    specs: tuple[ToolSpec, ...] = ()
    """The tools that the catalog shows: the class's own, then those of `Environment.catalog_tools`."""
    match: type[Match[Any]] | None = None
    """The class of its matches; None without seats."""
    worlds: type[WorldEnvironment[Any, Any]] | None = None
    """The class, if it has worlds."""
    curricula: defaultdict[str, Curriculum] = field(default_factory=lambda: defaultdict(Curriculum))
    """The curriculum of each split, made when it is first used."""
    rows: dict[tuple[str, int], TaskRow] = field(default_factory=dict)

    def seed_of(self, seed: int | None) -> int:
        """Return the seed of an episode: the one that a start gives, or else a random one.

        Raises:
            Unsupported: the environment cannot be seeded, and the start gives a seed.
        """
        if seed is not None and not self.cls.seedable:
            raise Unsupported(f"environment {self.name!r} cannot be seeded; leave the seed out", environment=self.name)
        return secrets.randbits(53) if seed is None else seed

    @property
    def seats(self) -> tuple[str, ...]:
        """The names of its seats; empty if episodes have one agent."""
        return () if self.match is None else tuple(self.match.seats)

    @property
    def opponents(self) -> tuple[str, ...]:
        """The strengths of its scripted opponents, the weakest first; empty if there are none."""
        return () if self.match is None else tuple(self.match.opponents)

    @property
    def own_specs(self) -> tuple[ToolSpec, ...]:
        """The tools that the class declares; with seats, those of the first one, alone."""
        tools = self.tools_of_seat(self.seats[0], lone=True) if self.seats else self.tools
        return tuple(tool.spec for tool in tools.values())

    def tools_of_seat(self, seat: str | None, *, lone: bool) -> dict[str, Tool]:
        """Return the tools of a seat, the one for waiting last; a lone agent does not have it."""
        tools = {name: tool for name, tool in self.tools.items() if tool.seats is None or seat in tool.seats}
        wait = tools.pop(WAIT_TOOL, None)
        return tools if wait is None or lone else {**tools, WAIT_TOOL: wait}

    def split(self, name: str) -> Split[Any]:
        """Return the split with a name.

        Raises:
            SplitNotFound: there is no such split.
        """
        try:
            return self.splits[name]
        except KeyError:
            near = did_you_mean(name, self.splits)
            raise SplitNotFound(
                f"environment {self.name!r} has no split {name!r}; it has {_list(self.splits)}{near}",
                split=name,
            ) from None

    def row(self, split: str, index: int, task: Any) -> TaskRow:
        """Return the public row of a task; for a test task it has the id only.

        Raises:
            EnvironmentFailed: the task's own serializers failed.
        """
        row = self.rows.get((split, index))
        if row is None:
            try:
                fields = {} if self.splits[split].type == "test" else _public(task)
            except BaseException as error:
                raise user_code.failure("the public part of a task", None, self.name, error) from None
            row = TaskRow(id=task.id, split=split, index=index, fields=fields)
            if len(self.rows) >= _ROWS_KEPT:
                self.rows.clear()
            self.rows[split, index] = row
        return row

    @property
    def info(self) -> EnvironmentInfo:
        """The public description of the environment."""
        cls = self.cls
        return EnvironmentInfo(
            name=self.name,
            description=replace_surrogates(inspect.cleandoc(cls.__doc__ or "")),
            version=replace_surrogates(cls.version),
            splits=self.split_infos(),
            tools=self.specs,
            seedable=cls.seedable,
            gradable=self.gradable,
            forkable=cls.forkable,
            group_scoring=self.group_scoring,
            reward_range=cls.reward_range,
            seats=tuple(
                SeatInfo(name=seat, tools=tuple(tool.spec for tool in self.tools_of_seat(seat, lone=False).values()))
                for seat in self.seats
            ),
            opponents=self.opponents,
            worlds=None if self.worlds is None else WorldsInfo(chain=self.worlds.chain_length),
        )

    def split_infos(self) -> tuple[SplitInfo, ...]:
        """Return descriptions of the splits, in the author's order."""
        infos = []
        for name, split in self.splits.items():
            assert split.type is not None
            infos.append(SplitInfo(name=name, type=split.type, count=split.count))
        return tuple(infos)


class Catalog(Mapping[str, Published]):
    """The environments of a server, by name."""

    def __init__(self, classes: Iterable[type[Environment[Any]]]) -> None:
        self._published: dict[str, Published] = {}
        for cls in classes:
            for name, variant in _with_variants(cls):
                if name in self._published:
                    raise AuthoringError(
                        f"two environments are called {name!r} ({self._published[name].cls.__qualname__} and "
                        f"{cls.__qualname__}); give one of them another `name`"
                    )
                self._published[name] = publish(name, variant)
        if not self._published:
            raise AuthoringError("there is no environment to serve; name at least one class")

    def __getitem__(self, name: str) -> Published:
        return self._published[name]

    def __iter__(self) -> Any:
        return iter(self._published)

    def __len__(self) -> int:
        return len(self._published)

    def find(self, name: str) -> Published:
        """Return the environment with a name.

        Raises:
            EnvironmentNotFound: there is no such environment; the message names the nearest one.
        """
        try:
            return self._published[name]
        except KeyError:
            name = name[:_SHOWN_NAME]  # bounds the search for the nearest name
            near = difflib.get_close_matches(name, self._published, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"this server has {_list(self._published)}"
            raise EnvironmentNotFound(f"there is no environment {name!r}; {hint}", environment=name) from None


def publish(name: str, cls: type[Environment[Any]]) -> Published:
    """Check one class and return the published environment.

    Raises:
        AuthoringError: the class has a mistake; the message says how to fix it.
    """
    where = cls.__qualname__
    if not _NAME.fullmatch(name) or name in _ROOT_PATHS:
        raise AuthoringError(
            f"{where}: the name {name!r} cannot be published; use lower-case letters, digits, '_', '-' and '.', and "
            f"none of the server's own paths ({', '.join(sorted(_ROOT_PATHS))})"
        )
    _check_class(cls, where)
    check_durability(cls, where)
    tools = _tools(cls, where)
    check_no_seats_with_worlds(cls, where)
    check_seats(cls, where, tools.values())
    gradable = cls.grade is not Environment.grade
    has_task_tools = cls.task_tools is not Environment.task_tools
    if not tools and not gradable and not has_task_tools:
        raise AuthoringError(f"{where} has no tools; mark a method with @tool, or define grade(self, answer)")
    sandboxed = cls.sandbox_settings is not None or cls.chooses_sandboxes()
    published = Published(
        name=name,
        cls=cls,
        splits=_splits(cls, where),
        tools=tools,
        gradable=gradable,
        has_setup=cls.setup is not Environment.setup,
        has_teardown=cls.teardown is not Environment.teardown or sandboxed,
        sandboxed=sandboxed,
        has_task_tools=has_task_tools,
        group_scoring=cls.score_group.__func__ is not Environment.score_group.__func__,  # type: ignore[attr-defined]
        match=cls.match_class if issubclass(cls, SeatedEnvironment) else None,
        judges_turns=cls._binding is not None and cls._binding.turn is not None,
        overlaps=has_task_tools or any(tool.concurrent for tool in tools.values()),
    )
    published.worlds = check_worlds(cls, where, published.splits, overlaps=published.overlaps)
    published.written_ahead = published.overlaps or cls.outside_effects
    bases = [base for base in cls.__mro__ if issubclass(base, Environment)]
    _check_filters([name, *map(published_name, bases)], cls.version, published.splits)
    published.specs = published.own_specs
    return published


def _public(task: Any) -> dict[str, Any]:
    """Return a task's public fields, with lone surrogates replaced.

    Raises:
        ValueError: a number in them is not finite; pydantic would write it as null.
    """
    if type(task).public is Task.public:
        fields = task.model_dump(exclude={"id"})
        if json_problem(fields, "the task") is None:
            return task.public()  # type: ignore[no-any-return]
        fields = to_jsonable_python(replace_surrogates(fields))
    else:
        fields = replace_surrogates(task.public())
    if (problem := json_problem(fields, "the task")) is not None:
        raise ValueError(problem)
    return fields  # type: ignore[no-any-return]


def snake_case(name: str) -> str:
    """Convert a name from CamelCase to snake_case: `GuessNumber` → `guess_number`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def published_name(cls: type[Environment[Any]]) -> str:
    """Return the name under which a class is published: its own `name`, or the class's name in snake_case."""
    return cls.__dict__.get("name") or snake_case(cls.__name__)


def _with_variants(cls: type[Environment[Any]]) -> Iterable[tuple[str, type[Environment[Any]]]]:
    base = published_name(cls)
    yield base, cls
    for variant, changes in cls.variants.items():
        unknown = [attribute for attribute in changes if not hasattr(cls, attribute)]
        if unknown:
            raise AuthoringError(
                f"{cls.__qualname__}: its variant {variant!r} changes {', '.join(unknown)}, which the class does not "
                "have; variants change existing class attributes"
            )
        yield (
            f"{base}-{variant}",
            type(f"{cls.__name__}_{variant}", (cls,), {"__doc__": cls.__doc__, **changes, "variants": {}}),
        )


def _check_class(cls: type[Environment[Any]], where: str) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Environment)):
        raise AuthoringError(f"{cls!r} is not an Environment; subclass ludus.server.Environment")
    if cls.prompt is Environment.prompt:
        raise AuthoringError(f"{where} has no prompt; define prompt(self) and return what the policy sees first")
    if not isinstance(cls.noise, Noise | None):
        raise AuthoringError(f"{where}.noise is {type(cls.noise).__name__}; give a ludus.server.Noise, or None")
    try:
        cls()
    except TypeError:
        raise AuthoringError(
            f"{where}() cannot be made without arguments; prepare the episode in setup(self) instead of __init__"
        ) from None


def _tools(cls: type[Environment[Any]], where: str) -> dict[str, Tool]:
    all_tools = collect(cls, owner=None, blocking=cls.blocking)
    for position, toolset in enumerate(cls.toolsets):
        if not (isinstance(toolset, type) and issubclass(toolset, Toolset)):
            raise AuthoringError(f"{where}.toolsets holds {toolset!r}; list subclasses of ludus.server.Toolset")
        all_tools += collect_shared(toolset, position, cls.blocking)
    tools: dict[str, Tool] = {}
    for tool in all_tools:
        if tool.name in tools:
            raise AuthoringError(f"{where} has two tools called {tool.name!r}; rename one with @tool(name=…)")
        tools[tool.name] = tool
    return tools


def _splits(cls: type[Environment[Any]], where: str) -> dict[str, Split[Any]]:
    if not cls.splits:
        raise AuthoringError(f'{where} has no splits; set `splits = {{"train": [Task(…), …]}}`')
    splits: dict[str, Split[Any]] = {}
    for name, declared in cls.splits.items():
        if not is_unicode(name):
            raise AuthoringError(f"{where}: the split name {name!r} holds what is not a character; choose another")
        split = declared if isinstance(declared, Split) else Split(declared)
        kind = split.type or _TYPE_OF_NAME.get(name)
        if kind is None or kind not in SPLIT_TYPES:
            raise AuthoringError(
                f"{where}: split {name!r} needs a type, as its name shows none; write Split(tasks, type=…) with one of "
                f"{', '.join(SPLIT_TYPES)}"
            )
        split.type = kind
        try:
            split.check()
        except AuthoringError as error:
            raise AuthoringError(f"{where}: split {name!r}: {error.message}") from None
        splits[name] = split
    return splits


def _list(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _check_filters(names: Sequence[str], version: str, splits: Mapping[str, Split[Any]]) -> None:
    """Check that the difficulty files of filtered splits belong to these splits.

    Args:
        names: the name of the environment, then of the environments that it is a variant or subclass of.
        version: the environment's version.
        splits: all its splits.

    Raises:
        AuthoringError: a file was measured on another environment, version or split.
    """
    for name, split in splits.items():
        chain: list[Split[Any]] = [split]
        while (filtered := chain[-1].filter) is not None:
            chain.append(filtered.base)
        for link in chain[:-1]:
            assert link.filter is not None
            file, path = link.filter.file, link.filter.path
            wrong = file.mismatch(file.environment if file.environment in names else names[0], version)
            if wrong is None and file.split in splits and splits[file.split] not in chain:
                wrong = (
                    f"it was measured on another split, {file.split!r}; filter that one, or measure this one "
                    "with `ludus calibrate --difficulty`"
                )
            if wrong is not None:
                raise AuthoringError(f"split {name!r} of {names[0]!r} is filtered by {path}: {wrong}")
