"""How a hub draws the tasks and the seeds of a run from a secret, so that anyone can repeat it afterwards.

`number(secret, label)` is the first 8 bytes of HMAC-SHA256(secret, label), read as a big-endian integer.

* Tasks: a Fisher-Yates shuffle of the split's indices, of which the first ones are taken: the i-th is exchanged with
  the one at i + number(`task:i`) mod (count − i). The bias of the modulo is below 2^-40 for fewer than 2^24 tasks.
* Seeds: number(`seed:INDEX:SAMPLE`) shifted right by 16 bits, which is below 2^48.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

ENDLESS: Final = 2**24
"""Tasks of an endless split are drawn from this many at its beginning."""


def draw_tasks(secret: str, count: int | None, tasks: int) -> list[int]:
    """Return the indices of the tasks of a run, all different.

    Args:
        secret: the run's secret, in hexadecimal.
        count: the number of tasks in the split; None if it is endless.
        tasks: how many to draw.

    Raises:
        ValueError: the split has fewer tasks.
    """
    size = ENDLESS if count is None else count
    if tasks > size:
        raise ValueError(f"{tasks} tasks cannot be drawn from {size}")
    moved: dict[int, int] = {}
    drawn = []
    for place in range(tasks):
        other = place + _number(secret, f"task:{place}") % (size - place)
        drawn.append(moved.get(other, other))
        moved[other] = moved.get(place, place)
    return drawn


def draw_seed(secret: str, index: int, sample: int) -> int:
    """Return the seed of an episode."""
    return _number(secret, f"seed:{index}:{sample}") >> 16


def _number(secret: str, label: str) -> int:
    return int.from_bytes(hmac.digest(bytes.fromhex(secret), label.encode(), hashlib.sha256)[:8], "big")
