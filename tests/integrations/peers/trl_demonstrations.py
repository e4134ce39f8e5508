"""Read preference pairs and demonstrations as TRL does, and train a tiny model on them for a step each.

trl_demonstrations.py '{"exported": "pairs.jsonl", "sft parquet": "sft.parquet", "pairs jsonl": "pairs.jsonl"}'

Importing TRL takes far longer than all that follows, so one process does everything.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from importlib.resources import files
from typing import Any

import datasets
import torch
from tiny_calls import make_model
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer
from trl.data_utils import is_conversational, maybe_apply_chat_template

TEMPLATE = """\
{%- for tool in tools or [] %}{{- 'TOOL ' + tool.function.name + '\\n' }}{%- endfor %}\
{%- for message in messages %}{{- message.role + ': ' + (message.content or '') }}\
{%- for call in message.tool_calls or [] %}{{- 'CALL ' + call.function.name }}{%- endfor %}{{- '\\n' }}{%- endfor %}\
{%- if add_generation_prompt %}{{- 'assistant: ' }}{%- endif %}"""


def load(path: str) -> Any:
    """Return a file as a dataset."""
    kind = "parquet" if path.endswith("parquet") else "json"
    return datasets.load_dataset(kind, data_files=path, split="train", cache_dir=tempfile.mkdtemp())


def read(path: str) -> dict[str, Any]:
    """Read preference pairs with TRL's own functions, as its DPO trainer does before it tokenizes them."""
    rows = load(path)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), chat_template=TEMPLATE)
    texts = [maybe_apply_chat_template(row, tokenizer, tools=row["tools"]) for row in rows]
    return {"conversational": [is_conversational(row) for row in rows], "texts": texts}


def train(kind: str, path: str, folder: str) -> dict[str, Any]:
    """Train for one step, and return the text of the first row that the trainer learns from."""
    rows, tokenizer = load(path), AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    before = {name: value.clone() for name, value in model.named_parameters()}
    shared: dict[str, Any] = {
        "output_dir": tempfile.mkdtemp(), "max_steps": 1, "per_device_train_batch_size": 2, "use_cpu": True,
        "bf16": False, "report_to": [], "save_strategy": "no", "disable_tqdm": True, "learning_rate": 1e-2,
    }  # fmt: skip
    if kind == "sft":
        trainer = SFTTrainer(model=model, args=SFTConfig(**shared), train_dataset=rows, processing_class=tokenizer)
    else:
        trainer = DPOTrainer(model=model, args=DPOConfig(**shared), train_dataset=rows, processing_class=tokenizer)
    first = trainer.train_dataset[0]
    trainer.train()
    ids = {name: value for name, value in first.items() if name.endswith("ids")}
    return {
        "rows": len(rows),
        "texts": {name: tokenizer.decode(value) for name, value in ids.items()},
        "changed": any(not torch.equal(value, before[name]) for name, value in model.named_parameters()),
    }


def main(given: dict[str, Any]) -> dict[str, Any]:
    """Read the exported pairs, and train on each of the other files."""
    folder = tempfile.mkdtemp()
    template = files("trl").joinpath("chat_templates/qwen3.jinja").read_text("utf-8")
    calls = [{"name": "submit", "arguments": {"number": number}} for number in range(2, 19)]
    make_model(folder, calls, ["The sum is 7."], template=template)
    exported = read(given.pop("exported"))
    return {"exported": exported, **{name: train(name.split()[0], path, folder) for name, path in given.items()}}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(json.dumps(main(json.loads(sys.argv[1]))))
