"""A hub whose environments run at a real server, shared by the tests of the site."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hub_sites import SiteHub

START_SECONDS = 240
"""How long a process may take to print its address: only on a machine that has much else to do does that take long."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder time for processes to start, for which the first test of a session waits."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(2 * START_SECONDS + 60))


def started(command: list[str], words: str, log: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start a process that prints its address after `words`."""
    with log.open("ab") as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
    assert process.stdout is not None
    try:
        readable, _, _ = select.select([process.stdout], [], [], START_SECONDS)
        line = process.stdout.readline().decode() if readable else ""
        assert words in line, f"{command[-3:]} did not start: {line}{log.read_text()}"
    except BaseException:  # also when the test takes too long
        process.kill()
        process.wait(30)
        process.stdout.close()
        raise
    return process, line.split(words)[1].split()[0]


def stopped(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    assert process.stdout is not None
    process.stdout.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteHub]:
    """An open hub with the built-in library, whose environments can be played."""
    folder = tmp_path_factory.mktemp("site")
    serve = [sys.executable, "-m", "ludus.cli", "serve", "guess_number", "wordle", "countdown", "--port", "0"]
    server, where = started(serve, " at ", folder / "server.log")
    try:
        support = Path(__file__).parents[2] / "support" / "hub_sites.py"
        hub, url = started([sys.executable, str(support), str(folder / "data"), where], " at ", folder / "hub.log")
        try:
            yield SiteHub(url, folder / "data", where)
        finally:
            stopped(hub)
    finally:
        stopped(server)


@pytest.fixture
def browser(site: SiteHub) -> Iterator[httpx.Client]:
    """A client that asks for pages and keeps cookies, without JavaScript."""
    with httpx.Client(base_url=site.url, headers={"accept": "text/html"}, timeout=60, follow_redirects=True) as client:
        yield client
