"""Serves the tasks of all environments: pages, single tasks, samples, and reports of task outcomes."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Sequence
from typing import Any, Final

from ludus.protocol import episodes as e
from ludus.protocol.errors import Forbidden, InvalidParams, TaskNotFound
from ludus.protocol.methods import SPLIT_SCOPE_PREFIX
from ludus.server.auth.principal import Principal
from ludus.server.authoring.splits import ENDLESS_INDEX_LIMIT, Split
from ludus.server.durability.journal import Journal
from ludus.server.execution import user_code
from ludus.server.execution.errors import ToolError
from ludus.server.execution.threads import Workers
from ludus.server.tasks.catalog import Catalog, Published
from ludus.server.tasks.reports import Reports

_MAKING_SECONDS: Final = 0.02
"""How long a thread makes tasks of a page before others get a turn."""

_REDRAWS = 16
"""How often a random draw is repeated to find a task without a known outcome."""


class TaskService:
    """Answers requests about tasks, and checks access to test splits."""

    def __init__(self, catalog: Catalog, workers: Workers, journal: Journal | None) -> None:
        self._catalog = catalog
        self._workers = workers
        self.reports = Reports(catalog, journal)

    async def open(self, environment: str, split: str, principal: Principal) -> tuple[Published, Split[Any]]:
        """Return an environment and one of its splits, with the tasks loaded.

        Raises:
            EnvironmentNotFound, SplitNotFound: there is no such environment or split.
            Forbidden: the split is a test split and the principal lacks its scope.
            EnvironmentFailed: reading the split's tasks failed.
        """
        published = self._catalog.find(environment)
        definition = published.split(split)
        if definition.type == "test" and not principal.may_open_split(split):
            raise Forbidden(
                f"split {split!r} is a test split and the token {principal.name!r} lacks the scope "
                f"'{SPLIT_SCOPE_PREFIX}{split}'; use a token that has it",
                scope=SPLIT_SCOPE_PREFIX + split,
            )
        await self.prepare(published, definition)
        return published, definition

    async def prepare(self, published: Published, *splits: Split[Any]) -> None:
        """Load the tasks of splits that load at first use, so that their size is known; all splits by default."""
        for split in splits or published.splits.values():
            if not split.prepared:
                await self._run(published, split.prepare)

    async def at(self, published: Published, split: str, index: int) -> tuple[int, Any]:
        """Return the task at an index, with its index.

        Raises:
            TaskNotFound: there is no such index.
        """
        definition = published.split(split)
        if definition.count is not None and index >= definition.count:
            raise TaskNotFound(
                f"split {split!r} of {published.name!r} has {definition.count} tasks, so there is no index {index}",
                split=split, index=index,
            )  # fmt: skip
        if index >= ENDLESS_INDEX_LIMIT:
            raise TaskNotFound(f"indices end at {ENDLESS_INDEX_LIMIT - 1}; {index} is beyond", split=split, index=index)
        return index, await self._run(published, definition.get, index, here=definition.immediate)

    async def by_id(self, published: Published, split: str, task: str) -> tuple[int, Any]:
        """Return the task with an id, with its index.

        Raises:
            TaskNotFound: there is no such task.
        """
        definition = published.split(split)
        try:
            return await self._run(published, definition.find, task, here=definition.immediate)  # type: ignore[no-any-return]
        except KeyError:
            raise TaskNotFound(
                f"split {split!r} of {published.name!r} has no task {task!r}; tasks/list names them",
                split=split, task=task,
            ) from None  # fmt: skip

    async def choose(
        self, published: Published, split: str, task: str | None, index: int | None, seed: int
    ) -> tuple[int, Any]:
        """Return the task given by id or index, or else one drawn with the seed, with its index."""
        if task is not None:
            return await self.by_id(published, split, task)
        if index is None:
            index = random.Random(seed).randrange(published.split(split).count or ENDLESS_INDEX_LIMIT)
        return await self.at(published, split, index)

    async def list_environments(self) -> e.ListEnvironmentsResult:
        """Return all environments."""
        for published in self._catalog.values():
            await self.prepare(published)
        return e.ListEnvironmentsResult(environments=tuple(published.info for published in self._catalog.values()))

    async def list_splits(self, params: e.ListSplitsParams) -> e.ListSplitsResult:
        """Return the splits of one environment."""
        published = self._catalog.find(params.environment)
        await self.prepare(published)
        return e.ListSplitsResult(splits=published.split_infos())

    async def list(self, params: e.ListTasksParams, principal: Principal) -> e.ListTasksResult:
        """Return one page of tasks."""
        published, split = await self.open(params.environment, params.split, principal)
        try:
            start = int(params.cursor) if params.cursor is not None else 0
        except ValueError:
            start = -1
        if start < 0:
            cursor = (params.cursor or "")[:64]
            raise InvalidParams(f"cursor {cursor!r} is not one this server gave; begin again without a cursor")
        end = start + params.limit
        if split.count is not None:
            end = min(end, split.count)
        rows = await self._rows(published, params.split, range(start, end))
        more = end < (ENDLESS_INDEX_LIMIT if split.count is None else split.count)
        return e.ListTasksResult(tasks=rows, next_cursor=str(end) if more else None)

    async def get(self, params: e.GetTaskParams, principal: Principal) -> e.GetTaskResult:
        """Return one task."""
        published, _ = await self.open(params.environment, params.split, principal)
        index, task = await self.choose(published, params.split, params.task, params.index, 0)
        return e.GetTaskResult(task=published.row(params.split, index, task))

    async def sample(self, params: e.SampleTasksParams, principal: Principal) -> e.SampleTasksResult:
        """Return a sample of tasks."""
        published, split = await self.open(params.environment, params.split, principal)
        low, high = params.band
        if not 0 <= low <= high <= 1:
            raise InvalidParams(f"band {params.band} must be two pass rates between 0 and 1, the lower one first")
        rng = random.Random(secrets.randbits(63) if params.seed is None else params.seed)
        limit = split.count or ENDLESS_INDEX_LIMIT
        if params.strategy == "uniform":
            rows = [await self._row(published, params.split, rng.randrange(limit)) for _ in range(params.count)]
            return e.SampleTasksResult(tasks=tuple(rows))
        curriculum = published.curricula[params.split]
        band = curriculum.in_band(low, high)
        rows = []
        for task_id in rng.sample(band, min(params.count, len(band))):
            index, task = await self.by_id(published, params.split, task_id)
            rows.append(published.row(params.split, index, task))
        while len(rows) < params.count:
            row = await self._row(published, params.split, rng.randrange(limit))
            for _ in range(_REDRAWS):
                if not curriculum.knows(row.id):
                    break
                row = await self._row(published, params.split, rng.randrange(limit))
            rows.append(row)
        return e.SampleTasksResult(tasks=tuple(rows))

    async def report(self, params: e.ReportOutcomesParams, principal: Principal) -> e.ReportOutcomesResult:
        """Record task outcomes for the curriculum, once per key."""
        self.reports.is_new(params, principal)
        published, _ = await self.open(params.environment, params.split, principal)
        for outcome in params.outcomes:
            await self.by_id(published, params.split, outcome.task)
        return e.ReportOutcomesResult(recorded=await self.reports.add(params, principal))

    async def _rows(self, published: Published, split: str, indices: Sequence[int]) -> tuple[e.TaskRow, ...]:
        """Return the rows of tasks; those that are made on demand are made many at a time in a thread."""
        definition = published.split(split)
        if definition.immediate:
            return tuple([await self._row(published, split, index) for index in indices])
        missing = [index for index in indices if (split, index) not in published.rows]
        tasks: dict[int, Any] = {}
        while len(tasks) < len(missing):
            some = missing[len(tasks) :]
            tasks.update(zip(some, await self._run(published, _make, definition, some), strict=False))
        rows = [
            published.row(split, index, tasks[index]) if index in tasks else await self._row(published, split, index)
            for index in indices
        ]
        return tuple(rows)

    async def _row(self, published: Published, split: str, index: int) -> e.TaskRow:
        cached = published.rows.get((split, index))
        if cached is not None:
            return cached
        _, task = await self.at(published, split, index)
        return published.row(split, index, task)

    async def _run(self, published: Published, function: Any, *args: Any, here: bool = False) -> Any:
        """Call a function that reads tasks, directly if `here`, otherwise in a thread.

        Raises:
            KeyError: there is no task with the requested id.
            EnvironmentFailed: the function raised another exception.
        """
        try:
            if here:
                return user_code.call(function, *args)
            return await user_code.run(self._workers.share(published.name), True, function, *args)
        except (user_code.UserCodeError, ToolError) as error:
            cause = error.cause if isinstance(error, user_code.UserCodeError) else error
            if args and isinstance(cause, KeyError) and cause.args == args:
                raise cause from None
            raise user_code.failure("reading tasks", None, published.name, error) from None


def _make(split: Split[Any], indices: Sequence[int]) -> list[Any]:
    """Return the tasks at the first of some indices: one, and more while they take little time together."""
    until = time.perf_counter() + _MAKING_SECONDS
    tasks = [split.get(indices[0])]
    for index in indices[1:]:
        if time.perf_counter() > until:
            break
        tasks.append(split.get(index))
    return tasks
