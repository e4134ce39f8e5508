"""Answers of model endpoints: the numbers of tokens in them, and what of them a harness gets."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

MOST_TOKENS: Final = 10**9
"""Higher counts of one call are not believed."""


class Tokens(NamedTuple):
    """The tokens of one call, as the endpoint has counted them; None if it does not say."""

    given: int | None = None
    taken: int | None = None


class KeyShown(Exception):
    """An endpoint has sent back the key of the account."""


def tokens_of_answer(answer: Any) -> Tokens:
    """Return the tokens of an answer, or of one event of a stream."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(usage, dict):
        return Tokens()
    return Tokens(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))


class KeyFilter:
    """Passes bytes on unless they hold a secret, in however many pieces they come.

    Args:
        secret: the secret; an empty one is in nothing.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self._held = b""

    def pass_on(self, data: bytes) -> bytes:
        """Return what may go on by now. What could be the beginning of the secret is held back.

        Raises:
            KeyShown: the secret has come.
        """
        if not self._secret:
            return data
        data = self._held + data
        if self._secret in data:
            raise KeyShown
        most = min(len(data), len(self._secret) - 1)
        size = next((size for size in range(most, 0, -1) if data.endswith(self._secret[:size])), 0)
        self._held = data[len(data) - size :]
        return data[: len(data) - size]

    def rest(self) -> bytes:
        """Return what was held back, because no more comes."""
        held, self._held = self._held, b""
        return held


class EventStream:
    """Reads the events of a streamed answer as they come.

    Args:
        hides_usage: whether to drop the event with the numbers of tokens, which the harness has not asked for.
    """

    def __init__(self, *, hides_usage: bool) -> None:
        self.tokens = Tokens()
        self._hides = hides_usage
        self._waiting = b""

    def pass_on(self, data: bytes) -> bytes:
        """Return the events that are complete by now."""
        *events, self._waiting = (self._waiting + data).replace(b"\r\n", b"\n").split(b"\n\n")
        return b"".join(event + b"\n\n" for event in events if self._passes(event))

    def rest(self) -> bytes:
        """Return what has come after the last complete event."""
        rest, self._waiting = self._waiting, b""
        return rest if rest and self._passes(rest) else b""

    def _passes(self, event: bytes) -> bool:
        text = b"\n".join(line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:"))
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            return True
        found = tokens_of_answer(said)
        if found != Tokens():
            self.tokens = found
        return not (self._hides and found != Tokens() and not said.get("choices"))


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None
