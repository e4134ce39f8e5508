"""The configuration of an evaluation: models, environments and settings, from a TOML file or the command line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ludus.protocol.errors import InvalidParams
from ludus.protocol.evaluation import Amount, Name, Probe
from ludus.protocol.integers import LARGEST_INTEGER
from ludus.protocol.messages import describe_invalid, did_you_mean

__all__ = ["ModelSpec", "parse_config"]


Wire = Literal["openai", "openai-responses", "anthropic", "google"]
"""The forms of model endpoints."""

DEFAULT_URLS: Final[Mapping[Wire, str]] = {
    "openai": "https://api.openai.com/v1",
    "openai-responses": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
    "google": "https://generativelanguage.googleapis.com/v1beta",
}

KEY_VARIABLES: Final[Mapping[Wire, str]] = {
    "openai": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "google": "GEMINI_API_KEY",
}

LARGEST_FILE: Final = 1024 * 1024
"""The maximum size of a configuration, in bytes."""

Positive = Annotated[int, Field(strict=True, ge=1)]

_SPEC: Final = re.compile(r"(?P<name>.+?)(?:@(?P<url>https?://.+))?", re.DOTALL)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class ModelSpec(_Table):
    """One model or other policy."""

    model: Name
    """`WIRE:NAME` or `WIRE:NAME@URL` with a wire of `openai`, `openai-responses`, `anthropic` and `google`; or
    `random`, `oracle`, `demonstrator`, `module:callable`, `file.py:callable`."""
    name: Name | None = None
    """The name in the results; the model's name at its endpoint by default."""
    api_key_env: Name | None = None
    """The environment variable that holds the key; the provider's usual one by default."""
    options: dict[str, Any] = {}
    """Further fields of each request, such as `temperature`."""
    timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds for one request."""
    attempts: Annotated[int, Field(ge=1)] = 5
    """How many times a request that fails is made."""
    patience: Annotated[float, Field(ge=0)] = 600.0
    """Seconds that the pauses of one request may take together while its endpoint is too busy (HTTP 429)."""
    price_in: Amount | None = None
    """The price of a million input tokens."""
    price_out: Amount | None = None
    """The price of a million output tokens."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.price_in is None) != (self.price_out is None):
            raise ValueError("price_in and price_out go together")
        if self.wire is None and (self.options or self.api_key_env):
            raise ValueError(f"{self.model!r} is no model endpoint, so it takes no options and no api_key_env")
        if self.wire is not None and not self.endpoint_name:
            raise ValueError(f"{self.model!r} names no model; write {self.wire}:NAME or {self.wire}:NAME@URL")
        return self

    @property
    def wire(self) -> Wire | None:
        """The form of the endpoint; None for a policy that is not behind one."""
        prefix = self.model.partition(":")[0]
        return prefix if ":" in self.model and prefix in DEFAULT_URLS else None  # type: ignore[return-value]

    @property
    def endpoint_name(self) -> str:
        """The name at the endpoint, or the policy's specification."""
        return self._split()[0]

    @property
    def url(self) -> str | None:
        """The base address of the endpoint; None for a policy that is not behind one."""
        wire = self.wire
        return None if wire is None else self._split()[1] or DEFAULT_URLS[wire]

    @property
    def shown_url(self) -> str | None:
        """The address without user, password and query."""
        if self.url is None:
            return None
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def label(self) -> str:
        """The name in the results."""
        return self.name or self.endpoint_name

    def _split(self) -> tuple[str, str | None]:
        if self.wire is None:
            return self.model, None
        target = self.model.partition(":")[2]
        match = _SPEC.fullmatch(target)
        return (match["name"], match["url"]) if match else (target, None)


class EnvironmentSpec(_Table):
    """One environment and the splits to play."""

    target: Name
    """The address of a server, or an environment to serve meanwhile: NAME, `module:Class` or `file.py:Class`."""
    environment: Name | None = None
    """The name of the environment, for a server that has several."""
    splits: tuple[Name, ...] = ()
    """The first split by default."""
    n: Positive | None = None
    """How many tasks of each split; those of the evaluation by default."""
    success_at: float | None = None
    """The lowest reward that counts as a success; the greatest possible reward by default, else 1."""
    token_env: Name | None = None
    """The environment variable that holds the trainer token; `LUDUS_TOKEN` by default."""

    @field_validator("splits")
    @classmethod
    def _distinct(cls, splits: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(splits)) != len(splits):
            raise ValueError("a split occurs twice")
        return splits


class EvaluationConfig(_Table):
    """A whole evaluation."""

    models: Annotated[tuple[ModelSpec, ...], Field(min_length=1)]
    environments: Annotated[tuple[EnvironmentSpec, ...], Field(min_length=1)]
    n: Positive | None = None
    """How many tasks of each split; all by default."""
    samples: Annotated[Positive, Field(le=10_000)] = 1
    """Episodes per task."""
    seed: Annotated[int, Field(strict=True, ge=0, le=LARGEST_INTEGER)] = 0
    """The seed of the episodes and of a random policy."""
    concurrency: Annotated[Positive, Field(le=4096)] = 16
    """Episodes at once."""
    retries: Annotated[int, Field(strict=True, ge=0, le=100)] = 2
    """Further attempts after infrastructure failures."""
    max_turns: Positive = 200
    turn_seconds: Annotated[float, Field(gt=0)] | None = None
    episode_seconds: Annotated[float, Field(gt=0)] | None = None
    probes: tuple[Probe, ...] = ()
    """Contamination checks to play besides the tasks."""
    prompt_share: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """The share of each message of the prompt, in characters, that a check with a cut prompt keeps."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        labels = [model.label for model in self.models]
        duplicate = next((label for label in labels if labels.count(label) > 1), None)
        if duplicate is not None:
            raise ValueError(f"two models have the name {duplicate!r}; give one of them another `name`")
        if len(set(self.probes)) != len(self.probes):
            raise ValueError("a probe occurs twice")
        return self


def parse_config(value: Mapping[str, Any], where: str) -> EvaluationConfig:
    """Return the configuration that a mapping is; `where` names its source in messages.

    Raises:
        InvalidParams: a field is missing, unknown or invalid.
    """
    try:
        return EvaluationConfig.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        location = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            near = did_you_mean(str(problem["loc"][-1]), _fields_at(problem["loc"]))
            raise InvalidParams(f"{where}: there is no field {location}{near}") from None
        description = describe_invalid(problem)
        raise InvalidParams(f"{where}: {location}: {description}" if location else f"{where}: {description}") from None


def read_config(path: Path) -> EvaluationConfig:
    """Read a TOML file.

    Raises:
        InvalidParams: the file is not TOML, larger than `LARGEST_FILE`, or not a configuration.
        OSError: it cannot be read.
    """
    return parse_config(read_table(path), str(path))


def read_table(path: Path) -> dict[str, Any]:
    """Read a TOML file as a mapping; see `read_config`."""
    with path.open("rb") as file:
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise InvalidParams(f"{path} is larger than {LARGEST_FILE // 1024} KiB, so it is no configuration")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise InvalidParams(f"{path} is not TOML: {error}") from None


def _fields_at(location: tuple[int | str, ...]) -> list[str]:
    tables: dict[str, type[BaseModel]] = {"models": ModelSpec, "environments": EnvironmentSpec}
    return list(tables.get(str(location[0]) if len(location) > 1 else "", EvaluationConfig).model_fields)
