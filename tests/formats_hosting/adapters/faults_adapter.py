"""An adapter with every fault that hosted code may have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any, Dict, List

from .adapter import Adapter, HostedEpisode, NotUsable, Refused, description, need, split, tool
from .values import image, result


class FaultsAdapter(Adapter):
    """Describes the environment `faults`, unless the target asks for a fault of its own."""

    def __init__(self, target: str, options: Dict[str, Any]) -> None:
        super().__init__(target, options)
        print("hosted code prints while it is loaded")
        self.opened = 0
        if target == "missing":
            need("surely_not_installed.part", "surely-not-installed")
        if target == "unusable":
            raise NotUsable("there is no environment 'unusable'; there is 'faults'")
        if target == "raises":
            raise ZeroDivisionError("division by zero")
        if target == "exits":
            sys.exit(3)
        if target == "dies":
            os._exit(4)
        if target == "hangs":
            threading.Event().wait()

    def describe(self) -> List[Dict[str, Any]]:
        if self.target == "undescribed":
            return [{"name": "faults", "surprise": 1}]
        text = {"type": "string"}
        return [
            description(
                "Faults / 1",
                "Every fault that hosted code may have.",
                [split("train", 5), split("test", None)],
                [
                    tool("do", "Do something.", {"what": text}),
                    tool("odd.name", "A tool whose name no model provider accepts.", {}),
                ],
                gradable=True,
                solvable=True,
                package="faults 1.0",
                not_promised={"seeds": "it never looks at them"},
            )
        ]

    def task(self, environment: str, split: str, index: int) -> Dict[str, Any]:
        if self.target == "bad-tasks":
            return {"name": index}
        return {"id": f"{split}-{index}", "public": {"index": index}, "private": {"answer": str(index)}}

    def solution(self, environment: str, task: Dict[str, Any]) -> List[Dict[str, Any]]:
        return [{"tool": "do", "arguments": {"what": "step"}}, {"answer": task["private"]["answer"]}]

    def open(self, environment: str, task: Dict[str, Any], seed: int) -> HostedEpisode:
        if self.target == "broken-start":
            raise LookupError("no such level")
        return FaultsEpisode(self, task, seed)


class FaultsEpisode(HostedEpisode):
    """Does what it is asked to."""

    def __init__(self, adapter: FaultsAdapter, task: Dict[str, Any], seed: int) -> None:
        self.adapter = adapter
        self.answer = task["private"]["answer"]
        self.steps = 0
        adapter.opened += 1
        self.prompt = f"Task {task['id']} with seed {seed}."

    def call(self, tool: str, arguments: Dict[str, Any]) -> Dict[str, Any]:
        self.steps += 1
        if tool == "odd.name":
            return result("odd")
        return getattr(self, "do_" + arguments["what"])()

    def grade(self, answer: str) -> Dict[str, Any]:
        right = answer == self.answer
        return result("", reward=float(right), components={"right": float(right)})

    def close(self) -> None:
        if getattr(self, "stubborn", False):
            threading.Event().wait()

    def do_step(self) -> Dict[str, Any]:
        return result(f"step {self.steps}", reward=0.5, components={"half": 0.5}, metadata={"steps": self.steps})

    def do_finish(self) -> Dict[str, Any]:
        return result("done", reward=1, finished=True)

    def do_cut(self) -> Dict[str, Any]:
        return result("cut", reward=0.25, truncated=True)

    def do_pid(self) -> Dict[str, Any]:
        return result(str(os.getpid()))

    def do_thread(self) -> Dict[str, Any]:
        return result(threading.current_thread().name)

    def do_opened(self) -> Dict[str, Any]:
        return result(str(self.adapter.opened))

    def do_prints(self) -> Dict[str, Any]:
        print("hosted code prints", flush=True)
        sys.stdout.write("\x00\x00\x00\x02{}")
        sys.stdout.flush()
        os.write(1, b"even to the descriptor")
        return result("printed")

    def do_reads(self) -> Dict[str, Any]:
        return result(repr(sys.stdin.read()))

    def do_refuses(self) -> Dict[str, Any]:
        raise Refused("that move is not legal")

    def do_raises(self) -> Dict[str, Any]:
        raise KeyError("the state is broken")

    def do_exits(self) -> Dict[str, Any]:
        sys.exit(3)

    def do_dies(self) -> Dict[str, Any]:
        os.kill(os.getpid(), signal.SIGSEGV)
        raise AssertionError

    def do_hangs(self) -> Dict[str, Any]:
        while True:
            pass

    def do_stubborn(self) -> Dict[str, Any]:
        self.stubborn = True
        return result("will not close")

    def do_inf(self) -> Dict[str, Any]:
        return result("", reward=float("inf"))

    def do_nan(self) -> Dict[str, Any]:
        return result("", reward=float("nan"))

    def do_word(self) -> Dict[str, Any]:
        return result("", reward="high")

    def do_bytes(self) -> Dict[str, Any]:
        return {"content": b"raw", "reward": None}

    def do_nothing(self) -> Any:
        return None

    def do_facts(self) -> Dict[str, Any]:
        return result("", metadata={"raw": b"raw", "set": {2, 1}, "odd": object(), "inf": float("inf")})

    def do_image(self) -> Dict[str, Any]:
        return result(["seen:", image(b"\x89PNG")])

    def do_huge(self) -> Dict[str, Any]:
        return result("x" * (300 * 1024 * 1024))

    def do_leaves(self) -> Dict[str, Any]:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        return result(str(process.pid))


ADAPTER = FaultsAdapter
