"""Play one task of each given environment through the environments of TRL's factory, as TRL does, and report.

What the factory refuses is played by `LudusRollout` in a trainer.
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.resources import files
from typing import Any

from datasets import Dataset
from tiny_calls import make_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer
from trl_by_hand import tools_of

from ludus.client import ServerAddress
from ludus.integrations.trl import LudusEnvironmentFactory, outcome_reward, rows
from ludus.integrations.trl_rollout import LudusRollout
from ludus.protocol.errors import Unsupported


def simplest(schema: dict[str, Any]) -> Any:
    """Return the simplest arguments of a tool."""
    kinds = {"string": "a", "integer": 1, "number": 1, "boolean": True, "array": []}
    fields = schema.get("properties", {})
    found = {}
    for name in schema.get("required", ()):
        field = fields[name]
        found[name] = field["enum"][0] if "enum" in field else kinds.get(field.get("type", "string"), "a")
    return found


def play(url: str, name: str) -> dict[str, Any]:
    """Play one task: a call of the first tool, if there is one, and a last message."""
    server = ServerAddress(url)
    (row,) = rows(server, name, n=1)
    environment = LudusEnvironmentFactory(server, name, 512)()
    environment.reset(**row)
    tools = tools_of(environment)
    output = ""
    for called, tool in list(tools.items())[:1]:
        output = tool(**simplest(get_json_schema(tool)["function"]["parameters"]))
        assert called
    said = [{"role": "assistant", "content": "I give up."}]
    value = environment.get_reward() if hasattr(environment, "get_reward") else None
    if value is None:
        (value,) = outcome_reward([said], environments=[environment])
    return {"value": value, "tools": len(tools), "output": output[:200], "prompt": len(str(row["prompt"]))}


def roll_out(url: str, name: str) -> float | None:
    """Play a task with `GRPOTrainer` and `LudusRollout`, and return what the first episode earned."""
    folder = tempfile.mkdtemp()
    template = files("trl").joinpath("chat_templates/qwen3.jinja").read_text("utf-8")
    make_model(folder, [{"name": "wait", "arguments": {}}], ["I give up."], template=template)
    seen: list[float | None] = []

    def reward(completions: list[Any], **columns: Any) -> list[float | None]:
        seen.extend(outcome_reward(completions, **columns))
        return seen[-len(completions) :]

    config = GRPOConfig(
        output_dir=folder, max_steps=1, per_device_train_batch_size=2, num_generations=2, max_completion_length=64,
        use_cpu=True, bf16=False, report_to=[], save_strategy="no", disable_tqdm=True, seed=1,
        chat_template_kwargs={"enable_thinking": False},
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder), processing_class=AutoTokenizer.from_pretrained(folder),
        args=config, reward_funcs=[reward], train_dataset=Dataset.from_list(rows(ServerAddress(url), name, n=1)),
        rollout_func=LudusRollout(max_turns=2),
    )  # fmt: skip
    trainer.train()
    return seen[0]


def main() -> None:
    """Report the plays by the names of the environments; what is refused with its error."""
    given = json.loads(sys.argv[1])
    report: dict[str, Any] = {}
    for name in given["environments"]:
        try:
            report[name] = play(given["url"], name)
        except Unsupported as error:
            report[name] = {"refused": str(error), "value": roll_out(given["url"], name)}
        except Exception as error:
            report[name] = {"error": type(error).__name__, "message": str(error)}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
