"""`ludus serve` plays one episode of each hosted environment before it announces itself."""

from __future__ import annotations

import json
import select
import subprocess
import sys

import pytest
from hosted_peers import PROGRAMS, spec_of
from peer_clients import ROOT

FAULTY = f"gymnasium:{PROGRAMS / 'faulty_gym.py'}:Faulty"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ludus.cli", "serve", *arguments]


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize("options", [("--port", "0"), ("--port", "0", "--workers", "1"), ("--stdio",)])
def test_an_environment_whose_episodes_cannot_start_is_refused_with_the_hosted_error(options: tuple[str, ...]) -> None:
    spec = spec_of("gymnasium", FAULTY, make={"at_reset": "raises"})
    done = subprocess.run(
        command(spec, *options), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120,
        cwd=ROOT,
    )  # fmt: skip
    assert done.returncode != 0
    assert "Serving" not in done.stdout
    last = " ".join(done.stderr.strip().splitlines()[-1].split())
    assert "no episode of 'faulty' can be played to its end: KeyError: 'the state is broken'" in last
    assert "--no-check" in last


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize(("make", "options"), [({"at_reset": "raises"}, ("--no-check",)), ({}, ())])
def test_it_is_served_without_the_check_or_if_an_episode_can_be_played(
    make: dict[str, str], options: tuple[str, ...]
) -> None:
    spec = spec_of("gymnasium", FAULTY, make=json.dumps(make))
    process = subprocess.Popen(
        command(spec, "--port", "0", *options), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 120)[0]
        assert process.stdout.readline().startswith(b"Serving faulty at ")
    finally:
        process.terminate()
        process.communicate(timeout=60)
