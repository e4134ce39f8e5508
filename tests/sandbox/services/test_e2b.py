"""E2B's backend over a fake of the service, through E2B's own client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar

import pytest

pytest.importorskip("e2b", reason="needs the package e2b: pip install 'ludus-rl[e2b]'")

from fake_e2b import FakeE2B

from ludus.sandbox import SandboxSettings
from ludus.sandbox.services.e2b import E2B
from ludus.testing.sandboxes import SandboxConformance


class TestE2B(SandboxConformance):
    provider = E2B
    settings = SandboxSettings(provider="e2b")
    cannot: ClassVar[Mapping[str, str]] = {
        "isolation": "the sandboxes of the fake run on one machine",
        "background": "x", "terminals": "x", "ports": "x",
    }

    @pytest.fixture(autouse=True)
    def service(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeE2B]:
        with FakeE2B() as fake:
            for name, value in fake.environment().items():
                monkeypatch.setenv(name, value)
            yield fake
            assert fake.machines == {}
