"""Which suites of `tests/suites.toml` this run of pytest is for: none in `make test`, named ones in `make suite`.

`scripts/suites.py` names them in the variable `LUDUS_SUITES`, separated by commas.
"""

from __future__ import annotations

import os

import pytest


def selected_suites() -> frozenset[str]:
    """Return the names of the suites that were asked for; empty in `make test`."""
    return frozenset(name for name in os.environ.get("LUDUS_SUITES", "").split(",") if name)


def is_selected(item: pytest.Item) -> bool:
    """Return whether this run includes a test.

    `make test` leaves out the tests with the marker `suite`, except those that run a sample there (`sample=True`). A
    run of suites includes the marked tests of these suites alone.
    """
    markers = list(item.iter_markers("suite"))
    if selected := selected_suites():
        return any(marker.args[0] in selected for marker in markers)
    return all(marker.kwargs.get("sample") for marker in markers)
