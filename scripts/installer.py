"""How the project's scripts make virtual environments: with uv where it can be had, with plain pip elsewhere.

Only the standard library: it runs before anything is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
LIBRARY = sorted(path.parent for path in (ROOT / "environments" / "library").glob("*/pyproject.toml"))
"""The environments that are packages of their own, each a folder for `ludus publish`."""

# pip's setting → the variable by which uv learns the same; uv does not read pip's configuration files.
_UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "trusted-host": "UV_INSECURE_HOST",
}


class InstallError(Exception):
    """A virtual environment could not be made; the message ends with the installer's last words."""


def say(message: str) -> None:
    """Tell the person in front of the terminal what goes on."""
    print(f"── {message}", flush=True)


def interpreter(environment: Path) -> Path:
    """The Python of a virtual environment."""
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def find_python(version: str) -> str:
    """Return an interpreter of a version, such as `3.12`: this one, one on the PATH, or one that pyenv or uv keeps.

    Raises:
        InstallError: there is none on this machine.
    """
    kept = [Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"]
    kept.append(Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local" / "share" / "uv" / "python"))
    folders = [path for root in kept for path in sorted(root.glob(f"*{version}*"), reverse=True)]
    found = [sys.executable, shutil.which(f"python{version}"), *(folder / "bin" / "python" for folder in folders)]
    code = "import sys, venv; print('.'.join(map(str, sys.version_info[:2])), end='')"
    for python in filter(None, found):
        try:
            done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if (done.returncode, done.stdout) == (0, version):  # a shim on the PATH may lead to no interpreter at all
            return str(python)
    raise InstallError(f"it needs Python {version}, which is not on this machine (looked on the PATH, in pyenv and uv)")


def create(environment: Path, python: str = sys.executable) -> None:
    """Make an empty virtual environment of an interpreter, with pip in it.

    Raises:
        InstallError: this Python has no `venv`, as on a Debian without its package.
    """
    if interpreter(environment).exists():
        return
    try:
        _run([python, "-m", "venv", str(environment)])
    except InstallError as error:
        version = Path(python).name.removeprefix("python") or f"{sys.version_info.major}.{sys.version_info.minor}"
        raise InstallError(
            f"cannot make a virtual environment with {python}: on Debian and Ubuntu, "
            f"`apt-get install python{version}-venv` mends that\n{error}"
        ) from error


def install(environment: Path, requirements: Sequence[str], *, uv: Path | None, show: bool = True) -> None:
    """Install `requirements` (pip's command line) into `environment`, with `uv` if there is one.

    pip's own words are shown with `show`, because it may take minutes.

    Raises:
        InstallError: neither installer could do it.
    """
    python = interpreter(environment)
    if uv is not None:
        try:
            _run([str(uv), "pip", "install", "--python", str(python), *requirements], variables=uv_settings())
            return
        except InstallError as error:
            say(f"uv could not ({_last_line(error)}); trying pip")
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    _run([*pip, *requirements], show=show)


def remove_former_names(environment: Path, name: str) -> None:
    """Uninstall this checkout where it is installed under a name other than `name`: entry points would count twice."""
    for record in environment.glob("lib/python*/site-packages/*.dist-info/direct_url.json"):
        former = record.parent.name.partition("-")[0]
        if former != name.replace("-", "_") and json.loads(record.read_bytes()).get("url") == ROOT.as_uri():
            say(f"removing {former}, the former name of {name}")
            _run([str(interpreter(environment)), "-m", "pip", "uninstall", "--yes", former])


def uv_of(environment: Path) -> Path | None:
    """The uv inside `environment`, installed there if need be; `None` where it cannot be had."""
    uv = interpreter(environment).with_name("uv.exe" if os.name == "nt" else "uv")
    if not uv.exists():
        try:
            install(environment, ["uv", "-c", str(CONSTRAINTS)], uv=None, show=False)
        except InstallError as error:
            say(f"no uv ({_last_line(error)}); pip is slower and does as well")
            return None
    return uv if uv.exists() else None


@cache
def uv_settings() -> Mapping[str, str]:
    """pip's settings, as variables for uv; those that are set already win."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    settings = {}
    for line in listing.splitlines():  # later lines of the listing weigh more: site, user, then environment
        name, _, value = line.partition("=")
        if variable := _UV_NAMES.get(name.rpartition(".")[2].strip()):
            settings[variable] = value.strip().strip("'\"")
    if "UV_INDEX" in settings:
        settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # what pip does with several indexes
    return {name: value for name, value in settings.items() if name not in os.environ}


def _run(command: Sequence[str], *, variables: Mapping[str, str] | None = None, show: bool = False) -> None:
    if show:
        if code := subprocess.run(command, stdin=subprocess.DEVNULL).returncode:
            raise InstallError(f"{' '.join(command)}\nexited with {code}, as told above")
        return
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(variables or {})},
        )
        if done.returncode:
            log.seek(0)
            raise InstallError(f"{' '.join(command)}\n{log.read()[-2000:]}")


def _last_line(error: InstallError) -> str:
    return str(error).strip().splitlines()[-1][:200]
