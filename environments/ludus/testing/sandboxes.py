"""The conformance suite of sandbox backends, for pytest.

    from ludus.sandbox import SandboxSettings
    from ludus.testing.sandboxes import SandboxConformance
    from my_package import MyProvider

    class TestMyProvider(SandboxConformance):
        provider = MyProvider
        settings = SandboxSettings(provider="mine")
        cannot = {"terminals": "the service has none", "limit: disk": "the service does not report it"}

Each check is one test, in a fresh provider. A check that needs what the backend declares that it cannot do is skipped
with that reason. What it declares of its methods and of `python` is checked: the methods must raise
`SandboxUnsupported`, and there must be no `python3`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import pytest

pytest.register_assert_rewrite("ludus.testing.sandbox_checks")

from ludus.sandbox import Sandbox, SandboxProvider, SandboxSettings, SandboxUnavailable, SandboxUnsupported  # noqa: E402
from ludus.testing.sandbox_checks import background, commands, files, lifetime, limits  # noqa: E402, F401
from ludus.testing.sandbox_checks.bench import ABILITIES, CHECKS, LIMITS, Ability, Bench, Check  # noqa: E402

__all__ = ["ABILITIES", "Ability", "Bench", "Check", "SandboxConformance", "conformance_checks"]

_CALLS: Final[dict[Ability, Callable[[Sandbox], Any]]] = {
    "background": lambda box: _run_beside(box),
    "terminals": lambda box: box.open_terminal(),
    "ports": lambda box: box.connect(8000),
    "snapshots": lambda box: box.snapshot(),
    "forks": lambda box: box.fork(),
}
"""What must be refused by a backend that declares that it cannot do it."""


async def _run_beside(box: Sandbox) -> None:
    async with await box.spawn(["sleep", "60"]):
        await box.run(["true"])


def conformance_checks() -> tuple[Check, ...]:
    """Return all checks."""
    return tuple(CHECKS)


class SandboxConformance:
    """The checks as tests of pytest: subclass it as `TestSomething`.

    Attributes:
        provider: the class of the backend, or a function that returns a provider that is not open.
        settings: the settings of its sandboxes; their limits are replaced.
        cannot: what the backend cannot do, and the reason.
    """

    provider: ClassVar[Any]
    settings: ClassVar[SandboxSettings]
    cannot: ClassVar[Mapping[str, str]] = {}

    def left_behind(self) -> list[str]:
        """Return what closed sandboxes have left. It is called after each check, and must return nothing."""
        return []

    @pytest.mark.parametrize("check", conformance_checks(), ids=lambda check: check.name)
    def test_conformance(self, check: Check) -> None:
        """Run one check."""
        for need in check.needs:
            if need in self.cannot:
                pytest.skip(f"the backend declares that it cannot do this ({need}): {self.cannot[need]}")
        asyncio.run(self._with_provider(check.run))

    def test_what_the_backend_declares_is_known_and_refused(self) -> None:
        """Check that `cannot` has known names, that methods in it raise `SandboxUnsupported`, and `python` is true."""
        unknown = set(self.cannot) - set(ABILITIES)
        assert not unknown, f"`cannot` has unknown names: {sorted(unknown)}; there are: {', '.join(ABILITIES)}"

        async def refuse(bench: Bench) -> None:
            box = await (bench.box_with_ports() if "ports" in self.cannot else bench.box())
            for ability, call in _CALLS.items():
                if ability in self.cannot:
                    with pytest.raises(SandboxUnsupported):
                        await call(box)
            if "python" in self.cannot:
                assert (await box.run(["python3", "-c", ""])).exit_code == 127, "there is a python3 in the sandbox"

        if self.cannot.keys() & {*_CALLS, "python"}:
            asyncio.run(self._with_provider(refuse))

    async def _with_provider(self, run: Callable[[Bench], Any]) -> None:
        provider: SandboxProvider = type(self).provider()
        try:
            await provider.open()
        except SandboxUnavailable as error:
            pytest.skip(error.message)
        try:
            await run(Bench(provider, self.settings.model_copy(update={"limits": LIMITS, "warm": 0})))
        finally:
            await provider.aclose()
        assert self.left_behind() == []
