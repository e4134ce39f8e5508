"""What a sandbox backend must define."""

from __future__ import annotations

from typing import Any

import pytest

from ludus.sandbox.base import SandboxBase
from ludus.sandbox.box import RunnerBox
from ludus.sandbox.container import ContainerBox
from ludus.sandbox.core.model import Sandbox

METHODS = ("run", "read", "write", "list", "snapshot", "restore", "fork", "aclose")


@pytest.mark.parametrize("backend", [RunnerBox, ContainerBox])
def test_the_backends_define_every_method_of_a_sandbox(backend: type[SandboxBase]) -> None:
    assert not backend.__abstractmethods__


@pytest.mark.parametrize("method", METHODS)
def test_a_backend_that_lacks_a_method_cannot_be_created(method: str) -> None:
    lacking: Any = type("Lacking", (RunnerBox,), {method: getattr(Sandbox, method)})

    with pytest.raises(TypeError, match=f"abstract method '?{method}'?"):
        lacking()
