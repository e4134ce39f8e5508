"""`ludus run --policy openai` against a model endpoint."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from subprocess import CompletedProcess
from typing import Any

import pytest

Ludus = Callable[..., CompletedProcess[str]]


class Model(BaseHTTPRequestHandler):
    """Adds the two numbers of the prompt and submits the sum; fails each third request once."""

    seen: list[dict[str, Any]] = []
    keys: set[str] = set()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(body)
        self.keys.add(self.headers["Authorization"])
        if len(self.seen) % 3 == 0:
            self.answer(503, {"error": {"message": "busy"}})
            return
        first, _, rest = body["messages"][0]["content"].partition(" + ")
        call = {"name": "submit", "arguments": json.dumps({"number": int(first) + int(rest.partition("?")[0])})}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": call}],
        }
        self.answer(200, {"choices": [{"message": message}], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})

    def answer(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def base_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_model_plays_a_split_through_trouble(ludus: Ludus, url: str, base_url: str) -> None:
    done = ludus(
        "run", url, "sums", "--policy", "openai", "--model", "adder", "--base-url", base_url, "--temperature", "0",
        "--option", "max_completion_tokens=64", "--option", "user=me",
        "--json", variables={"OPENAI_API_KEY": "sk-test"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["episodes"], summary["mean"], summary["retried"]) == (6, 1.0, 0)
    assert summary["usage"] == {"requests": 6, "input_tokens": 42, "output_tokens": 18}
    assert Model.seen[0]["temperature"] == 0
    assert (Model.seen[0]["max_completion_tokens"], Model.seen[0]["user"]) == (64, "me")
    assert "max_tokens" not in Model.seen[0]
    assert Model.keys == {"Bearer sk-test"}
    assert "sk-test" not in done.stdout + done.stderr
