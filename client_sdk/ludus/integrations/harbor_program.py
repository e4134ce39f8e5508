"""The program of exported Harbor tasks: it plays an episode of a Ludus server, and reads what the episode earned.

    python3 ludus_task.py serve     in the container `ludus`: start the episode, and pass the agent's calls on to it
    python3 ludus_task.py ready     there, too: exit 0 once `serve` answers
    python3 ludus_task.py score     in the verifier: end the episode, and write its reward for Harbor
    python3 ludus_task.py solve     in the agent's container, for Harbor's oracle: make the recorded calls

How this works:

* `ludus export --form harbor` copies this file as `ludus_task.py` next to a `task.json`, which says what to play. It
  needs Python 3.9 or newer, and nothing else.
* The trainer token is in the variable LUDUS_TOKEN of the container `ludus` and of the verifier. The agent's container
  has neither the token nor this file.
* A reward is written only if the server gave one. Otherwise the program exits with 1, and Harbor records an error
  instead of a reward of 0.
* A request that got no answer is sent again under its key, so nothing runs twice.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
EPISODE: Final = Path("/ludus/episode.json")
"""Where `serve` writes the episode's id. Harbor copies it to the verifier after it has stopped the agent."""
REWARD: Final = Path("/logs/verifier/reward.json")
PORT: Final = 8000
ANSWER_BYTES: Final = 2**19
"""A longer answer is cut off. Otherwise the server would refuse it, and an agent could choose to have no reward."""
BODY_BYTES: Final = 2**26
"""The largest request of an agent that is passed on."""
PAUSES: Final = (1.0, 2.0, 4.0)
"""The seconds between the tries of a request."""
KEEP_ALIVE_SECONDS: Final = 60.0
BUSY: Final = 4290
"""The code of the error of a server that is full."""
ENDED: Final = 4093
"""The code of the error for an episode that has ended."""
_PASSED_ON: Final = ("accept", "content-type", "last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version")
_PASSED_BACK: Final = ("allow", "content-length", "content-type")


class TaskError(Exception):
    """The episode cannot be played or scored; the message says why."""


def main(arguments: list[str]) -> int:
    """Run one command, and return the exit code."""
    commands = {"serve": serve, "ready": ready, "score": score, "solve": solve}
    if len(arguments) != 1 or arguments[0] not in commands:
        sys.stderr.write(f"usage: ludus_task.py {'|'.join(commands)}\n")
        return 2
    try:
        commands[arguments[0]]()
    except (TaskError, OSError, http.client.HTTPException, ValueError) as error:
        sys.stderr.write(f"ludus {arguments[0]}: {error}\n")
        return 1
    return 0


# ── the server ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Server:
    """The control plane of the Ludus server that plays the task."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.task = task
        self.url = os.environ.get("LUDUS_URL") or task["url"]
        self.token = os.environ.get("LUDUS_TOKEN", "")
        if not self.token:
            raise TaskError("LUDUS_TOKEN is not set; without a token the agent, too, could read rewards")

    def start(self) -> dict[str, Any]:
        """Start the task's episode."""
        names = ("environment", "split", "task", "seed")
        params = {name: self.task[name] for name in names if self.task.get(name) is not None}
        found: dict[str, Any] = self.call("start", {**params, "key": uuid.uuid4().hex})["episodes"][0]
        return found

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Call a method of `episodes/`. What fails because the server is away or busy is tried again."""
        headers = {"Authorization": f"Bearer {self.token}"}
        problem: Exception | None = None
        for pause in (0.0, *PAUSES):
            time.sleep(pause)
            try:
                return rpc(f"{self.url}/mcp", f"dev.ludus/episodes/{method}", params, headers)
            except Refused as error:
                if error.code != BUSY:
                    raise
                problem = error
            except (OSError, http.client.HTTPException, ValueError) as error:
                problem = error
        raise TaskError(f"{self.url} did not answer {method}: {problem}")


class Refused(TaskError):
    """The server refused a request."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"the server refused: {message} ({code})")
        self.code = code


