"""Use the environments of TRL's factory as TRL does, without a trainer: in a spawned process, and with mistakes."""

from __future__ import annotations

import inspect
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from ludus.client import ServerAddress
from ludus.integrations.trl import LudusEnvironmentFactory, only_scored, outcome_reward, rows


def tools_of(environment: Any) -> dict[str, Any]:
    """Return the tools that TRL finds: the public methods of the class."""
    names = [name for name, _ in inspect.getmembers(type(environment), inspect.isfunction)]
    methods = [getattr(environment, name) for name in names if name not in ("reset", "get_reward") and name[0] != "_"]
    return {method.__name__: method for method in methods}


def play(factory: LudusEnvironmentFactory, row: dict[str, Any], calls: list[Any]) -> tuple[list[str], float | None]:
    """Play one episode, and return the outputs and the reward."""
    environment = factory()
    environment.reset(**row)
    outputs = [tools_of(environment)[name](**arguments) for name, arguments in calls]
    return outputs, environment.get_reward()


def mistake(work: Any, *arguments: Any, **options: Any) -> str:
    """Return the error that a call raises, as a text."""
    try:
        work(*arguments, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def main() -> None:
    """Report."""
    server = ServerAddress(json.loads(sys.argv[1])["url"])
    from transformers.utils import get_json_schema

    factory = LudusEnvironmentFactory(server, "odd_names", None)
    data = rows(server, "odd_names")
    calls = [("_turn", {"by": 3}), ("reset", {}), ("_turn", {"by": "two"}), ("_turn", {"by": 2}), ("get_reward", {})]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        spawned = pool.submit(play, factory, data[2], [*calls, ("reset", {})]).result()
    summing = LudusEnvironmentFactory(server, "sums", 64)
    (row,) = rows(server, "sums", n=1)
    said = [{"role": "assistant", "content": "It is 99."}]
    other = [{"role": "user", "content": "Something else"}]
    none = {**row["ludus"], "task": "sum-none"}
    report = {
        "spawned": spawned,
        "schemas": [get_json_schema(tool)["function"] for tool in tools_of(factory()).values()],
        "final": outcome_reward([said], environments=[reset(summing, row)]),
        "no_row": mistake(summing().reset, prompt=row["prompt"]),
        "wrong_prompt": mistake(outcome_reward, [said], environments=[reset(summing, row, prompt=other)]),
        "unknown_task": mistake(outcome_reward, [said], environments=[reset(summing, row, ludus=none)]),
        "no_environments": mistake(only_scored(lambda completions, **_: [1.0]), completions=[said]),
    }
    print(json.dumps(report))


def reset(factory: LudusEnvironmentFactory, row: dict[str, Any], **changed: Any) -> Any:
    """Return an environment after a call, with a row in which something is changed."""
    environment = factory()
    environment.reset(**{**row, **changed})
    tools_of(environment)["add"](a=1, b=2)
    return environment


if __name__ == "__main__":
    main()
