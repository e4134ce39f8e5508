"""Mathematical equivalence, decided by math-verify in a process of its own.

What a policy writes may keep a computer algebra system busy for ever (`9^9^9^9`), and math-verify's own time limits
need the main thread. So a helper process does it, whose memory and processor time are limited.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import select
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ludus.protocol.errors import AuthoringError
from ludus.server.rewards.attempt import Attempt, Of, answer_of, resolve
from ludus.server.rewards.nodes import Check
from ludus.server.rewards.text import short
from ludus.server.rewards.verdict import Verdict

ANSWER_CHARS: Final = 10_000
"""Longer answers are not read: they earn 0."""
_START_SECONDS: Final = 60.0
_BUSY: Final = 10.0
"""How many times its processor time a comparison may take on a machine that has other things to do."""


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
    seconds: float = 5.0
    of: Of[str] = answer_of

    def __post_init__(self) -> None:
        super().__post_init__()
        if importlib.util.find_spec("math_verify") is None:
            raise AuthoringError("MathEqual needs the package math-verify; install it with: pip install 'ludus[math]'")

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
    """The process that compares; started when first needed, again after it was killed, and ended with its parent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, expected: str, answer: str, seconds: float) -> dict[str, Any]:
        """What the helper says. One question at a time; the others wait.

        Args:
            expected: what is expected.
            answer: what was said.
            seconds: of processor time for the comparison.

        Returns:
            `equal` and `parsed`; or `raised`, the exception that the answer provoked; or `gave_up`, when it was too
            much for the helper; or `error`, when the answer is not to blame.
        """
        with self._lock:
            process = self._process or self._start()
            assert process.stdin is not None
            question = {"expected": expected, "answer": answer, "seconds": seconds}
            try:
                process.stdin.write(json.dumps(question).encode() + b"\n")
                process.stdin.flush()
                first = self._read(process, _BUSY * seconds)
            except (BrokenPipeError, EOFError):
                self._stop()
                return {"error": "the helper for mathematics ended while it read what is expected"}
            if first is None:
                return {"error": "the helper for mathematics took too long to read what is expected"}
            if "error" in first:
                return first
            try:
                reply = self._read(process, _BUSY * seconds)
            except EOFError:
                return {"gave_up": True}
            return reply or {"error": "this machine was too busy to compare mathematics"}

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            self._stop()

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ludus.server.rewards._math_helper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            ready = self._read(self._process, _START_SECONDS)
        except EOFError:
            ready = None
        if ready is None:
            raise RuntimeError("the helper for mathematics did not start")
        return self._process

    def _read(self, process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any] | None:
        """The next line, or None when there was none in time; then, and before EOFError, the process is ended."""
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        line = process.stdout.readline() if ready else b""
        if not line:
            self._stop()
            if ready:
                raise EOFError
            return None
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    try:
                        stream.close()
                    except BrokenPipeError:
                        pass


_helper: Final = Helper()
atexit.register(_helper.close)
