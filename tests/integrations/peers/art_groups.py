"""Play groups with ART's types and its client of a model, as the example in the docs does, in a spawned process."""

import asyncio
import concurrent.futures
import functools
import json
import multiprocessing
import sys
import warnings


async def play(given: dict) -> dict:
    import art
    import endpoint_art
    from hanging import signal_when_half_hang
    from openai.types.chat.chat_completion import Choice

    from ludus.client import ServerAddress
    from ludus.integrations.unscored import UNSCORED

    reports = {}
    for name, one in given["runs"].items():
        model = art.Model(
            name=name,
            project="ludus",
            inference_api_key="none",
            inference_base_url=given["base_url"],
            inference_model_name=one["model"],
        )
        tasks = [
            ServerAddress(one["url"]).task(one["environment"], "train", f"sum-{index}") for index in range(one["tasks"])
        ]
        before = UNSCORED["art"]
        if "kill" in one:
            episodes = one["tasks"] * one["size"]
            signal_when_half_hang(given["base_url"], one["url"], one["model"], episodes, one["kill"])
        groups = await asyncio.gather(*(endpoint_art.play_group(model, task, one["size"]) for task in tasks))
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        reports[name] = {
            "groups": [[trajectory.reward for trajectory in group.trajectories] for group in groups],
            "exceptions": [[error.type for error in group.exceptions] for group in groups],
            "roles": [
                ["choice" if isinstance(entry, Choice) else entry["role"] for entry in trajectory.messages_and_choices]
                for trajectory in trajectories
            ],
            "tools": sorted({tool["function"]["name"] for one in trajectories for tool in one.tools or ()}),
            "metrics": [trajectory.metrics for trajectory in trajectories],
            "counted": UNSCORED["art"] - before,
        }
        json.dumps([group.model_dump(mode="json") for group in groups])  # as ART's backends send them
    return reports


def work(given: dict) -> dict:
    warnings.simplefilter("ignore")
    sys.path.insert(0, given["snippets"])
    import ludus.client.addresses as addresses

    addresses.connect = functools.partial(addresses.connect, reconnect_seconds=1.0)
    return asyncio.run(play(given))


def main() -> None:
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        print(json.dumps(pool.submit(work, json.loads(sys.argv[1])).result()))


if __name__ == "__main__":
    main()
