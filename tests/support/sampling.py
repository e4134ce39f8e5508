"""`make test` runs a sample of each long matrix; `make test-all` sets LUDUS_TEST_ALL=1 and runs all of it."""

from __future__ import annotations

import os


def runs_everything() -> bool:
    """Return whether the long matrices run in full."""
    return bool(os.environ.get("LUDUS_TEST_ALL"))
