"""A language model as the judge of the summary's prose, if the environment variables name one.

Its verdict can only take a tenth of the reward away. So a report is never worth more than the checklist says, whatever
it says to the judge, and a report that is worth nothing is not shown to a judge at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ludus.server.rewards import Attempt, Endpoint, FromEnvironment, Judge, Node, Scale, Verdict
from ludus.server.rewards.nodes import Offload, settle

MODEL_VARIABLE: Final = "LUDUS_PROSE_MODEL"
"""The environment variable with the name of the model; no prose is judged if it is not set."""
URL_VARIABLE: Final = "LUDUS_PROSE_URL"
"""The environment variable with the URL of an OpenAI-compatible endpoint, up to and including `/v1`. The key is that of
all judges, `LUDUS_JUDGE_API_KEY`."""

SHARE: Final = 0.1
"""The share of the reward that the worst prose takes away."""

QUESTION: Final = (
    "The candidate is the summary of a research report. Is it clear, well organized and plain English prose that a "
    "reader without the report would understand? Judge the writing alone, not the facts, which were checked already."
)


def endpoint_from_settings() -> Endpoint | None:
    """Return the endpoint that the environment variables name; None if they name no model."""
    model = os.environ.get(MODEL_VARIABLE, "")
    if not model:
        return None
    return Endpoint(model=model, base_url=os.environ.get(URL_VARIABLE) or "https://api.openai.com/v1")


@dataclass(frozen=True)
class ProseFault(Node):
    """What the prose of the summary lacks, from 0 (nothing) to 1, as a judge finds. No verdict leaves it unscored."""

    endpoint: Endpoint | None = None

    def names(self) -> Iterator[str]:
        """Yield its name."""
        yield self.name

    async def evaluate(self, attempt: Attempt, offload: Offload) -> Verdict:
        """Ask the judge."""
        assert self.endpoint is not None
        judge = Judge(
            QUESTION, self.endpoint, scale=Scale(1, 5), show=("answer",), of=FromEnvironment("summary"), name="prose"
        )
        found = await settle(judge.evaluate(attempt, offload))
        return Verdict(None if found.value is None else 1.0 - found.value, found.evidence, self.name)
