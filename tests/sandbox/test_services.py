"""The backend `e2b` passes its tests with E2B's own client, in that client's own environment.

The client requires versions that exclude ours, so it is a peer (`make peers`), and the tests in `services` run in a
process that finds its packages first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUICK = "environment_and_directory or refused_key or as_recorded or no_network"


def _run(*more: str, seconds: float) -> None:
    packages = next((ROOT / ".peers" / "e2b").glob("lib/python3.*/site-packages"), None)
    if packages is None:
        pytest.skip("the peer e2b is not installed: make peers")
    argv = [
        sys.executable, "-m", "pytest", "-q", "-rf", "--timeout", "120", "-p", "no:cacheprovider", *more,
        "tests/sandbox/services/test_e2b.py",
    ]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(packages), "PYTEST_ADDOPTS": ""}
    env.pop("LUDUS_SUITES", None)  # the tests of services are in no suite
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.suite("sandbox")
@pytest.mark.timeout(300)
def test_the_main_checks_pass_over_the_service_s_own_client() -> None:
    _run("-k", QUICK, seconds=290)


@pytest.mark.suite("sandbox")
@pytest.mark.timeout(600)
def test_every_check_passes_over_the_service_s_own_client() -> None:
    _run(seconds=590)


def test_a_missing_client_is_named_with_the_command_that_installs_it() -> None:
    code = (
        "import sys; sys.modules['e2b'] = None\n"
        "from ludus.sandbox import SandboxUnavailable, find_provider\n"
        "try: find_provider('e2b')\n"
        "except SandboxUnavailable as error: print(error.message)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install" in done.stdout
