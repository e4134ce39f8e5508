"""Receipts of played runs: what a hub signs about a run, and how anyone checks it without the hub.

A receipt is a statement with a signature (Ed25519 over canonical JSON, RFC 8785). The statement holds the root of a
Merkle tree (RFC 6962, section 2.1) over the run's rows, so that a row cannot be changed, dropped or added; the counts
of all end reasons; the mean; and the commitment to tasks and seeds with its opening, so that the choice of the tasks
can be repeated. `verify_receipt` recomputes all of it from the rows.

The packages for this, `cryptography` and `rfc8785`, are in the extra `registry`.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import StringConstraints

from ludus.common.distribution import missing_extra
from ludus.protocol.errors import LudusError
from ludus.protocol.evaluation import Interval
from ludus.protocol.integers import Whole
from ludus.protocol.model import WireModel
from ludus.registry.types.drawing import draw_seed, draw_tasks
from ludus.registry.types.packages import Digest, PackageId, PublicKey, VersionText
from ludus.registry.types.results import Declared, Opening, RunEpisode, RunKey, counted_value
from ludus.registry.types.signing import EXTRA, KEY_PREFIX, canonical, digest_of, public_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class ReceiptRefused(LudusError):
    """A receipt that does not hold. Raised by clients only; the message says which part is wrong."""


class ReceiptStatement(WireModel):
    """What a hub signs about a played run."""

    run: RunKey
    package: PackageId
    version: VersionText
    sha256: Digest
    """The digest of the wheel that ran."""
    environment: str
    split: str
    tasks: Whole
    samples: Whole
    by: str
    """The account on the hub."""
    declared: Declared
    """The model and the harness as that account has declared them."""
    registered_at: datetime
    ended_at: datetime
    reward_range: Interval | None
    commitment: Digest
    """The digest that was published before the first episode."""
    opening: Opening
    """The tasks and seeds that it is the digest of."""
    rows: Whole
    root: Digest
    """The root of the Merkle tree of the rows."""
    ends: dict[str, Whole]
    """The number of rows by end reason."""
    mean: float
    """The mean of the counted values: first over the episodes of each task, then over tasks."""
    kind: Literal["ludus-receipt-1"] = "ludus-receipt-1"


class SignedReceipt(WireModel):
    """A statement with its signature."""

    statement: ReceiptStatement
    key: PublicKey
    """The hub's key."""
    signature: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]{86}==$")]


class Receipt(SignedReceipt):
    """A signed statement with the rows that it is about, so that one file is enough to check it."""

    episodes: tuple[RunEpisode, ...]


def sign_receipt(statement: ReceiptStatement, key: Ed25519PrivateKey) -> SignedReceipt:
    """Return the statement with its signature."""
    signature = base64.b64encode(key.sign(canonical(statement))).decode()
    return SignedReceipt(statement=statement, key=public_key(key), signature=signature)


def merkle_root(rows: Sequence[WireModel]) -> str:
    """Return the root of the Merkle tree of rows, in hexadecimal; see RFC 6962, section 2.1."""
    level = [hashlib.sha256(b"\0" + canonical(row)).digest() for row in rows]
    if not level:
        return hashlib.sha256().hexdigest()
    while len(level) > 1:
        pairs = [
            hashlib.sha256(b"\1" + level[place] + level[place + 1]).digest() for place in range(0, len(level) - 1, 2)
        ]
        level = [*pairs, *level[len(pairs) * 2 :]]
    return level[0].hex()


def mean_of(rows: Sequence[RunEpisode]) -> float:
    """Return the mean of the counted values, first over the episodes of each task, then over tasks."""
    by_task: dict[int, list[float]] = {}
    for row in rows:
        by_task.setdefault(row.index, []).append(row.value)
    return math.fsum(math.fsum(values) / len(values) for values in by_task.values()) / len(by_task)


def verify_receipt(signed: SignedReceipt, rows: Sequence[RunEpisode], key: str | None = None) -> None:
    """Check a receipt: its signature, its rows, its counts, its mean, and the choice of its tasks.

    Args:
        signed: the receipt.
        rows: all rows of the run, in order of their places.
        key: the hub's key, as it is known from elsewhere; None to accept the one that the receipt names.

    Raises:
        ReceiptRefused: a part is wrong; the message names it.
    """
    if key is not None and key != signed.key:
        raise ReceiptRefused(f"the receipt is signed with {signed.key}, which is not the hub's key {key}")
    check_signed(signed.statement, signed.key, signed.signature)
    _check_rows(signed.statement, rows)
    _check_drawing(signed.statement, rows)


