"""Routes that need no session: the version, environments, tools, splits and tasks."""

from __future__ import annotations

from functools import cache

from pydantic_core import to_json

from ludus.common.distribution import installed_version
from ludus.protocol.episodes import GetTaskParams, ListSplitsParams, ListTasksParams
from ludus.protocol.errors import SplitNotFound
from ludus.protocol.identifiers import EXTENSION_VERSION
from ludus.protocol.methods import Scope
from ludus.server.auth.principal import Principal
from ludus.server.authoring.splits import ENDLESS_INDEX_LIMIT
from ludus.server.tasks.catalog import SUBMIT_SPEC
from ludus.server.transports.ors.encoding import extend, task_json, tools_json
from ludus.server.transports.ors.request import (
    HttpError,
    NamedTaskBody,
    OrsRequest,
    SplitBody,
    TaskBody,
    TaskRangeBody,
    parse_body,
    parse_json,
)
from ludus.server.transports.ors.server import OrsServer

PAGE = 1000
MOST_LISTED = 100_000
"""The largest split that `/tasks` lists. For a larger one it says to use indices, like the published servers."""

EXTENSION = to_json({"extension": EXTENSION_VERSION}).decode()

NOT_LISTED = "list_tasks is not supported for this environment. Use the index-based API (num_tasks + get_task) instead."


async def show_version(ors: OrsServer, request: OrsRequest) -> None:
    """Answer `GET /version`."""
    await request.json(extend(_version(), EXTENSION) if request.extended else _version())


@cache
def _version() -> bytes:
    return to_json({"version": installed_version(), "build_sha": None})


async def list_environments(ors: OrsServer, request: OrsRequest) -> None:
    """Answer `GET /list_environments`."""
    ors.principal(request, Scope.TASKS_READ)
    await request.json(to_json(list(ors.host.catalog)))


async def list_tools(ors: OrsServer, request: OrsRequest) -> None:
    """Answer `GET /{env}/tools`: the tools that every task has."""
    ors.principal(request, Scope.TASKS_READ)
    environment = ors.default_environment(request)
    info = ors.host.catalog[environment].info
    answer = ors.tools.get(environment)
    if answer is None:
        specs = (*info.tools, SUBMIT_SPEC) if info.gradable else info.tools
        answer = tools_json(specs, gradable=info.gradable, group_scoring=info.group_scoring)
        ors.tools[environment] = answer
    await request.json(extend(answer, info.model_dump_json()) if request.extended else answer)


async def list_splits(ors: OrsServer, request: OrsRequest) -> None:
    """Answer `GET /{env}/splits`."""
    principal = ors.principal(request, Scope.TASKS_READ)
    environment = ors.default_environment(request)
    result = await ors.host.list_splits(ListSplitsParams(environment=environment), principal)
    await request.json(to_json([{"name": split.name, "type": split.type} for split in result.splits]))


async def list_tasks(ors: OrsServer, request: OrsRequest) -> None:
    """Answer `POST /{env}/tasks`."""
    principal = ors.principal(request, Scope.TASKS_READ)
    environment = ors.default_environment(request)
    body = parse_body(SplitBody, await request.body())
    count = await _count(ors, environment, body.split, principal)
    if count is None or count > MOST_LISTED:
        raise HttpError(400, NOT_LISTED)
    tasks = await _rows(ors, environment, body.split, 0, count, principal)
    await request.json(to_json({"tasks": tasks, "env_name": environment}))


async def num_tasks(ors: OrsServer, request: OrsRequest) -> None:
    """Answer `POST /{env}/num_tasks`. For an endless split, this is the number of possible indices."""
    principal = ors.principal(request, Scope.TASKS_READ)
    environment = ors.default_environment(request)
    body = parse_body(SplitBody, await request.body())
    count = await _count(ors, environment, body.split, principal)
    await request.json(to_json({"num_tasks": ENDLESS_INDEX_LIMIT if count is None else count}))


async def get_task(ors: OrsServer, request: OrsRequest) -> None:
    """Answer `POST /{env}/task` and `/{env}/get_task`."""
    principal = ors.principal(request, Scope.TASKS_READ)
    environment = ors.default_environment(request)
    raw = await request.body()
    if request.extended and isinstance(value := parse_json(raw), dict) and "task" in value:
        named = parse_body(NamedTaskBody, raw)
        params = GetTaskParams(environment=environment, split=named.split, task=named.task)
    else:
        body = parse_body(TaskBody, raw)
        index = await position(ors, environment, body.split, body.index, principal)
        params = GetTaskParams(environment=environment, split=body.split, index=index)
    row = (await ors.host.get_task(params, principal)).task
    answer = to_json({"task": task_json(row), "env_name": environment})
    await request.json(extend(answer, row.model_dump_json()) if request.extended else answer)


async def get_task_range(ors: OrsServer, request: OrsRequest) -> None:
    """Answer `POST /{env}/task_range` and `/{env}/get_task_range`."""
    principal = ors.principal(request, Scope.TASKS_READ)
    environment = ors.default_environment(request)
    body = parse_body(TaskRangeBody, await request.body())
    count = await _count(ors, environment, body.split, principal)
    start, stop, _ = slice(body.start, body.stop).indices(ENDLESS_INDEX_LIMIT if count is None else count)
    if stop - start > MOST_LISTED:
        raise HttpError(400, f"Invalid index range: it holds {stop - start} tasks; ask for at most {MOST_LISTED}")
    tasks = await _rows(ors, environment, body.split, start, stop, principal)
    await request.json(to_json({"tasks": tasks, "env_name": environment}))


async def position(ors: OrsServer, environment: str, split: str, index: int, principal: Principal) -> int:
    """Return the position in the split of an ORS index, which counts from the end if it is negative.

    Raises:
        HttpError: 400, the index is before the first task or beyond the largest index.
    """
    if index < 0:
        count = await _count(ors, environment, split, principal)
        index = -1 if count is None else index + count
    if not 0 <= index < ENDLESS_INDEX_LIMIT:
        raise HttpError(400, "Invalid index")
    return index


async def _count(ors: OrsServer, environment: str, split: str, principal: Principal) -> int | None:
    """Return the number of tasks in a split; None for an endless one."""
    result = await ors.host.list_splits(ListSplitsParams(environment=environment), principal)
    for info in result.splits:
        if info.name == split:
            return info.count
    raise SplitNotFound(f"environment {environment!r} has no split {split!r}", split=split)


async def _rows(
    ors: OrsServer, environment: str, split: str, start: int, stop: int, principal: Principal
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    while start < stop:
        params = ListTasksParams(
            environment=environment, split=split, cursor=str(start) if start else None, limit=min(PAGE, stop - start)
        )
        page = await ors.host.list_tasks(params, principal)
        rows += [task_json(row) for row in page.tasks]
        if page.next_cursor is None:
            break
        start = int(page.next_cursor)
    return rows
