"""Receipts of entrants: what a hub with the key could still not claim."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ludus.registry.types.drawing import draw_seats, draw_seed, draw_tasks
from ludus.registry.types.match_receipts import EntrantReceipt, EntrantStatement, sign_entrant, verify_entrant
from ludus.registry.types.matches import MatchInfo, MatchOpening, MatchSide
from ludus.registry.types.receipts import ReceiptRefused, merkle_root
from ludus.registry.types.results import Declared
from ludus.registry.types.signing import digest_of

KEY = Ed25519PrivateKey.generate()
NOW = datetime(2026, 1, 2, tzinfo=UTC)
MINE, OTHER = "A" * 22, "B" * 22


def opening(secret: str = "0a" * 32, **changes: Any) -> MatchOpening:
    index = draw_tasks(secret, 40, 1)[0]
    fields: dict[str, Any] = {
        "secret": secret, "environment": "game", "split": "test", "count": 40, "index": index, "task": "t",
        "seed": draw_seed(secret, index, 0), "entrants": draw_seats(secret, (MINE, 0), (OTHER, 0)), "balances": (0, 0),
    }  # fmt: skip
    return MatchOpening.model_validate(fields | changes)


def match(drawn: MatchOpening, results: tuple[str, str] = ("win", "loss"), rewards: tuple[float, float] = (1.0, 0.0),
          end: str = "completed", **changes: Any) -> MatchInfo:  # fmt: skip
    sides = tuple(
        MatchSide.model_validate({"seat": f"s{place}", "entrant": key, "by": "x", "model": "m", "harness": "h",
                                  "reward": rewards[place], "end": end, "result": results[place]})
        for place, key in enumerate(drawn.entrants)
    )  # fmt: skip
    fields = {
        "key": "M" * 22, "package": "ada/game", "version": "1.0.0", "environment": "game", "split": "test",
        "number": 1, "state": "ended", "created_at": NOW, "ended_at": NOW, "commitment": digest_of(drawn),
        "sides": sides, "opening": drawn,
    }  # fmt: skip
    return MatchInfo.model_validate(fields | changes)


def receipt(*matches: MatchInfo) -> EntrantReceipt:
    """Return what a hub signs about an entrant with these matches."""
    results = [side.result for one in matches for side in one.sides if side.entrant == MINE]
    statement = EntrantStatement(
        entrant=MINE, package="ada/game", version="1.0.0", sha256="0" * 64, environment="game", split="test", by="x",
        declared=Declared(model="m"), registered=2, created_at=NOW, signed_at=NOW, rows=len(matches),
        root=merkle_root(matches), wins=results.count("win"), draws=results.count("draw"),
        losses=results.count("loss"),
    )  # fmt: skip
    signed = sign_entrant(statement, KEY)
    return EntrantReceipt(statement=signed.statement, key=signed.key, signature=signed.signature, matches=matches)


def test_results_that_follow_from_rewards_and_draws_hold() -> None:
    verify_entrant(receipt(match(opening())))
    verify_entrant(receipt(match(opening(), ("draw", "draw"), (0.5, 0.5))))
    verify_entrant(receipt(match(opening(), ("loss", "win"), (1.0, 0.0), end="forfeit")))
    verify_entrant(receipt(match(opening()), match(opening("0b" * 32), number=2)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (match(opening(), ("win", "loss"), (0.0, 1.0)), "give the first seat a loss"),
        (match(opening(), ("win", "win")), "contradict each other"),
        (match(opening(index=(opening().index + 1) % 40)), "the task of match 1 does not follow"),
        (match(opening(seed=5)), "the seed of match 1 does not follow"),
        (match(opening(entrants=opening().entrants[::-1])), "the seats of match 1 do not follow"),
        (match(opening(), commitment="1" * 64), "than the hub committed to"),
        (match(opening(), package="ada/other"), "of another board"),
        (match(opening(split="train")), "another environment or split"),
        (match(opening(), state="open"), "has not ended"),
    ],
)
def test_a_signed_match_that_was_not_drawn_or_decided_by_the_rules_is_refused(wrong: MatchInfo, message: str) -> None:
    with pytest.raises(ReceiptRefused, match=message):
        verify_entrant(receipt(wrong))


def test_a_match_that_counts_twice_is_refused() -> None:
    one = match(opening())
    with pytest.raises(ReceiptRefused, match="counted twice"):
        verify_entrant(receipt(one, one))


def test_the_lower_balance_has_the_first_seat_and_equal_ones_are_drawn() -> None:
    assert draw_seats("00" * 32, (MINE, 1), (OTHER, 0)) == (OTHER, MINE)
    assert draw_seats("00" * 32, (MINE, -1), (OTHER, 0)) == (MINE, OTHER)
    drawn = [draw_seats(f"{secret:064x}", (MINE, 0), (OTHER, 0)) for secret in range(100)]
    assert [draw_seats(f"{secret:064x}", (OTHER, 0), (MINE, 0)) for secret in range(100)] == drawn
    assert 30 < drawn.count((MINE, OTHER)) < 70
