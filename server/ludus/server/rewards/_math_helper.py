"""Compare mathematics for `MathEqual`: one JSON line in for each question, one out for each reply, in any order.

How this works: children of this process make the comparisons; they are forked after everything that loads slowly was
loaded. A comparison has limited processor time and memory. If it exceeds a limit, only the child ends, and a new one is
forked quickly. There are two lanes. Every question starts in the quick lane, with a quarter of a second; one that needs
more starts again in the slow lane, with all its time. So a slow answer delays only other slow answers. Waiting does not
count: the limit applies to the child's own processor time.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import selectors
import signal
import socket
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, NoReturn

MEMORY: Final = 1024**3
"""Bytes of address space beyond which a comparison may not grow."""

CONTROL_VALUE: Final = "1.5"
"""A harmless expression: an expected answer that cannot be compared with it is itself the cause."""

KEPT: Final = 10_000
"""The number of expected answers that a child remembers as comparable."""

QUESTIONS: Final = 1_000
"""The questions after which a child is replaced: its libraries cache results, and some of these are large."""

QUICK_SECONDS: Final = 0.25
"""Processor time of a comparison in the quick lane."""

LANE: Final = os.cpu_count() or 1
"""The most concurrent comparisons in each lane."""

BUSY: Final = 60.0
"""The wall-clock limit of a comparison, as a multiple of its processor time, for a busy machine."""

READY_BYTE: Final = b"+\n"
"""Sent by a child before it reads the answer: from then on, the answer is the cause of any failure."""


@dataclass
class _Child:
    pid: int
    control: socket.socket
    asked: int = 0
    question: dict[str, Any] | None = None
    slow: bool = False
    """Whether its question is in the slow lane."""
    deadline: float = 0.0
    said: bytes = b""


class _Helper:
    def __init__(self, forms: Any, equality: Any, out: Any) -> None:
        self._forms = forms
        self._equality = equality
        self._out = out
        self._children: dict[int, _Child] = {}
        self._queues: dict[bool, deque[dict[str, Any]]] = {False: deque(), True: deque()}
        """Waiting questions, for the quick lane (False) and for the slow one (True)."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(0, selectors.EVENT_READ)

    def serve(self) -> None:
        """Serve until standard input ends."""
        partial = b""
        while True:
            self._hand_out()
            busy = any(child.question is not None for child in self._children.values())
            for key, _ in self._selector.select(0.1 if busy else None):
                if key.fd != 0:
                    if (child := self._children.get(key.fd)) is not None:
                        self._hear(child)
                elif data := os.read(0, 1 << 16):
                    *lines, partial = (partial + data).split(b"\n")
                    for line in lines:
                        self._receive(json.loads(line))
                else:
                    for child in list(self._children.values()):
                        self._end(child)
                    return
            for child in list(self._children.values()):
                if child.question is not None and time.monotonic() > child.deadline:
                    self._give_up(child, {"error": "this machine was too busy to compare mathematics"}, again=True)

    def _receive(self, message: dict[str, Any]) -> None:
        if "cancel" not in message:
            self._queues[False].append(message)
            return
        for slow, queue in self._queues.items():
            self._queues[slow] = deque(queued for queued in queue if queued["id"] != message["cancel"])
        for child in list(self._children.values()):
            if child.question is not None and child.question["id"] == message["cancel"]:
                self._end(child)

    def _hand_out(self) -> None:
        for slow, queue in self._queues.items():
            while (
                queue
                and sum(child.question is not None and child.slow == slow for child in self._children.values()) < LANE
            ):
                self._ask(queue.popleft(), slow)

    def _ask(self, question: dict[str, Any], slow: bool) -> None:
        child = next((idle for idle in self._children.values() if idle.question is None), None) or self._begin()
        seconds = question["seconds"] if slow else min(QUICK_SECONDS, question["seconds"])
        child.question, child.slow = question, slow
        child.asked += 1
        child.deadline = time.monotonic() + BUSY * seconds
        try:
            child.control.sendall(json.dumps({**question, "seconds": seconds}).encode() + b"\n")
        except BrokenPipeError:
            pass  # it ended while it was idle; `_hear` handles this next

    def _begin(self) -> _Child:
        own_end, child_end = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            # If the parent's ends of the sockets stayed open here, the other children would not see the parent end.
            for inherited in (own_end, self._out, *(child.control for child in self._children.values())):
                inherited.close()
            os.close(0)
            self._answer(child_end)
        child_end.close()
        child = self._children[own_end.fileno()] = _Child(pid, own_end)
        self._selector.register(own_end, selectors.EVENT_READ)
        return child

    def _hear(self, child: _Child) -> None:
        try:
            data = child.control.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        child.said += data
        if not data:
            understood = child.said.startswith(READY_BYTE)
            blame = {"error": "what is expected cannot be compared with anything in time and memory"}
            self._give_up(child, {"gave_up": True} if understood else blame)
        elif child.said.endswith(b"\n") and (line := child.said.removeprefix(READY_BYTE)):
            self._reply(child, json.loads(line))
            if child.asked >= QUESTIONS:
                self._end(child)

    def _give_up(self, child: _Child, reply: dict[str, Any], *, again: bool = False) -> None:
        """End a child, and reply to its question or move it from the quick lane to the slow one.

        It moves with `again`, if the child used up the time of the quick lane but not the question's, or if the kernel
        killed the child for lack of memory.
        """
        status = self._end(child)
        ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        question = child.question
        more = question is not None and (question["seconds"] > QUICK_SECONDS or ended != signal.SIGPROF)
        if question is not None and not child.slow and more and (again or ended in (signal.SIGPROF, signal.SIGKILL)):
            self._queues[True].append(question)
        else:
            self._reply(child, reply)

    def _reply(self, child: _Child, reply: dict[str, Any]) -> None:
        if child.question is not None:
            self._out.write(json.dumps({"id": child.question["id"], **reply}) + "\n")
            self._out.flush()
        child.question, child.said = None, b""

    def _end(self, child: _Child) -> int:
        """End a child, and return its wait status."""
        del self._children[child.control.fileno()]
        self._selector.unregister(child.control)
        child.control.close()
        os.kill(child.pid, signal.SIGKILL)
        return os.waitpid(child.pid, 0)[1]

    # ── in a child ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _answer(self, control: socket.socket) -> NoReturn:
        try:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")  # if memory runs out, the kernel kills this process and not its parent
            sound: set[str] = set()
            for line in control.makefile("rb"):
                question = json.loads(line)
                reply = self._compare(control, question["expected"], question["answer"], question["seconds"], sound)
                signal.setitimer(signal.ITIMER_PROF, 0)
                control.sendall(json.dumps(reply).encode() + b"\n")
        finally:
            os._exit(0)

    def _compare(
        self, control: socket.socket, expected: str, answer: str, seconds: float, sound: set[str]
    ) -> dict[str, Any]:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            gold = self._forms.read(expected)
            if expected not in sound:
                self._equality.equal(gold, self._forms.read(CONTROL_VALUE))
                if len(sound) >= KEPT:
                    sound.clear()
                sound.add(expected)
        except MemoryError:
            raise
        except self._forms.Unreadable as error:
            return {"error": f"what is expected cannot be read: {error}"}
        except Exception as error:
            return {"error": f"reading what is expected raised {type(error).__name__}"}
        control.sendall(READY_BYTE)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            equal, parsed = self._equality.compare(gold, answer)
        except MemoryError:
            raise
        except Exception as error:
            return {"equal": False, "parsed": "", "raised": type(error).__name__}
        return {"equal": equal, "parsed": parsed[:200]}


def main() -> None:
    """Load SymPy, and serve questions from standard input."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of a library must not look like a reply
    from ludus.server.rewards import math_equality, math_forms

    math_equality.compare(math_forms.read(r"\frac{1}{2}x^2+\sqrt{3}"), "$x+1.5$")  # load what is imported on first use
    gc.freeze()
    out.write(json.dumps({"ready": True}) + "\n")
    out.flush()
    _Helper(math_forms, math_equality, out).serve()


if __name__ == "__main__":
    main()
