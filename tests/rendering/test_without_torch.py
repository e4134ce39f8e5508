"""`ludus.rendering` works in a process that cannot import torch."""

import subprocess
import sys
from pathlib import Path

from ludus.trainer.core.tiny import make_tokenizer

PROGRAM = """
import sys
sys.modules["torch"] = None  # importing it raises ModuleNotFoundError
from transformers import AutoTokenizer
from ludus.protocol.items import text_message
from ludus.rendering import Renderer
renderer = Renderer(AutoTokenizer.from_pretrained(sys.argv[1]))
ids = renderer.prompt([text_message("user", "Add.")], ())
print(renderer.tokenizer.decode(ids))
assert not [name for name in sys.modules if name.startswith(("ludus.client", "ludus.trainer", "torch."))]
"""


def test_a_conversation_is_rendered_without_torch_client_and_trainer(tmp_path: Path) -> None:
    make_tokenizer((), 300).save_pretrained(tmp_path)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "<|im_start|>user\nAdd.<|im_end|>\n<|im_start|>assistant"
