"""Reported task outcomes: counted once per key, and written to the journal."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ludus.protocol.episodes import ReportOutcomesParams
from ludus.protocol.errors import KeyConflict
from ludus.server.auth.principal import Principal
from ludus.server.durability.journal import Journal, Reported, Tallied, check_writable, committed
from ludus.server.tasks.catalog import Catalog

KEPT: Final = 10_000
"""The number of latest reports whose keys are known."""


class Reports:
    """The reports that a server has had.

    Args:
        catalog: has the curricula.
        journal: gets each report.
    """

    def __init__(self, catalog: Catalog, journal: Journal | None) -> None:
        self._catalog = catalog
        self._journal = journal
        self._known: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        """The digest of each report, by owner and key."""

    def is_new(self, params: ReportOutcomesParams, principal: Principal) -> bool:
        """Return whether a report's key is new.

        Raises:
            KeyConflict: it was used for another report.
        """
        recorded = self._known.get((principal.name, params.key))
        if recorded not in (None, _digest(params)):
            raise KeyConflict(f"the key {params.key!r} was used for another report; use a new key", key=params.key)
        return recorded is None

    async def add(self, params: ReportOutcomesParams, principal: Principal) -> int:
        """Count a report whose key is new, and return how many outcomes of its split have been reported."""
        curriculum = self._catalog[params.environment].curricula[params.split]
        if self.is_new(params, principal):
            check_writable(self._journal)
            digest = _digest(params)
            self._keep(principal.name, params.key, digest)
            curriculum.report(params.outcomes)
            if self._journal is not None:
                self._journal.append(
                    Reported(params.environment, params.split, principal.name, params.key, digest, params.outcomes)
                )
        return await committed(self._journal, curriculum.recorded)

    def restore(self, entries: Iterable[Reported | Tallied]) -> Sequence[Tallied]:
        """Count the reports of earlier processes, and return entries that may stand in their place.

        Reports about environments that this server does not publish are kept for one that does.
        """
        sums: dict[tuple[str, str], _Sum] = {}
        for entry in entries:
            sums.setdefault((entry.environment, entry.split), _Sum()).add(entry)
        for (environment, split), total in sums.items():
            published = self._catalog.get(environment)
            if published is not None and split in published.splits:
                published.curricula[split].restore(total.counts, total.recorded)
            for owner, key, digest in total.keys:
                self._keep(owner, key, digest)
        return [
            Tallied(environment, split, total.counts, total.recorded, tuple(total.keys[-KEPT:]))
            for (environment, split), total in sums.items()
        ]

    def _keep(self, owner: str, key: str, digest: bytes) -> None:
        self._known[owner, key] = digest
        if len(self._known) > KEPT:
            self._known.popitem(last=False)


@dataclass(slots=True)
class _Sum:
    """The sum of the reports about one split."""

    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    recorded: int = 0
    keys: list[tuple[str, str, bytes]] = field(default_factory=list)

    def add(self, entry: Reported | Tallied) -> None:
        """Add a report, or the sum of earlier ones."""
        if isinstance(entry, Reported):
            results = [(outcome.task, 1, int(outcome.passed)) for outcome in entry.outcomes]
            self.recorded += len(entry.outcomes)
            self.keys.append((entry.owner, entry.key, entry.digest))
        else:
            results = [(task, tries, passes) for task, (tries, passes) in entry.counts.items()]
            self.recorded += entry.recorded
            self.keys += entry.keys
        for task, tries, passes in results:
            before = self.counts.get(task, (0, 0))
            self.counts[task] = (before[0] + tries, before[1] + passes)


def _digest(params: ReportOutcomesParams) -> bytes:
    return hashlib.blake2b(params.model_dump_json().encode(), digest_size=16).digest()
