"""Scores the episodes of a group against each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ludus.protocol import episodes as e
from ludus.protocol.errors import GroupNotFound, Unsupported
from ludus.protocol.rewards import Reward
from ludus.server.auth.principal import Principal
from ludus.server.durability.journal import Journal, Scored, check_writable, committed
from ludus.server.execution.threads import Workers
from ludus.server.runtime.episode import EpisodeStore
from ludus.server.runtime.idempotency import IdempotencyCache
from ludus.server.runtime.limits import ServerLimits
from ludus.server.runtime.scoring import score
from ludus.server.tasks.service import TaskService


class GroupScores:
    """Scores groups, once per key.

    Args:
        store: finds the episodes.
        tasks: finds their tasks.
        workers: runs the authors' code.
        journal: gets each score.
        spawn: starts a task that the host owns.
        limits: how long a score may take, and how long it is kept.
    """

    def __init__(
        self, store: EpisodeStore, tasks: TaskService, workers: Workers, journal: Journal | None,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]], limits: ServerLimits,
    ) -> None:  # fmt: skip
        self._store = store
        self._tasks = tasks
        self._workers = workers
        self._journal = journal
        self._seconds = limits.tool_seconds
        self.kept = IdempotencyCache[e.ScoreGroupResult](spawn, limits.result_ttl_seconds)

    async def score(self, params: e.ScoreGroupParams, principal: Principal) -> e.ScoreGroupResult:
        """Score episodes of one group against each other, once per key.

        Raises:
            GroupNotFound: there is no such group, or an episode is not in it.
        """
        result = await self.kept.do(
            principal.name, params.key, params, lambda digest: self._score(params, principal, digest)
        )
        return await committed(self._journal, result)

    async def _score(self, params: e.ScoreGroupParams, principal: Principal, digest: bytes) -> e.ScoreGroupResult:
        check_writable(self._journal)
        members = [self._store.get_owned(episode, principal) for episode in params.candidates]
        if not members or any(member.group != params.group for member in members):
            raise GroupNotFound(
                f"there is no group {params.group[:64]!r} with the {len(params.candidates)} episodes that were named",
                group=params.group[:64],
            )
        rewards = await self.score_candidates(members[0].id, list(params.candidates.values()))
        result = e.ScoreGroupResult(rewards=dict(zip(params.candidates, rewards, strict=True)))
        if self._journal is not None:
            self._journal.append(Scored(members[0].id, principal.name, params.key, digest, result))
        return result

    async def score_candidates(self, episode: str, candidates: Sequence[e.Candidate]) -> Sequence[Reward]:
        """Score answers to an episode's task against each other.

        Raises:
            Unsupported: the environment has no `score_group`.
            EpisodeFailed: the author's code failed.
        """
        member = self._store.find(episode)
        published = member.published
        if not published.group_scoring:
            raise Unsupported(f"environment {published.name!r} does not score groups", environment=published.name)
        _, task = await self._tasks.at(published, member.row.split, member.row.index)
        return await score(self._workers.share(published.name), published, task, candidates, self._seconds)
