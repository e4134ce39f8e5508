"""The compose file of a hub: real containers of a hub and of PostgreSQL on an engine of the tests' own.

The engine can pull no image. That of the hub is built from its Dockerfile, and that of the database from this machine's
PostgreSQL, with an entry point that does what the official one does. That of the object store has moto in place of
MinIO, with the signatures of requests checked (`tests/support/compose_store`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from container_base import Docker, docker_command
from free_ports import free_port
from hub_image import DEPLOY, build_hub_image, build_postgres_image, build_store_image
from hubs import WheelParts, kind_of, publish, published, release
from waiting import block_until

from ludus.client import connect
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file

pytestmark = [pytest.mark.timeout(900), pytest.mark.suite("hub-image")]
PATIENCE = 240.0
PACKAGE = "alice/coins"


class Compose:
    """A project of `docker compose` with files of `deploy/hub`."""

    def __init__(self, docker: Docker, folder: Path, files: tuple[str, ...]) -> None:
        self._command = [*compose_command(), *(word for file in files for word in ("--file", file))]
        self._docker = docker
        self._folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._variables = {
            "DOCKER_HOST": docker[-1], "LUDUS_HUB_PORT": str(self.port), "LUDUS_PUBLIC_URL": self.url,
        }  # fmt: skip

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._command, *arguments], cwd=self._folder, env={**os.environ, **self._variables},
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def up(self) -> None:
        """Start everything, and wait until the health check of the hub says that it is healthy."""
        self("up", "--detach", "--no-build")
        self.wait_until_healthy()

    def wait_until_healthy(self) -> None:
        container = self("ps", "-q", "hub").strip()
        look = [*self._docker, "inspect", "--format", "{{.State.Health.Status}}", container]

        def is_healthy() -> bool:
            return subprocess.run(look, capture_output=True, text=True, timeout=60).stdout.strip() == "healthy"

        block_until(is_healthy, PATIENCE, lambda: self("logs"))

    def versions(self) -> list[str]:
        answer = httpx.get(f"{self.url}/api/v1/environments/{PACKAGE}/versions", timeout=60)
        return [one["version"] for one in answer.json()["versions"]] if answer.status_code == 200 else []

    def wheel(self) -> bytes:
        info = httpx.get(f"{self.url}/api/v1/environments/{PACKAGE}/versions/1.0.0", timeout=60).json()
        return httpx.get(info["url"], timeout=60).content


def compose_command() -> list[str]:
    """Return the command of Compose; skip the test if there is none. Version 1 lets no container mount /proc."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is not None:
            asked = [*command, "version", "--short"]
            done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
            if done.returncode == 0 and not done.stdout.startswith("1."):
                return command
    pytest.skip("Docker Compose 2 is not installed (apt-get install docker-compose, from Debian 13 on)")


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    compose_command()
    with docker_command() as command:
        yield command


@pytest.fixture(scope="module")
def images(docker: Docker, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("images")
    build_postgres_image(docker, home / "postgres", "postgres:17-alpine")
    (home / "hub").mkdir()
    build_hub_image(docker, wheel, home / "hub", "ludus-hub")
    build_store_image(docker, home / "store", "minio/minio")


@pytest.fixture
def token() -> tuple[str, TokenFile]:
    text, record = new_token("alice", ("admin",))
    return text, TokenFile(tokens=(record,))


@pytest.fixture
def files() -> tuple[str, ...]:
    """The compose files."""
    return ("compose.yaml",)


@pytest.fixture
def compose(
    files: tuple[str, ...], docker: Docker, images: None, token: tuple[str, TokenFile], tmp_path: Path
) -> Iterator[Compose]:
    folder = tmp_path / "hub"
    shutil.copytree(DEPLOY, folder, ignore=shutil.ignore_patterns("secrets"))
    (folder / "secrets").mkdir()
    for name in ("database_password", "store_password"):
        (folder / "secrets" / name).write_text("p@ss/w:rd%20\n")
    (folder / "secrets" / "store_user").write_text("hub\n")
    write_token_file(folder / "secrets" / "tokens.json", token[1])
    for file in (folder / "secrets").iterdir():
        file.chmod(0o644)
    found = Compose(docker, folder, files)
    try:
        yield found
    finally:
        found("down", "--volumes", "--timeout", "5")


def no_secret_is_shown(compose: Compose) -> None:
    for secret in ("p@ss", "p%40ss"):
        assert secret not in compose("logs"), "no secret is logged"
        assert secret not in compose("exec", "-T", "hub", "env"), "no secret is a variable"


async def play(compose: Compose, token: str) -> None:
    """Play an episode at the endpoint of the package."""
    async with connect(f"{compose.url}/e/{PACKAGE}", token=token) as hub:
        async with hub.environment("toss").episode(split="train") as episode:
            await episode.call("say", side="heads")
            assert episode.ended, "the endpoint runs in its sandbox"


async def test_compose_runs_a_hub_that_survives_restarts_and_is_restored_from_a_backup(
    compose: Compose, token: tuple[str, TokenFile], tmp_path: Path
) -> None:
    compose.up()
    with httpx.Client(base_url=compose.url, headers={"authorization": f"Bearer {token[0]}"}, timeout=60) as client:
        published(client, release(PACKAGE, parts=WheelParts("alice-coins")))
    await play(compose, token[0])
    no_secret_is_shown(compose)
    backups = tmp_path / "backups"
    backups.mkdir()
    backups.chmod(0o777)
    compose("restart", "--timeout", "20")
    compose.wait_until_healthy()
    assert compose.versions() == ["1.0.0"]
    assert "all is well" in compose("exec", "-T", "hub", "ludus", "hub", "check")
    compose("run", "--rm", "-T", "--volume", f"{backups}:/backups", "hub", "backup", "/backups/one.tar")
    compose("down", "--timeout", "20")
    compose.up()
    assert compose.versions() == ["1.0.0"], "the volumes keep it"
    compose("down", "--volumes", "--timeout", "20")
    compose("run", "--rm", "-T", "--volume", f"{backups}:/backups", "hub", "restore", "/backups/one.tar")
    compose.up()
    assert compose.versions() == ["1.0.0"], "the backup has it"


@pytest.mark.parametrize("files", [("compose.yaml", "compose.s3.yaml")], ids=["s3"])
async def test_compose_keeps_wheels_in_an_object_store_that_checks_the_key(
    compose: Compose, token: tuple[str, TokenFile], tmp_path: Path
) -> None:
    compose.up()
    one = release(PACKAGE, parts=WheelParts("alice-coins"))
    with httpx.Client(base_url=compose.url, headers={"authorization": f"Bearer {token[0]}"}, timeout=60) as client:
        published(client, one)
        await play(compose, token[0])
        no_secret_is_shown(compose)
        assert "all is well" in compose("exec", "-T", "hub", "ludus", "hub", "check")
        compose("rm", "--stop", "--force", "hub")
        compose.up()
        assert hashlib.sha256(compose.wheel()).hexdigest() == one.sha256
        (tmp_path / "hub" / "secrets" / "store_password").write_text("another\n")
        compose("restart", "--timeout", "20", "hub")
        compose.wait_until_healthy()
        refused = publish(client, release(PACKAGE, "1.1.0", parts=WheelParts("alice-coins", "1.1.0")))
        assert (refused.status_code, kind_of(refused)) == (503, "HubUnavailable")
        assert compose.versions() == ["1.0.0"]
