"""A Docker engine and a Podman service of the tests' own: with private sockets and data that is removed afterwards.

with engine() as address: …     # or a skip, with the reason why there is none here
with podman() as address: …     # rootless: it runs as an ordinary user that exists meanwhile
"""

from __future__ import annotations

import io
import os
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from waiting import block_until_up

IMAGE = "ludus-test:latest"
BARE = "ludus-test:bare"
"""Without Python."""
_START_SECONDS = 40.0


@contextmanager
def engine() -> Iterator[str]:
    """The address of a running engine that has `IMAGE`: busybox, and this Python with nothing installed; and `BARE`."""
    docker = pytest.importorskip("docker", reason="the extra `docker` is not installed")
    daemon, busybox = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin"), shutil.which("busybox")
    if daemon is None:
        pytest.skip("dockerd is not installed (apt-get install docker.io)")
    if os.geteuid() != 0:
        pytest.skip("an engine of the tests' own needs root")
    if busybox is None or b"statically linked" not in _described(busybox):
        pytest.skip("the test image is made of a static busybox (apt-get install busybox-static)")
    folder = Path(tempfile.mkdtemp(prefix="ludus-engine-"))
    address = f"unix://{folder}/docker.sock"
    argv = [
        daemon, "-H", address, "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--pidfile",
        f"{folder}/pid", "--bridge", "none", "--iptables=false", "--ip6tables=false", "--log-level", "error",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        client = _answering(docker, address, process, folder / "log")
        for name, python in ((IMAGE, True), (BARE, False)):
            repository, _, tag = name.partition(":")
            client.api.import_image_from_data(_image(Path(busybox), python=python), repository=repository, tag=tag)
        client.close()
        yield address
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
        _unmount_below(folder)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def podman() -> Iterator[str]:
    """The address of a Podman service that has the same images below `localhost/`, for an ordinary user of its own."""
    docker = pytest.importorskip("docker", reason="the extra `docker` is not installed")
    program, busybox = shutil.which("podman"), shutil.which("busybox")
    if program is None:
        pytest.skip("podman is not installed (apt-get install podman uidmap)")
    if os.geteuid() != 0:
        pytest.skip("a user of the tests' own needs root")
    if busybox is None or b"statically linked" not in _described(busybox):
        pytest.skip("the test image is made of a static busybox (apt-get install busybox-static)")
    name = f"ludus-{os.getpid()}"
    folder = Path(tempfile.mkdtemp(prefix="ludus-podman-"))
    folder.chmod(0o755)
    made = subprocess.run(["useradd", "--create-home", "--home-dir", folder / "home", name],
                          check=False, capture_output=True, text=True)  # fmt: skip
    try:
        if made.returncode != 0 or f"{name}:" not in Path("/etc/subuid").read_text(encoding="utf-8"):
            pytest.skip(f"this machine lets us make no user with a range of ids: {made.stderr.strip()}")
        with _service(docker, program, name, folder) as address:
            client = docker.DockerClient(base_url=address, timeout=60)
            for tag, python in ((IMAGE, True), (BARE, False)):
                client.api.import_image_from_data(_image(Path(busybox), python=python), repository="localhost/imported")
                client.api.tag("localhost/imported:latest", f"localhost/{tag.partition(':')[0]}", tag.partition(":")[2])
                client.api.remove_image("localhost/imported:latest")
            client.close()
            yield address
    finally:
        subprocess.run(["userdel", "--force", name], check=False, capture_output=True)
        _unmount_below(folder)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _service(docker: Any, program: str, name: str, folder: Path) -> Iterator[str]:
    user, run = pwd.getpwnam(name), folder / "run"
    run.mkdir(mode=0o700)
    os.chown(run, user.pw_uid, user.pw_gid)
    address = f"unix://{run}/podman.sock"
    runc = shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin")
    mixed = runc is not None and not Path("/sys/fs/cgroup/cgroup.controllers").exists()
    env = {"PATH": f"{os.environ['PATH']}:/usr/sbin", "HOME": str(folder / "home"), "XDG_RUNTIME_DIR": str(run)}
    argv = [program, *(["--runtime", str(runc)] if mixed else [])]
    # Without a configuration, Podman may choose `vfs`, which copies the whole image for each container.
    overlay = [*argv, "--storage-driver", "overlay"]
    found = subprocess.run([*overlay, "info"], capture_output=True, check=False, cwd=folder, env=env,
                           user=user.pw_uid, group=user.pw_gid, extra_groups=[])  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*(overlay if found.returncode == 0 else argv), "system", "service", "--time=0", address], stdout=log,
            stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, cwd=folder, user=user.pw_uid,
            group=user.pw_gid, extra_groups=[], env=env,
        )  # fmt: skip
    try:
        _answering(docker, address, process, folder / "log").close()
        yield address
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
        for entry in Path("/proc").iterdir():  # the process that holds the user's namespace
            with suppress(OSError):
                if entry.name.isdigit() and entry.stat().st_uid == user.pw_uid:
                    os.kill(int(entry.name), signal.SIGKILL)


