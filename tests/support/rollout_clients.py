"""A running rollout service, and clients of it over plain HTTP."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from terminal import clean_variables
from token_endpoint import VERSION, digest_of, logprob_of
from waiting import block_until, is_running


class Answer(Exception):
    """An answer with an error status."""

    def __init__(self, status: int, value: Any) -> None:
        super().__init__(status, value)
        self.status, self.value = status, value

    @property
    def kind(self) -> str:
        """The name of the error."""
        return str(self.value["error"]["type"])

    @property
    def message(self) -> str:
        return str(self.value["error"]["message"])


def ask(method: str, url: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
    """Return the JSON of an answer; raise `Answer` for an error."""
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=50) as reply:
            return json.loads(reply.read())
    except urllib.error.HTTPError as error:
        with error:
            raise Answer(error.code, json.loads(error.read())) from None


class Stream:
    """The lines of an open stream."""

    def __init__(self, reply: http.client.HTTPResponse) -> None:
        self.reply = reply
        self.job = reply.headers["X-Ludus-Job"]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the numbered lines."""
        for line in self.reply:
            value = json.loads(line)
            if value["type"] != "job":
                yield value

    def take(self, count: int) -> list[dict[str, Any]]:
        """Read so many numbered lines."""
        return [line for _, line in zip(range(count), self, strict=False)]


class RunningService:
    """A `ludus rollouts serve` process."""

    class Start(Protocol):
        def __call__(self, *arguments: object, tokenizer: Any = ...) -> RunningService: ...

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=clean_variables())
        assert self.process.stderr is not None
        self.log = ""
        for line in self.process.stderr:
            self.log += line
            if found := re.search(r"http://[\d.:\[\]]+", line):
                self.url = found[0]
                break
        else:
            raise AssertionError(f"the service said: {self.log}")
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log += line

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        return ask(method, self.url + path, body, headers)

    @contextmanager
    def stream(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, receive: int = 0
    ) -> Iterator[Stream]:
        """Open a stream. `receive` makes the socket's buffer so small."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=50)
        if receive:
            connection.connect()
            connection.sock.setsockopt(1, 8, receive)  # SOL_SOCKET, SO_RCVBUF
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers or {})
            reply = connection.getresponse()
            if reply.status >= 400:
                raise Answer(reply.status, json.loads(reply.read()))
            yield Stream(reply)
        finally:
            connection.close()

    def play(self, body: Any, headers: dict[str, str] | None = None) -> list[dict[str, Any]]:
        """Ask for rollouts, and return all lines."""
        with self.stream("POST", "/rollouts", body, headers) as stream:
            return list(stream)

    def workers(self) -> list[int]:
        """The processes of the workers."""
        return [worker["pid"] for worker in self.ask("GET", "/status")["workers"]]

    def kill_worker(self, place: int = 0) -> int:
        pid = self.workers()[place]
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_until(self, path: str, reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the JSON of `path` once it has what a test waits for."""
        answers: list[dict[str, Any]] = []

        def holds() -> bool:
            answers.append(self.ask("GET", path))
            return reached(answers[-1])

        block_until(holds, 120, lambda: str(answers[-1]))
        return answers[-1]

    def stop(self) -> int:
        """End the service with SIGTERM and return its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(timeout=45)
        finally:
            self.process.kill()
            self._reading.join(timeout=5)
            assert self.process.stderr is not None
            self.process.stderr.close()
        return code


@dataclass(frozen=True)
class Endpoint:
    """The scripted token endpoint."""

    url: str

    def _ask(self, method: str, path: str) -> Any:
        return ask(method, self.url.removesuffix("/v1") + path)

    def hold(self) -> None:
        self._ask("POST", "/hold")

    def release(self) -> None:
        self._ask("POST", "/release")

    def wait_held(self, count: int) -> None:
        """Wait until exactly so many requests of the model `held` wait."""
        self._ask("GET", f"/held?count={count}")

    def facts(self) -> Any:
        return self._ask("GET", "/seen")


@dataclass(frozen=True)
class World:
    """Everything that a request names."""

    service: RunningService
    server: str
    endpoint: Endpoint

    def request(self, model: str = "solver", environment: str = "sums", **fields: Any) -> dict[str, Any]:
        """A request for the first tasks of the split."""
        which = {} if "tasks" in fields else {"n": 4}
        return {
            "environment": {"url": self.server, "name": environment},
            "model": {"url": self.endpoint.url, "name": model},
            "seed": 11,
            **which,
            **fields,
        }


def check_exact(lines: list[dict[str, Any]], endpoint: Endpoint) -> None:
    """All samples are what the endpoint saw and sampled, token by token."""
    seen = set(endpoint.facts()["seen"])
    assert lines
    for line in lines:
        assert line["samples"]
        for sample in line["samples"]:
            lengths = {len(sample[name]) for name in ("ids", "mask", "logprobs", "versions", "turns")}
            assert lengths == {len(sample["ids"])}
            for place, (token, own) in enumerate(zip(sample["ids"], sample["mask"], strict=True)):
                expected = (logprob_of(token, place), int(VERSION)) if own else (0.0, -1)
                assert (sample["logprobs"][place], sample["versions"][place]) == expected
            mask = [*sample["mask"], 0]
            ends = [at + 1 for at, own in enumerate(sample["mask"]) if own and not mask[at + 1]]
            assert len(ends) == max(sample["turns"]) + 1
            assert {digest_of(sample["ids"][:end]) for end in ends} <= seen


def wait_ended(pid: int) -> None:
    """Wait until a process has ended."""
    block_until(lambda: not is_running(pid), 120)
