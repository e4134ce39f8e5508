"""Generate and prepare batches with SkyRL's own experiment, trainer and estimator, in a spawned process.

Ray, the workers and the engine are left out: the engine is a scripted policy behind SkyRL's interface for engines.
"""

import asyncio
import functools
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import typing
import warnings
from pathlib import Path
from types import SimpleNamespace

OVERRIDES = [
    "trainer.placement.colocate_all=false",
    "trainer.logger=console",
    "trainer.max_prompt_length=2048",
    "trainer.eval_interval=0",
    "generator.inference_engine.enable_ray_prometheus_stats=false",
    "data.dataloader.num_workers=0",
    "generator.max_turns=8",
    "generator.max_input_length=2048",
    "generator.sampling_params.max_generate_length=400",
    "trainer.algorithm.grpo_norm_by_std=false",
]


def support_this_python() -> None:
    """SkyRL asks for Python 3.12: before it, pydantic does not take the `TypedDict` of `typing`, which SkyRL uses."""
    if sys.version_info < (3, 12):
        import typing_extensions

        typing.TypedDict = typing_extensions.TypedDict


def engine_of(policy, kill: int | None, tokenizer):
    """Return an engine with a scripted policy."""
    from byte_chat import LOGPROB
    from skyrl.backends.skyrl_train.inference_servers.base import InferenceEngineInterface

    async def unused(self, *_, **__):
        raise NotImplementedError

    class Engine(InferenceEngineInterface):
        model_name = "scripted"
        calls = 0
        finished: list[str]

        def get_endpoint_url(self) -> str:
            raise NotImplementedError

        async def generate(self, input_batch, model=None):
            self.calls += 1
            if kill and self.calls == 14:
                os.kill(kill, signal.SIGKILL)
            (ids,), (session,) = input_batch["prompt_token_ids"], input_batch["session_ids"]
            said = policy.sample(session, ids)[: input_batch["sampling_params"]["max_tokens"]]
            return {
                "responses": [tokenizer.decode(said, skip_special_tokens=True)],
                "response_ids": [said],
                "stop_reasons": ["stop" if said[-1] == tokenizer.eos_token_id else "length"],
                "response_logprobs": [[LOGPROB] * len(said)],
            }

        async def finish_session(self, session_id: str) -> None:
            self.finished.append(session_id)

    names = InferenceEngineInterface.__abstractmethods__
    made = type("ScriptedEngine", (Engine,), {name: unused for name in names if name not in vars(Engine)})
    engine = made()
    engine.finished = []
    return engine


def step(config, one: dict, folder: Path) -> dict:
    """Do what SkyRL's trainer does in a step before its workers train, and return what they would be given."""
    from byte_chat import SumPolicy
    from skyrl.train.dataset import PromptDataset
    from skyrl.train.entrypoints.main_base import BasePPOExp
    from skyrl.train.generators.utils import prepare_generator_input
    from skyrl.train.utils.utils import validate_cfg

    from ludus.integrations.skyrl_experiment import LudusExperiment
    from ludus.integrations.unscored import UNSCORED

    class Experiment(LudusExperiment):
        def get_train_dataset(self):
            data, length = self.cfg.data.train_data, self.cfg.trainer.max_prompt_length
            return PromptDataset(data, self.tokenizer, length, num_workers=1)

    validate_cfg(config)
    experiment = Experiment(config)
    tokenizer = experiment.tokenizer
    policy = SumPolicy(tokenizer)
    engine = engine_of(policy, one.get("kill"), tokenizer)
    made_by = BasePPOExp if one.get("theirs") else LudusExperiment
    try:
        generator = made_by.get_generator(experiment, config, tokenizer, engine)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    trainer = experiment.get_trainer(config, None, tokenizer, experiment.train_dataset, None, engine, generator, None)
    trainer.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 1)
    prompts = next(iter(trainer.train_dataloader))
    given, uids = prepare_generator_input(
        prompts, config.generator.n_samples_per_prompt, params(config), "none", "train", 1
    )
    before = dict(UNSCORED)
    try:
        output = asyncio.run(trainer.generate(given))
    except Exception as error:
        counted = UNSCORED["skyrl-gym"] - before.get("skyrl-gym", 0)
        return {"error": f"{type(error).__name__}: {error}", "counted": counted}
    reasons, metrics = output["stop_reasons"], output["env_metrics"]
    output, uids = trainer.postprocess_generator_output(output, uids)
    batch = trainer.convert_to_training_input(output, uids)
    batch["values"] = None
    batch = trainer.compute_advantages_and_returns(batch)
    report = {
        "rows": rows_of(batch, output, uids, policy),
        "counted": UNSCORED["skyrl"] - before.get("skyrl", 0),
        "mean": trainer.all_metrics["reward/avg_raw_reward"],
        "logged": trainer.all_metrics.get("environment/unscored"),
        "metrics": sorted(trainer.all_metrics),
        "sessions": len(engine.finished) == len(uids),
    }
    for row, reason, metric in zip(report["rows"], reasons, metrics, strict=True):
        row.update(reason=reason, unscored=metric.get("unscored"))
    return report


