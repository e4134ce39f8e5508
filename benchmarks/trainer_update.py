"""The trainer's update step next to TRL's GRPOTrainer, on the same recorded batch.

    python benchmarks/trainer_update.py [--rounds 3] [--steps N] [--cases 2L-d128,…] [--threads 2]
        [--spins] [--sweep] [--gpu] [--json out.json]

A batch is 64 samples in 8 groups, prompts of 16-64 tokens and 32-512 tokens in all (uniform), with recorded advantages
and log-probabilities of the policy that sampled. Both sides read the same file and the same weights, each in a process
of its own, and step in turn: A B A B. A step is forward, backward, clipping and AdamW over the whole batch; ours
includes packing, which TRL's padding, done before, is not charged for. Each round starts fresh processes. Reported are
medians: tokens (prompt and completion, no padding) per second, CPU seconds, and how far the highest resident size is
above the process's size before its first step (on a GPU: allocated memory).

The first step's gradients, taken before clipping, must agree. TRL is in float32 with SDPA, without gradient
checkpointing, with the batch per device that was fastest here (`--sweep` tries them). `--gpu` takes the shape of a 0.6B
model and bfloat16 instead, and shows the share of the GPU's arithmetic that is used. TRL's side is made by `python
scripts/peers.py trl`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # not imported here: TRL's side reads this file without Ludus
    from ludus.trainer.core.samples import TrainBatch
    from ludus.trainer.learning.learner import Learner
    from ludus.trainer.learning.losses import Objective

ROOT = Path(__file__).resolve().parent.parent
TRL = ROOT / ".peers/trl/bin/python"
QUIET = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
"""For both sides."""
PEAK_FLOPS = 989e12
"""bfloat16, dense: H100 and H200."""


@dataclass(frozen=True)
class Case:
    """What both sides do."""

    name: str
    hidden: int
    layers: int
    heads: int
    vocabulary: int
    tokens: int
    """Of our micro-batches."""
    per_device: int
    """Samples of TRL's micro-batches; divides 64."""
    chunk: int = 2048
    steps: int = 5
    """In each round, after the first."""
    longest: int = 512
    intermediate: int = 0
    """3 × hidden when 0."""
    device: str = "cpu"
    threads: int = 2
    clip: float = 1e9
    """Beyond the gradient's norm, so that both sides compute it and neither changes the gradient."""
    trl_attention: str = "sdpa"
    trl_weights: str = "float32"
    brief_spins: bool = False
    """TRL's threads wait as ours do."""
    folder: str = ""
    pad: int = 0
    gradients: str = ""


CASES = (
    Case("2L-d128", 128, 2, 4, 261, tokens=4096, per_device=16),
    Case("4L-d256", 256, 4, 8, 261, tokens=4096, per_device=8),
    # At a great vocabulary neither side's speed depends on its micro-batch: small ones, for memory's sake.
    Case("2L-d128 32k", 128, 2, 4, 32_768, tokens=1024, per_device=2, chunk=128, steps=1),
    Case("4L-d256 32k", 256, 4, 8, 32_768, tokens=1024, per_device=2, chunk=128, steps=1),
)
GPU_CASES = (
    Case("28L-d1024 152k", 1024, 28, 16, 151_936, 32_768, 8, longest=4096, intermediate=3072, device="cuda", threads=8),
)


# ── a side: one process ────────────────────────────────────────────────────────────────────────────────────────────


class Meter:
    """Of one process: a line on stdin asks for a step, and a line of JSON on stdout reports what it took.

    To be made when everything is loaded and no step was done. The end of stdin ends the process.
    """

    def __init__(self, device: str) -> None:
        import torch

        self.cuda = torch.cuda if device == "cuda" else None
        self.out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what libraries print is no answer
        gc.collect()
        if self.cuda:
            self.cuda.reset_peak_memory_stats()
            self.baseline = self.cuda.memory_allocated()
        else:
            Path("/proc/self/clear_refs").write_text("5")  # the kernel forgets the highest resident size
            self.baseline = resident("VmRSS")
        self.began = self.cpu = self.left_out = 0.0

    def wait(self) -> None:
        """Until a step is wanted; what follows is timed."""
        if not sys.stdin.readline():
            os._exit(0)
        self.left_out = 0.0
        self.began, self.cpu = time.perf_counter(), time.process_time()

    def leave_out(self, began: float) -> None:
        """What was done since `began` is the benchmark's own."""
        self.left_out = time.perf_counter() - began

    def done(self) -> None:
        """The step has ended."""
        if self.cuda:
            self.cuda.synchronize()
        seconds, cpu = time.perf_counter() - self.began - self.left_out, time.process_time() - self.cpu
        peak = self.cuda.max_memory_allocated() if self.cuda else resident("VmHWM")
        told = {"seconds": seconds, "cpu": cpu, "memory": peak - self.baseline, "baseline": self.baseline}
        print(json.dumps(told), file=self.out, flush=True)