def _described(program: str) -> bytes:
    """What kind of file a program is; a dynamic one names its loader in its first page."""
    with open(program, "rb") as file:
        head = file.read(4096)
    return b"dynamic" if b"/lib64/ld-linux" in head or b"/lib/ld-linux" in head else b"statically linked"


def _answering(docker: Any, address: str, process: subprocess.Popen[bytes], log: Path) -> Any:
    clients: list[Any] = []

    def answers() -> bool:
        if Path(address.removeprefix("unix://")).exists():
            client = docker.DockerClient(base_url=address, timeout=60)
            with suppress(docker.errors.DockerException, requests.exceptions.RequestException):
                client.ping()
                clients.append(client)
                return True
            client.close()
        return False

    try:
        block_until_up(process, answers, log, _START_SECONDS)
    except AssertionError as error:
        pytest.skip(f"dockerd does not start here: {error}")
    return clients[0]


def _unmount_below(folder: Path) -> None:
    for line in reversed(Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()):
        place = line.split()[1]
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", place], check=False, capture_output=True)


def _image(busybox: Path, *, python: bool) -> bytes:
    """A root file system as a tar archive: busybox under all its names, and this Python with its libraries."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in ("bin", "tmp", "box", "etc", "proc", "dev", "sys", "usr/bin"):
            _add_folder(tar, name)
        tar.add(busybox, "bin/busybox")
        names = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
        for name in set(names) - {"busybox"}:
            _add_link(tar, f"bin/{name}", "busybox")
        if python:
            _add_python(tar)
    return archive.getvalue()


def _add_python(tar: tarfile.TarFile) -> None:
    python = Path(os.path.realpath(sys.executable))
    prefix = Path(os.path.realpath(sys.base_prefix))
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(prefix)}))
    unwanted = ("test", "idlelib", "tkinter", "ensurepip", "turtledemo", "lib2to3")

    def keep(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = member.name.split("/")
        inside_packages = Path("/" + member.name).is_relative_to(packages) and Path("/" + member.name) != packages
        return None if inside_packages or any(part in unwanted for part in parts) else member

    standard = Path(sysconfig.get_path("stdlib"))
    tar.add(standard, str(standard).lstrip("/"), filter=keep)
    tar.add(python, str(python).lstrip("/"))
    _add_link(tar, "usr/bin/python3", str(python))
    modules = [str(path) for path in (standard / "lib-dynload").glob("*.so")]
    for library in sorted(libraries_of([str(python), *modules])):
        tar.add(os.path.realpath(library), library.lstrip("/"))


def libraries_of(programs: list[str]) -> set[str]:
    """The shared libraries that some programs or libraries load, by path."""
    text = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    words = {word for line in text.splitlines() for word in line.split() if word.startswith("/")}
    return {word for word in words if not word.endswith(":")}


def _add_folder(tar: tarfile.TarFile, name: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, 0o755
    tar.addfile(member)


def _add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    tar.addfile(member)
