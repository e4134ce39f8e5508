"""Run the script of docs/integrations/trl.md with a tiny model, without vLLM: `trl_snippet.py '{"url": …, …}'`."""

from __future__ import annotations

import json
import runpy
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from tiny_calls import make_model

SCRIPT = Path(__file__).parents[3] / "docs" / "snippets" / "trl_train.py"

given = json.loads(sys.argv[1])
template = files("trl").joinpath("chat_templates/qwen3.jinja").read_text("utf-8")
calls = [{"name": "add", "arguments": {"a": 1, "b": 2}}]
model = make_model(tempfile.mkdtemp(), calls, ["The sum is 7."], template=template)
options = {"url": given["url"], "environment": "sums", "model": model, "vllm": "off", "tasks": 4, "steps": 1}
sys.argv = [str(SCRIPT), "--place", given["place"]]
sys.argv += [text for name, value in options.items() for text in (f"--{name}", str(value))]
trainer = runpy.run_path(str(SCRIPT))["trainer"]
print(json.dumps({"logs": [log for log in trainer.state.log_history if "reward" in log]}))
