"""Mathematical equivalence, decided by SymPy in a separate process.

A policy's text may keep a computer algebra system busy indefinitely (`9^9^9^9`). So a helper process compares, in child
processes with limited memory and processor time; see
`_math_helper` for how quick answers never wait for slow ones.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib.util
import json
import queue
import select
import subprocess
import sys
import threading
from collections import OrderedDict
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ludus.protocol.errors import AuthoringError
from ludus.server.execution.clock import current_clock
from ludus.server.rewards.attempt import Attempt, Selector, answer_of, resolve
from ludus.server.rewards.nodes import Check
from ludus.server.rewards.text import short
from ludus.server.rewards.verdict import Verdict

ANSWER_CHARS: Final = 10_000
"""The limit for answers; longer ones are not read and earn 0."""
_START_SECONDS: Final = 300.0
_END_SECONDS: Final = 5.0
_QUEUE_SECONDS: Final = 3_600.0
"""How long a comparison may take including its wait; if it takes longer, something is wrong with this machine."""
_KEPT: Final = 10_000
"""The number of comparisons whose result is cached, since the answers of a group are often the same."""

Reply = Future[dict[str, Any]]


@dataclass(frozen=True)
class MathEqual(Check):
    """1 when the answer's mathematics equals what is expected: `1/2` and `\\frac{2}{4}`, `(x+1)^2` and `x^2+2x+1`.

    What is expected is one answer as a whole, in LaTeX or plain, with or without dollars or `\\boxed`: an expression,
    an equation, a tuple, a set or a list of answers, an interval or inequality, a matrix, words, or the letter of a
    choice. The policy's answer is the last `\\boxed` of its message, or else its last formula, or else what it says
    after "is".

    Values must be exactly equal, so a rounded one is wrong. A list must be complete, and in a tuple the order counts.
    If both have a unit, it must be the same. What is expected and cannot be read as a whole leaves the answer
    unscored. An answer that takes more than `seconds` of processor time to compare, or more memory than a comparison
    may use, earns 0: if it were unscored, a policy could keep its failures out of its training.

    Raises:
        AuthoringError: the extra `math` is not installed.
    """

    expected: Selector[str]
    seconds: float = 2.0
    """Processor time for the comparison."""
    of: Selector[str] = answer_of

    def __post_init__(self) -> None:
        super().__post_init__()
        if importlib.util.find_spec("latex2sympy2_extended") is None:
            raise AuthoringError(
                "MathEqual needs the package latex2sympy2-extended; install it with: pip install 'ludus-rl[math]'"
            )

    async def check(self, attempt: Attempt) -> Verdict:
        """Compare in the helper process."""
        answer, reference = resolve(self.of, attempt), str(resolve(self.expected, attempt))
        if len(answer) > ANSWER_CHARS:
            return Verdict(0.0, f"the answer has {len(answer)} characters")
        clock = current_clock()
        if clock is not None:
            clock.wait()  # the helper limits the answer's own time; waiting for others does not count
        try:
            async with asyncio.timeout(_QUEUE_SECONDS):
                reply = await asyncio.wrap_future(_helper.ask(reference, answer, self.seconds))
        except TimeoutError:
            return Verdict.unscored("the helper for mathematics does not answer")
        finally:
            if clock is not None:
                clock.go_on()
        if "error" in reply:
            return Verdict.unscored(reply["error"])
        if reply.get("gave_up"):
            limits = f"{self.seconds:g} s of processor time, or more memory than there is"
            return Verdict(0.0, f"comparing {short(answer)} took more than {limits}")
        if "raised" in reply:
            return Verdict(0.0, f"comparing {short(answer)} raised {reply['raised']}")
        if not reply["parsed"]:
            return Verdict(0.0, f"no mathematics was found in {short(answer)}")
        return Verdict(float(reply["equal"]), f"read as {short(reply['parsed'])}")


class Helper:
    """The process that compares: started when first needed, started again if it ended, and ended with its parent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = 0
        self._waiting: dict[int, Reply] = {}
        self._to_send: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._sender: threading.Thread | None = None
        self._known: OrderedDict[tuple[str, str, float], dict[str, Any]] = OrderedDict()

    def ask(self, expected: str, answer: str, seconds: float) -> Reply:
        """Send a question to the helper, without waiting. A question whose future is canceled is dropped.

        Args:
            expected: the expected answer.
            answer: the policy's answer.
            seconds: processor time for the comparison; waiting does not count.

        Returns:
            A future of a reply with `equal` and `parsed`; or `raised`, the exception that the answer caused; or
            `gave_up`, if the answer exceeded a limit; or `error`, if the answer is not the cause.
        """
        question = (expected, answer, seconds)
        reply: Reply = Future()
        with self._lock:
            if (cached := self._known.get(question)) is not None:
                self._known.move_to_end(question)
                reply.set_result(cached)
                return reply
            self._asked += 1
            number = self._asked
            self._waiting[number] = reply
            if self._sender is None:
                self._sender = threading.Thread(target=self._send, name="ludus-mathematics-asks", daemon=True)
                self._sender.start()
        reply.add_done_callback(lambda answered: self._settled(number, question, answered))
        self._to_send.put({"id": number, "expected": expected, "answer": answer, "seconds": seconds})
        return reply

    def _settled(self, number: int, question: tuple[str, str, float], reply: Reply) -> None:
        with self._lock:
            self._waiting.pop(number, None)
            if not reply.cancelled() and "error" not in reply.result():
                self._known[question] = reply.result()
                if len(self._known) > _KEPT:
                    self._known.popitem(last=False)
        if reply.cancelled():
            self._to_send.put({"cancel": number})

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _send(self) -> None:
        """Write messages to the process, and start it for the first one. Runs in a thread, since both may take time."""
        while True:
            message = self._to_send.get()
            try:
                with self._lock:
                    process = self._process
                if process is None:
                    if "cancel" in message:
                        continue
                    process = self._start()
                assert process.stdin is not None
                process.stdin.write(json.dumps(message).encode() + b"\n")
                process.stdin.flush()
            except (OSError, ValueError, RuntimeError) as error:
                self._resolve(message.get("id"), {"error": f"the helper for mathematics cannot be asked: {error}"})

    def _resolve(self, number: int | None, reply: dict[str, Any]) -> None:
        with self._lock:
            waiting = self._waiting.get(number) if number is not None else None
        if waiting is not None and waiting.set_running_or_notify_cancel():
            waiting.set_result(reply)

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "ludus.server.rewards._math_helper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], _START_SECONDS)
        if not ready or not process.stdout.readline():
            process.kill()
            process.wait()
            raise RuntimeError("the helper for mathematics did not start")
        with self._lock:
            self._process = process
        threading.Thread(target=self._listen, args=(process,), name="ludus-mathematics", daemon=True).start()
        return process

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Deliver the replies of a process until it ends."""
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                reply: dict[str, Any] = json.loads(line)
                self._resolve(reply.pop("id"), reply)
        process.wait()
        with self._lock:
            if self._process is process:
                self._process = None
                assert process.stdin is not None
                with suppress(BrokenPipeError):
                    process.stdin.close()
            unanswered = list(self._waiting)
        for number in unanswered:
            self._resolve(number, {"error": "the helper for mathematics ended"})


_helper: Final = Helper()
atexit.register(_helper.close)
