"""The choice of opponents for each group: the policy itself, a frozen snapshot of it, or a script.

How this works:

* `Opponents.plan` chooses for a group which seats the policy takes and who takes the others. The choice depends on the
  run's seed, the group's number, the snapshots in the pool, and for `pfsp` the published win rates.
* Results are recorded when a group was learned from or dropped, and count for the choice from the next version of the
  weights on (`publish`). So the choice does not depend on which match was slow, and a resumed run makes the same ones.
* Nothing here knows engines or files; `ludus.trainer.core.frozen` holds the snapshots' weights.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from ludus.client.seeds import derive_seed
from ludus.protocol.episodes import EnvironmentInfo
from ludus.trainer.core.config import SelfPlayConfig
from ludus.trainer.core.errors import ConfigError, RolloutError

Kind = Literal["current", "snapshot", "scripted"]
CURRENT: Final = "current"
"""The name of the policy as an opponent of itself."""
Outcome = Literal["win", "draw", "loss"]
RECENT: Final = 3
"""The number of newest snapshots that `draw = "recent"` draws from."""
WINDOW: Final = 64
"""The number of newest matches against a snapshot that its win rate is computed from."""


@dataclass(frozen=True, slots=True)
class MatchPlan:
    """Who plays the seats of a group's matches."""

    seats: tuple[str, ...]
    """The seats that the policy takes and learns from."""
    kind: Kind
    """What takes the others."""
    opponent: str
    """Its name: `current`, a snapshot's name, or the strength of a scripted opponent."""

    @property
    def scripted(self) -> str | None:
        """The strength of the scripted opponents; None if there are none."""
        return self.opponent if self.kind == "scripted" else None

    def state(self) -> dict[str, Any]:
        """Return the plan, JSON-ready."""
        return asdict(self) | {"seats": list(self.seats)}

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> MatchPlan:
        """Return the plan of a `state()`."""
        return cls(tuple(state["seats"]), state["kind"], state["opponent"])


