"""The keeper of a background command ends with the program inside, whenever that ends."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os
from ludus.sandbox.inside import confine

parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        os.sched_yield()
    os.write(1, b"an orphan ")
    confine.end_with_parent(parent)
    os.write(1, b"that lives")
"""


def test_a_keeper_whose_parent_ended_before_it_asked_to_end_with_it_ends_at_once() -> None:
    """The kernel's signal comes only if the parent ends after the request."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, timeout=60, check=True)
    assert done.stdout == b"an orphan "
