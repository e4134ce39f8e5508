"""Run every usual test on another Python: `python scripts/other_python.py 3.13`, a part of the rotation.

The virtual environment `.venv-3.13` holds what `.venv` does, apart from what has no build for that Python.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from typing import Final

import installer

WITHOUT: Final = {"3.14": ("ray",)}
"""Extras whose packages have no build for a Python yet; their tests skip."""


def main() -> None:
    """Make the virtual environment unless it is there, and run the tests with it; exit as they do."""
    version = sys.argv[1] if len(sys.argv) == 2 else ""
    if not version.startswith("3."):
        sys.exit("usage: other_python.py VERSION, such as 3.13")
    environment = installer.ROOT / f".venv-{version}"
    python = installer.interpreter(environment)
    inputs = [(installer.ROOT / "pyproject.toml").read_bytes(), installer.CONSTRAINTS.read_bytes()]
    fingerprint = hashlib.sha256(b"\0".join(inputs)).hexdigest()
    stamp = environment / ".ludus-installed"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != fingerprint:
        try:
            installer.create(environment, installer.find_python(version))
            uv = installer.uv_of(installer.ROOT / ".venv")
            installer.install(environment, ["-e", f"{installer.ROOT}[dev]", "-c", str(installer.CONSTRAINTS)], uv=uv)
        except installer.InstallError as error:
            sys.exit(f"could not set up .venv-{version}:\n{error}")
        stamp.write_text(fingerprint, encoding="utf-8")
    tests = [str(python), str(installer.ROOT / "scripts" / "run_tests.py"), "--everything"]
    sys.exit(subprocess.run(tests, cwd=installer.ROOT, stdin=subprocess.DEVNULL, check=False).returncode)


if __name__ == "__main__":
    main()
