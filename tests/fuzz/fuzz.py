"""Fires malformed, hostile and valid requests at a server over every wire, and reports the outcome.

    python tests/fuzz/fuzz.py --count 20000 --seed 1 [--wires channel,control,play,ors,raw]

The server is a real process. Every request gets an answer in its wire's own form; none is a 5xx but an announced
environment error; nothing secret appears on the play plane; afterwards the server answers, and holds no episode, no
task and no memory more than before. The report is JSON on stdout; the exit code is 1 when anything was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from attack import Fuzzer
from waiting import accepts, block_until_up, wait_until
from wires import ChannelWire, McpWire, OrsWire, RawWire, ask

HERE = Path(__file__).resolve().parent
IDLE_SECONDS = 5
"""After which the server ends what no client can close: the answer to its start was on a connection that broke."""


@contextlib.contextmanager
def server(log: Any) -> Any:
    """A real server process; its URL and its process."""
    ludus = Path(sys.executable).with_name("ludus")
    names = [f"{HERE / 'target.py'}:{name}" for name in ("Target", "Probe")]
    command = [str(ludus), "serve", *names, "--port", "0", "--host", "127.0.0.1", "--idle-seconds", str(IDLE_SECONDS)]
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        yield await_url(process, Path(log.name)), process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def await_url(process: subprocess.Popen[bytes], log: Path) -> str:
    """The address the server says it listens on."""

    def port() -> int:
        found = re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text(errors="replace"))
        return int(found[1]) if found else 0

    block_until_up(process, lambda: port() and accepts(port()), log)
    return f"http://127.0.0.1:{port()}"


async def look_inside(url: str) -> dict[str, float]:
    """What is alive in the server, as seen by a separate episode."""
    async with aiohttp.ClientSession() as http:
        start = {"environment": "probe", "split": "train", "key": os.urandom(8).hex()}
        reply = await ask(http, url, "episodes/start", start)
        episode = reply["result"]["episodes"][0]["episode"]
        step = {"episode": episode, "step": 1, "tool": "inside", "key": "look"}
        reply = await ask(http, url, "episodes/step", step)
        await ask(http, url, "episodes/close", {"episode": episode})
        return {name: float(value) for name, value in reply["result"]["metadata"].items()}


async def close_all(fuzz: Fuzzer, http: aiohttp.ClientSession) -> None:
    """Close every episode that the server ever spoke of."""
    for episode in sorted(fuzz.episodes):
        await ask(http, fuzz.url, "episodes/close", {"episode": episode})
    fuzz.episodes.clear()


async def fire(fuzz: Fuzzer, wires: list[str], count: int) -> None:
    """`count` requests over all the wires at once, then close what they opened."""
    shares = {"channel": 0.4, "control": 0.2, "play": 0.2, "ors": 0.19, "raw": 0.01}
    whole = sum(shares[wire] for wire in wires)
    connector = aiohttp.TCPConnector(limit=64)
    async with aiohttp.ClientSession(connector=connector) as http:
        runs = {
            "channel": ChannelWire(fuzz, http).run,
            "control": McpWire(fuzz, http, play=False).run,
            "play": McpWire(fuzz, http, play=True).run,
            "ors": OrsWire(fuzz, http).run,
            "raw": RawWire(fuzz).run,
        }
        async with asyncio.TaskGroup() as group:
            for wire in wires:
                group.create_task(runs[wire](max(1, round(count * shares[wire] / whole))))
        await close_all(fuzz, http)


async def campaign(url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Warm up, look, fire, look again."""
    wires = options.wires.split(",")
    fuzz = Fuzzer(url, options.seed)
    await fire(fuzz, wires, max(200, options.count // 10))
    before = await look_inside(url)
    await fire(fuzz, wires, options.count)

    async def is_empty() -> bool:
        return (await look_inside(url))["instances"] == 0

    with contextlib.suppress(AssertionError):  # the report says what was left
        await wait_until(is_empty, IDLE_SECONDS + 30)
    after = await look_inside(url)
    return {
        "requests": sum(fuzz.sent.values()),
        "sent": dict(fuzz.sent),
        "answers": dict(sorted(fuzz.answers.items())),
        "wrong": fuzz.wrong,
        "before": before,
        "after": after,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--wires", default="channel,control,play,ors,raw")
    options = parser.parse_args()
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log, server(log) as (url, process):
        report = asyncio.run(campaign(url, options))
        report["alive"] = process.poll() is None
        text = Path(log.name).read_text(errors="replace")
        report["tracebacks"] = len(re.findall(r"^ *Traceback", text, re.MULTILINE))
        report["log tail"] = text[-2000:] if report["wrong"] else ""
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return int(bool(report["wrong"]) or not report["alive"])


if __name__ == "__main__":
    sys.exit(main())
