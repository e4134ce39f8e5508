"""Play samples with OpenRLHF's own actor, and make experience of them with its own code, in a spawned process.

Ray, DeepSpeed and vLLM are left out: vLLM's engine is a scripted policy, and the log-probabilities that the trained
model would compute are those of the rollout.
"""

import asyncio
import functools
import importlib
import json
import math
import multiprocessing
import os
import runpy
import signal
import sys
import warnings
from types import SimpleNamespace


def arguments_of(command: list[str]):
    """Return the settings of a command line, as OpenRLHF's own program gives them to its trainer."""
    import ray

    class Reached(Exception):
        pass

    def reached():
        raise Reached

    before, ray.is_initialized = ray.is_initialized, reached
    sys.argv = ["train_ppo_ray", *command]
    try:
        runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__")
    except Reached as error:
        frames, trace = [], error.__traceback__
        while trace is not None:
            frames.append(trace.tb_frame)
            trace = trace.tb_next
        return next(frame.f_locals["args"] for frame in frames if frame.f_code.co_name == "train")
    finally:
        ray.is_initialized = before
    raise AssertionError("the program did not begin to train")


class Engine:
    """What vLLM's engine does, with a scripted policy. An episode is a task of the event loop."""

    def __init__(self, policy, kill: int | None) -> None:
        self.policy, self.kill, self.calls = policy, kill, 0

    async def generate(self, prompt, params, request_id):
        from byte_chat import LOGPROB

        self.calls += 1
        if self.kill and self.calls == 14:
            os.kill(self.kill, signal.SIGKILL)
        episode = asyncio.current_task().get_name()
        said = self.policy.sample(episode, prompt["prompt_token_ids"])[: params.max_tokens]
        logprobs = (
            [{token: SimpleNamespace(logprob=LOGPROB)} for token in said] if params.logprobs is not None else None
        )
        yield SimpleNamespace(outputs=[SimpleNamespace(token_ids=said, logprobs=logprobs)])


def play(args, agent: str, tokenizer, one: dict):
    """Return what OpenRLHF's actor gives for the first prompts of a data file, and the policy."""
    from byte_chat import SumPolicy
    from openrlhf.datasets import PromptDataset
    from openrlhf.datasets.utils import blending_datasets
    from openrlhf.trainer.ppo_utils.samples_generator import _collect_prompt_batch
    from openrlhf.trainer.ray.vllm_engine import RolloutRayActor, _load_agent_executor
    from torch.utils.data import DataLoader

    args.data.label_key = one.get("label_key", "label")
    strategy = SimpleNamespace(args=args, print=lambda *_: None, is_rank_0=lambda: False)
    data = PromptDataset(blending_datasets(one["data"], strategy=strategy), tokenizer, strategy)
    loader = DataLoader(data, 1, collate_fn=data.collate_fn)
    prompts, labels, _, _ = _collect_prompt_batch(iter(loader), one["groups"])
    policy = SumPolicy(tokenizer)
    actor_class = RolloutRayActor.__ray_metadata__.modified_class
    actor = object.__new__(actor_class)  # its constructor starts vLLM
    actor.executor = _load_agent_executor(agent)
    actor.llm, actor._mm_pad_token_ids = Engine(policy, one.get("kill")), None
    params = SimpleNamespace(max_tokens=one.get("max_new_tokens", 400), logprobs=1)
    length = one.get("max_len", 2048)

    async def go():
        groups = [
            actor.generate_responses(prompt, label, params, length, tokenizer, args.rollout.n_samples_per_prompt)
            for prompt, label in zip(prompts, labels, strict=True)
        ]
        return [response for group in await asyncio.gather(*groups) for response in group]

    return asyncio.run(go()), policy, length


