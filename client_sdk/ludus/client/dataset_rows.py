"""Rows of datasets: what trainers read before they play, and what they learn from without playing.

Rows of tasks hold the prompt and, in the field `ludus`, the address of the task. They hold no answer: rewards come from
the server. Rows of trajectories, `pairs` and `groups`, hold conversations and what they earned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from ludus.client import Preview, TaskAddress, Trajectory
from ludus.client.formats import openai_chat, openai_responses
from ludus.protocol.content import Message
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import Item

TaskForm = Literal["chat", "nemo-gym", "openrlhf", "skyrl", "verl"]
"""The forms of rows of tasks."""

TrajectoryForm = Literal["pairs", "groups"]
"""The forms of rows of trajectories."""


def task_row(form: TaskForm, preview: Preview, address: TaskAddress) -> dict[str, Any]:
    """Return the row of a task.

    Args:
        form: `chat` has `prompt` and `tools` as OpenAI's Chat Completions API takes them, `nemo-gym` has
            `responses_create_params` as its Responses API takes them; `openrlhf`, `skyrl` and `verl` have the
            columns that these trainers read.
        preview: the prompt and the tools.
        address: where to play the task.
    """
    return _TASK_ROWS[form](preview, address) | {"ludus": address.to_json()}


def _prompt(preview: Preview) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = openai_chat.messages(preview.prompt)["messages"]
    return messages


def _chat(preview: Preview, address: TaskAddress) -> dict[str, Any]:
    return {"prompt": _prompt(preview), "tools": openai_chat.tools(preview.tools)}


def _nemo_gym(preview: Preview, address: TaskAddress) -> dict[str, Any]:
    params = openai_responses.messages(preview.prompt)
    return {"responses_create_params": params | {"tools": openai_responses.tools(preview.tools)}}


def _openrlhf(preview: Preview, address: TaskAddress) -> dict[str, Any]:
    label = json.dumps(address.to_json())
    return {"datasource": f"ludus/{address.environment}", "input": _prompt(preview), "label": label}


def _skyrl(preview: Preview, address: TaskAddress) -> dict[str, Any]:
    return {"data_source": f"ludus/{address.environment}", "prompt": _prompt(preview), "env_class": "ludus"}


def _verl(preview: Preview, address: TaskAddress) -> dict[str, Any]:
    return {
        "data_source": f"ludus/{address.environment}",
        "prompt": _prompt(preview),
        "ability": address.environment,
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {"index": preview.task.index, "split": address.split, "task": address.task},
        "agent_name": "ludus",
    }


_TASK_ROWS: Final[Mapping[TaskForm, Callable[[Preview, TaskAddress], dict[str, Any]]]] = {
    "chat": _chat,
    "nemo-gym": _nemo_gym,
    "openrlhf": _openrlhf,
    "skyrl": _skyrl,
    "verl": _verl,
}


def trajectory_rows(form: TrajectoryForm, trajectories: Iterable[Trajectory]) -> Iterator[dict[str, Any]]:
    """Yield the rows of trajectories. Unscored episodes and those without a reply are left out.

    Args:
        form: `pairs` are `prompt`, `chosen` and `rejected` with their values, for preference learning: within the
            episodes of one task and prompt, the best with the worst, the second best with the second worst, while
            their values differ. `groups` are `prompt`, `completions` and `rewards` of all episodes of one task and
            prompt, at least two.
        trajectories: in any order.
    """
    groups: dict[str, list[_Scored]] = {}
    for trajectory in trajectories:
        scored = _scored(trajectory)
        if scored is not None:
            groups.setdefault(json.dumps(scored[0], sort_keys=True), []).append(scored)
    for key, found in groups.items():
        common = json.loads(key)
        if form == "groups" and len(found) > 1:
            completions, rewards = [one[1] for one in found], [one[2] for one in found]
            yield {**common, "completions": completions, "rewards": rewards}
        elif form == "pairs":
            ranked = sorted(found, key=lambda one: one[2], reverse=True)
            for best, worst in zip(ranked[: len(ranked) // 2], reversed(ranked), strict=False):
                if best[2] > worst[2]:
                    values = {"chosen_value": best[2], "rejected_value": worst[2]}
                    yield {**common, "chosen": best[1], "rejected": worst[1], **values}


_Scored = tuple[dict[str, Any], list[dict[str, Any]], float]
"""What the episodes of a group have in common, the completion, and its value."""


def _scored(trajectory: Trajectory) -> _Scored | None:
    items = trajectory.conversation
    start = next((at for at, item in enumerate(items) if not _is_prompt(item)), len(items))
    if trajectory.value is None or start == len(items):
        return None
    common = {
        "prompt": _messages(items[:start]),
        "tools": openai_chat.tools([_tool(record) for record in trajectory.tools]),
        "environment": trajectory.environment,
        "environment_version": trajectory.environment_version,
        "split": trajectory.split,
        "task": trajectory.task.id,
    }
    return common, _messages(items[start:]), trajectory.value


def _is_prompt(item: Item) -> bool:
    return isinstance(item, Message) and item.role != "assistant"


def _messages(items: Sequence[Item]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = openai_chat.messages(items)["messages"]
    return messages


def _tool(record: Mapping[str, Any]) -> ToolSpec:
    return ToolSpec(name=record["name"], description=record["description"] or "", input_schema=record["parameters"])
