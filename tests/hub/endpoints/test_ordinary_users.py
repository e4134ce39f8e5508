"""Endpoints of a hub that is not run by root."""

from __future__ import annotations

import pytest
from ordinary_users import passed_as_ordinary_user


@pytest.mark.suite("hub-endpoints")
@pytest.mark.timeout(600)
def test_attacks_of_packages_are_contained_on_a_hub_of_an_ordinary_user() -> None:
    tests = ("tests/hub/endpoints/test_attacks.py", "tests/hub/endpoints/test_foreign_answers.py")
    assert passed_as_ordinary_user(*tests, suites="") >= 5
    assert passed_as_ordinary_user(*tests, suites="hub-endpoints") >= 12
