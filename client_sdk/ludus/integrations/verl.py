"""verl: an agent loop that plays the episodes of a Ludus server, in the workers that verl starts.

    - name: ludus
      _target_: ludus.integrations.verl.LudusAgentLoop
      form: hermes

Save this as a file, name it in `actor_rollout_ref.rollout.agent.agent_loop_config_path`, and make the data with
`ludus export --form verl`: its column `agent_name` chooses the loop and its column `ludus` has the address of the task.

* Tokens are those that verl's engine sampled. The mask is 1 for them and 0 for observations.
* verl needs a number from every episode: without one, it drops the rewards of the whole batch. So an unscored episode
  has a mask of zeros and the mean of its scored siblings, see `ludus.integrations.siblings`.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final, Literal
from uuid import uuid4

from ludus.client import EpisodeOutcome, TaskAddress
from ludus.forms.tool_calls import TextFormatName
from ludus.integrations.peers import require
from ludus.integrations.siblings import SIBLINGS
from ludus.integrations.token_loop import Sampled, play_tokens, renderer_of

require("verl", "0.9.0")

from verl.experimental.agent_loop.agent_loop import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

ADAPTER: Final = "verl"
"""The name under which unscored episodes are counted."""


class LudusAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """Plays the episode of one row.

    Args:
        arguments: what verl gives to every agent loop.
        tool_calls: the form in which the model writes tool calls; `auto` detects it from the chat template.
        turns: how many turns the model may have; `rollout.multi_turn.max_assistant_turns` when None.
        others: what verl gives by name to every agent loop.
    """

    def __init__(
        self,
        *arguments: Any,
        tool_calls: Literal["auto"] | TextFormatName = "auto",
        turns: int | None = None,
        **others: Any,
    ) -> None:
        super().__init__(*arguments, **others)
        self.turns: Final = turns or self.rollout_config.multi_turn.max_assistant_turns
        self.renderer: Final = renderer_of(self.tokenizer, tool_calls, dict(self.apply_chat_template_kwargs))

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Play the episode of a row whose column `ludus` is the address of its task.

        Raises:
            RequestError: every episode would fail like this, such as with a refused token.
            LudusError: the episode is unscored, and this process has not had one that is scored.
            ValueError: the prompt is too long, or the engine gives no logprobs although the configuration wants them.
        """
        wanted = bool(sampling_params.get("logprobs"))
        fields: dict[str, Any] = {}
        metrics = AgentLoopMetrics()
        request = uuid4().hex

        async def sample(ids: list[int], room: int) -> Sampled:
            began = time.perf_counter()
            said = await self.server_manager.generate(
                request_id=request, prompt_ids=ids, sampling_params={**sampling_params, "max_tokens": room}
            )
            metrics.generate_sequences += time.perf_counter() - began
            metrics.num_preempted = max(metrics.num_preempted, 0) + (said.num_preempted or 0)
            for name, value in said.extra_fields.items():
                if name == "max_global_steps" or name not in fields:
                    fields[name] = value
            if wanted and said.log_probs is None:
                raise ValueError("rollout.calculate_log_probs is on, but the engine gave no logprobs")
            logprobs = said.log_probs[:room] if said.log_probs else None
            return Sampled(said.token_ids[:room], logprobs)

        with SIBLINGS.join(row.get("uid") or json.dumps(row["ludus"], sort_keys=True)) as sibling:
            address = TaskAddress.from_json(row["ludus"])
            began = time.perf_counter()
            tape, outcome = await play_tokens(
                address,
                self.renderer,
                sample,
                ADAPTER,
                prompt_room=self.rollout_config.prompt_length,
                room=self.rollout_config.response_length,
                turns=self.turns,
            )
            metrics.tool_calls = time.perf_counter() - began - metrics.generate_sequences
            value = await sibling.value(outcome)
        if outcome.value is None:
            if not tape.prompt:  # it never started
                prompt = self.renderer.encode(self.renderer.text(row["raw_prompt"], ()))
                tape.prompt = prompt[-self.rollout_config.prompt_length :]
            tape.hide(self.renderer.stop[0])
        return AgentLoopOutput(
            prompt_ids=tape.prompt,
            response_ids=tape.ids,
            response_mask=tape.mask,
            response_logprobs=tape.logprobs if wanted else None,
            reward_score=value,
            num_turns=2 * len(tape.turns),
            metrics=metrics,
            extra_fields=fields | _outcome_fields(outcome),
        )


def _outcome_fields(outcome: EpisodeOutcome) -> dict[str, Any]:
    """Return what verl logs; `reward_extra_info` must have the same names in every row."""
    return {
        "turn_scores": [],
        "tool_rewards": [],
        "reward_extra_info": {"ludus_unscored": float(outcome.value is None)},
        "ludus_outcome": {"value": outcome.value, "reason": outcome.reason, "components": dict(outcome.components)},
    }
