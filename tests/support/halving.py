"""A policy that halves the range, for games that say `higher` or `lower`."""

from __future__ import annotations

from ludus.client import Call, Conversation, text_of
from ludus.client.policies.base import EpisodePolicy

HIGHEST = 100


class Halving:
    """Guesses the middle of what is left."""

    name = "halving"

    def begin(self, conversation: Conversation) -> EpisodePolicy:
        """Return the callable that plays one episode."""
        left = [1, HIGHEST]

        async def guess(conversation: Conversation) -> Call:
            middle = sum(left) // 2
            if conversation.results:
                said = text_of(conversation.results[-1].content)
                left[:] = halve(left[0], left[1], said)
                middle = sum(left) // 2
            return Call("guess", {"number": middle})

        return guess


def halve(low: int, high: int, said: str) -> tuple[int, int]:
    """Return what is left of a range after its middle was guessed."""
    middle = (low + high) // 2
    return (middle + 1, high) if said == "higher" else (low, middle - 1)
