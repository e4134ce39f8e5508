"""Prime's backend over a fake of the service, through Prime's own client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar

import pytest

pytest.importorskip("prime_sandboxes", reason="needs the package prime-sandboxes: pip install 'ludus-rl[prime]'")

from fake_prime import FakePrime

from ludus.sandbox import SandboxSettings
from ludus.sandbox.services.prime import Prime
from ludus.testing.sandboxes import SandboxConformance


class TestPrime(SandboxConformance):
    provider = Prime
    settings = SandboxSettings(provider="prime")
    cannot: ClassVar[Mapping[str, str]] = {
        "isolation": "the sandboxes of the fake run on one machine",
        "background": "x", "terminals": "x", "ports": "x",
    }

    @pytest.fixture(autouse=True)
    def service(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePrime]:
        with FakePrime() as fake:
            for name, value in fake.environment().items():
                monkeypatch.setenv(name, value)
            yield fake
            assert fake.machines == {}
