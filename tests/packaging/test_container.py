"""The image that `ludus init` describes: built without any network, it serves the environment to a trainer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine import IMAGE, engine, libraries_of
from terminal import run_ludus
from wheelhouse import closure, repack

pytestmark = [pytest.mark.timeout(600), pytest.mark.suite("image")]

BASE = "ludus-test:pip"
"""What `python:3.12-slim` is to the Dockerfile: a Python with pip."""

Docker = list[str]


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    """The docker command for an engine of these tests' own that has `BASE`."""
    program = shutil.which("docker")
    if program is None:
        pytest.skip("the docker command is not installed (apt-get install docker.io)")
    with engine() as address:
        yield [program, "-H", address]


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


def build_base(docker: Docker, folder: Path) -> None:
    """Build `BASE`: this Python with pip, as a distribution's image has it."""
    prefix = os.path.realpath(sys.base_prefix)
    packages = sysconfig.get_path("purelib", vars={"base": prefix})
    folder.mkdir()
    pip = Path(sysconfig.get_path("purelib")) / "pip"
    if not pip.is_dir():
        pytest.skip(f"this virtual environment has no pip to put into the image ({pip})")
    shutil.copytree(pip, folder / "pip", ignore=shutil.ignore_patterns("__pycache__"))
    modules = [str(path) for path in Path(sysconfig.get_path("platlib")).glob("pydantic_core/*.so")]
    for library in libraries_of(modules):  # such as libgcc_s, which every distribution's image has
        copy = folder / "system" / library.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, copy)
    (folder / "Dockerfile").write_text(
        f"FROM {IMAGE}\nENV PATH={prefix}/bin:/usr/local/bin:/usr/bin:/bin\nCOPY system /\nCOPY pip {packages}/pip\n"
        f"RUN printf '#!/bin/sh\\nexec python3 -m pip \"$@\"\\n' > /usr/bin/pip && chmod 755 /usr/bin/pip "
        f"&& rm -f {sysconfig.get_path('stdlib')}/EXTERNALLY-MANAGED\n"
    )
    done = subprocess.run(
        [*docker, "build", "--network=none", "--tag", BASE, str(folder)],
        capture_output=True, text=True, timeout=300, env={**os.environ, "DOCKER_BUILDKIT": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


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


def wait_until_it_listens(docker: Docker, container: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        logs = subprocess.run([*docker, "logs", container], capture_output=True, text=True, timeout=120)
        said = logs.stdout + logs.stderr
        if "http://" in said:
            return
        state = [*docker, "inspect", "--format", "{{.State.Running}}", container]
        running = subprocess.run(state, capture_output=True, text=True, timeout=120).stdout.strip()
        assert running == "true", said
        assert time.monotonic() < deadline, said
        time.sleep(0.2)  # between two looks: the engine has no event for what a program says


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
