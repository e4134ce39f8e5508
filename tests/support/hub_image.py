"""The image of `deploy/hub`, built without any network, and one that does what `postgres` does in its compose file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tomllib
from pathlib import Path

import pytest
from container_base import BASE, Docker, build_base
from engine import IMAGE, libraries_of
from peer_clients import python_of
from wheelhouse import closure, repack

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "hub"
STORE = Path(__file__).parent / "compose_store"
EXTRAS = ("server", "environments", "registry", "hub", "postgres", "s3", "telemetry")
"""What the image installs, with what these extras include."""

POSTGRES_ENTRYPOINT = """#!/bin/sh
set -e
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb -U "$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth=scram-sha-256 --no-sync -E UTF8 > /dev/null
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  echo "CREATE DATABASE $POSTGRES_DB" | postgres --single postgres > /dev/null
fi
exec postgres -c listen_addresses='*' -c unix_socket_directories=/tmp
"""
"""What the entry point of the official image does, as far as the compose file uses it."""


def build(docker: Docker, tag: str, folder: Path, *options: str) -> None:
    """Build an image without a network."""
    done = subprocess.run(
        [*docker, "build", "--network=none", *options, "--tag", tag, str(folder)],
        capture_output=True, text=True, timeout=500, env={**os.environ, "DOCKER_BUILDKIT": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def build_hub_image(docker: Docker, wheel: Path, home: Path, tag: str) -> None:
    """Build the image of a hub with the wheel of this checkout, and with this machine's bubblewrap if it has one."""
    shutil.copytree(DEPLOY, home / "hub", ignore=shutil.ignore_patterns("secrets"))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needed = ["ludus-rl", *(one for name in EXTRAS for one in extras[name] if not one.startswith("ludus-rl"))]
    for name, installed in closure(*needed).items():
        if name != "ludus-rl":
            repack(installed, home / "hub" / "wheels")
    shutil.copy(wheel, home / "hub" / "wheels")
    build_base(docker, home / "base")
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is not None:
        _copy_programs(home / "sandbox", [bubblewrap])
        pip = Path(sysconfig.get_path("stdlib")) / "ensurepip"  # makes the virtual environments of endpoints
        shutil.copytree(pip, home / "sandbox" / "system" / str(pip).lstrip("/"))
        tar = os.path.realpath(shutil.which("tar") or "/bin/tar")  # that of busybox lacks options
        _copy_programs(home / "sandbox", [tar])
        (home / "sandbox" / "system" / "usr" / "local" / "bin").mkdir(parents=True)
        shutil.move(home / "sandbox" / "system" / tar.lstrip("/"), home / "sandbox" / "system" / "usr/local/bin/tar")
        (home / "sandbox" / "Dockerfile").write_text(f"FROM {BASE}\nCOPY system /\nRUN chmod 1777 /tmp\n")
        build(docker, BASE, home / "sandbox")
    arguments = (f"BASE={BASE}", "PIP_NO_INDEX=1", "PACKAGES=")
    build(docker, tag, home / "hub", *(f"--build-arg={one}" for one in arguments))


def build_postgres_image(docker: Docker, home: Path, tag: str) -> None:
    """Build an image with this machine's PostgreSQL; skip the test if it has none."""
    program = shutil.which("postgres")
    if program is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    folder = Path(os.path.realpath(program)).parent
    home.mkdir()
    _copy_programs(home, [str(folder / one) for one in ("postgres", "initdb", "pg_isready")])
    zones = home / "system" / "usr" / "share" / "zoneinfo"  # which Debian's PostgreSQL reads, as the official one does
    zones.mkdir(parents=True)
    shutil.copy("/usr/share/zoneinfo/UTC", zones / "UTC")
    for place in (folder.parent / "lib", Path("/usr/share/postgresql") / folder.parent.name):
        shutil.copytree(place, home / "system" / str(place).lstrip("/"), ignore=shutil.ignore_patterns("bitcode"))
    (home / "entrypoint").write_text(POSTGRES_ENTRYPOINT)
    (home / "entrypoint").chmod(0o755)
    (home / "Dockerfile").write_text(
        f"FROM {IMAGE}\nCOPY system /\nCOPY entrypoint /entrypoint\n"
        "RUN echo postgres:x:999:999::/:/bin/sh > /etc/passwd && mkdir -p /var/lib/postgresql/data "
        "&& chown 999:999 /var/lib/postgresql/data && chmod 700 /var/lib/postgresql/data && chmod 1777 /tmp\n"
        f"ENV PATH={folder}:/bin PGDATA=/var/lib/postgresql/data\nUSER 999:999\nSTOPSIGNAL SIGINT\n"
        'ENTRYPOINT ["/entrypoint"]\n'
    )
    build(docker, tag, home)


def build_store_image(docker: Docker, home: Path, tag: str) -> None:
    """Build an image on `BASE` with a program `minio` that does what the compose file uses of it; see its file."""
    python = Path(python_of("moto"))
    packages = subprocess.run(
        [python, "-c", "import moto; print(moto.__path__[0])"], capture_output=True, text=True, timeout=60, check=True
    )  # fmt: skip
    shutil.copytree(Path(packages.stdout.strip()).parent, home / "moto", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(STORE / "minio", home / "program")
    (home / "minio").write_text('#!/bin/sh\nexec python3 /program "$@"\n')
    (home / "minio").chmod(0o755)
    (home / "Dockerfile").write_text(
        f"FROM {BASE}\nCOPY moto /moto\nCOPY program /program\nCOPY minio /usr/local/bin/minio\n"
    )
    build(docker, tag, home)


def _copy_programs(home: Path, programs: list[str]) -> None:
    """Copy programs with their libraries to where they lie on this machine, below `home/system`."""
    for one in (*programs, *libraries_of(programs)):
        copy = home / "system" / one.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(one, copy)
