"""Runs tests as a user who is not root, as servers and hubs of careful operators run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
USER = "nobody"


def passed_as_ordinary_user(*arguments: str, suites: str = "") -> int:
    """Run tests as another user, and return how many have passed; skip where this cannot be.

    Args:
        arguments: those of pytest.
        suites: the suites whose tests are included.
    """
    interpreter = Path(sys.executable).resolve()
    if os.geteuid() != 0:
        pytest.skip("only root may run tests as another user")
    if any(not folder.stat().st_mode & 0o001 for folder in (*interpreter.parents, *ROOT.parents)):
        pytest.skip("the interpreter lies in a folder that other users may not enter")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        variables = {**os.environ, "HOME": folder, "TMPDIR": folder, "LUDUS_SUITES": suites}
        variables.pop("LUDUS_SUITE_PART", None)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *arguments], cwd=ROOT,
            env=variables, user=USER, group="nogroup", extra_groups=[], capture_output=True, text=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    words = done.stdout.splitlines()[-1].split() if done.stdout else []
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return int(words[words.index("passed") - 1].strip(",")) if "passed" in words else int(words[0])
