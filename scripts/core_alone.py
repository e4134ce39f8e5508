"""Prove that the core stands alone: build a wheel without its tenants, and run the core's tests on that.

    python scripts/core_alone.py [PATH…]     tests of these folders or files; by default those of `FOLDERS`

A copy of the checkout loses the tenants (the hub, its client, hosted formats, adapters, built-in environments and the
packages of the library) with their entry points. What is left is built as a wheel and installed in `.venv-core`, and
the copy's tests run there. A test file that names a tenant, or a command or an environment of one, is left out: it is
about more than the core.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import installer
from lint_surface import ROOTS, TENANTS

FOLDERS: Final = (
    "behavior", "bounds", "calibration", "channel", "client", "conformance", "durability", "evaluation", "gateway",
    "mcp", "mix", "noise", "ors", "protocol", "quotas", "rendering", "rewards", "rollout", "runtime", "seats",
    "spec_conformance", "tracing", "trainer", "viewing", "web", "worlds",
)  # fmt: skip
"""The folders of tests that are about the core."""

ENVIRONMENT: Final = installer.ROOT / ".venv-core"


def main() -> None:
    """Build, install, test; exit with pytest's exit code."""
    with tempfile.TemporaryDirectory(prefix="ludus-core-") as folder:
        core = Path(folder) / "core"
        copy_core(core)
        try:
            installer.say("installing a wheel of the core alone in .venv-core")
            installer.create(ENVIRONMENT)
            uv = installer.uv_of(installer.ROOT / ".venv")
            packages = ["--reinstall-package", "ludus-rl"] if uv is not None else ["--force-reinstall"]
            packages += [f"{core}[dev]", "-c", str(installer.CONSTRAINTS)]
            installer.install(ENVIRONMENT, packages, uv=uv)
        except installer.InstallError as error:
            sys.exit(f"could not set up .venv-core:\n{error}")
        check_absent()
        paths = sys.argv[1:] or [path for name in FOLDERS if (path := f"tests/{name}") and (core / path).is_dir()]
        files = [str(file.relative_to(core)) for file in test_files(core, paths)]
        installer.say(f"{len(files)} test files on the core alone")
        command = [str(installer.interpreter(ENVIRONMENT)), "-m", "pytest", "-q", "-n", "3", "--dist", "loadfile"]
        variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        sys.exit(subprocess.run([*command, *files], cwd=core, env=variables).returncode)


def copy_core(target: Path) -> None:
    """Copy what git tracks to a folder, without the tenants."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=installer.ROOT, capture_output=True, check=True)
    tenants = tuple(f"{root}/{tenant.replace('.', '/')}/" for root in ROOTS for tenant in TENANTS)
    tenants += tuple(f"{folder.relative_to(installer.ROOT)}/" for folder in installer.LIBRARY)
    for name in listing.stdout.decode().split("\0"):
        source = installer.ROOT / name
        if name and source.is_file() and not name.startswith(tenants):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)
    project = target / "pyproject.toml"
    project.write_text(without_tenants(project.read_text(encoding="utf-8")), encoding="utf-8")


def without_tenants(project: str) -> str:
    """Return a pyproject.toml without entry points of tenants."""
    names = "|".join(re.escape(tenant) for tenant in TENANTS)
    return re.sub(rf'^[\w-]+ = "(?:{names})\.[^"]*"\n', "", project, flags=re.MULTILINE)


def check_absent() -> None:
    """Check that the new environment has the wheel's core and no tenant, so that the tests prove what they should."""
    program = (
        f"import importlib.util as u; print([n for n in {TENANTS!r} if u.find_spec(n)] or "
        "[p for p in [u.find_spec('ludus.server').origin] if 'site-packages' not in p])"
    )
    done = subprocess.run(
        [str(installer.interpreter(ENVIRONMENT)), "-c", program], capture_output=True, text=True, check=True, cwd="/"
    )
    if done.stdout.strip() != "[]":
        sys.exit(f".venv-core has more than the wheel of the core: {done.stdout.strip()}")


def test_files(core: Path, paths: list[str]) -> list[Path]:
    """Return the test files below some paths that name no tenant and nothing that one provides."""
    provided = "|".join([*(tenant.rpartition(".")[2] for tenant in TENANTS[:4]), *provided_names()])
    modules = "|".join(tenant.rpartition(".")[2] for tenant in TENANTS)
    library = "|".join(f"ludus_{folder.name}" for folder in installer.LIBRARY)
    named = re.compile(rf"\bludus\.(?:{modules})\b|\b(?:{library})\b|[\"'](?:{provided})[\"':-]")
    candidates: list[Path] = []
    for path in paths:
        candidates += [core / path] if path.endswith(".py") else (core / path).rglob("test_*.py")
    return sorted(file for file in candidates if not named.search(file.read_text(encoding="utf-8")))


def provided_names() -> list[str]:
    """Return the names of the environments, formats and commands that tenants provide."""
    project = (installer.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    names = "|".join(re.escape(tenant) for tenant in TENANTS)
    library = [folder.name for folder in installer.LIBRARY]
    return [*re.findall(rf'^([\w-]+) = "(?:{names})\.', project, flags=re.MULTILINE), *library]


if __name__ == "__main__":
    main()