def resident(field: str) -> int:
    """Bytes of this process: `VmRSS` now, `VmHWM` at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def load(case: Case) -> tuple[Learner, TrainBatch, Objective]:
    """Return our learner, the recorded batch and the objective."""
    import torch
    from safetensors.torch import load_file

    from ludus.trainer.core.config import EnvironmentConfig, ModelConfig, ParallelConfig, TrainConfig
    from ludus.trainer.core.config_learning import OptimizerConfig
    from ludus.trainer.learning.learner import Learner
    from ludus.trainer.learning.losses import policy_objective
    from ludus.trainer.learning.model import load_model
    from ludus.trainer.learning.parallel import Parallel

    torch.set_num_threads(case.threads)
    config = TrainConfig(
        output=Path(case.folder) / "ours",
        model=ModelConfig(path=case.folder, dtype="bfloat16" if case.device == "cuda" else "float32"),
        environments=(EnvironmentConfig(url="http://localhost"),),
        optimizer=OptimizerConfig(clip_gradient=case.clip, tokens=case.tokens, logprob_chunk=case.chunk),
    )
    parallel = Parallel(ParallelConfig(), case.device)
    learner = Learner(config, load_model(config.model, parallel.device), parallel)
    return learner, recorded(load_file(Path(case.folder) / "batch.safetensors")), policy_objective(config.loss)


def ours(case: Case) -> None:
    """Our learner on the recorded batch."""
    from safetensors.torch import save_file

    from ludus.trainer.learning.parallel import whole

    learner, batch, objective = load(case)
    meter = Meter(case.device)
    if case.gradients:

        def keep(*_: Any) -> None:
            began = time.perf_counter()
            named = learner.model.named_parameters()
            save_file({n: whole(p.grad) for n, p in named if p.grad is not None}, case.gradients)
            hook.remove()
            meter.leave_out(began)

        hook = learner.optimizer.register_step_pre_hook(keep)
    while True:
        meter.wait()
        learner.step(batch, objective)
        meter.done()


def recorded(flat: dict[str, Any]) -> Any:
    """The batch in the form of our learner: weights 1/N, so that the loss is the mean over all tokens."""
    from ludus.trainer.core.samples import Sample, TrainBatch, TrainSample

    lengths, prompts = flat["lengths"].tolist(), flat["prompts"].tolist()
    weight = 1 / (sum(lengths) - sum(prompts))
    parts = zip(lengths, prompts, flat["ids"].split(lengths), flat["behavior"].split(lengths), strict=True)
    samples = []
    for row, (n, p, ids, behavior) in enumerate(parts):
        mask = (False,) * p + (True,) * (n - p)
        turns = tuple(own - 1 for own in mask)
        sample = Sample(tuple(ids.tolist()), mask, tuple(behavior.tolist()), turns, turns)
        advantage = float(flat["advantages"][row])
        samples.append(
            TrainSample(sample, tuple(advantage * own for own in mask), tuple(weight * own for own in mask), row)
        )
    return TrainBatch(tuple(samples))


# ── what both are given ────────────────────────────────────────────────────────────────────────────────────────────


def prepare(case: Case, folder: Path) -> Case:
    """Write a random model, its tokenizer, and a batch."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from transformers.utils.logging import disable_progress_bar

    from ludus.trainer.core.tiny import make_tiny_model

    disable_progress_bar()
    make_tiny_model(folder, hidden=case.hidden, layers=1, heads=case.heads)
    settings: Any = Qwen3Config.from_pretrained(folder)
    settings.vocab_size, settings.num_hidden_layers = case.vocabulary, case.layers
    settings.layer_types = ["full_attention"] * case.layers
    settings.max_position_embeddings = case.longest
    if case.intermediate:
        settings.intermediate_size, settings.head_dim = case.intermediate, 128
    torch.manual_seed(0)
    model: Any = Qwen3ForCausalLM(settings)
    model.save_pretrained(folder)
    record(case, model.to(case.device).eval(), folder / "batch.safetensors")
    return replace(case, folder=str(folder), pad=settings.pad_token_id)