def rpc(url: str, method: str, params: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
    """Send one request of JSON-RPC, and return its result.

    Raises:
        Refused: the reply is an error.
        OSError, HTTPException, ValueError: there is no reply, or it is none of JSON-RPC.
    """
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, ensure_ascii=False).encode()
    wanted = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, wanted), timeout=300) as answer:
            text = answer.read().decode()
            if answer.headers.get_content_type() == "text/event-stream":
                text = [line[5:] for line in re.split("\r\n|\r|\n", text) if line.startswith("data:")][-1]
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode("utf-8", "replace")
        if not text.startswith("{"):
            raise
    reply: dict[str, Any] = json.loads(text)
    if "result" in reply:
        result: dict[str, Any] = reply["result"]
        return result
    problem = reply.get("error")
    if not isinstance(problem, dict):
        raise ValueError(f"not a reply: {text[:200]}")
    raise Refused(problem.get("code", 0), str(problem.get("message")))


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a file."""
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a file as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value), encoding="utf-8")
    part.replace(path)


# ── serve: the container next to the agent's ────────────────────────────────────────────────────────────────────────


def serve() -> None:
    """Start the episode, and pass requests for /mcp on to its agent endpoint until the container ends."""
    server = Server(read_json(HERE / "task.json"))
    started = server.start()
    write_json(EPISODE, {"episode": started["episode"]})
    target = server.url + started["play"]["path"]
    address = (os.environ.get("LUDUS_BIND", "0.0.0.0"), PORT)
    relay = type("EpisodeRelay", (Relay,), {"target": target})
    enough = threading.Event()
    with ThreadingHTTPServer(address, relay) as listener:
        threading.Thread(target=keep_alive, args=(server, started["episode"], enough), daemon=True).start()
        listener.serve_forever()


def keep_alive(server: Server, episode: str, enough: threading.Event) -> None:
    """Keep an episode whose agent thinks for a long time from expiring. Harbor limits the agent's time."""
    while not enough.wait(KEEP_ALIVE_SECONDS):
        try:
            server.call("get", {"episode": episode})
        except TaskError as error:
            sys.stderr.write(f"ludus: {error}\n")


class Relay(BaseHTTPRequestHandler):
    """Passes requests for /mcp on to the episode, and refuses all others."""

    target = ""
    protocol_version = "HTTP/1.1"
    timeout = 600

    def _pass_on(self) -> None:
        self.close_connection = True
        if self.path.partition("?")[0].rstrip("/") != "/mcp":
            self.send_error(404, "only /mcp is here")
            return
        length = self.headers.get("Content-Length")
        if self.command == "POST" and not (length is not None and length.isdecimal() and int(length) <= BODY_BYTES):
            self.send_error(413)
            return
        body = self.rfile.read(int(length)) if self.command == "POST" and length else None
        headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
        request = urllib.request.Request(self.target, body, headers, method=self.command)
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                self._pass_back(answer.status, answer)
        except urllib.error.HTTPError as error:
            with error:
                self._pass_back(error.code, error)
        except (OSError, http.client.HTTPException) as error:
            self.send_error(502, f"no answer: {type(error).__name__}")

    def _pass_back(self, status: int, answer: Any) -> None:
        self.send_response(status)
        for name in _PASSED_BACK:
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        self.send_header("Connection", "close")
        self.end_headers()
        while part := answer.read1(65536):
            self.wfile.write(part)
            self.wfile.flush()

    do_GET = do_POST = do_DELETE = _pass_on

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: a path may hold what the agent made up."""


def ready() -> None:
    """Return once; raise an error unless `serve` listens and has an episode."""
    read_json(EPISODE)
    rpc(relay_url(os.environ.get("LUDUS_BIND", "127.0.0.1")), "tools/list", {}, {})


def relay_url(host: str) -> str:
    """Return the address of the agent endpoint at a host."""
    return f"http://{host}:{PORT}/mcp"


# ── score: the verifier ─────────────────────────────────────────────────────────────────────────────────────────────


def score() -> None:
    """End the episode, and write its reward.

    Raises:
        TaskError: the server gave no reward.
    """
    task = read_json(HERE / "task.json")
    server = Server(task)
    if task["answer"] is None:
        episode = read_json(EPISODE)["episode"]
    else:
        episode = server.start()["episode"]
    info = server.call("get", {"episode": episode})["info"]
    if (info["environment"], info["task"]["id"]) != (task["environment"], task["task"]):
        raise TaskError(f"{episode} is an episode of another task")
    if info["endReason"] is None:
        answer = "" if task["answer"] is None else read_answer(Path(task["answer"]))
        try:
            server.call("grade", {"episode": episode, "answer": answer, "key": uuid.uuid4().hex})
        except Refused as error:
            if error.code != ENDED:  # a limit of the episode was faster
                raise
    reward = server.call("close", {"episode": episode})["info"]["reward"]
    if reward is None:
        raise TaskError("the token may not read rewards; it needs the scope rewards:read")
    if reward["value"] is None:
        raise TaskError(f"the episode is unscored: {reward['reason']}")
    parts = {name: part["value"] for name, part in reward["components"].items() if part["value"] is not None}
    write_json(REWARD, {**parts, "reward": reward["value"]})


def read_answer(path: Path) -> str:
    """Return the answer in a file, without one line break at its end; an empty text if there is no such file."""
    if path.is_symlink() or not path.is_file():
        return ""
    with path.open("rb") as file:
        text = file.read(ANSWER_BYTES).decode("utf-8", "replace")
    return text[: -2 if text.endswith("\r\n") else -1] if text.endswith("\n") else text


# ── solve: Harbor's oracle ──────────────────────────────────────────────────────────────────────────────────────────


def solve() -> None:
    """Make the recorded calls.

    Raises:
        TaskError: the relay refused one.
    """
    url = relay_url("ludus")
    for call in read_json(HERE / "actions.json")["calls"]:
        result = rpc(url, "tools/call", {"name": call["tool"], "arguments": call["arguments"]}, {})
        sys.stdout.write("\n".join(block.get("text", "") for block in result["content"]) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
