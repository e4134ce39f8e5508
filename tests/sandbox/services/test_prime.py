"""Prime Intellect's backend over a fake of the service, through its own client."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("prime_sandboxes", reason="needs Prime's client: pip install 'ludus-rl[prime]'")

from fake_prime import FakePrime
from service_checks import ServiceChecks

from ludus.sandbox import SandboxSettings
from ludus.sandbox.services.prime import Prime


class TestPrime(ServiceChecks):
    fake = FakePrime
    key = "PRIME_API_KEY"
    provider = Prime
    settings = SandboxSettings(provider="prime")
    quota = 403  # the client waits for 40 s after a 429

    def blocks_network(self, created: dict[str, Any]) -> bool:
        return bool(created["network_allowlist"] == [] and created["timeout_minutes"] == 60)

    def labeled(self, labels: dict[str, str]) -> dict[str, Any]:
        return {
            "labels": [f"{name}={value}" for name, value in labels.items()], "name": "other", "docker_image": "python",
            "timeout_minutes": 60,
        }  # fmt: skip
