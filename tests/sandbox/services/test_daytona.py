"""Daytona's backend over a fake of the service, through Daytona's own client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar

import pytest

pytest.importorskip("daytona", reason="needs the package daytona: pip install 'ludus-rl[daytona]'")

from fake_daytona import FakeDaytona

from ludus.sandbox import SandboxSettings
from ludus.sandbox.services.daytona import Daytona
from ludus.testing.sandboxes import SandboxConformance


class TestDaytona(SandboxConformance):
    provider = Daytona
    settings = SandboxSettings(provider="daytona")
    cannot: ClassVar[Mapping[str, str]] = {
        "isolation": "the sandboxes of the fake run on one machine",
        "background": "x", "terminals": "x", "ports": "x",
    }

    @pytest.fixture(autouse=True)
    def service(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaytona]:
        with FakeDaytona() as fake:
            for name, value in fake.environment().items():
                monkeypatch.setenv(name, value)
            yield fake
            assert fake.machines == {}
