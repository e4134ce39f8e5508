from typing import Any

from slime.rollout.sglang_rollout import GenerateState  # pyright: ignore[reportMissingImports]
from slime.utils.http_utils import post  # pyright: ignore[reportMissingImports]
from slime.utils.types import Sample  # pyright: ignore[reportMissingImports]

from ludus.client import TaskAddress
from ludus.integrations.siblings import SIBLINGS
from ludus.integrations.token_loop import Sampled, play_tokens, renderer_of

TURNS = 8


class Aborted(Exception):
    """slime has enough samples and ends the requests that still run."""


async def generate(args: Any, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
    tokenizer = GenerateState(args).tokenizer
    renderer = renderer_of(tokenizer, options=args.apply_chat_template_kwargs)
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"

    async def draw(ids: list[int], room: int) -> Sampled:
        limits = {**sampling_params, "max_new_tokens": room}
        reply = await post(url, {"input_ids": ids, "sampling_params": limits, "return_logprob": True})
        if reply["meta_info"]["finish_reason"]["type"] == "abort":
            raise Aborted
        tokens = reply["meta_info"]["output_token_logprobs"]
        return Sampled([token[1] for token in tokens], [token[0] for token in tokens])

    with SIBLINGS.join(sample.group_index) as sibling:
        try:
            tape, outcome = await play_tokens(
                TaskAddress.from_json(sample.metadata),
                renderer,
                draw,
                "slime",
                prompt_room=args.rollout_max_prompt_len,
                room=sampling_params["max_new_tokens"],
                turns=TURNS,
            )
        except Aborted:
            sample.status = Sample.Status.ABORTED
            return sample
        sample.reward = await sibling.value(outcome)  # an unscored episode gets the mean of its scored siblings
    if outcome.value is None:
        tape.hide(renderer.stop[0])
        sample.remove_sample = True  # masks its tokens; the reward still counts in the group's mean
    sample.tokens = tape.prompt + tape.ids
    sample.response, sample.response_length = tokenizer.decode(tape.ids), len(tape.ids)
    sample.loss_mask, sample.rollout_log_probs = tape.mask, tape.logprobs
    sample.status = Sample.Status.COMPLETED if outcome.stopped is None else Sample.Status.TRUNCATED
    return sample
