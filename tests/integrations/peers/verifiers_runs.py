"""Run episodes through verifiers' own evaluation loop or env server, in its environment.

Given `plugins` and `path` (folders for modules and commands), `url`, `endpoint`, and `cases`, by name: `environment`,
`model`, `n`, `rollouts`, `max_concurrent`, `env` (more of the configuration), `served` (in an env server in a spawned
process). With `kill` (`{"pid": …, "after": …}`) it kills that process after so many rollouts.
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
os.environ["PATH"] += os.pathsep + GIVEN.get("path", "")


class Killer(logging.Handler):
    """Kills a process when verifiers logs the end of enough rollouts."""

    def __init__(self, pid: int, after: int) -> None:
        super().__init__()
        self.pid, self.left = pid, after

    def emit(self, record: logging.LogRecord) -> None:
        self.left -= str(record.msg).startswith("rollout done")
        if self.left == 0:
            os.kill(self.pid, signal.SIGKILL)


def configuration(case: dict[str, Any], folder: str) -> Any:
    from verifiers.v1.configs.cli.eval import EvalConfig

    taskset = {"id": "ludus_sums", "url": GIVEN["url"], "environment": case["environment"]}
    return EvalConfig.model_validate(
        {
            "env": {"taskset": taskset, **case.get("env", {})},
            "model": case["model"],
            "client": {"base_url": GIVEN["endpoint"], "api_key_var": "NO_KEY"},
            "select": {"limit": case["n"]},
            "num_rollouts": case.get("rollouts", 1),
            "max_concurrent": case.get("max_concurrent", 8),
            "push": False,
            "rich": None,
            "output_dir": folder,
        }
    )


async def evaluate(config: Any) -> list[Any]:
    from verifiers.v1.cli.eval.runner import run_eval

    return await run_eval(config)


async def serve(config: Any, n: int) -> list[Any]:
    """Play over an env server in a spawned process, as prime-rl does."""
    import multiprocessing

    from verifiers.v1.serve.client import EnvClient
    from verifiers.v1.serve.pool import serve_env
    from verifiers.v1.utils.loaders import load_taskset

    rows = [task.data.model_dump(mode="json") for task in load_taskset(config.env.taskset).take(n)]
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
        "prompt": trace.task.data.prompt,
        "called": [call.name for message in trace.assistant_messages for call in message.tool_calls or []],
    }


def run(case: dict[str, Any]) -> dict[str, Any]:
    import prime_runs

    from ludus.integrations.unscored import UNSCORED

    UNSCORED.clear()
    with tempfile.TemporaryDirectory() as folder:
        config = configuration(case, folder)
        episodes = asyncio.run(serve(config, case["n"]) if case.get("served") else evaluate(config))
    return {
        "traces": [row(trace) for episode in episodes for trace in episode.traces],
        "episodes": [{"ok": episode.ok, "errors": [error.message for error in episode.errors]} for episode in episodes],
        "summary": prime_runs.metrics.from_episodes(episodes),
        "unscored": UNSCORED["verifiers"],
    }


if __name__ == "__main__":
    if kill := GIVEN.get("kill"):
        logger = logging.getLogger("verifiers")
        logger.setLevel(logging.INFO)
        logger.addHandler(Killer(**kill))
    print(json.dumps({name: run(case) for name, case in GIVEN["cases"].items()}))