def describe_receipt(signed: SignedReceipt, *, key_is_known: bool) -> Iterator[str]:
    """Yield lines that say what a receipt that holds proves, and what it does not.

    Args:
        signed: a receipt that was verified.
        key_is_known: whether its key was compared with one known from elsewhere.
    """
    one = signed.statement
    ends = ", ".join(f"{count} {end}" for end, count in sorted(one.ends.items()))
    yield f"The receipt of the run {one.run} holds."
    yield f"  {one.package} {one.version} (wheel {one.sha256}), {one.environment} / {one.split}"
    yield f"  {one.tasks} tasks × {one.samples} episodes: {ends}"
    yield f"  mean {one.mean:.6g}"
    yield f"  declared: model {one.declared.model}, harness {one.declared.harness}, by the account {one.by}"
    yield f"  signed with {signed.key}"
    yield "It proves, as far as you trust the hub:"
    yield "  the mean is that of these rows, and no row was changed, dropped or added since the hub signed;"
    yield "  tasks and seeds follow from a secret that was fixed before the run."
    yield "It does not prove:"
    if not key_is_known:
        yield "  that this is the hub's key: compare it with the hub's own, or give it with --key;"
    yield "  who or what chose the actions; the identity of the model; that the harness had no help."


def check_signed(statement: WireModel, key: str, signature: str) -> None:
    """Check the signature of a statement.

    Args:
        statement: what was signed.
        key: the public key as text.
        signature: the signature, in Base64.

    Raises:
        ReceiptRefused: the signature does not fit.
    """
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ModuleNotFoundError as error:
        raise missing_extra(error, EXTRA) from None
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key.removeprefix(KEY_PREFIX), validate=True))
        public.verify(base64.b64decode(signature, validate=True), canonical(statement))
    except (InvalidSignature, ValueError):
        raise ReceiptRefused(
            "the signature does not fit the statement: it was changed after the hub signed it, or another key made it"
        ) from None


def _check_rows(statement: ReceiptStatement, rows: Sequence[RunEpisode]) -> None:
    if len(rows) != statement.rows or statement.rows != statement.tasks * statement.samples:
        raise ReceiptRefused(
            f"the run has {statement.tasks} tasks × {statement.samples} episodes, the receipt is about "
            f"{statement.rows} rows, and there are {len(rows)}: rows are missing or were added"
        )
    if merkle_root(rows) != statement.root:
        raise ReceiptRefused("the rows do not have the Merkle root that the hub signed: a row was changed or moved")
    if Counter(row.end for row in rows) != Counter(statement.ends):
        raise ReceiptRefused("the counts of the end reasons are not those of the rows")
    for row in rows:
        if row.value != counted_value(row.reward, row.end, statement.reward_range):
            raise ReceiptRefused(f"row {row.place} counts {row.value:g}, which its reward and its end do not give")
    if not math.isclose(mean_of(rows), statement.mean, rel_tol=1e-12, abs_tol=1e-12):
        raise ReceiptRefused(f"the mean of the rows is {mean_of(rows):g}, and the receipt says {statement.mean:g}")


def _check_drawing(statement: ReceiptStatement, rows: Sequence[RunEpisode]) -> None:
    opening = statement.opening
    if digest_of(opening) != statement.commitment:
        raise ReceiptRefused("the tasks and seeds are not those that the hub committed to before the run")
    if (opening.environment, opening.split) != (statement.environment, statement.split):
        raise ReceiptRefused("the commitment is about another environment or split")
    indices = draw_tasks(opening.secret, opening.count, statement.tasks)
    if indices != [task.index for task in opening.tasks]:
        raise ReceiptRefused("the tasks are not those that follow from the secret: they were chosen")
    planned = {}
    for task in opening.tasks:
        for sample, seed in enumerate(task.seeds):
            if seed is not None and seed != draw_seed(opening.secret, task.index, sample):
                raise ReceiptRefused(f"the seed of task {task.index} does not follow from the secret: it was chosen")
            planned[task.index, sample] = (task.task, seed)
    if {(row.index, row.sample): (row.task, row.seed) for row in rows} != planned:
        raise ReceiptRefused("the rows are not those of the tasks and seeds that the hub committed to")
