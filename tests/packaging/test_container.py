"""The image that `ludus init` describes: built without any network, it serves the environment to a trainer."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_base import BASE, Docker, build_base, docker_command, wait_until_it_listens
from terminal import run_ludus
from wheelhouse import closure, repack

pytestmark = [pytest.mark.timeout(600), pytest.mark.suite("image")]


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    """The docker command for an engine of these tests' own that has `BASE`."""
    with docker_command() as command:
        yield command


@pytest.fixture(scope="module")
def project(docker: Docker, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of `ludus init` whose `wheels/` holds everything that it needs, and its built image `word-play`."""
    home = tmp_path_factory.mktemp("container")
    assert run_ludus("init", "word-play", cwd=home).returncode == 0
    project = home / "word-play"
    for name, installed in closure("ludus-rl[server]", "hatchling").items():
        if name != "ludus-rl":
            repack(installed, project / "wheels")
    shutil.copy(wheel, project / "wheels")
    build_base(docker, home / "base")
    done = subprocess.run(
        [*docker, "build", "--network=none", "--build-arg", f"BASE={BASE}", "--build-arg", "PIP_NO_INDEX=1",
         "--tag", "word-play", str(project)],
        capture_output=True, text=True, timeout=400, env={**os.environ, "DOCKER_BUILDKIT": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return project


def test_the_image_serves_the_environment_to_who_holds_a_token(docker: Docker, project: Path) -> None:
    made = run_ludus(
        "token", "create", "--name", "trainer", "--scope", "tasks:read", "--scope", "episodes:run",
        "--scope", "rewards:read", "--file", "tokens.json", cwd=project,
    )  # fmt: skip
    token = next(word for word in made.stdout.split() if word.startswith("ludus_"))
    started = subprocess.run(
        [*docker, "run", "--detach", "--network", "none", "--user", str(os.getuid()),
         "--volume", f"{project}/tokens.json:/run/tokens.json:ro", "word-play"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert started.returncode == 0, started.stderr
    container = started.stdout.strip()
    try:
        wait_until_it_listens(docker, container)
        play = [*docker, "exec", container, "ludus", "run", "http://127.0.0.1:8000", "word-play", "-n", "3"]
        refused = subprocess.run(play, capture_output=True, text=True, timeout=120)
        assert refused.returncode == 3, refused.stdout + refused.stderr
        play[play.index(container) : play.index(container)] = ["--env", f"LUDUS_TOKEN={token}"]
        done = subprocess.run(play, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "3 (3 scored)" in done.stdout
    finally:
        subprocess.run([*docker, "rm", "--force", container], capture_output=True, timeout=60, check=False)


def test_without_a_token_file_the_image_says_what_is_missing(docker: Docker, project: Path) -> None:
    done = subprocess.run(
        [*docker, "run", "--rm", "--network", "none", "word-play"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "tokens.json" in done.stderr, done.stdout + done.stderr


def test_the_image_runs_without_privileges_and_holds_no_tokens(docker: Docker, project: Path) -> None:
    command = [*docker, "run", "--rm", "--network", "none", "word-play", "sh", "-c", "id -u; ls -A /app"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    user, *files = done.stdout.split()
    assert user == "10001"
    assert set(files) == {"README.md", "pyproject.toml", "wheels", "word_play.py"}