class Opponents:
    """The choice of opponents, with the pool of snapshots and the results against each.

    Args:
        config: the table `self_play`.
        seed: the run's seed.
    """

    def __init__(self, config: SelfPlayConfig, seed: int) -> None:
        self.config = config
        self._seed = seed
        self._members: list[str] = []
        self._results: dict[str, list[float]] = {}
        """The newest matches against each snapshot: 1 for a win, 0.5 for a draw, 0 for a loss."""
        self._published: dict[str, float] = {}
        """The win rates that choices depend on."""
        self._version = -1
        """The version of the weights at the last `publish`."""

    @property
    def members(self) -> tuple[str, ...]:
        """The snapshots in the pool, the oldest first."""
        return tuple(self._members)

    def due(self, step: int) -> str | None:
        """Return the name of the snapshot to make after a step; None if none is due or it exists."""
        name = snapshot_name(step)
        if self.config.mode != "pool" or step % self.config.every or name in self._members:
            return None
        return name

    def add(self, name: str) -> None:
        """Add a snapshot. The oldest one leaves if the pool is full."""
        self._members.append(name)
        for old in self._members[: -self.config.size]:
            self._results.pop(old, None)
            self._published.pop(old, None)
        del self._members[: -self.config.size]

    def plan(self, number: int, info: EnvironmentInfo) -> MatchPlan:
        """Choose who plays the seats of group `number`. Groups of the warm-up have negative numbers: the policy plays
        itself there.

        Raises:
            RolloutError: a snapshot is needed, and there is none.
        """
        config, rng = self.config, random.Random(derive_seed(self._seed, "opponent", number))
        everyone = tuple(seat.name for seat in info.seats)
        point, seat = rng.random(), rng.choice(config.seats or everyone)
        if number >= 0:
            for strength, share in config.scripted.items():
                if point < share:
                    return MatchPlan((seat,), "scripted", strength)
                point -= share
        if number < 0 or config.mode == "self" or point < config.current:
            return MatchPlan(everyone, "current", CURRENT)
        return MatchPlan((seat,), "snapshot", self._draw(rng))

    def _draw(self, rng: random.Random) -> str:
        config = self.config
        names = self._members[-RECENT:] if config.draw == "recent" else self._members
        if not names:
            raise RolloutError("the pool of opponents is empty; its first snapshot is made before the first rollout")
        if config.draw != "pfsp":
            return rng.choice(names)
        weights = [self.priority(name) for name in names]
        return rng.choices(names, weights if sum(weights) > 0 else None)[0]

    def evaluated(self, info: EnvironmentInfo) -> list[MatchPlan]:
        """Return the plans of an evaluation: each seat against each scripted opponent, and against the oldest and the
        newest snapshots. If there is neither, the policy plays itself."""
        config = self.config
        strengths = info.opponents if config.evaluate_scripted is None else config.evaluate_scripted
        count = min(config.evaluate_pool, len(self._members))
        snapshots = [*self._members[: count > 0], *self._members[len(self._members) - max(0, count - 1) :]]
        seats = config.seats or tuple(seat.name for seat in info.seats)
        plans = [MatchPlan((seat,), "scripted", name) for name in strengths for seat in seats]
        plans += [MatchPlan((seat,), "snapshot", name) for name in snapshots for seat in seats]
        return plans or [MatchPlan(tuple(seat.name for seat in info.seats), "current", CURRENT)]

    def priority(self, name: str) -> float:
        """Return the weight of a snapshot in the draw of `pfsp`; its win rate is 1/2 before the first match."""
        return (1 - self._published.get(name, 0.5)) ** 2

    def record(self, plan: MatchPlan | None, outcomes: Sequence[Outcome]) -> None:
        """Record the results of a group's matches. Only those against snapshots of the pool change later choices."""
        if plan is None or plan.kind != "snapshot" or plan.opponent not in self._members:
            return
        recent = self._results.setdefault(plan.opponent, [])
        recent += [POINTS[outcome] for outcome in outcomes]
        del recent[:-WINDOW]

    def publish(self, version: int) -> None:
        """Let the results until now count for the choices that follow. Once for each version of the weights."""
        if version > self._version:
            self._version = version
            self._published = {name: sum(recent) / len(recent) for name, recent in self._results.items() if recent}

    def metrics(self) -> dict[str, float]:
        """Return the size of the pool, and the win rate against each snapshot that was played."""
        if self.config.mode != "pool":
            return {}
        rates = {name: sum(recent) / len(recent) for name, recent in self._results.items() if recent}
        return {"self_play/pool": float(len(self._members))} | {
            f"self_play/points/{name}": rate for name, rate in rates.items()
        }

    def state(self) -> dict[str, Any]:
        """Return the state for `load_state`, JSON-ready."""
        return {
            "members": list(self._members),
            "results": {name: list(recent) for name, recent in self._results.items()},
            "published": dict(self._published),
            "version": self._version,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`."""
        self._members = list(state["members"])
        self._results = {name: list(recent) for name, recent in state["results"].items()}
        self._published, self._version = dict(state["published"]), state["version"]


POINTS: Final[Mapping[Outcome, float]] = {"win": 1.0, "draw": 0.5, "loss": 0.0}


def snapshot_name(step: int) -> str:
    """Return the name of the snapshot of the policy after a step."""
    return f"step-{step:08d}"


def outcome_of(reward: float, reward_range: tuple[float, float]) -> Outcome:
    """Return whether a seat won its match: it earned more than the middle of what can be earned. The middle is a draw.

    The scripted opponents' rewards are not known to a client, so rewards of the seats are not compared.
    """
    low, high = reward_range
    middle = (low + high) / 2
    if abs(reward - middle) <= 1e-6 * max(1.0, high - low):
        return "draw"
    return "win" if reward > middle else "loss"


def check_seats(config: SelfPlayConfig, info: EnvironmentInfo, where: str) -> None:
    """Check that an environment has the seats and scripted opponents that the configuration names.

    Raises:
        ConfigError: it does not.
    """
    seats, strengths = [seat.name for seat in info.seats], list(info.opponents)
    for key, configured, available in (
        ("seats", config.seats, seats),
        ("scripted", tuple(config.scripted), strengths),
        ("evaluate_scripted", config.evaluate_scripted or (), strengths),
    ):
        if missing := [name for name in configured if name not in available]:
            role = "seat" if key == "seats" else "scripted opponent"
            has = ", ".join(map(repr, available)) or "none"
            raise ConfigError(f"{where} has no {role} {missing[0]!r} (`self_play.{key}`); it has {has}")
    if info.reward_range is None or info.reward_range[0] >= info.reward_range[1]:
        raise ConfigError(
            f"{where} does not declare a reward_range, from which self_play knows who has won; declare it in the class"
        )
