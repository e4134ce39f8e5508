"""Read preference pairs with TRL's own data functions, as its DPO trainer does before it tokenizes them."""

import json
import sys

import datasets
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from trl.data_utils import is_conversational, maybe_apply_chat_template

TEMPLATE = """\
{%- for tool in tools or [] %}{{- 'TOOL ' + tool.function.name + '\\n' }}{%- endfor %}\
{%- for message in messages %}{{- message.role + ': ' + (message.content or '') }}\
{%- for call in message.tool_calls or [] %}{{- 'CALL ' + call.function.name }}{%- endfor %}{{- '\\n' }}{%- endfor %}\
{%- if add_generation_prompt %}{{- 'assistant: ' }}{%- endif %}"""


def main() -> None:
    path = json.loads(sys.argv[1])["path"]
    rows = datasets.load_dataset("json", data_files=path, split="train")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), chat_template=TEMPLATE)
    texts = [maybe_apply_chat_template(row, tokenizer, tools=row["tools"]) for row in rows]
    print(json.dumps({"conversational": [is_conversational(row) for row in rows], "texts": texts}))


if __name__ == "__main__":
    main()