def record(case: Case, model: Any, file: Path) -> None:
    """Write a batch whose recorded policy is near the model: some ratios are clipped, most are not."""
    import torch
    from safetensors.torch import save_file

    random = torch.Generator().manual_seed(0)
    prompts = torch.randint(16, 65, (8,), generator=random).repeat_interleave(8)
    lengths = torch.randint(32, case.longest + 1, (64,), generator=random).maximum(prompts + 8)
    ids: list[torch.Tensor] = []
    behavior: list[torch.Tensor] = []
    for row, (n, p) in enumerate(zip(lengths.tolist(), prompts.tolist(), strict=True)):
        tokens = torch.randint(min(case.vocabulary, 256), (n,), generator=random)
        if row % 8:
            tokens[:p] = ids[-1][:p]
        with torch.no_grad(), torch.autocast(case.device, torch.bfloat16, enabled=case.device == "cuda"):
            logprobs = model(tokens[None].to(case.device)).logits[0, :-1].float().log_softmax(-1).cpu()
        near = torch.zeros(n)
        near[1:] = logprobs.gather(1, tokens[1:, None])[:, 0] + 0.15 * torch.randn(n - 1, generator=random)
        ids.append(tokens)
        behavior.append(near)
    flat = {"ids": torch.cat(ids), "behavior": torch.cat(behavior), "lengths": lengths, "prompts": prompts}
    save_file({**flat, "advantages": torch.randn(64, generator=random)}, file)


# ── the comparison ─────────────────────────────────────────────────────────────────────────────────────────────────


