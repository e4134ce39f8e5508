"""Generate groups of samples with the function of the docs, a stand-in of slime's types and scripted tokens."""

import asyncio
import functools
import json
import os
import signal
import sys
import types
import warnings
from statistics import fmean

from byte_chat import LOGPROB, SumPolicy, byte_tokenizer, is_exact
from slime.rollout.sglang_rollout import GenerateState
from slime.utils import http_utils
from slime.utils.types import Sample


class Engine:
    """Answers as SGLang's router does, with a scripted policy; kills a process in the 14th call if it is given."""

    def __init__(self, policy, kill=None, abort=False) -> None:
        self.policy, self.kill, self.abort, self.calls = policy, kill, abort, 0

    async def __call__(self, payload) -> dict:
        self.calls += 1
        if self.kill and self.calls == 14:
            os.kill(self.kill, signal.SIGKILL)
        limits = payload["sampling_params"]
        said = self.policy.sample(asyncio.current_task().get_name(), payload["input_ids"])[: limits["max_new_tokens"]]
        reason = "abort" if self.abort else "stop"
        meta = {"finish_reason": {"type": reason}, "output_token_logprobs": [[LOGPROB, token, None] for token in said]}
        return {"text": "", "meta_info": meta}


async def generate_group(generate, args, url, environment, group, size) -> list:
    """Return the samples of a group, generated at the same time as slime does."""
    from ludus.client import ServerAddress

    address = ServerAddress(url).task(environment, "train", f"sum-{group}")
    samples = [Sample(group_index=group, index=at, metadata=address.to_json()) for at in range(size)]
    limits = {"max_new_tokens": 1024, "temperature": 1.0}
    names = [f"{environment}-{group}-{at}" for at in range(size)]
    tasks = [
        asyncio.create_task(generate(args, sample, limits), name=name)
        for sample, name in zip(samples, names, strict=True)
    ]
    return list(await asyncio.gather(*tasks))


async def main() -> None:
    given = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")
    import endpoint_slime

    from ludus.client import addresses
    from ludus.integrations.unscored import UNSCORED

    addresses.connect = functools.partial(addresses.connect, reconnect_seconds=1.0)
    GenerateState.tokenizer = byte_tokenizer()
    args = types.SimpleNamespace(
        sglang_router_ip="127.0.0.1",
        sglang_router_port=1,
        rollout_max_prompt_len=2048,
        apply_chat_template_kwargs={},
    )
    reports = {}
    for name, one in given["runs"].items():
        policy = SumPolicy(GenerateState.tokenizer)
        http_utils.ENGINE = Engine(policy, one.get("kill"), one.get("abort", False))
        before = UNSCORED["slime"]
        playing = [
            generate_group(endpoint_slime.generate, args, one["url"], one["environment"], group, one["size"])
            for group in range(one["groups"])
        ]
        groups = await asyncio.gather(*playing)
        rows = []
        for samples in groups:
            rewards = [sample.reward for sample in samples if sample.reward is not None]
            for sample in samples:
                response = sample.tokens[len(sample.tokens) - sample.response_length :]
                prompt = sample.tokens[: len(sample.tokens) - sample.response_length]
                learned = sample.loss_mask or []
                rows.append(
                    {
                        "group": sample.group_index,
                        "status": sample.status.value,
                        "reward": sample.reward,
                        "removed": sample.remove_sample,
                        "same_length": len(learned) == len(sample.rollout_log_probs or []) == sample.response_length,
                        "learned": sum(learned),
                        "exact": bool(sum(learned)) and is_exact(policy, prompt, response, learned),
                        "advantage": None if sample.reward is None else sample.reward - fmean(rewards),
                    }
                )
        reports[name] = {"rows": rows, "counted": UNSCORED["slime"] - before}
    print(json.dumps(reports))


asyncio.run(main())
