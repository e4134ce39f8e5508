"""Run the TRL snippet of a page of the hub with a tiny model, for one step: `trl_of_hub.py '{"code": …}'`."""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.resources import files
from typing import Any

from tiny_calls import make_model

MODEL = '"Qwen/Qwen3-0.6B"'
OPTIONS = "num_generations=8"
SMALL = "num_generations=2, per_device_train_batch_size=2, max_steps=1, logging_steps=1, max_completion_length=96"

code = json.loads(sys.argv[1])["code"]
assert MODEL in code
assert OPTIONS in code
template = files("trl").joinpath("chat_templates/qwen3.jinja").read_text("utf-8")
model = str(make_model(tempfile.mkdtemp(), [{"name": "add", "arguments": {"number": 2}}], ["Done."], template=template))
names: dict[str, Any] = {}
exec(code.replace(MODEL, json.dumps(model)).replace(OPTIONS, f"{SMALL}, bf16=False, save_strategy='no'"), names)
print(json.dumps({"logs": [log for log in names["trainer"].state.log_history if "reward" in log]}))
