"""Sandboxes of a server that is not root, which has neither users nor control groups to give away."""

from __future__ import annotations

import pytest
from ordinary_users import passed_as_ordinary_user
from sandboxing import NEEDS_BUBBLEWRAP

pytestmark = [NEEDS_BUBBLEWRAP, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("tests", "suites", "least"),
    [
        (("tests/sandbox/test_attacks.py", "-k", "bubblewrap and writing_and_listing"), "sandbox", 1),
        pytest.param(
            ("tests/sandbox/test_attacks.py", "tests/sandbox/test_process_attacks.py", "-k", "bubblewrap"),
            "sandbox", 60, marks=pytest.mark.suite("sandbox"),
        ),
        pytest.param(
            ("tests/sandbox/test_network.py", "-k", "bubblewrap"), "sandbox", 10, marks=pytest.mark.suite("sandbox")
        ),
    ],
    ids=["one attack", "all attacks", "the network"],
)  # fmt: skip
def test_attacks_on_sandboxes_of_an_ordinary_user_are_contained(
    tests: tuple[str, ...], suites: str, least: int
) -> None:
    assert passed_as_ordinary_user(*tests, suites=suites) >= least
