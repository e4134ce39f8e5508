"""Run the flow and the evaluator of the docs with a stand-in of rLLM's engine."""

import asyncio
import json
import sys

import rllm
from rllm.types import AgentConfig, Task


async def main() -> None:
    given = json.loads(sys.argv[1])
    import endpoint_rllm

    from ludus.client import ServerAddress
    from ludus.integrations.unscored import UNSCORED

    reports = {}
    for name, one in given["runs"].items():
        before, episodes = UNSCORED["rllm"], []
        for index in range(one["n"]):
            address = ServerAddress(given["url"]).task(one["environment"], "train", f"sum-{index}")
            task = Task(f"sum-{index}", "", {"ludus": address.to_json()})
            config = AgentConfig(given["base_url"], one["model"], f"sum-{index}:0")
            played = endpoint_rllm.play, endpoint_rllm.score
            episodes.append(await rllm.run_task(*played, task, config, one["attempts"]))
        reports[name] = {
            "values": [[trajectory.reward for trajectory in episode.trajectories] for episode in episodes],
            "correct": [episode.is_correct for episode in episodes],
            "artifacts": [episode.artifacts for episode in episodes],
            "counted": UNSCORED["rllm"] - before,
        }
    print(json.dumps(reports))


asyncio.run(main())
