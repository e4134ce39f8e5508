"""What every backend of a service must do besides the conformance suite: when the service refuses, fails or is gone."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fake_machines import FakeService

from ludus.sandbox import (
    Sandbox,
    SandboxFailed,
    SandboxProvider,
    SandboxUnavailable,
    SandboxUnsupported,
)
from ludus.sandbox.core.errors import SandboxImageError
from ludus.sandbox.core.stale import OWNER
from ludus.sandbox.services import box as service_box
from ludus.sandbox.services.provider import BOOT, BOOT_LABEL, OWNER_LABEL
from ludus.testing.sandboxes import SandboxConformance

RECORDINGS = Path(__file__).parents[1] / "sandbox" / "services" / "recordings"
_NO_PROGRAM = "the backend runs one command of the service at a time"


class ServiceChecks(SandboxConformance):
    """The conformance suite over a fake, and the failures of services."""

    fake: ClassVar[type[FakeService]]
    key: ClassVar[str]
    cannot: ClassVar[Mapping[str, str]] = {
        "isolation": "the sandboxes of the fake run on one machine",
        "background": _NO_PROGRAM, "terminals": _NO_PROGRAM, "ports": _NO_PROGRAM,
    }  # fmt: skip

    def blocks_network(self, created: dict[str, Any]) -> bool:
        """Return whether a request to create a sandbox asks for one without a network."""
        raise NotImplementedError

    def labeled(self, labels: dict[str, str]) -> dict[str, Any]:
        """Return the request with which another server created a sandbox."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def service(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeService]:
        monkeypatch.setenv("HOME", str(tmp_path))
        with self.fake() as fake:
            for name, value in fake.environment().items():
                monkeypatch.setenv(name, value)
            yield fake

    async def opened(self) -> SandboxProvider:
        provider: SandboxProvider = type(self).provider()
        await provider.open()
        return provider

    def with_box(self, use: Any) -> None:
        async def run() -> None:
            provider = await self.opened()
            try:
                await use(await provider.create(self.settings.but(warm=0)))
            finally:
                await provider.aclose()

        asyncio.run(run())

    def test_a_missing_key_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(self.key)
        with pytest.raises(SandboxUnavailable, match=self.key):
            asyncio.run(self.opened())

    def test_a_refused_key_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(self.key, "another-key")
        with pytest.raises(SandboxUnavailable, match=f"refuses the key in {self.key}"):
            asyncio.run(self.opened())

    def test_settings_that_it_cannot_honor_are_refused(self) -> None:
        async def run() -> None:
            provider = await self.opened()
            for asked in (
                {"network": ("pypi.org",)},
                {"readonly": (("/usr", "/usr"),)},
                {"links": (("/app", "app"),)},
                {"build": "folder"},
            ):
                with pytest.raises(SandboxUnsupported, match=next(iter(asked))):
                    await provider.create(self.settings.but(**asked))
            await provider.aclose()

        asyncio.run(run())

    def test_no_network_is_requested_and_sandboxes_have_labels(self, service: FakeService) -> None:
        async def use(_: Sandbox) -> None:
            (machine,) = service.machines.values()
            assert self.blocks_network(machine.about), machine.about
            assert OWNER in json.dumps(machine.about)
            assert BOOT in json.dumps(machine.about)

        self.with_box(use)
        assert service.machines == {}

    def test_a_limit_of_the_account_is_a_failure_of_the_service(self, service: FakeService) -> None:
        async def run() -> None:
            provider = await self.opened()
            service.faults["create"] = 429
            with pytest.raises(SandboxFailed, match="limit"):
                await provider.create(self.settings.but(warm=0))
            await provider.aclose()

        asyncio.run(run())

    def test_an_image_that_does_not_exist_is_named(self) -> None:
        async def run() -> None:
            provider = await self.opened()
            with pytest.raises(SandboxImageError, match="no-such-image"):
                await provider.create(self.settings.but(warm=0, image="no-such-image"))
            await provider.aclose()

        asyncio.run(run())

    @pytest.mark.parametrize("fault", ["kill", "drop", "garbage"])
    def test_a_command_whose_sandbox_or_service_fails_is_no_result(self, service: FakeService, fault: str) -> None:
        async def use(box: Sandbox) -> None:
            service.faults["execute"] = fault
            with pytest.raises(SandboxFailed):
                await box.run(["sleep", "3"])
            service.faults.clear()
            with pytest.raises(SandboxFailed):
                await box.run(["true"])

        self.with_box(use)
        assert service.machines == {}

    def test_a_command_that_is_delivered_twice_runs_once(self, service: FakeService) -> None:
        async def use(box: Sandbox) -> None:
            service.faults["execute"] = "twice"
            with suppress(SandboxFailed):  # if the answer of the other delivery comes back
                await box.run(["sh", "-c", "echo ran >> log; sleep 0.3"])
            service.faults.clear()
            assert await box.read("log") == b"ran\n"

        self.with_box(use)

    def test_a_service_that_does_not_answer_is_given_up(
        self, service: FakeService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The service answers only if it is asked to end."""

        async def use(box: Sandbox) -> None:
            service.faults["execute"] = "slow"
            monkeypatch.setattr(service_box, "MARGIN_SECONDS", 0.5)
            monkeypatch.setattr(service_box, "_END_SECONDS", 0.5)
            with pytest.raises(SandboxFailed):
                await box.run(["true"], limits=box.limits.but(seconds=0.5))

        self.with_box(use)

    def test_sandboxes_of_servers_that_are_gone_are_removed(self, service: FakeService) -> None:
        namespace, pid = OWNER.split("-")[1:3]
        gone = service.create(self.labeled({OWNER_LABEL: f"ludus-{namespace}-{pid}-1", BOOT_LABEL: BOOT}))
        others = [
            service.create(self.labeled({OWNER_LABEL: OWNER, BOOT_LABEL: BOOT})),
            service.create(self.labeled({OWNER_LABEL: f"ludus-{namespace}-{pid}-1", BOOT_LABEL: "another machine"})),
        ]

        async def run() -> None:
            await (await self.opened()).aclose()

        asyncio.run(run())
        assert gone not in service.machines
        assert list(service.machines) == others

    def test_what_the_client_sends_is_as_recorded(self, service: FakeService) -> None:
        """A new version of the client that sends something else is noticed; LUDUS_RECORD=1 records it again."""

        async def use(box: Sandbox) -> None:
            await box.write("large", bytes(100_000))
            assert len((await box.run(["cat", "large"], limits=box.limits.but(output=200_000))).stdout) == 100_000

        self.with_box(use)
        asked = [_without_chance(one, service) for one in service.asked]
        file = RECORDINGS / f"{self.settings.provider}.json"
        if os.environ.get("LUDUS_RECORD"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(asked, indent=1) + "\n", encoding="utf-8")
        assert asked == json.loads(file.read_text(encoding="utf-8"))


def _without_chance(asked: Any, service: FakeService) -> Any:
    """Return a request without what differs between two runs, and without the program that it carries."""
    text = json.dumps(asked)
    for value, name in ((OWNER, "OWNER"), (BOOT, "BOOT"), (str(service.port), "PORT")):
        text = text.replace(value, name)
    text = re.sub(r"python3 -I -S -c [^}]*?(?=\", \"|\"]|\"})", "PROGRAM", text)
    text = re.sub(r"sandbox-[0-9a-f]{16}", "SANDBOX", text)
    text = re.sub(r"\b[0-9a-f]{32}\b", "KEY", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)", "TIME", text)
    return json.loads(re.sub(r"[0-9a-f]{16}", "TOKEN", text))
