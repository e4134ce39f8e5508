"""Receipts of entrants, signed with the hub's own key at each request."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from ludus.registry.types.match_receipts import EntrantReceipt, EntrantStatement, result_of, sign_entrant
from ludus.registry.types.matches import EntrantInfo, MatchInfo
from ludus.registry.types.receipts import merkle_root

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class Signer:
    """Signs receipts of entrants.

    Args:
        key: the hub's key.
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    def receipt(self, entrant: EntrantInfo, matches: Sequence[MatchInfo], now: datetime) -> EntrantReceipt:
        """Return the receipt of an entrant.

        Args:
            entrant: the entrant.
            matches: all its ended matches, the first one first.
            now: the time.
        """
        results = [result_of(one, entrant.key) for one in matches]
        statement = EntrantStatement(
            entrant=entrant.key, package=entrant.package, version=entrant.version, sha256=entrant.sha256,
            environment=entrant.environment, split=entrant.split, by=entrant.by, declared=entrant.declared,
            registered=entrant.registered, created_at=entrant.created_at, signed_at=now, rows=len(matches),
            root=merkle_root(matches), wins=results.count("win"), draws=results.count("draw"),
            losses=results.count("loss"),
        )  # fmt: skip
        signed = sign_entrant(statement, self._key)
        return EntrantReceipt(
            statement=signed.statement, key=signed.key, signature=signed.signature, matches=tuple(matches)
        )
