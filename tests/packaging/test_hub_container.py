"""The image of `deploy/hub`: built without any network, it runs a hub that others can publish on."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_base import BASE, Docker, build_base, docker_command, wait_until_it_listens
from wheelhouse import closure, repack

from ludus.server.auth.tokens import TokenFile, new_token, write_token_file

pytestmark = [pytest.mark.timeout(600), pytest.mark.suite("image")]
ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "hub"
EXTRAS = ("server", "environments", "registry", "hub", "postgres", "s3", "telemetry")
"""What the image installs, with what these extras include."""


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    with docker_command() as command:
        yield command


@pytest.fixture(scope="module")
def image(docker: Docker, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image, with the wheel of this checkout; without bubblewrap, which the network would have."""
    home = tmp_path_factory.mktemp("hub-image")
    shutil.copytree(DEPLOY, home / "hub")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needed = ["ludus-rl", *(one for name in EXTRAS for one in extras[name] if not one.startswith("ludus-rl"))]
    for name, installed in closure(*needed).items():
        if name != "ludus-rl":
            repack(installed, home / "hub" / "wheels")
    shutil.copy(wheel, home / "hub" / "wheels")
    build_base(docker, home / "base")
    done = subprocess.run(
        [*docker, "build", "--network=none", "--build-arg", f"BASE={BASE}", "--build-arg", "PIP_NO_INDEX=1",
         "--build-arg", "PACKAGES=", "--tag", "hub", str(home / "hub")],
        capture_output=True, text=True, timeout=500, env={**os.environ, "DOCKER_BUILDKIT": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return "hub"


def test_the_image_runs_a_hub_that_is_backed_up_inside(docker: Docker, image: str, tmp_path: Path) -> None:
    token, record = new_token("alice", ("tasks:read",))
    write_token_file(tmp_path / "tokens.json", TokenFile(tokens=(record,)))
    (tmp_path / "tokens.json").chmod(0o644)
    tokens = f"{tmp_path}/tokens.json:/run/ludus/tokens.json:ro"
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups").chmod(0o777)
    backups = f"{tmp_path}/backups:/backups"
    started = subprocess.run(
        [*docker, "run", "--detach", "--network", "none", "--volume", tokens, "--volume", backups, image],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert started.returncode == 0, started.stderr
    container = started.stdout.strip()

    def inside(*command: str) -> str:
        done = subprocess.run([*docker, "exec", container, *command], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        wait_until_it_listens(docker, container)
        assert inside("id", "-u").strip() == "10001"
        assert "ludus/wordle" in inside("ludus", "search", "wordle", "--hub", "http://127.0.0.1:8400")
        assert "Wrote /backups/ludus-hub-" in inside("ludus", "hub", "backup", "/backups")
        assert "all is well" in inside("ludus", "hub", "check")
    finally:
        subprocess.run([*docker, "rm", "--force", container], capture_output=True, timeout=60, check=False)
