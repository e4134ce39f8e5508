"""A wire that asks a server for its modules before it uses one.

How this works:

* Methods and fields of the core are passed on at once. The first request that uses a module reads the server's
  settings (`server/discover` at `/mcp`), which stay the same for the life of a server.
* If the server does not offer the module, `Unsupported` names it, and nothing is sent. Drawing tasks uniformly is the
  exception: the client draws them itself, from the same numbers as a Ludus server.
* If the settings cannot be read, the request is sent, and the server decides.
* Steps are never held up, because they must arrive in their order: `Episode.call_in_turn` checks the module of turns.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ludus.client.transports.base import WireAround, module_missing
from ludus.protocol import episodes as e
from ludus.protocol.errors import SplitNotFound, TaskNotFound
from ludus.protocol.identifiers import METHOD_PREFIX
from ludus.protocol.integers import LARGEST_INTEGER
from ludus.protocol.methods import GET_TASK, LIST_SPLITS, METHODS
from ludus.protocol.model import WireModel
from ludus.protocol.modules import FIELD_MODULES, Module

if TYPE_CHECKING:
    from ludus.protocol.methods import Method

P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=WireModel)

ENDLESS: Final = LARGEST_INTEGER + 1
"""The number of tasks of an endless split from which to draw."""


def _module_fields(params: type[WireModel]) -> tuple[tuple[str, Any, Module], ...]:
    """Return the fields of a type of params that belong to modules: name, default and module."""
    return tuple(
        (name, field.get_default(call_default_factory=True, validated_data={}), module)
        for name, field in params.model_fields.items()
        if (module := FIELD_MODULES.get((params.__name__, field.alias or name))) is not None
    )


_START_FIELDS: Final = _module_fields(e.StartParams)
_METHODS: Final = {method.name: method.module for method in METHODS.values() if method.module is not None}


class ModuleWire(WireAround):
    """A wire that uses only the modules that the server offers."""

    def request(self, method: Method[P, R], params: P, *, timeout: float | None = None) -> Coroutine[Any, Any, R]:
        """Send a request and return its result; see `Wire.request`.

        Raises:
            Unsupported: the request needs a module that the server does not offer.
        """
        # Not a coroutine itself: a step, which needs no module, costs no further frame.
        name = method.name
        if name in _METHODS:
            return self._with_module(method, params, timeout, _METHODS[name], name.removeprefix(METHOD_PREFIX))
        if isinstance(params, e.StartParams):
            for field, default, module in _START_FIELDS:
                if getattr(params, field) != default:
                    return self._with_module(method, params, timeout, module, f"`{field}`")
        return self._inner.request(method, params, timeout=timeout)

    async def _with_module(
        self, method: Method[P, R], params: P, timeout: float | None, module: Module, purpose: str
    ) -> R:
        """Send a request that uses a module, or do without the module."""
        offered = await self._inner.modules()
        if offered is None or module in offered:
            return await self._inner.request(method, params, timeout=timeout)
        if isinstance(params, e.SampleTasksParams) and params.strategy == "uniform":
            return cast(R, await self._draw(params, timeout))
        raise module_missing(module, purpose)

    async def _draw(self, params: e.SampleTasksParams, timeout: float | None) -> e.SampleTasksResult:
        """Return tasks drawn uniformly, with the methods of the core."""
        listing = e.ListSplitsParams(environment=params.environment)
        splits = (await self._inner.request(LIST_SPLITS, listing, timeout=timeout)).splits
        split = next((row for row in splits if row.name == params.split), None)
        if split is None:
            raise SplitNotFound(f"environment {params.environment!r} has no split {params.split!r}", split=params.split)
        count = ENDLESS if split.count is None else split.count
        if not count:
            raise TaskNotFound(f"split {params.split!r} of {params.environment!r} has no tasks", split=params.split)
        rng = random.Random(secrets.randbits(63) if params.seed is None else params.seed)
        drawn = [rng.randrange(count) for _ in range(params.count)]

        async def read(index: int) -> e.TaskRow:
            reading = e.GetTaskParams(environment=params.environment, split=params.split, index=index)
            return (await self._inner.request(GET_TASK, reading, timeout=timeout)).task

        indices = list(dict.fromkeys(drawn))
        rows = dict(zip(indices, await asyncio.gather(*map(read, indices)), strict=True))
        return e.SampleTasksResult(tasks=tuple(rows[index] for index in drawn))