class Side:
    """A process that steps on request."""

    def __init__(self, name: str, case: Case, gradients: str = "") -> None:
        self.case = replace(case, gradients=gradients)
        file = Path(case.folder) / f"{name}.json"
        file.write_text(json.dumps(asdict(self.case)))
        ours_or_theirs = (
            [sys.executable, __file__, "--ours"]
            if name == "ludus"
            else [str(TRL), str(ROOT / "benchmarks/peers/trl_update.py")]
        )
        from ludus.trainer.commands import BRIEF_SPINS

        # As `ludus train` has it, for our side. TRL's has torch's own; `--spins` gives it ours.
        spins = BRIEF_SPINS if name == "ludus" or case.brief_spins else {}
        self.errors = Path(case.folder) / f"{name}.log"
        self.process = subprocess.Popen(
            [*ours_or_theirs, str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors.open("w"),
            text=True,
            env={**os.environ, **QUIET, **spins},
        )

    def step(self) -> dict[str, float]:
        """One step."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.case.name}: {self.errors.read_text()[-3000:]}")
        told: dict[str, float] = json.loads(line)
        return told

    def close(self) -> None:
        """End the process."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()
        self.process.wait()


def measure(case: Case, names: list[str], rounds: int) -> dict[str, Any]:
    """Medians of each side, over all rounds, and how far the gradients are apart."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    files = {name: f"{case.folder}/{name}.safetensors" for name in names}
    for _ in range(rounds):
        sides = {name: Side(name, case, files[name]) for name in names}
        try:
            for side in sides.values():
                side.step()  # the first one allocates, and its gradients are kept
            for _ in range(case.steps):
                for name, side in sides.items():
                    found[name].append(side.step())
        finally:
            for side in sides.values():
                side.close()
    keys = ("seconds", "cpu", "memory", "baseline")
    out: dict[str, Any] = {
        name: {key: statistics.median(one[key] for one in ones) for key in keys} for name, ones in found.items()
    }
    if len(names) == 2:
        out["gradients"] = difference(*files.values())
    return out


def difference(left: str, right: str) -> dict[str, float]:
    """|a - b| / |b| of the whole gradient, and of the parameter where it is greatest."""
    import torch
    from safetensors.torch import load_file

    a, b = load_file(left), load_file(right)
    if a.keys() != b.keys():
        raise RuntimeError(f"gradients of different parameters: {sorted(a.keys() ^ b.keys())}")
    apart = {name: float((a[name].double() - b[name].double()).norm()) for name in a}
    sizes = {name: float(b[name].double().norm()) for name in a}
    whole = torch.tensor(list(apart.values())).norm() / torch.tensor(list(sizes.values())).norm()
    return {"whole": float(whole), "worst": max(apart[name] / sizes[name] for name in a)}


# ── figures ────────────────────────────────────────────────────────────────────────────────────────────────────────


def flops(case: Case) -> float:
    """Of one step, forward and backward, with what a causal model has to compute: layers for every token, pairs of
    tokens that see each other, and the head for the tokens that count."""
    from safetensors.torch import load_file
    from transformers import Qwen3Config

    settings: Any = Qwen3Config.from_pretrained(case.folder)
    flat = load_file(Path(case.folder) / "batch.safetensors")
    lengths = flat["lengths"].double()
    total, counted = float(lengths.sum()), float(lengths.sum() - flat["prompts"].sum())
    width, heads = settings.hidden_size, settings.head_dim * settings.num_attention_heads
    keys = settings.head_dim * settings.num_key_value_heads
    matrices = 2 * width * heads + 2 * width * keys + 3 * width * settings.intermediate_size
    pairs = float((lengths * (lengths + 1) / 2).sum())
    forward: float = (
        settings.num_hidden_layers * (2 * matrices * total + 4 * heads * pairs) + 2 * width * case.vocabulary * counted
    )
    return 3 * forward


def tell(case: Case, found: dict[str, Any], tokens: int) -> dict[str, Any]:
    """Print a case; its figures, ready for JSON."""
    out: dict[str, Any] = {"gradients": found.get("gradients")}
    for name in (n for n in ("ludus", "trl") if n in found):
        row = found[name]
        out[name] = {
            "tokens_per_second": tokens / row["seconds"],
            "tokens_per_cpu_second": tokens / row["cpu"],
            "memory": row["memory"],
        }
        if case.device == "cuda":
            out[name]["mfu"] = flops(case) / row["seconds"] / PEAK_FLOPS
        share = f"{out[name]['mfu']:8.1%}" if case.device == "cuda" else ""
        print(
            f"{case.name:16}{name:7}{tokens / row['seconds']:10,.0f}{tokens / row['cpu']:12,.0f}"
            f"{row['memory'] / 2**20:10,.0f}{row['baseline'] / 2**20:10,.0f}{share}",
            flush=True,
        )
    if "trl" in out:
        ours_, theirs = out["ludus"], out["trl"]
        out["ratio"] = {key: ours_[key] / theirs[key] for key in theirs}
        print(
            f"{'':16}{'ratio':7}{out['ratio']['tokens_per_second']:9.2f}×{out['ratio']['tokens_per_cpu_second']:11.2f}×"
            f"{out['ratio']['memory']:9.2f}×{'':10}  gradients differ by {out['gradients']['whole']:.1e}, "
            f"at worst {out['gradients']['worst']:.1e}",
            flush=True,
        )
    return out


def sweep(case: Case) -> None:
    """TRL's speed by the size of its batch per device."""
    for per_device in (1, 2, 4, 8, 16, 32, 64):
        side = Side("trl", replace(case, per_device=per_device))
        try:
            side.step()
            rows = [side.step() for _ in range(3)]
        finally:
            side.close()
        seconds, cpu = (statistics.median(row[key] for row in rows) for key in ("seconds", "cpu"))
        print(
            f"{case.name:16}trl, {per_device:2} per device: {seconds:7.2f} s, {cpu:7.2f} CPU s, "
            f"{rows[-1]['memory'] / 2**20:7,.0f} MiB",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="of a round, after its first; each case has its own when left out")
    parser.add_argument("--cases", help=f"of {', '.join(case.name for case in CASES)}")
    parser.add_argument("--threads", type=int, help="of torch, on both sides")
    parser.add_argument("--spins", action="store_true", help="threads wait on both sides as they do on ours")
    parser.add_argument("--sweep", action="store_true", help="only try TRL's batch sizes")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.ours:
        ours(Case(**json.loads(options.ours.read_text())))
    cases = [
        c for c in (GPU_CASES if options.gpu else CASES) if not options.cases or c.name in options.cases.split(",")
    ]
    names = ["ludus", "trl"] if TRL.exists() else ["ludus"]
    result = {}
    print(f"{'':23}{'tokens/s':>10}{'per CPU s':>12}{'MiB more':>10}{'than':>10}{'MFU' if options.gpu else '':>8}")
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            case = prepare(
                replace(
                    case,
                    threads=options.threads or case.threads,
                    steps=options.steps or case.steps,
                    brief_spins=options.spins,
                ),
                Path(folder),
            )
            if options.sweep:
                sweep(case)
                continue
            from safetensors.torch import load_file

            tokens = int(load_file(Path(folder) / "batch.safetensors")["lengths"].sum())
            result[case.name] = tell(case, measure(case, names, options.rounds), tokens)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
