"""The backend of Kubernetes' agent-sandbox over a fake cluster, through its own client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("k8s_agent_sandbox", reason="needs its client: pip install 'ludus-rl[agent-sandbox]'")

from fake_agent_sandbox import FakeAgentSandbox
from fake_machines import FakeService
from service_checks import ServiceChecks

from ludus.sandbox import SandboxFailed, SandboxSettings, SandboxUnavailable, SandboxUnsupported
from ludus.sandbox.services.agent_sandbox import AgentSandbox


class TestAgentSandbox(ServiceChecks):
    fake = FakeAgentSandbox
    key = "LUDUS_AGENT_SANDBOX_NETWORK"
    provider = AgentSandbox
    settings = SandboxSettings(provider="agent-sandbox", image="python-pool")
    quota = 403

    def blocks_network(self, created: dict[str, Any]) -> bool:
        """The template decides that; the claim has the pool and the time at which the cluster ends it."""
        asked = created["spec"]
        pool, policy = asked["warmPoolRef"]["name"], asked["lifecycle"]["shutdownPolicy"]
        return (pool, policy) == ("python-pool", "Delete")

    def labeled(self, labels: dict[str, str]) -> dict[str, Any]:
        return {"metadata": {"labels": labels}}

    def test_a_refused_key_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        file = Path.home() / ".kube" / "config"
        file.write_text(file.read_text(encoding="utf-8").replace("fake-key", "another-key"), encoding="utf-8")
        with pytest.raises(SandboxUnavailable, match=r"SandboxClaims in the namespace 'games'.*401"):
            asyncio.run(self.opened())

    def test_a_network_that_is_not_accepted_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(self.key, "none")
        with pytest.raises(SandboxUnavailable, match="must be `template`"):
            asyncio.run(self.opened())

    def test_a_cluster_that_is_not_configured_is_named(self) -> None:
        (Path.home() / ".kube" / "config").unlink()
        with pytest.raises(SandboxUnavailable, match="configuration"):
            asyncio.run(self.opened())

    def test_a_missing_image_is_named(self) -> None:
        async def run() -> None:
            provider = await self.opened()
            with pytest.raises(SandboxUnsupported, match="SandboxWarmPool"):
                await provider.create(self.settings.but(warm=0, image=None))
            await provider.aclose()

        asyncio.run(run())

    def test_an_api_that_fails_leaves_nothing(self, service: FakeService) -> None:
        async def run() -> None:
            provider = await self.opened()
            service.faults["create"] = 500
            with pytest.raises(SandboxFailed, match="500"):
                await provider.create(self.settings.but(warm=0))
            await provider.aclose()

        asyncio.run(run())
        assert service.machines == {}
