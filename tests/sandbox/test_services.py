"""The backends of services pass their tests, each with the service's own client in that client's own environment.

The clients require versions that exclude each other and ours, so each is a peer (`make peers`), and the tests in
`services` run in a process that finds its packages first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = {"e2b": "e2b", "daytona": "daytona", "prime": "prime-sandboxes", "agent-sandbox": "agent-sandbox"}
MODULES = {"prime": "prime_sandboxes", "agent-sandbox": "k8s_agent_sandbox"}
"""The modules of the clients whose names are not those of the backends."""
QUICK = "environment_and_directory or refused_key or as_recorded or no_network"


def _run(service: str, *more: str, seconds: float) -> None:
    packages = next((ROOT / ".peers" / SERVICES[service]).glob("lib/python3.*/site-packages"), None)
    if packages is None:
        pytest.skip(f"the peer {SERVICES[service]} is not installed: make peers")
    argv = [
        sys.executable, "-m", "pytest", "-q", "-rf", "--timeout", "120", "-p", "no:cacheprovider", *more,
        f"tests/sandbox/services/test_{service.replace('-', '_')}.py",
    ]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(packages), "PYTEST_ADDOPTS": ""}
    env.pop("LUDUS_SUITES", None)  # the tests of services are in no suite
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.suite("sandbox")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("service", SERVICES)
def test_the_main_checks_pass_over_the_service_s_own_client(service: str) -> None:
    _run(service, "-k", QUICK, seconds=290)


@pytest.mark.suite("sandbox")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("service", SERVICES)
def test_every_check_passes_over_the_service_s_own_client(service: str) -> None:
    _run(service, seconds=590)


@pytest.mark.suite("sandbox", first=2)
@pytest.mark.parametrize("service", SERVICES)
def test_a_missing_client_is_named_with_the_command_that_installs_it(service: str) -> None:
    code = (
        f"import sys; sys.modules[{MODULES.get(service, service)!r}] = None\n"
        "from ludus.sandbox import SandboxUnavailable, find_provider\n"
        f"try: find_provider({service!r})\n"
        "except SandboxUnavailable as error: print(error.message)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install" in done.stdout
