"""Play groups with tinker-cookbook's own rollouts, some in a spawned process, and report what it would train on."""

import asyncio
import functools
import json
import multiprocessing
import os
import pickle
import runpy
import signal
import sys
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace

warnings.simplefilter("ignore")

import chz  # noqa: E402

import ludus.client.addresses as addresses  # noqa: E402
from ludus.integrations.tinker import LudusDatasetBuilder  # noqa: E402
from ludus.integrations.unscored import UNSCORED  # noqa: E402
from ludus.protocol.errors import LudusError  # noqa: E402

SCRIPT = Path(__file__).parents[3] / "docs" / "snippets" / "tinker_train.py"

addresses.connect = functools.partial(addresses.connect, reconnect_seconds=1.0)


class Engine:
    """What the cookbook's sampler does with Tinker's sampling client, with a scripted policy.

    Args:
        folder: the tokenizer.
        kill: the process to kill before the 8th sample, the last one of a group of 4, when the others have ended.
        fails: the number of the sample, from 1, that raises an error.
    """

    def __init__(self, folder: str, kill: int | None = None, fails: int | None = None) -> None:
        self.folder, self.kill, self.fails, self.calls = folder, kill, fails, 0
        self.waiting: list[tuple[str, list[int]]] = []
        """Requests that go on, and the ids that theirs will begin with. Of those with the same ids, any one goes on."""

    @functools.cached_property
    def policy(self):
        """The policy; made in the process that samples."""
        from byte_chat import SumPolicy
        from tinker_cookbook.tokenizer_utils import get_tokenizer

        return SumPolicy(get_tokenizer(self.folder))

    async def sample(self, prompt, num_samples, sampling_params):
        """Return one sequence."""
        from byte_chat import LOGPROB

        assert (num_samples, sampling_params.stop) == (1, [self.policy.tokenizer.eos_token_id])
        self.calls += 1
        if self.calls == self.fails:
            raise ConnectionError("the sampler failed")
        if self.kill and self.calls == 8:
            await other_rollouts()
            os.kill(self.kill, signal.SIGKILL)
        ids = prompt.to_ints()
        known = next((one for one in self.waiting if ids[: len(one[1])] == one[1]), None)
        if known is not None:
            self.waiting.remove(known)
        request = known[0] if known else f"request-{self.calls}"
        said = self.policy.sample(request, ids)
        if known is None:
            self.waiting.append((request, ids + said))
        cut = said[: sampling_params.max_tokens]
        sequence = SimpleNamespace(
            tokens=cut,
            logprobs=[LOGPROB] * len(cut),
            stop_reason="stop" if cut == said else "length",
            sequence_id=f"sequence-{self.calls}",
        )
        return SimpleNamespace(sequences=[sequence], prompt_cache_hit_tokens=0)


async def other_rollouts() -> None:
    """Wait until all other rollouts have ended."""
    rollouts = {task for task in asyncio.all_tasks() if task.get_coro().__name__ == "do_single_rollout"}
    if others := rollouts - {asyncio.current_task()}:
        _, late = await asyncio.wait(others, timeout=30)
        assert not late