def experience_of(args, tokenizer, responses, length: int):
    """Return the experiences and the loss that OpenRLHF makes of responses."""
    from openrlhf.models.loss import PolicyLoss
    from openrlhf.models.utils import masked_mean
    from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
    from openrlhf.trainer.ppo_utils.kl_controller import FixedKLController
    from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

    strategy = SimpleNamespace(args=args)
    generator = SamplesGenerator(strategy, None, None, tokenizer, [])
    samples = [generator._process_response_into_experience(response, max_len=length) for response in responses]
    maker = RemoteExperienceMaker(None, None, None, None, FixedKLController(0.0), strategy, tokenizer)
    experiences = maker.split_rollout_samples(samples)
    for one in experiences:
        one.action_log_probs = one.rollout_log_probs.clone()
        one.kl = one.action_log_probs * 0
        one.info["kl"] = masked_mean(one.kl, one.action_mask, dim=-1)
    experiences = maker.compute_advantages_and_returns(experiences)
    level = args.algo.advantage.is_correction_level
    loss_of = PolicyLoss(is_correction_level=level)
    losses = [
        loss_of(
            one.action_log_probs,
            one.action_log_probs,
            one.advantages,
            action_mask=one.action_mask,
            rollout_log_probs=one.rollout_log_probs,
        )
        for one in experiences
    ]
    numbers = [number.item() for loss in losses for number in loss if number is not None]
    numbers += [number for one in experiences for number in one.info["kl"].tolist()]
    return experiences, all(map(math.isfinite, numbers))


def rows_of(responses, experiences, policy) -> list[dict]:
    """Return what OpenRLHF's trainer would read of each sample."""
    from byte_chat import is_exact

    rows = []
    for index, response in enumerate(responses):
        (one,) = [one for one in experiences if index in one.index]
        at = one.index.index(index)
        ids, logprobs, ranges = response["observation_tokens"], response["rollout_log_probs"], response["action_ranges"]
        start = ranges[0][0]
        mask = [int(any(first <= place < end for first, end in ranges)) for place in range(len(ids))]
        advantages = one.advantages[at][one.action_mask[at].bool()]
        rows.append(
            {
                "uid": response["label"],
                "value": one.info["reward"][at].item(),
                "unscored": one.info["ludus_unscored"][at].item(),
                "truncated": one.truncated[at].item(),
                "learned": int(one.action_mask[at].sum()),
                "same_length": len(ids) == len(mask) == len(logprobs),
                "logprobs_exact": [number != 0 for number in logprobs] == [learned == 1 for learned in mask],
                "exact": is_exact(policy, ids[:start], ids[start:], mask[start:]),
                "answers": policy.tokenizer.decode(ids[start:]).count("<tool_response>"),
                "advantage": advantages.mean().item(),
            }
        )
    return rows


def work(given: dict, pipe) -> None:
    """Play the batches that the test asks for."""
    warnings.simplefilter("ignore")
    importlib.import_module("transformers.modeling_utils")  # it looks for some of the packages below
    from stand_in_modules import stand_in

    stand_in("vllm", "deepspeed", "peft", "flash_attn", "torchdata")
    from byte_chat import byte_tokenizer

    import ludus.client.addresses as addresses
    from ludus.integrations.unscored import UNSCORED

    addresses.connect = functools.partial(addresses.connect, reconnect_seconds=1.0)
    tokenizer = byte_tokenizer()
    args = arguments_of(given["command"])
    reports = {"command": {"model": args.actor.model_name_or_path, "agent": args.train.agent_func_path}}
    args.data.max_samples = 8
    for name, one in given["batches"].items():
        args.rollout.n_samples_per_prompt = one["samples"]
        before = UNSCORED["openrlhf"]
        try:
            responses, policy, length = play(args, given["agent"], tokenizer, one)
        except Exception as error:
            reports[name] = {"error": f"{type(error).__name__}: {error}"}
            continue
        experiences, finite = experience_of(args, tokenizer, responses, length)
        counted = UNSCORED["openrlhf"] - before
        rows = rows_of(responses, experiences, policy)
        reports[name] = {"rows": rows, "counted": counted, "finite": finite}
        masked = [{**responses[0], "action_ranges": []}, *responses[1:]]
        reports[name]["finite_without_tokens"] = experience_of(args, tokenizer, masked, length)[1]
    pipe.send(reports)


def main() -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(json.loads(sys.argv[1]), theirs))
    process.start()
    theirs.close()
    reports = ours.recv()
    process.join()
    print(json.dumps(reports))


if __name__ == "__main__":
    main()
