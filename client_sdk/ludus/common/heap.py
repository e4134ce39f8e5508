"""Less garbage collection in processes that hold many objects for long."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["uncollected"]


RARELY = (10_000, 10, 1_000)
"""The thresholds of a process whose old objects hold little memory.

The second generation has at most 100,000 objects, so that its collection takes some 40 ms at most; the third one is
collected after 100 million allocations.
"""


def settle_heap(thresholds: tuple[int, int, int] = RARELY) -> None:
    """Exclude the objects that exist after startup from garbage collection, and collect less often.

    Episodes keep their outcomes, so many objects outlive a request, and each collection would also visit all imported
    modules. This took a quarter of the server CPU of an MCP call when measured, and a twentieth of the gateway's.

    Args:
        thresholds: the arguments of `gc.set_threshold`.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*thresholds)


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage while many objects are made that stay: each collection would visit all of them.

    Afterwards they are excluded from garbage collection.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()
