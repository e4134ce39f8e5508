"""Each fault of the module `searched` is found by its check, and no other check finds anything."""

from __future__ import annotations

import pytest
from faults_of import assert_found, assert_nothing_else_found, sampled, with_all_checks

MODULE = "searched"
SAMPLE = 2
"""How many faults are looked for outside of the suite."""

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("name", sampled(MODULE, SAMPLE))
def test_a_fault_is_found_by_its_check(name: str) -> None:
    assert_found(MODULE, name, SAMPLE)


@pytest.mark.suite("validation")
@pytest.mark.parametrize("name", with_all_checks(MODULE))
def test_no_other_check_finds_anything(name: str) -> None:
    assert_nothing_else_found(MODULE, name)
