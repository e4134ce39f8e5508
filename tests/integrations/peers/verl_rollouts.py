"""Play batches with verl's own worker of agent loops, in a spawned process, and report what verl would train on."""

import asyncio
import functools
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import warnings
from pathlib import Path

OVERRIDES = [
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.prompt_length=2048",
    "actor_rollout_ref.rollout.response_length=1024",
    "actor_rollout_ref.rollout.calculate_log_probs=True",
    "data.max_prompt_length=2048",
    "data.max_response_length=1024",
]


def configuration(folder: Path, given: dict):
    """Return verl's configuration, with a model folder that has a tokenizer only."""
    import verl.trainer
    from byte_chat import byte_tokenizer
    from hydra import compose, initialize_config_dir
    from transformers import Qwen2Config

    byte_tokenizer().save_pretrained(folder)
    Qwen2Config(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=300, architectures=["Qwen2ForCausalLM"]
    ).save_pretrained(folder)
    loop = folder / "agent.yaml"
    loop.write_text(given["agent"], encoding="utf-8")
    with initialize_config_dir(str(Path(verl.trainer.__file__).parent / "config"), version_base=None):
        real = compose("ppo_trainer", given["command"])  # every setting of the documented run must exist
        assert real.actor_rollout_ref.rollout.agent.agent_loop_config_path == "verl_agent.yaml"
        return compose(
            "ppo_trainer",
            [
                *OVERRIDES,
                f"actor_rollout_ref.model.path={folder}",
                f"actor_rollout_ref.rollout.agent.agent_loop_config_path={loop}",
            ],
        )


class Engine:
    """What verl's client of its engines does, with a scripted policy."""

    def __init__(self, policy, kill: int | None = None) -> None:
        self.policy, self.kill, self.calls = policy, kill, 0

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        from byte_chat import LOGPROB
        from verl.workers.rollout.replica import TokenOutput

        self.calls += 1
        if self.kill and self.calls == 14:
            os.kill(self.kill, signal.SIGKILL)
        said = self.policy.sample(request_id, prompt_ids)[: sampling_params["max_tokens"]]
        return TokenOutput(token_ids=said, log_probs=[LOGPROB] * len(said), extra_fields={"max_global_steps": 3})


def batch_of(config, tokenizer, path: str, groups: int, samples: int):
    """Return a batch as verl's trainer makes it, from a data file."""
    import numpy
    from verl import DataProto
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    dataset = RLHFDataset(path, tokenizer, config.data)
    batch = DataProto.from_single_dict(collate_fn([dataset[index] for index in range(groups)]))
    batch.non_tensor_batch["uid"] = numpy.array([f"uid-{index}" for index in range(groups)], dtype=object)
    return batch.repeat(repeat_times=samples, interleave=True)


def rows_of(output, policy) -> list[dict]:
    """Return what verl's trainer would read from each row."""
    import torch
    from byte_chat import is_exact
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    batch, more = output.batch, output.non_tensor_batch
    mask = batch["response_mask"]
    advantages, _ = compute_grpo_outcome_advantage(batch["rm_scores"], mask, more["uid"], norm_adv_by_std_in_grpo=False)
    width, rows = batch["prompts"].shape[1], []
    for index in range(len(output)):
        real = batch["attention_mask"][index].bool()
        prompt = batch["prompts"][index][real[:width]].tolist()
        response = batch["responses"][index][real[width:]].tolist()
        learned = mask[index][: len(response)].tolist()
        logprobs = batch["rollout_log_probs"][index]
        rows.append(
            {
                "uid": more["uid"][index],
                "value": batch["rm_scores"][index].sum().item(),
                "unscored": more["ludus_unscored"][index],
                "learned": int(mask[index].sum()),
                "sampled": int((logprobs != 0).sum()),
                "answers": policy.tokenizer.decode(response).count("<tool_response>"),
                "same_length": len(response) == len(learned),
                "exact": bool(sum(learned)) and is_exact(policy, prompt, response, learned),
                "logprobs_exact": bool(torch.equal(logprobs != 0, mask.bool()[index])),
                "advantage": advantages[index].max().item() + advantages[index].min().item(),
                "steps": more["max_global_steps"][index],
                "why": more["ludus_outcome"][index]["reason"],
            }
        )
    return rows


def work(given: dict, pipe) -> None:
    """Play the batches that the test asks for."""
    warnings.simplefilter("ignore")
    from byte_chat import SumPolicy
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    import ludus.client.addresses as addresses
    from ludus.integrations.unscored import UNSCORED

    addresses.connect = functools.partial(addresses.connect, reconnect_seconds=1.0)
    reports = {}
    with tempfile.TemporaryDirectory() as folder:
        config = configuration(Path(folder), given)
        for name, one in given["batches"].items():
            changed = config.copy()
            changed.actor_rollout_ref.rollout.update(one.get("rollout", {}))
            worker = AgentLoopWorker(changed, None)
            policy = SumPolicy(worker.tokenizer)
            worker.llm_client = Engine(policy, one.get("kill"))
            batch = batch_of(config, worker.tokenizer, one["data"], one["groups"], one["samples"])
            before = UNSCORED["verl"]
            try:
                output = asyncio.run(worker.generate_sequences(batch))
            except Exception as error:
                reports[name] = {"error": f"{type(error).__name__}: {error}"}
                continue
            rows = rows_of(output, policy)
            reports[name] = {"rows": rows, "counted": UNSCORED["verl"] - before}
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
