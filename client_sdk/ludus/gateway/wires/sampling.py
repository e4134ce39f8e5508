"""Which fields of a request may change how the policy is sampled: none, because training needs its whole distribution.

The learner computes the probabilities of the policy at the session's temperature, without a cut of the distribution.
So a field that asks for another sampling is not followed, and the header `x-ludus-overridden` of the reply names it.
A field that asks for a reply of another form (several choices, a forced tool, a JSON schema) is refused, because the
harness would misread the reply. `GatewayLimits.override` lists such fields that are ignored all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ludus.gateway.wires.requests import Refusal

SAMPLING: Final[Mapping[str, tuple[Any, ...]]] = {
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "typical_p": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "seed": (),
    "reasoning_effort": (),
    "reasoning": ({},),
    "thinking": ({"type": "disabled"},),
    "verbosity": (),
    "parallel_tool_calls": (True,),
    "truncation": ("disabled",),
}
"""Fields that are not followed, and the values that ask for nothing."""

FORM: Final[Mapping[str, tuple[Any, ...]]] = {
    "n": (1,),
    "best_of": (1,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "echo": (False,),
    "response_format": ({"type": "text"},),
    "stop": ([], ""),
    "stop_sequences": ([],),
    "functions": ([],),
    "function_call": ("auto", "none"),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "web_search_options": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "structured_outputs": (),
    "previous_response_id": (),
    "conversation": (),
    "prompt": (),
    "background": (False,),
    "mcp_servers": ([],),
    "container": (),
}
"""Fields that are refused, and the values that ask for nothing."""


def check_sampling(body: Mapping[str, Any], temperature: float, override: Collection[str]) -> tuple[str, ...]:
    """Return the fields of a request that are not followed.

    Args:
        body: the request.
        temperature: the session's temperature.
        override: fields of `FORM` that are ignored instead of refused.

    Raises:
        Refusal: a field asks for a reply of another form.
    """
    overridden: list[str] = []
    for name, value in body.items():
        if value is None:
            continue
        if name == "temperature":
            if not isinstance(value, int | float) or value != temperature:
                overridden.append(name)
        elif (neutral := SAMPLING.get(name)) is not None:
            if value not in neutral:
                overridden.append(name)
        elif (neutral := FORM.get(name)) is not None and value not in neutral:
            refuse_or_ignore(name, value, override, overridden)
    return tuple(overridden)


def refuse_or_ignore(name: str, value: object, override: Collection[str], overridden: list[str]) -> None:
    """Add a field to `overridden` if the user wants it ignored.

    Raises:
        Refusal: the user does not.
    """
    if name not in override:
        shown = str(value)[:60]
        raise Refusal(
            "unsupported",
            f"{name} = {shown} cannot be followed while a policy is trained, because its tokens must be sampled from "
            f"the whole distribution: leave it out, or add {name!r} to the fields that the gateway overrides",
            param=name,
            code="unsupported_parameter",
        )
    overridden.append(name)


def checked_choice(value: object, free: Sequence[str], override: Collection[str], overridden: list[str]) -> bool:
    """Return whether the model may call tools, from a `tool_choice` as text or as an object with a `type`.

    Args:
        value: the field.
        free: the values that leave the choice to the model.
        override: see `check_sampling`.
        overridden: the fields that are not followed; `tool_choice` may be added.

    Raises:
        Refusal: the choice is forced, and the user does not want that ignored.
    """
    kind = value.get("type") if isinstance(value, Mapping) else value
    if kind == "none":
        return False
    if kind is not None and kind not in free:
        refuse_or_ignore("tool_choice", kind, override, overridden)
    return True