def rows_of(groups: list, policy) -> list[dict]:
    """Return what the cookbook would learn from each episode."""
    from byte_chat import is_exact
    from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages

    advantages = compute_advantages(groups)
    data, places = assemble_training_data(groups, advantages)
    rows = []
    for number, group in enumerate(groups):
        for index, trajectory in enumerate(group.trajectories_G):
            place = {"group_idx": number, "traj_idx": index}
            (datum,) = [one for one, found in zip(data, places, strict=True) if found == place] or [None]
            row = {
                "group": number,
                "value": group.get_total_rewards()[index],
                "advantage": float(advantages[number][index]),
                "unscored": group.metrics_G[index]["ludus_unscored"],
                "metrics": group.metrics_G[index],
                "stop": trajectory.stop_reason,
                "turns": sum(bool(one.ac.tokens) for one in trajectory.transitions),
                "why": trajectory.transitions[-1].logs.get("ludus_unscored"),
                "errors": len(group.rollout_errors),
            }
            rows.append(row)
            if datum is None:
                continue
            names = ("target_tokens", "mask", "logprobs", "advantages")
            targets, mask, logprobs, _ = parts = [datum.loss_fn_inputs[name].to_torch().tolist() for name in names]
            ids = [*datum.model_input.to_ints(), targets[-1]]
            begin = trajectory.transitions[0].ob.length
            sampled = [int(logprob != 0) for logprob in logprobs]
            response, learned = ids[begin:], [0, *map(int, mask)][begin:]
            row |= {
                "lengths": sorted({len(part) for part in parts} | {len(ids) - 1}),
                "sampled": sum(sampled),
                "learned": int(sum(mask)),
                "logprobs_exact": sampled == [int(one) for one in mask],
                "exact": policy is not None and is_exact(policy, ids[:begin], response, learned),
                "answers": response and policy.tokenizer.decode(response).count("<tool_response>") if policy else None,
            }
    return rows


async def play(one: dict, folder: str) -> dict:
    """Play the first batch of a dataset, as the cookbook's training loop does."""
    from tinker_cookbook.rl.rollout_strategy import RetryOnFailure
    from tinker_cookbook.rl.rollouts import do_group_rollout_and_filter_constant_reward, set_rollout_executor

    given = one["dataset"]
    try:
        dataset, _ = await (LudusDatasetBuilder(model_name=folder, **given) if isinstance(given, dict) else given)()
    except LudusError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    engine = Engine(folder, one.get("kill"), one.get("fails"))
    before = UNSCORED["tinker"]

    async def roll(builder):
        return await do_group_rollout_and_filter_constant_reward(
            engine, builder, one.get("max_tokens", 1000), 1.0, False, False,
            strategy=RetryOnFailure() if one.get("retry") else None,
        )  # fmt: skip

    batch = dataset.get_batch(0)
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) if one.get("spawned") else None
    set_rollout_executor(pool)
    try:
        if engine.kill is None:
            groups = await asyncio.gather(*map(roll, batch))
        else:
            groups = []
            for builder in batch:
                groups.append(await roll(builder))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        set_rollout_executor(None)
        if pool is not None:
            pool.shutdown()
    rows = rows_of([group for group in groups if group is not None], None if pool else engine.policy)
    return {"rows": rows, "dropped": groups.count(None), "counted": UNSCORED["tinker"] - before}


async def described(given: dict, folder: str) -> dict:
    """Describe a dataset, and the groups that the episodes of its builders are in."""
    train, test = await LudusDatasetBuilder(model_name=folder, **given)()
    batches = [train.get_batch(index) for index in range(len(train))]
    builder = batches[0][0]
    groups = []
    for _ in ("as one group", "after a failure"):
        envs = await builder.make_envs()
        await asyncio.gather(*(env.initial_observation() for env in envs))
        groups.append(len({env._driver.episode.group for env in envs}))
    copy = pickle.loads(pickle.dumps(builder))
    await builder.cleanup()
    return {
        "copies": copy == builder and not copy._envs,
        "tasks": [[one.address.task for one in batch] for batch in batches],
        "seeds": [[one.address.seed for one in batch] for batch in batches],
        "again": [one.address.seed for one in train.get_batch(0)],
        "test": [one.size for one in test.get_batch(0)],
        "tags": builder.logging_tags(),
        "groups": groups,
    }


def main() -> None:
    """Play the batches that the test asks for."""
    from byte_chat import byte_tokenizer

    given = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        byte_tokenizer().save_pretrained(folder)
        reports = {name: asyncio.run(play(one, folder)) for name, one in given["batches"].items()}
        script = runpy.run_path(str(SCRIPT))["config"]
        builder = chz.replace(script.dataset_builder, model_name=folder, **given["script"])
        reports["script"] = asyncio.run(play({"dataset": builder}, folder))
        reports["script"]["clamped"] = script.effective_termination() is not None
        reports["dataset"] = asyncio.run(described(given["dataset"], folder))
    print(json.dumps(reports))


if __name__ == "__main__":
    main()
