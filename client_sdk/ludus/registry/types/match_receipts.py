"""Receipts of entrants: what a hub signs about all matches of one, and how anyone checks it without the hub.

A receipt is a statement with a signature, as that of a played run (see `receipts.py`). The statement holds
the root of a Merkle tree over the entrant's ended matches, so that none can be changed, dropped or added, and the
number of wins, draws and losses. Each match holds its commitment with its opening, from which the choice of task, seed
and seats can be repeated, and both rewards, from which its result follows.

The packages for this, `cryptography` and `rfc8785`, are in the extra `registry`.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import StringConstraints

from ludus.protocol.integers import Whole
from ludus.protocol.model import WireModel
from ludus.registry.types.drawing import draw_seats, draw_seed, draw_tasks
from ludus.registry.types.matches import EntrantKey, MatchInfo, MatchSide, Result, result_between
from ludus.registry.types.packages import Digest, PackageId, PublicKey, VersionText
from ludus.registry.types.receipts import ReceiptRefused, check_signed, merkle_root
from ludus.registry.types.results import EARNED, Declared
from ludus.registry.types.signing import canonical, digest_of, public_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KIND: Final = "ludus-entrant-receipt-1"
"""The kind of a receipt of an entrant."""


class EntrantStatement(WireModel):
    """What a hub signs about an entrant."""

    kind: Literal["ludus-entrant-receipt-1"] = KIND
    entrant: EntrantKey
    package: PackageId
    version: VersionText
    sha256: Digest
    """The digest of the wheel that ran."""
    environment: str
    split: str
    by: str
    """The account on the hub."""
    declared: Declared
    """The model and the harness as that account has declared them."""
    registered: Whole
    """The number of matches that it registered for."""
    created_at: datetime
    signed_at: datetime
    """Matches that ended later are not in it."""
    rows: Whole
    """The number of ended matches."""
    root: Digest
    """The root of the Merkle tree of the ended matches."""
    wins: Whole
    draws: Whole
    losses: Whole


class SignedEntrant(WireModel):
    """A statement with its signature."""

    statement: EntrantStatement
    key: PublicKey
    """The hub's key."""
    signature: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]{86}==$")]


class EntrantReceipt(SignedEntrant):
    """A signed statement with the matches that it is about, so that one file is enough to check it."""

    matches: tuple[MatchInfo, ...]
    """The first one first."""


def sign_entrant(statement: EntrantStatement, key: Ed25519PrivateKey) -> SignedEntrant:
    """Return the statement with its signature."""
    signature = base64.b64encode(key.sign(canonical(statement))).decode()
    return SignedEntrant(statement=statement, key=public_key(key), signature=signature)


def result_of(match: MatchInfo, entrant: str) -> Result:
    """Return the result of an entrant in an ended match of it.

    Raises:
        ReceiptRefused: the match is another's.
    """
    for side in match.sides:
        if side.entrant == entrant:
            return side.result
    raise ReceiptRefused(f"match {match.number} is not one of the entrant {entrant}")


def verify_entrant(receipt: EntrantReceipt, key: str | None = None) -> None:
    """Check a receipt: its signature, its matches, their results, and the choice of tasks, seeds and seats.

    Args:
        receipt: the receipt.
        key: the hub's key, as it is known from elsewhere; None to accept the one that the receipt names.

    Raises:
        ReceiptRefused: a part is wrong; the message names it.
    """
    if key is not None and key != receipt.key:
        raise ReceiptRefused(f"the receipt is signed with {receipt.key}, which is not the hub's key {key}")
    one, matches = receipt.statement, receipt.matches
    check_signed(one, receipt.key, receipt.signature)
    if len(matches) != one.rows or merkle_root(matches) != one.root:
        raise ReceiptRefused(
            f"the receipt is about {one.rows} matches, and these {len(matches)} do not have the Merkle root that the "
            "hub signed: a match was changed, dropped, added or moved"
        )
    if any(later.number <= earlier.number for earlier, later in pairwise(matches)):
        raise ReceiptRefused("the matches are not in the order of their numbers, or one of them is counted twice")
    counts = Counter(result_of(match, one.entrant) for match in matches)
    if (counts["win"], counts["draw"], counts["loss"]) != (one.wins, one.draws, one.losses):
        raise ReceiptRefused("the counts of wins, draws and losses are not those of the matches")
    for match in matches:
        _check_match(match, one)


