"""E2B's backend over a fake of the service, through E2B's own client."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("e2b", reason="needs E2B's client: pip install 'ludus-rl[e2b]'")

from fake_e2b import FakeE2B
from service_checks import ServiceChecks

from ludus.sandbox import SandboxSettings
from ludus.sandbox.services.e2b import E2B


class TestE2B(ServiceChecks):
    fake = FakeE2B
    key = "E2B_API_KEY"
    provider = E2B
    settings = SandboxSettings(provider="e2b")

    def blocks_network(self, created: dict[str, Any]) -> bool:
        return created["allow_internet_access"] is False and created["timeout"] == 3600

    def labeled(self, labels: dict[str, str]) -> dict[str, Any]:
        return {"metadata": labels}
