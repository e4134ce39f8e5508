"""Every backend passes the conformance suite that backends of others use."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
from engine import BARE, IMAGE
from hosting import SandboxHost, hosts_in
from sandboxing import leftovers

from ludus.sandbox import SandboxSettings, find_provider
from ludus.sandbox.bubblewrap import Bubblewrap
from ludus.sandbox.cgroups import Groups
from ludus.testing.sandboxes import SandboxConformance


class Conformance(SandboxConformance):
    """Checks also that nothing is left on this machine."""

    __test__ = False
    owner: str | None = None

    def left_behind(self) -> list[str]:
        return leftovers() + (leftovers(self.owner) if self.owner else [])


class TestBubblewrap(Conformance):
    __test__ = True
    provider = Bubblewrap
    settings = SandboxSettings(provider="bubblewrap")

    @pytest.fixture(autouse=True)
    def groups(self) -> None:
        if Groups.find() is None:
            pytest.skip("this machine lets us make no control groups")


@pytest.mark.suite("sandbox")
class TestBubblewrapWithoutGroups(Conformance):
    __test__ = True
    provider = partial(Bubblewrap, cgroups=False)
    settings = SandboxSettings(provider="bubblewrap")


class TestUnsafeLocal(Conformance):
    __test__ = True
    provider = partial(find_provider, "unsafe-local")
    settings = SandboxSettings(provider="unsafe-local")
    cannot: ClassVar[Mapping[str, str]] = {
        "isolation": "commands run as the server's user",
        "limit: disk": "files are on the machine's own disk",
    }


class TestDocker(Conformance):
    __test__ = True
    provider = partial(find_provider, "docker")
    settings = SandboxSettings(provider="docker", image=IMAGE)

    @pytest.fixture(autouse=True)
    def engine(self, engine_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DOCKER_HOST", engine_address)


@pytest.mark.suite("sandbox")
class TestDockerWithoutPython(TestDocker):
    settings = SandboxSettings(provider="docker", image=BARE)
    cannot: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("python", "background", "terminals", "ports"), "the image has no Python"
    )


@pytest.mark.suite("sandbox")
class TestPodman(Conformance):
    __test__ = True
    provider = partial(find_provider, "podman")
    settings = SandboxSettings(provider="podman", image=IMAGE)

    @pytest.fixture(autouse=True)
    def engine(self, podman_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CONTAINER_HOST", podman_address)


@pytest.mark.suite("sandbox")
class TestSandboxd(Conformance):
    __test__ = True
    provider = partial(find_provider, "sandboxd")
    settings = SandboxSettings(provider="sandboxd")

    @pytest.fixture(autouse=True)
    def host(self, sandbox_host: SandboxHost, monkeypatch: pytest.MonkeyPatch) -> None:
        hosts_in(monkeypatch, sandbox_host)
        self.owner = sandbox_host.owner


def test_a_backend_that_breaks_its_word_fails_the_suite() -> None:
    """One that says that it cannot do what it can, or that names nothing known."""

    class Modest(TestUnsafeLocal):
        cannot: ClassVar[Mapping[str, str]] = {"forks": "untrue"}

    class Hidden(TestUnsafeLocal):
        cannot: ClassVar[Mapping[str, str]] = {"python": "untrue"}

    class Confused(TestUnsafeLocal):
        cannot: ClassVar[Mapping[str, str]] = {"flying": "no wings"}

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        Modest().test_what_the_backend_declares_is_known_and_refused()
    with pytest.raises(AssertionError, match="there is a python3"):
        Hidden().test_what_the_backend_declares_is_known_and_refused()
    with pytest.raises(AssertionError, match="flying"):
        Confused().test_what_the_backend_declares_is_known_and_refused()


def test_a_backend_of_others_runs_the_suite_in_ten_lines(tmp_path: Path) -> None:
    snippet = Path(__file__).parents[2] / "docs" / "snippets" / "backend_conformance.py"
    shutil.copy(snippet, tmp_path / "test_mine.py")
    chosen = "files_are_written or do_not_see_each_other or declares"
    argv = [sys.executable, "-m", "pytest", "-rs", "-q", "-p", "no:cacheprovider", "-k", chosen, "test_mine.py"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "cannot do this (isolation): commands run as the server's user" in done.stdout
