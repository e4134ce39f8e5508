"""OpenRLHF: an agent executor that plays the episodes of a Ludus server, in the actors that OpenRLHF starts.

    from ludus.integrations.openrlhf import LudusAgentExecutor

    class AgentExecutor(LudusAgentExecutor):
        turns = 8

Save this as a file, name it in `--train.agent_func_path`, and make the data with `ludus export --form openrlhf`: its
column `label` has the address of the task.

* Tokens are those that OpenRLHF's engine sampled. Its action ranges are these tokens; observations are between them.
* OpenRLHF needs a number from every episode. An unscored one gets the mean of its scored siblings, see
  `ludus.integrations.siblings`, so its advantage is 0.
* OpenRLHF divides by the number of sampled tokens of an episode, so an episode with none makes its numbers NaN. An
  unscored episode is cut to the prompt and the first sampled token, and nothing else of it reaches the loss.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, ClassVar, Final, Literal

from ludus.client import TaskAddress
from ludus.forms.tool_calls import TextFormatName
from ludus.integrations.peers import require
from ludus.integrations.siblings import SIBLINGS
from ludus.integrations.token_loop import Sample, Sampled, Tape, play_tokens, renderer_of
from ludus.protocol.errors import InvalidParams, Unsupported

require("openrlhf", "0.11.2")

from openrlhf.utils.agent import AgentExecutorBase  # noqa: E402  # pyright: ignore[reportMissingImports]

ADAPTER: Final = "openrlhf"
"""The name under which unscored episodes are counted."""


class LudusAgentExecutor(AgentExecutorBase):  # type: ignore[misc]
    """Plays the episode of one sample. Subclasses are named `AgentExecutor`, because OpenRLHF looks for that name."""

    turns: ClassVar[int | None] = None
    """How many turns the model may have; as many as fit when None."""
    tool_calls: ClassVar[Literal["auto"] | TextFormatName] = "auto"
    """The form in which the model writes tool calls; `auto` detects it from the chat template."""
    template_options: ClassVar[Mapping[str, Any]] = {}
    """Further arguments of the chat template, such as `enable_thinking`."""

    async def execute(
        self,
        prompt: str,
        label: Any,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:
        """Play the episode of a row whose label is the address of its task.

        Raises:
            InvalidParams: the label is no address of a task.
            RenderingError: the chat template cannot be used.
            RequestError: every episode would fail like this, such as with a refused token.
            LudusError: the episode is unscored, and this process has not had one that is scored.
            Unsupported: the row has images.
            ValueError: the prompt is too long, or the engine gives no logprobs although OpenRLHF wants them.
        """
        if images:
            raise Unsupported("this adapter trains on text; the row has images")
        address, renderer = _address(label), renderer_of(hf_tokenizer, self.tool_calls, self.template_options)
        wanted = sampling_params.logprobs is not None

        async def sample(ids: list[int], room: int) -> Sampled:
            params = deepcopy(sampling_params)
            params.max_tokens = room
            (said,) = (await llm_engine.generate(ids, params)).outputs
            if wanted and said.logprobs is None:
                raise ValueError("OpenRLHF wants logprobs, but the engine gave none")
            ids = list(said.token_ids)
            logprobs = (
                [logprob[token].logprob for token, logprob in zip(ids, said.logprobs, strict=True)] if wanted else None
            )
            return Sampled(ids, logprobs)

        with SIBLINGS.join(json.dumps(address.to_json(), sort_keys=True)) as sibling:
            tape, outcome = await play_tokens(
                address,
                renderer,
                sample,
                ADAPTER,
                prompt_room=max_length - 1,
                room=max_length,
                total=max_length,
                turn_room=sampling_params.max_tokens,
                turns=self.turns,
            )
            value = await sibling.value(outcome)
        if outcome.value is None:
            tape = await _first_token(tape, sample, hf_tokenizer.encode(prompt, add_special_tokens=False), max_length)
        start = len(tape.prompt)
        return {
            "prompt": prompt,
            "label": label,
            "images": None,
            "mm_train_inputs": None,
            "reward": value,
            "scores": value,
            "observation_tokens": tape.prompt + tape.ids,
            "action_ranges": [(start + first, start + end) for first, end in tape.turns],
            "rollout_log_probs": [0.0] * start + tape.logprobs if wanted else None,
            "truncated": outcome.value is not None and outcome.stopped == "context_limit",
            "extra_logs": {"ludus_unscored": float(outcome.value is None)},
        }


def _address(label: Any) -> TaskAddress:
    """Return the address in a label, which is a JSON object or its text."""
    try:
        return TaskAddress.from_json(json.loads(label) if isinstance(label, str) else label)
    except json.JSONDecodeError:
        raise InvalidParams(
            "the label is no address of a task: make the data with `ludus export --form openrlhf`, and give "
            "--data.label_key label"
        ) from None


async def _first_token(tape: Tape, sample: Sample, prompt: list[int], max_length: int) -> Tape:
    """Return the prompt and the first sampled token of an unscored episode; one is sampled if it has none."""
    found = Tape(tape.prompt or prompt[1 - max_length :])
    if tape.turns:
        found.sampled(tape.ids[:1], tape.logprobs[:1])
    else:
        found.sampled(*await sample(found.prompt, 1))
    return found
