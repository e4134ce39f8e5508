"""The types of verified runs: what their registration says, and the record of each call of the model.

A hub keeps of each call the digests of the request and of the answer, and no text of either. So one who has the texts,
such as the provider of the model, can show that they belong to the run.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, StringConstraints

from ludus.protocol.integers import Ordinal, Whole
from ludus.protocol.model import WireModel
from ludus.protocol.text import plain_label
from ludus.registry.types.packages import Digest
from ludus.registry.types.results import RUN_SAMPLES, RUN_TASKS, Label, Name, Price, RunKey

OWN_HARNESS: Final = "ludus"
"""The name of the hub's own harness: the agent loop of `ludus eval`."""

HARNESS_GROUP: Final = "ludus.harnesses"
"""The group of entry points in which a wheel names its harnesses."""

MOST_TOKENS: Final = 10**12
"""The most tokens that a registration can allow."""


def _plain(text: str) -> str:
    """Return a model's name, which the endpoint gets as it is."""
    if plain_label(text) != text:
        raise ValueError(f"{text[:60]!a} is not written as an endpoint gets it: use ASCII and single spaces")
    return text


class VerifiedParams(WireModel):
    """The request to register a verified run. What it says is fixed before the first episode starts."""

    environment: Name
    """The name of the environment in the package."""
    split: Name
    tasks: Annotated[int, Field(ge=1, le=RUN_TASKS)]
    """How many tasks the hub draws."""
    samples: Annotated[int, Field(ge=1, le=RUN_SAMPLES)] = 1
    """The number of episodes of each task."""
    harness: Annotated[str, StringConstraints(min_length=1, max_length=200)] = OWN_HARNESS
    """`ludus`, or a published one: `owner/name@version`, with `#entry` if the wheel has several."""
    model: Annotated[Label, AfterValidator(_plain)]
    """The model's name at the endpoint, in printable ASCII. The hub refuses calls of another one."""
    base_url: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    """The base URL of an OpenAI-compatible endpoint, such as `https://api.openai.com/v1`. Its host is shown to all."""
    api_key: Annotated[str, StringConstraints(max_length=1000, pattern=r"^[\x21-\x7e]*$")] = Field(
        default="", repr=False
    )
    """The key for the endpoint; the hub adds it to each call, never shows it, and deletes it when the run ends."""
    options: dict[str, Any] = {}
    """Fields that the hub sets in each call, such as the temperature. They are shown to all."""
    most_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None
    """The most tokens of all calls together, in and out; null for the hub's own limit. Later calls are refused."""
    price_in: Price | None = None
    """The price of a million input tokens; null if it is not known."""
    price_out: Price | None = None
    """The price of a million output tokens."""


class CallRecord(WireModel):
    """One call of the model in a verified run."""

    place: Whole
    """The number of the episode in the run."""
    attempt: Ordinal
    """Which start of the episode it belongs to; only the last one counts."""
    number: Ordinal
    """Which call of that start it is."""
    request: Digest
    """The SHA-256 digest of the body that the hub has sent to the endpoint."""
    answer: Digest
    """The SHA-256 digest of the body that the endpoint has answered, as far as it came."""
    status: Whole
    """The HTTP status; 0 if there was no answer."""
    input_tokens: Whole | None
    """As the endpoint has counted; null if it does not say."""
    output_tokens: Whole | None


class RunCalls(WireModel):
    """One page of the calls of an ended verified run."""

    run: RunKey
    calls: tuple[CallRecord, ...]
    total: Whole
    page: Ordinal


class HarnessOutput(WireModel):
    """How a harness has ended in one start of an episode, for the account of the run."""

    place: Whole
    attempt: Ordinal
    ending: str
    """Such as `exit code 1`."""
    output: str
    """The end of what it has written."""


class HarnessOutputs(WireModel):
    """One page of the endings of a run's harness, the last one first."""

    outputs: tuple[HarnessOutput, ...]
