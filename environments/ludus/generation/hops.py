"""Tasks whose answer is several steps away in an environment's graph, drawn by the environment itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from ludus.generation.candidates import Candidate, Rejected, Rejection
from ludus.generation.model import BudgetSpent
from ludus.generation.task_folder import Mode
from ludus.protocol.errors import InvalidParams
from ludus.protocol.tasks import Task
from ludus.server.authoring.generation import require
from ludus.server.tasks.catalog import Published


class Hopping:
    """Makes candidates by walks through the environment's graph.

    Args:
        published: the environment.
        hops: the numbers of hops, which take turns.
        seed: the seed of the run.

    Raises:
        Unsupported: the environment has no graph.
        InvalidParams: a number of hops is below 1.
    """

    mode: Mode = "hops"
    per_request = 1
    whole = False
    spent: BudgetSpent | None = None

    def __init__(self, published: Published, hops: Sequence[int], *, seed: int) -> None:
        require(published.cls, "task_from_hops")
        if not hops or min(hops) < 1:
            raise InvalidParams(f"--hops must be 1 or more, not {', '.join(map(str, hops)) or 'nothing'}")
        self._published = published
        self._hops = tuple(hops)
        self._seed = seed

    async def make(self, numbers: Sequence[int], kept: Sequence[Task]) -> list[Candidate | Rejected]:
        """Return the candidates with some numbers; each depends on the seed and its number only."""
        return await asyncio.to_thread(lambda: [self._one(number) for number in numbers])

    def _one(self, number: int) -> Candidate | Rejected:
        hops = self._hops[number % len(self._hops)]
        rng = random.Random(f"{self._seed}/hops/{number}")
        try:
            task = self._published.cls.task_from_hops(f"generated-{number}", rng, hops)
        except ValueError as error:
            raise InvalidParams(f"{self._published.name} makes no tasks of {hops} hops: {error}") from None
        if task is None:
            return Rejected(number, Rejection("schema", f"the walk found no question of {hops} hops"), None)
        return Candidate(number, task, source=f"{hops} hops")
