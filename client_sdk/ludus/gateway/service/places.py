"""An attempt at an episode: its names, its seeds, and its line if nothing but its problem is known."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from ludus.gateway.service.schema import RolloutRequest


@dataclass(frozen=True, slots=True)
class Place:
    """An attempt at an episode."""

    job: str
    index: int
    attempt: int
    """Counted from 1."""
    seed: int
    """The seed of the job."""
    earlier: tuple[dict[str, Any], ...] = ()
    """The problems of earlier attempts."""

    @property
    def key(self) -> str:
        """The key under which the attempt's episode is started."""
        return f"rollouts/{self.job}/{self.index}/{self.attempt}"


def derive_seed(seed: int, *names: object) -> int:
    """Return a seed that depends on a job's seed and on names, and on nothing else."""
    digest = hashlib.blake2b(json.dumps([seed, *names]).encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big")


def unscored_line(request: RolloutRequest, place: Place, problem: dict[str, Any]) -> dict[str, Any]:
    """Return the line of an episode of which nothing but its problem is known."""
    group, sample = divmod(place.index, request.samples)
    chosen = request.tasks[group] if request.tasks is not None else None
    return {
        "type": "unscored",
        "index": place.index,
        "group": group,
        "sample": sample,
        "environment": request.environment.name,
        "split": request.split if chosen is None else chosen.split or request.split,
        "task": (chosen.task or "") if chosen is not None else "",
        "seed": None,
        "episode": None,
        "attempt": place.attempt,
        "end_reason": None,
        "stopped": None,
        "earlier": list(place.earlier),
        "seconds": 0.0,
        "problem": problem,
    }
