"""Mathematical equivalence, decided by math-verify in a process of its own.

What a policy writes may keep a computer algebra system busy for ever (`9^9^9^9`), and math-verify's own time limits
need the main thread. So a helper process does it, in children of its own whose memory and processor time are limited.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import queue
import select
import subprocess
import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ludus.protocol.errors import AuthoringError
from ludus.server.rewards._math_helper import BUSY
from ludus.server.rewards.attempt import Attempt, Of, answer_of, resolve
from ludus.server.rewards.nodes import Check
from ludus.server.rewards.text import short
from ludus.server.rewards.verdict import Verdict

ANSWER_CHARS: Final = 10_000
"""Longer answers are not read: they earn 0."""
_START_SECONDS: Final = 60.0
_END_SECONDS: Final = 5.0
_QUEUE_SECONDS: Final = 30.0
"""How long a comparison waits for its turn."""
_KEPT: Final = 10_000
"""Comparisons whose outcome is remembered: the answers of a group are often the same."""


@dataclass(frozen=True)
class MathEqual(Check):
    """1 when the answer's mathematics equals what is expected: `1/2` and `\\frac{2}{4}`, `(x+1)^2` and `x^2+2x+1`.

    Both may be LaTeX, between dollars or in \\boxed, or a plain expression. An answer that takes more than `seconds` of
    processor time to compare, or more memory than there is, earns 0: if it were unscored, a policy could have its
    failures left out of what it is trained on.

    Raises:
        AuthoringError: math-verify is not installed.
    """

    blocking: ClassVar[bool] = True

    expected: Of[str]
    seconds: float = 2.0
    """Of processor time."""
    of: Of[str] = answer_of

    def __post_init__(self) -> None:
        super().__post_init__()
        if importlib.util.find_spec("math_verify") is None:
            raise AuthoringError(
                "MathEqual needs the package math-verify; install it with: pip install 'ludus-rl[math]'"
            )

    def check(self, attempt: Attempt) -> Verdict:
        """Ask the helper."""
        said, wanted = resolve(self.of, attempt), str(resolve(self.expected, attempt))
        if len(said) > ANSWER_CHARS:
            return Verdict(0.0, f"the answer has {len(said)} characters")
        reply = _helper.ask(wanted, said, self.seconds)
        if "error" in reply:
            return Verdict.unscored(reply["error"])
        if reply.get("gave_up"):
            limits = f"{self.seconds:g} s of processor time, or more memory than there is"
            return Verdict(0.0, f"comparing {short(said)} took more than {limits}")
        if "raised" in reply:
            return Verdict(0.0, f"comparing {short(said)} raised {reply['raised']}")
        if not reply["parsed"]:
            return Verdict(0.0, f"no mathematics was found in {short(said)}")
        return Verdict(float(reply["equal"]), f"read as {short(reply['parsed'])}")


class Helper:
    """The process that compares: started when first needed, again after it ended, and ended with its parent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(os.cpu_count() or 1)
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = 0
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._known: OrderedDict[tuple[str, str, float], dict[str, Any]] = OrderedDict()

    def ask(self, expected: str, answer: str, seconds: float) -> dict[str, Any]:
        """What the helper says. As many questions at a time as there are cores; the others wait.

        Args:
            expected: what is expected.
            answer: what was said.
            seconds: of processor time for the comparison.

        Returns:
            `equal` and `parsed`; or `raised`, the exception that the answer provoked; or `gave_up`, when it was too
            much for the helper; or `error`, when the answer is not to blame.
        """
        question = (expected, answer, seconds)
        with self._lock:
            if (known := self._known.get(question)) is not None:
                self._known.move_to_end(question)
                return known
        if not self._turns.acquire(timeout=_QUEUE_SECONDS):
            return {"error": f"there was no turn to compare mathematics within {_QUEUE_SECONDS:g} s"}
        try:
            reply = self._put(*question)
        finally:
            self._turns.release()
        if "error" not in reply:
            with self._lock:
                self._known[question] = reply
                if len(self._known) > _KEPT:
                    self._known.popitem(last=False)
        return reply

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

    def _put(self, expected: str, answer: str, seconds: float) -> dict[str, Any]:
        replies: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        with self._lock:
            process = self._process or self._start()
            assert process.stdin is not None
            self._asked += 1
            number = self._asked
            self._waiting[number] = replies
            question = {"id": number, "expected": expected, "answer": answer, "seconds": seconds}
            try:
                process.stdin.write(json.dumps(question).encode() + b"\n")
                process.stdin.flush()
            except BrokenPipeError:
                del self._waiting[number]
                return {"error": "the helper for mathematics has ended"}
        try:
            return replies.get(timeout=BUSY * seconds + _END_SECONDS)
        except queue.Empty:
            return {"error": "the helper for mathematics does not answer"}
        finally:
            self._waiting.pop(number, None)

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
        self._process = process
        threading.Thread(target=self._listen, args=(process,), name="ludus-mathematics", daemon=True).start()
        return process

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Hand out the replies of a process until it ends."""
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                reply: dict[str, Any] = json.loads(line)
                if (waiting := self._waiting.get(reply.pop("id"))) is not None:
                    waiting.put(reply)
        process.wait()
        with self._lock:
            if self._process is process:
                self._process = None
                assert process.stdin is not None
                with suppress(BrokenPipeError):
                    process.stdin.close()
            for waiting in list(self._waiting.values()):  # whoever was answered leaves it without the lock
                waiting.put({"error": "the helper for mathematics ended"})


_helper: Final = Helper()
atexit.register(_helper.close)
