"""Each planted fault is found, under its name and no other."""

from __future__ import annotations

import pytest
from faults_of import assert_found, planted

MODULE = "repeated"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "kind"), planted(MODULE).items(), ids=list(planted(MODULE)))
def test_a_fault_is_found_and_nothing_else(name: str, kind: str) -> None:
    assert_found(MODULE, name, kind)
