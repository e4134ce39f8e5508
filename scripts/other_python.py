"""Run the usual tests on another Python: `python scripts/other_python.py 3.13`, a part of the rotation.

The virtual environment `.venv-3.13` holds everything but torch and what stands on it, which has no small build for all
Pythons. So the tests in `NEED_TORCH` are left out, and those of packaging, which are about `.venv`.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Final

import installer

EXTRAS: Final = "all,datasets,postgres,s3"
TEST_TOOLS: Final = (
    "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "httpx", "hypothesis", "types-jsonschema",
    "tokenizers", "transformers", "jinja2", "numpy", "safetensors", "ruff", "twine", "uv",
    "hatchling",
)  # fmt: skip
NEED_TORCH: Final = (
    "tests/trainer", "tests/gateway", "tests/rendering", "tests/rollout_service", "tests/integrations",
    "tests/mix/test_training.py",
)  # fmt: skip
LEFT_OUT: Final = (*NEED_TORCH, "tests/packaging", "tests/docs", "tests/deployment")


def main() -> None:
    """Make the virtual environment unless it is there, and run the tests with it."""
    version = sys.argv[1] if len(sys.argv) == 2 else ""
    if not version.startswith("3."):
        sys.exit("usage: other_python.py VERSION, such as 3.13")
    environment = installer.ROOT / f".venv-{version}"
    python = installer.interpreter(environment)
    inputs = (installer.ROOT / "pyproject.toml", installer.CONSTRAINTS, Path(__file__))
    fingerprint = hashlib.sha256(b"\0".join(path.read_bytes() for path in inputs)).hexdigest()
    stamp = environment / ".ludus-installed"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != fingerprint:
        try:
            installer.create(environment, installer.find_python(version))
            uv = installer.uv_of(installer.ROOT / ".venv")
            packages = ["-e", f"{installer.ROOT}[{EXTRAS}]", *TEST_TOOLS, "-c", str(installer.CONSTRAINTS)]
            installer.install(environment, packages, uv=uv)
        except installer.InstallError as error:
            sys.exit(f"could not set up .venv-{version}:\n{error}")
        stamp.write_text(fingerprint, encoding="utf-8")
    left_out = [argument for folder in LEFT_OUT for argument in ("--leave-out", folder)]
    tests = [str(python), str(installer.ROOT / "scripts" / "run_tests.py"), "--everything", *left_out]
    os.execv(python, tests)  # a signal reaches the tests themselves


if __name__ == "__main__":
    main()
