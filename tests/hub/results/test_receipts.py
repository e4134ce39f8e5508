"""Receipts: one that holds, and each way to change one, with its own message."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from results_hub import Player, ResultsHub
from terminal import run_ludus_here

from ludus.registry.types.drawing import draw_seed
from ludus.registry.types.receipts import (
    Receipt,
    ReceiptRefused,
    ReceiptStatement,
    mean_of,
    merkle_root,
    sign_receipt,
    verify_receipt,
)
from ludus.registry.types.results import Declared, DrawnTask, Opening, RunEpisode, RunEpisodes, counted_value
from ludus.registry.types.signing import digest_of, public_key

KEY = Ed25519PrivateKey.generate()
SECRET = "ab" * 32
INDICES = (1, 10, 5)
"""The tasks that follow from the secret in a split of 12."""


def receipt_of(ends: tuple[str, ...] = ("completed", "closed", "not_begun")) -> Receipt:
    """Return a receipt of a run with three tasks."""
    tasks = tuple(DrawnTask(index=one, task=f"t{one}", seeds=(draw_seed(SECRET, one, 0),)) for one in INDICES)
    opening = Opening(secret=SECRET, environment="e", split="test", count=12, tasks=tasks)
    rows = tuple(
        RunEpisode(
            place=place, task=task.task, index=task.index, sample=0, seed=task.seeds[0], end=end, steps=1, attempts=1,
            reward=1.0 if end == "completed" else None,
            value=counted_value(1.0 if end == "completed" else None, end, (0.0, 1.0)),
        )
        for place, (task, end) in enumerate(zip(tasks, ends, strict=True))
    )  # fmt: skip
    statement = ReceiptStatement.model_validate(
        {
            "run": "a" * 22, "package": "ada/coin", "version": "1.0.0", "sha256": "0" * 64, "environment": "e",
            "split": "test", "tasks": 3, "samples": 1, "by": "alice", "declared": Declared(model="m"),
            "registered_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T01:00:00Z", "reward_range": (0.0, 1.0),
            "commitment": digest_of(opening), "opening": opening, "rows": 3, "root": merkle_root(rows),
            "ends": dict.fromkeys(ends, 1), "mean": mean_of(rows),
        }
    )  # fmt: skip
    signed = sign_receipt(statement, KEY)
    return Receipt(statement=statement, key=signed.key, signature=signed.signature, episodes=rows)


def signed_again(receipt: Receipt, **changes: Any) -> Receipt:
    """Return a receipt whose statement was changed and signed by a hub that lies."""
    statement = ReceiptStatement.model_validate(receipt.statement.model_copy(update=changes).model_dump())
    signed = sign_receipt(statement, KEY)
    return receipt.model_copy(update={"statement": statement, "signature": signed.signature})


def with_row(receipt: Receipt, place: int, **changes: Any) -> Receipt:
    rows = list(receipt.episodes)
    rows[place] = rows[place].model_copy(update=changes)
    return receipt.model_copy(update={"episodes": tuple(rows)})


def rows_and_root(receipt: Receipt, place: int, **changes: Any) -> Receipt:
    """Return a receipt with a changed row, whose root and mean were signed again."""
    changed = with_row(receipt, place, **changes)
    return signed_again(changed, root=merkle_root(changed.episodes), mean=mean_of(changed.episodes))


def other_tasks(receipt: Receipt) -> Receipt:
    """Return a receipt of a hub that chose other tasks, and committed to them."""
    opening = receipt.statement.opening
    first = opening.tasks[0].model_copy(update={"index": 0})
    chosen = opening.model_copy(update={"tasks": (first, *opening.tasks[1:])})
    return signed_again(receipt, opening=chosen, commitment=digest_of(chosen))


def other_seed(receipt: Receipt) -> Receipt:
    opening = receipt.statement.opening
    first = opening.tasks[0].model_copy(update={"seeds": (1,)})
    chosen = opening.model_copy(update={"tasks": (first, *opening.tasks[1:])})
    return signed_again(receipt, opening=chosen, commitment=digest_of(chosen))


CHANGES: dict[str, tuple[Callable[[Receipt], Receipt], str]] = {
    "the mean": (
        lambda one: one.model_copy(update={"statement": one.statement.model_copy(update={"mean": 1.0})}), "signature"),
    "the model": (
        lambda one: one.model_copy(update={"statement": one.statement.model_copy(
            update={"declared": Declared(model="better")})}), "signature"),
    "the key": (lambda one: one.model_copy(update={"key": public_key(Ed25519PrivateKey.generate())}), "signature"),
    "a reward": (lambda one: with_row(one, 1, reward=1.0, value=1.0), "Merkle root"),
    "an end": (lambda one: with_row(one, 1, end="completed"), "Merkle root"),
    "the order": (lambda one: one.model_copy(update={"episodes": one.episodes[::-1]}), "Merkle root"),
    "a dropped row": (lambda one: one.model_copy(update={"episodes": one.episodes[:1]}), "rows are missing"),
    "an added row": (lambda one: one.model_copy(update={"episodes": one.episodes + one.episodes[:1]}), "rows are"),
    "a smaller run": (
        lambda one: signed_again(one.model_copy(update={"episodes": one.episodes[:1]}), rows=1,
                                 root=merkle_root(one.episodes[:1]), mean=1.0, ends={"completed": 1}),
        "rows are missing"),
    "the counts": (lambda one: signed_again(one, ends={"completed": 3}), "counts of the end reasons"),
    "a signed mean": (lambda one: signed_again(one, mean=1.0), "the mean of the rows is"),
    "a value": (lambda one: rows_and_root(one, 1, value=0.5), "row 1 counts 0.5"),
    "the commitment": (lambda one: signed_again(one, commitment="1" * 64), "committed to before"),
    "chosen tasks": (other_tasks, "they were chosen"),
    "a chosen seed": (other_seed, "it was chosen"),
    "another task": (lambda one: rows_and_root(one, 0, task="easy"), "not those of the tasks"),
    "another split": (lambda one: signed_again(one, split="train"), "another environment or split"),
}  # fmt: skip


def test_a_receipt_holds_and_other_keys_are_refused() -> None:
    receipt = receipt_of()
    verify_receipt(receipt, receipt.episodes, public_key(KEY))
    with pytest.raises(ReceiptRefused, match="which is not the hub's key"):
        verify_receipt(receipt, receipt.episodes, public_key(Ed25519PrivateKey.generate()))


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_receipt_is_refused_with_its_own_message(change: str) -> None:
    make, message = CHANGES[change]
    changed = make(receipt_of())
    with pytest.raises(ReceiptRefused, match=message):
        verify_receipt(changed, changed.episodes)


def test_all_changes_have_messages_of_their_own() -> None:
    """One message may stand for several changes of the same part only."""
    assert len({message for _, message in CHANGES.values()}) >= 11


def verify(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_ludus_here("hub", "verify", *arguments, cwd=Path.cwd())


async def test_the_receipt_of_a_hub_holds_for_the_rows_that_it_shows(hub: ResultsHub, package: str) -> None:
    async with hub.client() as client:
        player = await Player.register(client, package, tasks=3, samples=2)
        await player.play(right=4)
        receipt = Receipt.model_validate((await client.get(f"/api/v1/runs/{player.key}/receipt")).json())
        rows = RunEpisodes.model_validate((await client.get(f"/api/v1/runs/{player.key}/rows")).json()).episodes
        key = (await client.get("/api/v1/results/key")).json()["key"]
    assert receipt.episodes == rows
    verify_receipt(receipt, rows, key)
    assert receipt.statement.mean == pytest.approx(4 / 6)
    assert receipt.statement.commitment == player.run["commitment"]


def test_the_command_verifies_a_receipt_offline_and_says_what_it_does_not_prove(tmp_path: Path) -> None:
    receipt = receipt_of()
    file, rows = tmp_path / "receipt.json", tmp_path / "rows.jsonl"
    file.write_text(receipt.model_dump_json(by_alias=True))
    rows.write_text("".join(row.model_dump_json(by_alias=True) + "\n" for row in receipt.episodes))
    done = verify(str(file), "--rows", str(rows), "--key", public_key(KEY))
    assert done.returncode == 0, done.stderr
    for shown in ("holds", "mean 0.33", "1 completed", "does not prove", "the identity of the model"):
        assert shown in done.stdout
    rows.write_text(rows.read_text().splitlines()[0] + "\n")
    dropped = verify(str(file), "--rows", str(rows))
    assert (dropped.returncode, "rows are missing" in dropped.stderr, dropped.stdout) == (5, True, "")
    file.write_text("{}")
    broken = verify(str(file))
    assert (broken.returncode, "does not hold a receipt" in broken.stderr) == (3, True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"mean":', '"mean":1.0,"mean":'), ('"rows":', '"rows":9,"rows":'), ('"key":"ed', '"key":"x","key":"ed'),
        ('"episodes":[{', '"episodes":[{"place":9,'), ('"statement":{', '"statement":{"mean":NaN,'),
        ('"statement":{', '"statement":{},"statement":{'), ('"by":"alice"', '"by":"\\ud800","by":"alice"'),
    ],
)  # fmt: skip
def test_a_receipt_that_two_readers_read_differently_is_refused_by_the_command(
    tmp_path: Path, before: str, after: str
) -> None:
    text = receipt_of().model_dump_json(by_alias=True)
    file = tmp_path / "receipt.json"
    for content, code in ((text, 0), (text.replace(before, after, 1), 3)):
        file.write_text(content)
        done = verify(str(file))
        assert done.returncode == code, done.stdout + done.stderr
    assert "not JSON that all readers read alike" in " ".join(done.stderr.split())
