"""A container engine with an image that has Python and pip, as `python:3.12-slim` has, built without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from engine import IMAGE, engine, libraries_of
from waiting import block_until

BASE = "ludus-test:pip"
"""What `python:3.12-slim` is to a Dockerfile: a Python with pip."""

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"

Docker = list[str]


@contextmanager
def docker_command() -> Iterator[Docker]:
    """Yield the docker command for an engine of its own; skip the test if it is not installed."""
    program = shutil.which("docker")
    if program is None:
        pytest.skip("the docker command is not installed (apt-get install docker.io)")
    with engine() as address:
        yield [program, "-H", address]


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
    # Every distribution's image has libgcc_s, and that of Python has certificates.
    for file in (*libraries_of(modules), *(one for one in (CERTIFICATES,) if os.path.exists(one))):
        copy = folder / "system" / file.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
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


def wait_until_it_listens(docker: Docker, container: str) -> None:
    def logs() -> str:
        done = subprocess.run([*docker, "logs", container], capture_output=True, text=True, timeout=120)
        return done.stdout + done.stderr

    def listens() -> bool:
        if "http://" in logs():
            return True
        state = [*docker, "inspect", "--format", "{{.State.Running}}", container]
        running = subprocess.run(state, capture_output=True, text=True, timeout=120).stdout.strip()
        assert running == "true", logs()
        return False

    block_until(listens, message=logs)
