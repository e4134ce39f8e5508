"""SkyRL: a generator that plays the episodes of a Ludus server, and the program that trains with it.

    python -m skyrl.train.entrypoints.main_base trainer.override_entrypoint=ludus.integrations.skyrl_experiment

Make the data with `ludus export --form skyrl`: its column `ludus` has the address of the task.

* Tokens are those that SkyRL's engine sampled. The mask is 1 for them and 0 for observations.
* SkyRL needs a number from every episode, and an exception ends the whole step. So an unscored episode has a mask of
  zeros and the mean of its scored siblings, see `ludus.integrations.siblings`.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final, Literal
from uuid import uuid4

from ludus.client import TaskAddress
from ludus.forms.tool_calls import TextFormatName
from ludus.integrations.peers import require
from ludus.integrations.siblings import SIBLINGS
from ludus.integrations.token_loop import Sample, Sampled, play_tokens, renderer_of
from ludus.protocol.errors import InvalidParams, Unsupported

require("skyrl", "0.4.0")

from skyrl.backends.skyrl_train.inference_servers.base import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    InferenceEngineInput,
)
from skyrl.backends.skyrl_train.inference_servers.engine_utils import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    get_sampling_params_for_backend,
)
from skyrl.train.generators.skyrl_gym_generator import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    SkyRLGymGenerator,
    TrajectoryOutput,
)

from ludus.integrations.skyrl_gym import ENV_ID  # noqa: E402

ADAPTER: Final = "skyrl"
"""The name under which unscored episodes are counted."""


class LudusGenerator(SkyRLGymGenerator):  # type: ignore[misc]
    """SkyRL's generator with another agent loop: rewards are one number per episode, and unscored ones are masked.

    Args:
        arguments: what `SkyRLGymGenerator` takes.
        tool_calls: the form in which the model writes tool calls; `auto` detects it from the chat template.
        others: what `SkyRLGymGenerator` takes by name.

    Raises:
        Unsupported: the configuration asks for what this generator cannot do.
        RenderingError: the chat template cannot be used.
    """

    def __init__(self, *arguments: Any, tool_calls: Literal["auto"] | TextFormatName = "auto", **others: Any) -> None:
        super().__init__(*arguments, **others)
        _refuse_unsupported(self.generator_cfg)
        self.renderer: Final = renderer_of(self.tokenizer, tool_calls, dict(self.generator_cfg.chat_template_kwargs))

    async def agent_loop(
        self,
        prompt: list[dict[str, str]],
        env_class: str,
        env_extras: dict[str, Any],
        max_tokens: int,
        max_input_length: int,
        sampling_params: dict[str, Any] | None = None,
        trajectory_id: Any = None,
        cache_salt: str | None = None,
        training_phase: str = "train",
    ) -> TrajectoryOutput:
        """Play the episode of a row whose column `ludus` is the address of its task.

        Raises:
            InvalidParams: the row is not for this generator.
            RequestError: every episode would fail like this, such as with a refused token.
            LudusError: the episode is unscored, and this process has not had one that is scored.
            ValueError: the prompt is too long, or the engine gives no logprobs although the configuration wants them.
        """
        if env_class != ENV_ID:
            raise InvalidParams(f"the column env_class is {env_class!r}, and this generator plays {ENV_ID!r} only")
        began, seconds = time.monotonic(), {"llm": 0.0, "env": 0.0}
        params = self._params(sampling_params)
        session = uuid4().hex if trajectory_id is None else trajectory_id.to_string()
        sample = self._sampler(session, params, cache_salt, seconds)
        task = json.dumps(env_extras.get("ludus"), sort_keys=True)
        group = (training_phase, task if trajectory_id is None else trajectory_id.instance_id)
        try:
            with SIBLINGS.join(group) as sibling:
                tape, outcome = await play_tokens(
                    TaskAddress.from_json(env_extras.get("ludus") or {}),
                    self.renderer,
                    sample,
                    ADAPTER,
                    prompt_room=max_input_length,
                    room=max_input_length + max_tokens,
                    total=max_input_length + max_tokens,
                    turn_room=max_tokens,
                    turns=self.max_turns,
                )
                value = await sibling.value(outcome)
        finally:
            await self.inference_engine_client.finish_session(session)
        if outcome.value is None:
            if not tape.prompt:  # it never started
                tape.prompt = self.renderer.encode(self.renderer.text(prompt, ()))[-max_input_length:]
            tape.hide(self.renderer.stop[0])
        seconds["env"] = time.monotonic() - began - seconds["llm"]
        return TrajectoryOutput(
            response_ids=tape.ids,
            reward=value,
            # SkyRL may take the reward of what was cut off, which must not happen to the value of an unscored episode.
            stop_reason="length" if outcome.stopped == "context_limit" and outcome.value is not None else "stop",
            loss_mask=tape.mask,
            prompt_ids=tape.prompt,
            rollout_logprobs=tape.logprobs if params.get("logprobs") is not None else None,
            env_metrics={"unscored": float(outcome.value is None)},
            e2e_time=time.monotonic() - began,
            time_splits=seconds,
        )

    def _params(self, given: dict[str, Any] | None) -> dict[str, Any]:
        config = self.generator_cfg
        if given is not None:
            return given
        found: dict[str, Any] = get_sampling_params_for_backend(config.inference_engine.backend, config.sampling_params)
        return found

    def _sampler(
        self, session: str, params: dict[str, Any], cache_salt: str | None, seconds: dict[str, float]
    ) -> Sample:
        """Return a function that samples with SkyRL's engine, and adds the seconds that it takes."""

        async def sample(ids: list[int], room: int) -> Sampled:
            began = time.monotonic()
            request = InferenceEngineInput(
                prompt_token_ids=[ids],
                session_ids=[session],
                sampling_params={**params, "max_tokens": room},
                cache_salt=cache_salt,
            )
            said = await self.inference_engine_client.generate(request, model=self.policy_model_name)
            seconds["llm"] += time.monotonic() - began
            logprobs = said.get("response_logprobs") or [None]
            if params.get("logprobs") is not None and logprobs[0] is None:
                raise ValueError("generator.sampling_params.logprobs is set, but the engine gave no logprobs")
            return Sampled(said["response_ids"][0], logprobs[0])

        return sample


def _refuse_unsupported(config: Any) -> None:
    """Raise `Unsupported` if a setting would be ignored."""
    engine = config.inference_engine
    settings = {
        "generator.batched=true": config.batched,
        "generator.step_wise_trajectories=true": config.step_wise_trajectories,
        "generator.use_conversation_multi_turn=false": not config.use_conversation_multi_turn,
        "generator.chat_template": config.chat_template.name_or_path,
        "generator.inference_engine.enable_return_routed_experts=true": engine.enable_return_routed_experts,
        "generator.inference_engine.enable_return_sample_support_set=true": engine.enable_return_sample_support_set,
    }
    if wrong := [name for name, setting in settings.items() if setting]:
        raise Unsupported(f"the Ludus generator cannot do {', '.join(wrong)}: leave it out")
