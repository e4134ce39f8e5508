"""Daytona's backend over a fake of the service, through Daytona's own client."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("daytona", reason="needs Daytona's client: pip install 'ludus-rl[daytona]'")

from fake_daytona import FakeDaytona
from service_checks import ServiceChecks

from ludus.sandbox import SandboxSettings
from ludus.sandbox.services.daytona import Daytona


class TestDaytona(ServiceChecks):
    fake = FakeDaytona
    key = "DAYTONA_API_KEY"
    provider = Daytona
    settings = SandboxSettings(provider="daytona")

    def blocks_network(self, created: dict[str, Any]) -> bool:
        return created["networkBlockAll"] is True and created["ttlMinutes"] == 60

    def labeled(self, labels: dict[str, str]) -> dict[str, Any]:
        return {"labels": labels}
