"""Run episodes through verifiers' own evaluation loop or env server, in its environment.

Given `plugins` (a folder), `url`, `environment`, `endpoint`, `model`, `n`, `rollouts`; `env` and `client` (more of its
configuration); `kill` (`{"pid": …, "after": …}`: kill this process after that many rollouts); `served` (in an env
server in a spawned process).
"""

import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
from typing import Any

GIVEN = json.loads(sys.argv[1]) if __name__ == "__main__" else {}
sys.path.insert(0, GIVEN.get("plugins", ""))


class Killer(logging.Handler):
    """Kills a process when verifiers logs the end of enough rollouts."""

    def __init__(self, pid: int, after: int) -> None:
        super().__init__()
        self.pid, self.left = pid, after

    def emit(self, record: logging.LogRecord) -> None:
        self.left -= str(record.msg).startswith("rollout done")
        if self.left == 0:
            os.kill(self.pid, signal.SIGKILL)


def configuration(folder: str) -> Any:
    from verifiers.v1.configs.cli.eval import EvalConfig

    taskset = {"id": "ludus_sums", "url": GIVEN["url"], "environment": GIVEN["environment"]}
    return EvalConfig.model_validate(
        {
            "env": {"taskset": taskset, **GIVEN.get("env", {})},
            "model": GIVEN["model"],
            "client": {"base_url": GIVEN["endpoint"], "api_key_var": "NO_KEY"},
            "select": {"limit": GIVEN["n"]},
            "num_rollouts": GIVEN.get("rollouts", 1),
            "max_concurrent": GIVEN.get("max_concurrent", 8),
            "push": False,
            "rich": None,
            "output_dir": folder,
        }
    )


async def evaluate(config: Any) -> list[Any]:
    from verifiers.v1.cli.eval.runner import run_eval

    return await run_eval(config)


async def serve(config: Any) -> list[Any]:
    """Play over an env server in a spawned process, as prime-rl does."""
    import multiprocessing

    from verifiers.v1.serve.client import EnvClient
    from verifiers.v1.serve.pool import serve_env
    from verifiers.v1.utils.loaders import load_taskset

    rows = [task.data.model_dump(mode="json") for task in load_taskset(config.env.taskset).take(GIVEN["n"])]
    context = multiprocessing.get_context("spawn")
    addresses = context.Queue()
    process = context.Process(
        target=serve_env,
        kwargs={"config": config.env, "max_workers": 1, "address": "tcp://127.0.0.1:0", "address_queue": addresses},
    )
    process.start()
    client = EnvClient(await asyncio.to_thread(addresses.get, timeout=60))
    try:
        runs = [client.run(config.client, config.model, config.sampling, row) for row in rows]
        return await asyncio.gather(*runs)
    finally:
        await client.close()
        process.terminate()
        process.join(30)


def row(trace: Any) -> dict[str, Any]:
    branches = trace.branches
    return {
        "ok": trace.ok,
        "reward": trace.reward if trace.rewards.get("reward") is not None else None,
        "turns": trace.num_turns,
        "branches": len(branches),
        "trainable": trace.agent.trainable,
        "stop": trace.stop_condition,
        "errors": [f"{error.type}: {error.message}" for error in trace.errors],
        "ludus": trace.info.get("ludus"),
        "metrics": trace.metrics,
        "key": trace.task.key,
    }


def main() -> None:
    if kill := GIVEN.get("kill"):
        logger = logging.getLogger("verifiers")
        logger.setLevel(logging.INFO)
        logger.addHandler(Killer(**kill))
    with tempfile.TemporaryDirectory() as folder:
        config = configuration(folder)
        episodes = asyncio.run(serve(config) if GIVEN.get("served") else evaluate(config))
    import prime_runs

    from ludus.integrations.unscored import UNSCORED

    report = {
        "traces": [row(trace) for episode in episodes for trace in episode.traces],
        "episodes": [{"ok": episode.ok, "errors": [error.message for error in episode.errors]} for episode in episodes],
        "summary": prime_runs.metrics.from_episodes(episodes),
        "unscored": UNSCORED["verifiers"],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
