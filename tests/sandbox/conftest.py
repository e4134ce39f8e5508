"""Providers for the sandbox tests: each backend that this machine has, opened for one test and checked afterwards."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from engine import engine, podman
from hosting import SandboxHost, hosts_in, sandboxd
from sandboxing import leftovers, opened

from ludus.sandbox import SandboxProvider
from ludus.sandbox.core.stale import OWNER

SAMPLED = {"test_attacks.py": 16, "test_process_attacks.py": 8, "test_conformance.py": 16}
"""Every how many tests of a file run in `make test` over another backend than bubblewrap, which runs them all."""
SAMPLED_OTHERWISE = 12
"""The same for the other files."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put most tests over other backends than bubblewrap into the suite `sandbox`, which runs all of them."""
    counts: dict[tuple[str, str], int] = {}
    for item in items:
        if item.path.parent != Path(__file__).parent:
            continue
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        fixtures = ("isolating", "networked", "proxied_here", "any_backend", "spawning", "isolating_spawn")
        backend = next((parameters[name] for name in fixtures if name in parameters), "bubblewrap")
        if (kind := getattr(item, "cls", None)) is not None:
            backend = kind.__name__
        every = SAMPLED.get(item.path.name, SAMPLED_OTHERWISE)
        if backend in ("bubblewrap", "TestBubblewrap"):
            continue
        number = counts[item.path.name, backend] = counts.get((item.path.name, backend), -1) + 1
        if number % every or "flood" in item.name:
            item.add_marker(pytest.mark.suite("sandbox"))


@pytest.fixture(scope="session")
def engine_address() -> Iterator[str]:
    """A Docker engine of this run's own."""
    with engine() as address:
        yield address


@pytest.fixture(scope="session")
def podman_address() -> Iterator[str]:
    """A rootless Podman service of this run's own."""
    with podman() as address:
        yield address


@pytest.fixture(scope="session")
def sandbox_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxHost]:
    """A `ludus sandboxd` of this run's own."""
    with sandboxd(tmp_path_factory.mktemp("sandboxd")) as host:
        yield host


HERE = ("bubblewrap", "bubblewrap-rlimits", "docker", "docker-shell", "podman", "podman-shell")
"""Backends whose sandboxes this process looks after itself; with `-shell`, those in images without Python."""
ISOLATING = (*HERE, "sandboxd")


@asynccontextmanager
async def _backend(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, SandboxProvider]]:
    if request.param.startswith("docker"):
        request.getfixturevalue("monkeypatch").setenv("DOCKER_HOST", request.getfixturevalue("engine_address"))
    if request.param.startswith("podman"):
        request.getfixturevalue("monkeypatch").setenv("CONTAINER_HOST", request.getfixturevalue("podman_address"))
    owners = [OWNER]
    if request.param == "sandboxd":
        host = request.getfixturevalue("sandbox_host")
        hosts_in(request.getfixturevalue("monkeypatch"), host)
        owners.append(host.owner)
    provider = await opened(request.param)
    yield request.param, provider
    await provider.aclose()
    assert [left for owner in owners for left in leftovers(owner)] == []


@pytest.fixture(params=ISOLATING)
async def isolating(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, SandboxProvider]]:
    """A backend that holds what fights it; nothing is left when the test ends."""
    async with _backend(request) as backend:
        yield backend


@pytest.fixture(params=ISOLATING)
async def networked(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, SandboxProvider]]:
    """A backend that keeps to an allowlist."""
    async with _backend(request) as backend:
        yield backend


@pytest.fixture(params=HERE)
async def proxied_here(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, SandboxProvider]]:
    """A backend that keeps to an allowlist by a proxy in this process."""
    async with _backend(request) as backend:
        yield backend


@pytest.fixture(params=[*ISOLATING, "unsafe-local"])
async def any_backend(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, SandboxProvider]]:
    """Every backend; nothing is left when the test ends."""
    async with _backend(request) as backend:
        yield backend


@pytest.fixture(params=["bubblewrap", "bubblewrap-rlimits", "unsafe-local", "docker", "podman", "sandboxd"])
async def spawning(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, SandboxProvider]]:
    """A backend that has background processes; nothing is left when the test ends."""
    async with _backend(request) as backend:
        yield backend


@pytest.fixture(params=["bubblewrap", "bubblewrap-rlimits", "docker", "podman", "sandboxd"])
async def isolating_spawn(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, SandboxProvider]]:
    """A backend that has background processes and holds those that attack it; nothing is left when the test ends."""
    async with _backend(request) as backend:
        yield backend


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Things on this machine that a box must not reach, named in environment variables for the attacker."""
    canary = tmp_path / "canary"
    canary.write_text("host secret", encoding="utf-8")
    canary.chmod(0o666)
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0ludus-test-{os.getpid()}")
        abstract.listen()
        path = tmp_path / "sock"
        with socket.socket(socket.AF_UNIX) as named:
            named.bind(str(path))
            named.listen()
            os.environ["LUDUS_TEST_SECRET"] = "server secret"
            yield {
                "CANARY": str(canary), "PORT": str(tcp.getsockname()[1]), "ABSTRACT": f"ludus-test-{os.getpid()}",
                "SOCKET": str(path), "SERVER": str(os.getpid()),
            }  # fmt: skip
            del os.environ["LUDUS_TEST_SECRET"]
    assert canary.read_text(encoding="utf-8") == "host secret"
    assert canary.stat().st_nlink == 1
