"""A real rollout service, a real environment server and a scripted token endpoint, each in processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from rollout_clients import Endpoint, RunningService, World
from terminal import LUDUS, clean_variables, running_episodes, serving

from ludus.trainer.core.tiny import make_tokenizer

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tokenizer with a chat template."""
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer((), 300).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def endpoint_of_session(tokenizer: Path) -> Iterator[Endpoint]:
    command = [sys.executable, str(SUPPORT / "token_endpoint.py"), str(tokenizer / "tokenizer.json")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean_variables())
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdout, process.stdin:
        yield Endpoint(json.loads(process.stdout.readline())["url"])
        process.stdin.close()


@pytest.fixture
def endpoint(endpoint_of_session: Endpoint) -> Iterator[Endpoint]:
    """The token endpoint; the model `held` waits again."""
    endpoint_of_session.hold()
    yield endpoint_of_session
    endpoint_of_session.release()


@pytest.fixture(scope="session")
def server_of_session() -> Iterator[str]:
    with serving(f"{SUPPORT / 'adapter_world.py'}:Sums", f"{SUPPORT / 'adapter_world.py'}:EveryThirdBreaks") as url:
        yield url


@pytest.fixture
def server(server_of_session: str) -> Iterator[str]:
    """The address of a server with `sums` and `every_third_breaks`, without open episodes afterwards."""
    yield server_of_session
    assert running_episodes(server_of_session) == 0, "episodes are still open"


@pytest.fixture
def start_service(tokenizer: Path) -> Iterator[RunningService.Start]:
    """`service = start_service("--workers", 2)`: a `ludus rollouts serve` process, which must end by itself."""
    with ExitStack() as stack:

        def start(*arguments: object, tokenizer: Path | None = tokenizer) -> RunningService:
            given = ["--tokenizer", tokenizer] if tokenizer is not None else []
            command = [LUDUS, "rollouts", "serve", "--port", "0", *given, *arguments]
            service = RunningService([str(part) for part in command])
            stack.callback(service.stop)
            return service

        yield start


@pytest.fixture(scope="session")
def service_of_session(tokenizer: Path) -> Iterator[RunningService]:
    command = [LUDUS, "rollouts", "serve", "--port", "0", "--tokenizer", tokenizer, "--workers", 1]
    service = RunningService([str(part) for part in command])
    yield service
    service.stop()


@pytest.fixture
def world(service_of_session: RunningService, server: str, endpoint: Endpoint) -> World:
    """A service with one worker, an environment server and a token endpoint."""
    return World(service_of_session, server, endpoint)
