"""Each planted fault is found, under its name and no other."""

from __future__ import annotations

import pytest
from faults_of import planted, reports

MODULE = "rewarded"
FAULTS = planted(MODULE)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "kind"), FAULTS.items(), ids=list(FAULTS))
def test_a_fault_is_found_and_nothing_else(name: str, kind: str) -> None:
    report = reports(MODULE, tuple(FAULTS))[name]
    found = {finding.kind: finding for finding in report.findings}
    assert list(found) == [kind], report.as_json()
    assert [verdict.detail for verdict in report.verdicts if verdict.status == "broken"] == []
    assert found[kind].message
    assert all(len(finding.evidence) <= max(1, finding.count) for finding in report.findings)
