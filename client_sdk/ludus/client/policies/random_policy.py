"""A policy that acts at random, and random values of JSON schemas."""

from __future__ import annotations

import random
from typing import Final

from ludus.client.policies.base import Conversation, EpisodePolicy, PolicyResult
from ludus.client.policies.values import random_value
from ludus.protocol.actions import Answer, Call

ANSWER_WORDS: Final = ("yes", "no", "a", "b", "0", "1", "2", "42", "unknown")


class RandomPolicy:
    """Calls a random tool with random arguments that its schema allows. The same seed makes the same choices.

    Args:
        seed: seeds the choices, together with the task, the episode's seed and the sample.
        answers: the probability that a turn is a final message instead of a call, if final messages are graded.
    """

    def __init__(self, seed: int = 0, *, answers: float = 0.1) -> None:
        self.seed = seed
        self.answers = answers
        self.name = f"random(seed={seed})"

    def begin(self, conversation: Conversation) -> EpisodePolicy:
        """Return the callable that makes the choices of one episode."""
        suffix = f"/{conversation.place}" if conversation.place else ""
        rng = random.Random(f"{self.seed}/{conversation.task.id}/{conversation.seed}/{conversation.sample}{suffix}")

        async def choose(conversation: Conversation) -> PolicyResult:
            if not conversation.tools or (conversation.gradable and rng.random() < self.answers):
                return Answer(rng.choice(ANSWER_WORDS))
            tool = rng.choice(conversation.tools)
            arguments = random_value(tool.input_schema, rng)
            return Call(tool.name, arguments if isinstance(arguments, dict) else {})

        return choose