def params(config) -> dict:
    """Return the parameters of sampling as SkyRL's trainer gives them."""
    from skyrl.backends.skyrl_train.inference_servers.engine_utils import get_sampling_params_for_backend

    return get_sampling_params_for_backend("vllm", config.generator.sampling_params)


def rows_of(batch, output, uids, policy) -> list[dict]:
    """Return what SkyRL's workers would be given for each row."""
    from byte_chat import is_exact

    rows = []
    for index, uid in enumerate(uids):
        prompt, response = output["prompt_token_ids"][index], output["response_ids"][index]
        mask, logprobs = output["loss_masks"][index], output["rollout_logprobs"][index]
        advantages = batch["advantages"][index][batch["response_mask"][index].bool()]
        rows.append(
            {
                "uid": uid,
                "value": batch["rewards"][index].sum().item(),
                "learned": int(batch["loss_mask"][index].sum()),
                "sampled": sum(one != 0 for one in logprobs),
                "same_length": len(response) == len(mask) == len(logprobs),
                "logprobs_exact": [one != 0 for one in logprobs] == [one == 1 for one in mask],
                "exact": bool(sum(mask)) and is_exact(policy, prompt, response, mask),
                "answers": policy.tokenizer.decode(response).count("<tool_response>"),
                "advantage": advantages.mean().item(),
            }
        )
    return rows


def work(given: dict, pipe) -> None:
    """Do the steps that the test asks for."""
    warnings.simplefilter("ignore")
    support_this_python()
    from byte_chat import byte_tokenizer
    from skyrl.train.config import SkyRLTrainConfig
    from transformers import Qwen2Config

    import ludus.client.addresses as addresses

    addresses.connect = functools.partial(addresses.connect, reconnect_seconds=1.0)
    reports = {"command": command_of(given["command"])}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = byte_tokenizer()
        tokenizer.save_pretrained(folder)
        Qwen2Config(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=300).save_pretrained(folder)
        for name, one in given["steps"].items():
            batch = [
                f"trainer.train_batch_size={one['groups']}",
                f"trainer.policy_mini_batch_size={one['groups']}",
                f"generator.n_samples_per_prompt={one['samples']}",
                f"data.train_data=[{one['data']}]",
                f"trainer.policy.model.path={folder}",
                f"trainer.export_path={folder}/export",
                f"trainer.ckpt_path={folder}/checkpoints",
            ]
            config = SkyRLTrainConfig.from_cli_overrides([*OVERRIDES, *batch, *one.get("more", [])])
            reports[name] = step(config, one, Path(folder))
    pipe.send(reports)


def command_of(arguments: list[str]) -> dict:
    """Return settings of a command line as SkyRL's own program takes them."""
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.utils.utils import validate_cfg

    config = SkyRLTrainConfig.from_cli_overrides(arguments)
    validate_cfg(config)
    return {"turns": config.generator.max_turns, "model": config.trainer.policy.model.path}


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
