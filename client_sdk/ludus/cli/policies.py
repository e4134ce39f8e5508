"""The options of commands that play with a policy, and the policy that they select."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self, get_args

import typer

from ludus.cli.common import parse_pairs
from ludus.client import Policy, RandomPolicy
from ludus.client.loading import load_object
from ludus.evaluation.config import DEFAULT_URLS, KEY_VARIABLES, Wire
from ludus.validation.core.oracle import DemonstratorPolicy, OraclePolicy

__all__ = ["PolicyChoice", "json_or_text"]


POLICIES: Final = (
    "random, oracle, demonstrator, a model (openai, openai-responses, anthropic, google), module:callable or "
    "file.py:callable."
)
PolicyName = Annotated[str, typer.Option("--policy", "-p", help=POLICIES)]
Model = Annotated[str | None, typer.Option("--model", "-m", help="Name of the model at its endpoint.")]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        show_default=False,
        help="Endpoint of the model, up to and with the version; the provider's own by default, or for openai and "
        "openai-responses OPENAI_BASE_URL.",
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        show_default=False,
        help="Key for the endpoint; OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY by default.",
    ),
]
Temperature = Annotated[float | None, typer.Option("--temperature", help="Temperature of the model.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", help="Tokens per turn of the model.", min=1)]
RequestOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=JSON", help="Further field of each request to the model; repeatable."),
]

_WIRES: Final[tuple[Wire, ...]] = get_args(Wire)


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """The policy that a command's options select."""

    name: str
    endpoint: dict[str, Any]
    """The arguments of `OpenAIPolicy` or `ProviderPolicy`; empty if it is no model."""
    source: str | None
    seed: int

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Make the choice from a command's parameters by name.

        Raises:
            BadParameter: an option is missing or malformed.
        """
        name = options["policy"]
        if name not in _WIRES:
            return cls(name, {}, options["source"], options["seed"] or 0)
        wire: Wire = name
        if not options["model"]:
            raise typer.BadParameter(f"--policy {wire} needs --model")
        base_url, api_key = _url_of(wire, options["base_url"]), _key_of(wire, options["api_key"])
        _check_endpoint(wire, base_url, api_key)
        fields = _sampling(wire, base_url, options["temperature"], options["max_tokens"])
        given = parse_pairs("--option", options["option"] or (), "NAME=JSON")
        fields |= {name: value for name, text in given.items() if (value := json_or_text(text)) is not None}
        endpoint = {"model": options["model"], "base_url": base_url, "api_key": api_key, "options": fields}
        return cls(wire, endpoint, options["source"], options["seed"] or 0)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Policy]:
        """Open the policy; its connections are closed when the block is left.

        Raises:
            BadParameter: there is no policy of that name.
            ConnectionFailed: no server listens at the model's endpoint.
        """
        if self.name == "random":
            yield RandomPolicy(self.seed)
        elif self.name == "oracle":
            yield OraclePolicy(self.source)
        elif self.name == "demonstrator":
            yield DemonstratorPolicy(self.source)
        elif self.name in _WIRES and self.endpoint:
            # Imported here, because aiohttp takes longer to import than all the rest.
            from ludus.client.policies.openai import OpenAIPolicy
            from ludus.client.policies.providers import ProviderPolicy

            model: OpenAIPolicy | ProviderPolicy
            if self.name == "openai":
                model = OpenAIPolicy(**self.endpoint)
            else:
                model = ProviderPolicy(self.name, **self.endpoint)
            async with model:
                await model.check()
                yield model
        elif ":" in self.name:
            loaded: Any = load_object(self.name)
            chosen: Any = loaded() if inspect.isclass(loaded) else loaded
            yield chosen
        elif self.name in _WIRES:
            raise typer.BadParameter(f"{self.name} names no model; write {self.name}:NAME or {self.name}:NAME@URL")
        else:
            raise typer.BadParameter(
                f"there is no policy {self.name!r}; choose random, oracle, demonstrator, {', '.join(_WIRES)}, "
                "module:callable or file.py:callable"
            )


def _key_of(wire: Wire, given: str | None) -> str:
    return given or os.environ.get(KEY_VARIABLES[wire], "")


def _url_of(wire: Wire, given: str | None) -> str:
    usual = os.environ.get("OPENAI_BASE_URL") if wire.startswith("openai") else None
    return given or usual or DEFAULT_URLS[wire]


def _sampling(wire: Wire, base_url: str, temperature: float | None, max_tokens: int | None) -> dict[str, Any]:
    """Return the fields of a request that set the temperature and the tokens of a turn, where they are given."""
    most = {"google": "maxOutputTokens", "openai-responses": "max_output_tokens"}.get(wire, "max_tokens")
    if wire == "openai" and base_url.startswith(DEFAULT_URLS[wire]):
        most = "max_completion_tokens"  # OpenAI's newer models refuse the name that other servers know
    fields = {name: value for name, value in (("temperature", temperature), (most, max_tokens)) if value is not None}
    return {"generationConfig": fields} if wire == "google" and fields else fields


def _check_endpoint(wire: Wire, base_url: str, api_key: str) -> None:
    """Check the endpoint's address and key.

    Raises:
        BadParameter: no request could succeed with them.
    """
    from ludus.client.policies.openai import OpenAIPolicy

    try:
        OpenAIPolicy("", base_url, api_key)
    except ValueError as error:
        raise typer.BadParameter(f"--base-url {error}") from None
    if base_url.strip().startswith(DEFAULT_URLS[wire]) and not api_key:
        raise typer.BadParameter(
            f"{DEFAULT_URLS[wire]} needs a key: give --api-key or set {KEY_VARIABLES[wire]}, or name another endpoint "
            "with --base-url"
        )


def json_or_text(value: str) -> Any:
    """Parse JSON; a value that is not JSON is text."""
    try:
        return json.loads(value)
    except ValueError:
        return value
