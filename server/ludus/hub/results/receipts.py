"""What a run's rows lead to: its figures, and the receipt of a played run, signed with the hub's key."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ludus.hub.results.figures import run_figures, sums_of
from ludus.hub.results.store import Conclude, Conclusion
from ludus.registry.types.receipts import (
    ReceiptStatement,
    SignedReceipt,
    mean_of,
    merkle_root,
    sign_receipt,
)
from ludus.registry.types.results import Opening, RunEpisode, RunInfo

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def concluding(key: Ed25519PrivateKey) -> Conclude:
    """Return the function that concludes runs; it signs receipts with the hub's key."""

    def conclude(run: RunInfo, rows: Sequence[RunEpisode], opening: Opening | None) -> Conclusion:
        sums = sums_of(rows, run.success_at)
        figures = run_figures(rows, sums, run.declared, run.reward_range)
        receipt = _receipt(run, rows, opening, key) if opening is not None else None
        return Conclusion(figures, json.dumps(sums), receipt)

    return conclude


def _receipt(run: RunInfo, rows: Sequence[RunEpisode], opening: Opening, key: Ed25519PrivateKey) -> SignedReceipt:
    assert run.commitment is not None
    assert run.ended_at is not None
    statement = ReceiptStatement(
        run=run.key, package=run.package, version=run.version, sha256=run.sha256, environment=run.environment,
        split=run.split, tasks=run.tasks, samples=run.samples, by=run.by, declared=run.declared,
        registered_at=run.created_at, ended_at=run.ended_at, reward_range=run.reward_range,
        commitment=run.commitment, opening=opening, rows=len(rows), root=merkle_root(rows),
        ends=dict(Counter(row.end for row in rows)), mean=mean_of(rows),
    )  # fmt: skip
    return sign_receipt(statement, key)
