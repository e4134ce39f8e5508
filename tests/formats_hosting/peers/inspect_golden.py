"""Evaluates tasks with Inspect alone: its mock model takes scripted actions, chosen by sample and epoch."""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import inspect_ai
from inspect_ai.log import EvalSample
from inspect_ai.model import ChatMessageAssistant, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import value_to_float
from inspect_ai.solver._task_state import sample_state

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "formats" / "inspect"))
import shop

ARTICLES = [*shop.SHELVES, "figs"]


def action_of(task: str, target: str, rng: random.Random) -> list[Any]:
    """Return an action: a tool and its arguments, or a text without a tool."""
    answer = str(max(0, int(target) + rng.choice([0, 0, 0, 1, -2, 5])))
    if rng.random() < 0.1:
        answer = "many"
    if task == "sums":
        return [None, rng.choice(["{}", "It is {}.", "{}, I think."]).format(answer)]
    kind = rng.choice(["count", "count", "submit", "submit", "say"])
    if kind == "count":
        return ["count", {"article": rng.choice(ARTICLES)}]
    return ["submit", {"answer": answer}] if kind == "submit" else [None, f"Perhaps {answer}."]


def output_of(task: str, input: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
    """Return what the model says next."""
    state = sample_state()
    assert state is not None
    said = sum(message.role == "assistant" for message in input)
    action = action_of(task, state.target.text, random.Random(f"{state.sample_id} {state.epoch} {said}"))
    if action[0] is None:
        output = ModelOutput.from_content("mockllm/model", action[1])
    else:
        output = ModelOutput.for_tool_call("mockllm/model", action[0], action[1])
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else the mock fetches a tokenizer
    return output


def text_of(message: Any) -> str:
    """Return the text that a message shows."""
    error = getattr(message, "error", None)
    return str(error.message) if error is not None else str(message.text)


def episode_of(task: str, index: int, sample: EvalSample) -> dict[str, Any]:
    """Return a sample as an episode: what was shown at first, and each action with what came after it."""
    messages = sample.messages
    first = next(place for place, one in enumerate(messages) if one.role == "assistant")
    steps: list[dict[str, Any]] = []
    for message in messages[first:]:
        if isinstance(message, ChatMessageAssistant):
            call = message.tool_calls[0] if message.tool_calls else None
            steps.append({"action": [call.function, call.arguments] if call else [None, message.text], "shown": []})
        else:
            steps[-1]["shown"].append(text_of(message))
    to_float = value_to_float()
    scores = {
        name: None if score.value != score.value else to_float(score.value)
        for name, score in (sample.scores or {}).items()
    }
    return {
        "index": index,
        "start": [[one.role, text_of(one)] for one in messages[:first]],
        "steps": steps,
        "scores": scores,
        "limit": sample.limit.type if sample.limit else None,
    }


def main() -> None:
    """Evaluate what standard input asks for."""
    plan = json.loads(sys.stdin.read())
    found = {}
    for name in plan["tasks"]:
        model = get_model(
            "mockllm/model", memoize=False, custom_outputs=lambda *given, name=name: output_of(name, *given)
        )
        task = getattr(shop, name)()
        order = [sample.id for sample in task.dataset]
        with tempfile.TemporaryDirectory() as folder:
            (log,) = inspect_ai.eval(task, model=model, epochs=plan["epochs"], log_dir=folder, display="none",
                                     ctl_server=False)  # fmt: skip
            assert log.status == "success", log.error
            found[name] = [episode_of(name, order.index(sample.id), sample) for sample in log.samples or []]
    print(json.dumps(found))


main()
