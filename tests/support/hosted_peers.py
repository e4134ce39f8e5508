"""Environments of formats over the peers' own interpreters, and what the peers' own loops record."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from peer_clients import peer_variables, python_of

from ludus.server.tasks.formats import parse_source, resolve

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "formats_hosting" / "peers"


def spec_of(peer: str, spec: str, **options: Any) -> str:
    """Return a spec with the peer's interpreter and further options; a skip if the peer is missing."""
    given = {"python": python_of(peer), **options}
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
    return f"{spec}#" + ",".join(f"{name}={quote(text, safe='/:')}" for name, text in texts.items())


@contextmanager
def hosted(peer: str, spec: str, **options: Any) -> Iterator[list[Any]]:
    """The environments that a spec names; their interpreter has ended afterwards."""
    source = parse_source(spec_of(peer, spec, **options))
    assert source is not None
    found: list[Any] = list(resolve(source))
    found[0].process.acquire()  # keeps the interpreter between two servers
    try:
        yield found
    finally:
        for environment in found:
            environment.process.close()


def record(peer: str, program: str, orders: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what a program in `tests/formats_hosting/peers` records in the peer's interpreter, a line each."""
    return [json.loads(line) for line in output_of(peer, program, orders).splitlines()]


def output_of(peer: str, program: str, given: Any) -> str:
    """Return what a program in `tests/formats_hosting/peers` prints in the peer's interpreter."""
    done = subprocess.run(
        [python_of(peer), "-W", "ignore", str(PROGRAMS / program)],
        input=json.dumps(given), capture_output=True, text=True, check=False, cwd=ROOT,
        env={**peer_variables(), "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
