"""The parts of an ORS server other than its sessions: its implementation, environments, splits and tasks."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from ludus.client.transports._ors_http import OrsHttp, Refused, error_from
from ludus.client.transports._ors_sessions import row_of, spec_of
from ludus.protocol import episodes as e
from ludus.protocol import errors

ENDLESS: Final = 2**53
"""The number of tasks that a Ludus server reports for an endless split."""


PAGE: Final = 1000
SCANNED: Final = 1_000_000
"""The most tasks of a split that are read in the search for a task id."""


class Kind(StrEnum):
    """The implementation of the server; they differ in how they accept secrets, among other things."""

    LUDUS = "ludus"
    OPENREWARD = "openreward"
    ORS_SDK = "ors-sdk"


class OrsServer:
    """The requests to a server that need no session."""

    def __init__(self, http: OrsHttp) -> None:
        self._http = http
        self.kind: Kind | None = None
        """The server's implementation; None until `probe` has found it out."""
        self._probing = asyncio.Lock()
        self._infos: dict[str, e.EnvironmentInfo] = {}
        self._indices: dict[tuple[str, str], dict[str, int]] = {}

    async def json(
        self, method: str, path: str, body: Any = None, *,
        sid: str | None = None, environment: str | None = None, headers: Mapping[str, str] | None = None,
    ) -> Any:  # fmt: skip
        """Send a request and return its JSON answer.

        Raises:
            LudusError: the server refused; the type depends on whether the request was for a session (`sid`) or an
                environment.
        """
        extra = {**(headers or {}), **({"X-Session-ID": sid} if sid is not None else {})}
        try:
            return await self._http.json(method, path, body, extra)
        except Refused as refused:
            raise error_from(refused, episode=sid, environment=environment) from None

    async def probe(self) -> Kind:
        """Return the server's implementation.

        It shows in the answer of `/version`: Ludus servers name themselves, `openreward` returns only its version, and
        `ors-sdk` has no such route.
        """
        if self.kind is None:
            async with self._probing:
                if self.kind is None:
                    self.kind = await self._ask_version()
        return self.kind

    async def _ask_version(self) -> Kind:
        try:
            answer = await self._http.json("GET", "/version")
        except Refused as refused:
            if refused.status in (308, 404):
                return Kind.ORS_SDK
            raise error_from(refused) from None
        return Kind.LUDUS if isinstance(answer, dict) and "ludus" in answer else Kind.OPENREWARD

    async def list_environments(self, _: e.ListEnvironmentsParams) -> e.ListEnvironmentsResult:
        """Return all environments."""
        names = await self.json("GET", "/list_environments")
        infos = await asyncio.gather(*(self.info(name) for name in names))
        return e.ListEnvironmentsResult(environments=tuple(infos))

    async def list_splits(self, params: e.ListSplitsParams) -> e.ListSplitsResult:
        """Return the splits of an environment."""
        return e.ListSplitsResult(splits=(await self.info(params.environment)).splits)

    async def info(self, name: str) -> e.EnvironmentInfo:
        """Return the description of an environment. It is cached, because it does not change while a server runs."""
        if name not in self._infos:
            answer = await self.json("GET", f"/{name}/tools", environment=name)
            if "ludus" in answer:
                self._infos[name] = e.EnvironmentInfo.model_validate(answer["ludus"])
            else:
                self._infos[name] = await self._peer_info(name, answer)
        return self._infos[name]

    async def _peer_info(self, name: str, tools: Mapping[str, Any]) -> e.EnvironmentInfo:
        splits = await self.json("GET", f"/{name}/splits", environment=name)
        counts = await asyncio.gather(*(self.count(name, split["name"]) for split in splits))
        return e.EnvironmentInfo(
            name=name,
            description="",
            version="",
            splits=tuple(
                e.SplitInfo(name=split["name"], type=split["type"], count=count)
                for split, count in zip(splits, counts, strict=True)
            ),
            tools=tuple(spec_of(tool) for tool in tools["tools"]),
            seedable=False,
            gradable=tools.get("terminal_tool") is not None,
            group_scoring=bool(tools.get("supports_score_group")),
        )

    async def count(self, environment: str, split: str) -> int | None:
        """Return the number of tasks of a split; None if it is endless."""
        answer = await self.json("POST", f"/{environment}/num_tasks", {"split": split}, environment=environment)
        count = answer["num_tasks"]
        return None if count >= ENDLESS else count

    async def list_tasks(self, params: e.ListTasksParams) -> e.ListTasksResult:
        """Return one page of the tasks of a split."""
        try:
            start = int(params.cursor or 0)
        except ValueError:
            raise errors.InvalidParams(f"cursor {params.cursor!r} is not one this wire gave") from None
        rows = await self._range(params.environment, params.split, start, start + params.limit)
        end = start + len(rows)
        more = len(rows) == params.limit
        if more:
            count = await self.count(params.environment, params.split)
            more = count is None or end < count
        return e.ListTasksResult(tasks=tuple(rows), next_cursor=str(end) if more else None)

    async def _range(self, environment: str, split: str, start: int, stop: int) -> list[e.TaskRow]:
        body = {"split": split, "start": start, "stop": stop}
        answer = await self.json("POST", f"/{environment}/task_range", body, environment=environment)
        is_ludus = await self.probe() is Kind.LUDUS
        rows = [row_of(spec, split, start + n, ours=is_ludus) for n, spec in enumerate(answer["tasks"])]
        self._indices.setdefault((environment, split), {}).update((row.id, row.index) for row in rows)
        return rows

    async def get_task(self, params: e.GetTaskParams) -> e.GetTaskResult:
        """Return one task, by its index or id."""
        index = params.index
        if params.task is not None:
            index = await self.index_of(params.environment, params.split, params.task)
        return e.GetTaskResult(task=await self.row(params.environment, params.split, index or 0))

    async def row(self, environment: str, split: str, index: int) -> e.TaskRow:
        """Return the task at an index."""
        answer = await self.json(
            "POST", f"/{environment}/task", {"split": split, "index": index}, environment=environment
        )
        return row_of(answer["task"], split, index, ours=await self.probe() is Kind.LUDUS)

    async def index_of(self, environment: str, split: str, task: str) -> int:
        """Return the index of a task id.

        ORS has no such request. Ludus servers answer it as an extension; on other servers the pages of the split are
        read.

        Raises:
            TaskNotFound: the split has no such task, or not among its first `SCANNED` tasks.
        """
        indices = self._indices.setdefault((environment, split), {})
        if task not in indices and await self.probe() is Kind.LUDUS:
            body = {"split": split, "task": task}
            answer = await self.json("POST", f"/{environment}/task", body, environment=environment)
            indices[task] = answer["ludus"]["index"]
        start = 0
        while task not in indices and start < SCANNED:
            rows = await self._range(environment, split, start, start + PAGE)
            start += PAGE
            if len(rows) < PAGE:
                break
        if task not in indices:
            raise errors.TaskNotFound(
                f"split {split!r} of {environment!r} has no task {task!r}", split=split, task=task
            )
        return indices[task]

    async def sample_tasks(self, params: e.SampleTasksParams) -> e.SampleTasksResult:
        """Return tasks drawn uniformly by the client, because ORS has no such request."""
        if params.strategy != "uniform":
            raise errors.Unsupported(
                f"ORS cannot draw tasks by {params.strategy!r}; draw uniformly, or use the channel"
            )
        count = await self.count(params.environment, params.split) or ENDLESS
        rng = random.Random(params.seed if params.seed is not None else secrets.randbits(63))
        rows = [await self.row(params.environment, params.split, rng.randrange(count)) for _ in range(params.count)]
        return e.SampleTasksResult(tasks=tuple(rows))