def describe_entrant(receipt: SignedEntrant, *, key_is_known: bool) -> Iterator[str]:
    """Yield lines that say what a receipt that holds proves, and what it does not.

    Args:
        receipt: a receipt that was verified.
        key_is_known: whether its key was compared with one known from elsewhere.
    """
    one = receipt.statement
    yield f"The receipt of the entrant {one.entrant} holds."
    yield f"  {one.package} {one.version} (wheel {one.sha256}), {one.environment} / {one.split}"
    yield f"  {one.rows} of {one.registered} matches: {one.wins} wins, {one.draws} draws, {one.losses} losses"
    yield f"  declared: model {one.declared.model}, harness {one.declared.harness}, by the account {one.by}"
    yield f"  signed with {receipt.key} on {one.signed_at:%Y-%m-%d %H:%M} UTC"
    yield "It proves, as far as you trust the hub:"
    yield "  the results are those of these matches, and none was changed, dropped or added since the hub signed;"
    yield "  task, seed and seats of each match follow from a secret that was fixed before it."
    yield "It does not prove:"
    yield "  who or what chose the actions; the identity of the models; that no opponent lost on purpose."
    if not key_is_known:
        yield "  that this is the hub's key: compare it with the hub's own, or give it with --key."


def _check_match(match: MatchInfo, one: EntrantStatement) -> None:
    opening, where = match.opening, f"match {match.number}"
    if opening is None or len(match.sides) != 2 or match.state != "ended":
        raise ReceiptRefused(f"{where} has not ended")
    if digest_of(opening) != match.commitment:
        raise ReceiptRefused(f"{where} has another task, seed or entrants than the hub committed to before it")
    about = (match.package, match.version, match.environment, match.split)
    if about != (one.package, one.version, one.environment, one.split):
        raise ReceiptRefused(f"{where} is one of another board")
    if (opening.environment, opening.split) != (one.environment, one.split):
        raise ReceiptRefused(f"{where} has a commitment about another environment or split")
    if draw_tasks(opening.secret, opening.count, 1) != [opening.index]:
        raise ReceiptRefused(f"the task of {where} does not follow from the secret: it was chosen")
    if opening.seed is not None and opening.seed != draw_seed(opening.secret, opening.index, 0):
        raise ReceiptRefused(f"the seed of {where} does not follow from the secret: it was chosen")
    pairs = list(zip(opening.entrants, opening.balances, strict=True))
    if draw_seats(opening.secret, pairs[0], pairs[1]) != opening.entrants:
        raise ReceiptRefused(f"the seats of {where} do not follow from the balances and the secret: they were chosen")
    if tuple(side.entrant for side in match.sides) != opening.entrants:
        raise ReceiptRefused(f"the sides of {where} are not the entrants that the hub committed to")
    _check_results(match.sides, where)


def _check_results(sides: Sequence[MatchSide], where: str) -> None:
    """Check that the results fit each other, and the rewards of seats that ended by themselves."""
    first, second = sides
    if (first.result, second.result) not in (("win", "loss"), ("draw", "draw"), ("loss", "win")):
        raise ReceiptRefused(f"the results of the two sides of {where} contradict each other")
    if first.reward is None or second.reward is None or not all(side.end in EARNED for side in sides):
        return
    expected = result_between(first.reward, second.reward)
    if first.result != expected:
        raise ReceiptRefused(f"the rewards of {where} give the first seat a {expected}, and it has a {first.result}")
