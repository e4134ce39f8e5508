"""Grading by both sides: the state of the desk, the rules of conduct, and what the user has learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ludus.environments._store import Change, Row
from ludus.environments.support_desk.cases import Request
from ludus.environments.support_desk.desk import Desk
from ludus.protocol import Component, Reward

_LOGGED: Final = {"refused": ("refusals", "rule"), "escalated": ("escalations", "team")}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one request.

    Attributes:
        settled: whether the state is as wanted.
        informed: the share of the facts that the user has learned.
    """

    settled: bool
    informed: float

    @property
    def value(self) -> float:
        """The share of the request that counts."""
        return self.informed if self.settled else 0.0


def grade(desk: Desk) -> Reward:
    """Return the reward of an episode.

    A request counts with the share of its facts that the user has learned, once its state is right. Anything else
    that was changed, a broken rule of conduct, or a user who has left, and nothing counts.
    """
    changes = desk.store.changes()
    verdicts = [
        Verdict(_settle(desk, standing.request, changes), standing.informed) for standing in desk.user.standings
    ]
    unexpected = [f"{change.table} {change.id}" for change in changes]
    broken = [f"{rule}: {how}" for rule, how in desk.conduct.broken.items()]
    counts = not (unexpected or broken or desk.user.left)
    value = sum(verdict.value for verdict in verdicts) / len(verdicts) if counts else 0.0

    def part(share: float, evidence: list[str] | None = None) -> Component:
        return Component(value=share, weight=0.0, evidence="; ".join(evidence)[:500] if evidence else None)

    parts = {
        "requests": Component(value=value, weight=1.0),
        "state": part(sum(verdict.settled for verdict in verdicts) / len(verdicts)),
        "informed": part(sum(verdict.informed for verdict in verdicts) / len(verdicts)),
        "policy": part(float(not broken), broken),
        "unexpected": part(float(len(unexpected)), unexpected),
        "stayed": part(float(not desk.user.left)),
        "messages": part(float(desk.case.patience - desk.user.patience)),
    }
    settled = sum(verdict.settled for verdict in verdicts)
    return Reward(value=value, components=parts, reason=f"{settled}/{len(verdicts)} requests settled")


def _settle(desk: Desk, request: Request, changes: list[Change]) -> bool:
    """Take the wanted change of a request out of the changes, and return whether it was there."""
    wanted = next((change for change in changes if _is_wanted(desk, request, change)), None)
    if wanted is None:
        return False
    changes.remove(wanted)
    return True


def _is_wanted(desk: Desk, request: Request, change: Change) -> bool:
    decision, domain = request.decision, desk.case.domain
    if change.after is None:
        return False
    if decision.outcome in _LOGGED:
        table, column = _LOGGED[decision.outcome]
        found = change.table == table and change.before is None
        return found and (change.after["record"], change.after[column]) == (request.id, decision.code)
    if (change.table, change.id) != (domain.table, request.id) or change.before is None:
        return False
    columns = domain.effects[request.kind.tool].columns(change.before, decision.arguments)
    return _plain(change.after) == _plain({**change.before, **columns})


def _plain(row: Row) -> dict[str, object]:
    return {name: " ".join(value.lower().split()) if isinstance(value, str) else value for name, value in row.items()}
