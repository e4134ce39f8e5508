"""The image of `deploy/hub`: built without any network, it runs a hub that others can publish on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_base import Docker, docker_command, wait_until_it_listens
from hub_image import build_hub_image

from ludus.server.auth.tokens import TokenFile, new_token, write_token_file

pytestmark = [pytest.mark.timeout(600), pytest.mark.suite("hub-image")]


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    with docker_command() as command:
        yield command


@pytest.fixture(scope="module")
def image(docker: Docker, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image, with the wheel of this checkout."""
    build_hub_image(docker, wheel, tmp_path_factory.mktemp("hub-image"), "hub")
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
