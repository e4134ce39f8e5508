"""Which fields of a request may change how the policy is sampled: none, because training needs its whole distribution.

The learner computes the probabilities of the policy at the session's temperature, without a cut of the distribution.
So a field that asks for another sampling is not followed, and the header `x-ludus-overridden` of the reply names it.
A field that asks for a reply of another form (several choices, a forced tool, a JSON schema) is refused, because the
harness would misread the reply. `GatewayLimits.override` lists such fields that are ignored all the same. Fields that
are in none of these tables are ignored, as the providers' servers do, and named as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ludus.gateway.wires.requests import Refusal, RequestContext

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
    "min_tokens": (0,),
    "ignore_eos": (False,),
    "bad_words": ([],),
    "skip_special_tokens": (True,),
    "chat_template_kwargs": ({},),
}
"""Fields that are not followed, and the values that ask for nothing."""

FORM: Final[Mapping[str, tuple[Any, ...]]] = {
    "n": (1,),
    "best_of": (1,),
    "use_beam_search": (False,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "echo": (False,),
    "response_format": ({"type": "text"},),
    "output_format": (),
    "stop": ([], ""),
    "stop_sequences": ([],),
    "stop_token_ids": ([],),
    "include_stop_str_in_output": (False,),
    "functions": ([],),
    "function_call": ("auto", "none"),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "web_search_options": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structural_tag": (),
    "structured_outputs": (),
    "allowed_token_ids": (),
    "logits_processors": ([],),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "chat_template": (),
    "documents": ([],),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "truncate_prompt_tokens": (-1,),
    "conversation": (),
    "prompt": (),
    "background": (False,),
    "mcp_servers": ([],),
    "container": (),
}
"""Fields that are refused, and the values that ask for nothing."""

UNDERSTOOD: Final = frozenset(
    (
        "messages", "model", "max_tokens", "max_completion_tokens", "tools", "tool_choice", "stream", "stream_options",
        "temperature", "input", "instructions", "max_output_tokens", "include", "text", "previous_response_id", "store",
        "system", "output_config", "user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key",
        "prompt_cache_retention", "cache_control", "betas", "anthropic_version", "anthropic_beta", "inference_geo",
        "client_metadata", "priority", "request_id", "cache_salt",
    )
)  # fmt: skip
"""Fields that a wire reads, and fields that change neither the reply nor how it is sampled."""


def check_fields(body: Mapping[str, Any], context: RequestContext) -> None:
    """Note the fields of a request that are not followed.

    Raises:
        Refusal: a field asks for a reply of another form.
    """
    for name, value in body.items():
        if value is None:
            continue
        if name == "temperature":
            if not isinstance(value, int | float) or value != context.temperature:
                context.overridden.append(name)
        elif (neutral := SAMPLING.get(name)) is not None:
            if value not in neutral:
                context.overridden.append(name)
        elif (neutral := FORM.get(name)) is not None:
            if value not in neutral:
                refuse_or_ignore(name, value, context)
        elif name not in UNDERSTOOD:
            context.ignore(name)


def refuse_or_ignore(name: str, value: object, context: RequestContext) -> None:
    """Note that a field is not followed, if the user wants it ignored.

    Raises:
        Refusal: the user does not.
    """
    if name not in context.override:
        shown = str(value)[:60]
        raise Refusal(
            "unsupported",
            f"{name} = {shown} cannot be followed while a policy is trained, because its tokens must be sampled from "
            f"the whole distribution: leave it out, or add {name!r} to the fields that the gateway overrides",
            param=name,
            code="unsupported_parameter",
        )
    context.overridden.append(name)


def checked_choice(value: object, free: Sequence[str], context: RequestContext) -> bool:
    """Return whether the model may call tools, from a `tool_choice` as text or as an object with a `type`.

    Args:
        value: the field.
        free: the values that leave the choice to the model.
        context: gets `tool_choice` as a field that is not followed, where the user wants it ignored.

    Raises:
        Refusal: the choice is forced, and the user does not want that ignored.
    """
    kind = value.get("type") if isinstance(value, Mapping) else value
    if kind == "none":
        return False
    if kind == "allowed_tools" and isinstance(value, Mapping):
        allowed = value.get("allowed_tools")
        mode = (allowed if isinstance(allowed, Mapping) else value).get("mode", "auto")
        if mode in free:  # the policy still sees all tools, and the program refuses a call of another one
            context.leave_out("tool_choice", kind)
            return True
    if kind is not None and kind not in free:
        refuse_or_ignore("tool_choice", kind, context)
    return True
