"""LLM judges: endpoints, verdicts, and the panels that combine them."""

from __future__ import annotations

from ludus.server.rewards.judges.caches import FileCache, MemoryCache
from ludus.server.rewards.judges.endpoint import Budget, Endpoint, JudgeFailed, Ledger, Price
from ludus.server.rewards.judges.families import families_of
from ludus.server.rewards.judges.judge import Judge, PairwiseJudge, Panel, ReferenceJudge, judged_by
from ludus.server.rewards.judges.verdict import Scale

__all__ = [
    "Budget",
    "Endpoint",
    "FileCache",
    "Judge",
    "JudgeFailed",
    "Ledger",
    "MemoryCache",
    "PairwiseJudge",
    "Panel",
    "Price",
    "ReferenceJudge",
    "Scale",
    "families_of",
    "judged_by",
]
