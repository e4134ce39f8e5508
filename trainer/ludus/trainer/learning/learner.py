"""The learner, which turns a batch of samples into new weights.

How this works:

`Learner.step` learns from one batch, which is the same on every rank. It splits the batch into mini-batches of whole
groups (`split_minibatches`). Each mini-batch is one optimizer step, and all of them are repeated for `epochs` passes.

For each mini-batch, `_prepare` packs the samples into micro-batches, as the model's layers allow (`rows.py`), and takes
this rank's share (`_share`). All ranks get the same number of micro-batches, if necessary with one that does not count,
so that their collectives match. `_prepare` also computes the log-probabilities that stay constant during the step:
those of the policy before it (`old_policy = "proximal"`) and those of the reference (KL term).

`_update` makes one optimizer step. `_gradient` runs `Policy` forward and backward on each micro-batch. The loss of an
optimizer step is a plain sum over its tokens, whose weights already contain the step's denominator. So the batch may
be split into micro-batches and over ranks in any way: gradients are added, and the result is the same.

If the loss or the gradient is not finite, no rank changes its weights, and the error names the samples that cause it
(`_not_finite`). Otherwise the gradient is clipped and AdamW updates the float32 master weights.

The reference is the model as it was loaded, until `keep_reference` makes it the policy of that moment, as after a
warm-up. It is a second model, or with LoRA the same one without adapters, or with the adapters of that moment.

`weights` gathers the parameters of all ranks and the persistent buffers, for the engine and the export. An export is
loaded again and compared with the learner before it replaces an earlier one. `state`, `load_state` and
`reference_tensors` are for checkpoints.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.config_learning import OptimizerConfig
from ludus.trainer.core.errors import LearningError
from ludus.trainer.core.probe import LIMITS
from ludus.trainer.core.samples import Sample, TrainBatch, TrainSample
from ludus.trainer.learning.attention import Kind, Layout, choose
from ludus.trainer.learning.batch import split_minibatches
from ludus.trainer.learning.checkpoint_names import checkpoint_tensors, kept_tensors
from ludus.trainer.learning.export_check import probe_ids, require_equal
from ludus.trainer.learning.logprobs import token_logprobs
from ludus.trainer.learning.losses import Objective, Tokens, linear_objective
from ludus.trainer.learning.model import export, save_adapter, without_adapters
from ludus.trainer.learning.packing import MicroBatch, pack
from ludus.trainer.learning.parallel import (
    Parallel,
    clip_gradient,
    gradient_norm,
    local,
    prepare,
    reshard,
    whole,
)
from ludus.trainer.learning.rows import decode, decoder_of, traits_of

CULPRITS = 8
"""The maximum number of samples that an error names."""


class Policy(nn.Module):
    """A module that computes log-probabilities and entropies of the counted tokens of a micro-batch.

    FSDP wraps it as a whole, because it uses the output layer's weight without calling the layer: so logits exist only
    for a chunk of tokens at a time.

    Args:
        model: a causal language model.
        attention: the implementation of attention.
        chunk: the number of tokens whose logits exist at once.
    """

    def __init__(self, model: PreTrainedModel, attention: Kind, chunk: int) -> None:
        super().__init__()
        self.model, self.chunk = model, chunk
        self.attention: Kind = attention
        self.traits = traits_of(model)

    def forward(self, micro: MicroBatch, entropy: bool) -> tuple[Tensor, Tensor | None]:
        """Return [N] log-probabilities of `micro.targets`, and [N] entropies in nats if requested; both float32."""
        layout = Layout(micro.lengths, self.attention, micro.ids.device, micro.spread, micro.kept)
        decoder = decoder_of(self.model)
        head: Any = self.model.get_output_embeddings()
        hidden = decode(decoder, self.traits.rows, micro.ids, micro.positions, layout).last_hidden_state[0]
        # Only the positions that count: the logits of all tokens would be the largest tensor of the step.
        return token_logprobs(
            hidden[micro.index],
            head.weight,
            micro.targets,
            chunk=self.chunk,
            entropy=entropy,
            bias=head.bias,
            head=self.traits.head,
        )


@dataclass(slots=True)
class _Work:
    """A micro-batch of this rank, with the values that do not change during the step."""

    micro: MicroBatch
    counts: bool
    """False for a micro-batch that exists only because other ranks have one more."""
    proximal: Tensor | None = None
    reference: Tensor | None = None

    def tokens(self, logprobs: Tensor, entropy: Tensor | None) -> Tokens:
        columns = (self.micro.behavior, self.micro.advantages, self.micro.weights, self.micro.sample)
        return Tokens(logprobs, *columns, entropy, self.proximal, self.reference)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The result of one optimizer step, the same on all ranks."""

    sums: dict[str, float]
    """The loss and the objective's metrics."""
    norm: float
    """The norm of the gradient before clipping."""

    @property
    def finite(self) -> bool:
        return math.isfinite(self.sums["loss"]) and math.isfinite(self.norm)


class Learner:
    """The policy, its optimizer, and its reference. Every rank has one and makes the same calls in the same order.

    `model` is the result of `load_model`, on the CPU or on the rank's device. It is changed in place; each rank's part
    of it moves to the rank's device.
    """

    def __init__(self, config: TrainConfig, model: PreTrainedModel, parallel: Parallel) -> None:
        self.config, self.parallel, self.model = config, parallel, model
        self.dtype: torch.dtype = getattr(torch, config.model.dtype)
        self.batches = 0
        """The number of batches learned from with the schedule of learning rates."""
        self.whole = True
        """Whether the weights result from complete batches. Stays False once a batch failed after it had begun to
        change the weights."""
        copied = config.model.lora is None and config.loss.kl != "none"
        # Copied before `_wrap`, which changes a model in place; the copy is then wrapped by itself.
        reference = copy.deepcopy(model).requires_grad_(False) if copied else None
        self.policy = self._wrap(model)
        self.reference = reference and self._wrap(reference)
        # After wrapping: FSDP replaces the parameters, and an optimizer of the old ones would update nothing.
        self.parameters = [parameter for parameter in self.policy.parameters() if parameter.requires_grad]
        self.reference_kept = False
        """Whether `keep_reference` has set the reference."""
        self._adapters: list[Tensor] = []
        """The adapters of the reference, if it was kept."""
        self.optimizer = _optimizer(self.parameters, config.optimizer)

    def _wrap(self, model: PreTrainedModel) -> Policy:
        prepare(model, self.config.model)
        attention: Kind = choose(self.config.model.attention, self.parallel.device, self.dtype)
        policy = Policy(model, attention, self.config.optimizer.logprob_chunk)
        self.parallel.wrap(policy, model, self.dtype)
        return policy

    def step(self, batch: TrainBatch, objective: Objective, *, learning_rate: float | None = None) -> dict[str, float]:
        """Learn from one batch, which is the same on every rank. An empty batch changes nothing.

        Args:
            batch: samples with their weights in the loss.
            objective: the loss to minimize.
            learning_rate: if given, make a single optimizer step at this rate, as the warm-up does. If left out,
                epochs, mini-batches and the schedule are those of the configuration.

        Returns:
            Metrics by name, `loss/…`: the objective's as means over tokens, `loss/total` and `loss/gradient_norm` as
            means over optimizer steps, `loss/learning_rate`, and `loss/tokens`, which is a count.

        Raises:
            LearningError: a loss or gradient is not finite. No rank made that optimizer step.
        """
        settings, planned = self.config.optimizer, learning_rate is None
        rate = scheduled_rate(settings, self.batches, self.config.steps) if learning_rate is None else learning_rate
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        pieces = split_minibatches(batch, self.config) if planned else [batch]
        # All of them before the first update: "proximal" means the policy before this whole batch.
        prepared = [(piece, self._prepare(piece.samples, objective)) for piece in pieces if piece.samples]
        outcomes = [
            self._update(piece, works, objective)
            for _ in range(settings.epochs if planned else 1)
            for piece, works in prepared
        ]
        self.whole = True
        self.batches += planned
        return {**_summary(outcomes), "loss/learning_rate": rate}

    def _prepare(self, samples: Sequence[TrainSample], objective: Objective) -> list[_Work]:
        """Return this rank's micro-batches, with the proximal and reference log-probabilities that the loss needs."""
        works = self._share(samples)
        if objective is not linear_objective:
            for work in works:
                if self.config.loss.old_policy == "proximal":
                    work.proximal = self._evaluate(work.micro, reference=False)
                if self.config.loss.kl != "none":
                    work.reference = self._evaluate(work.micro, reference=True)
        return works

    def _share(self, samples: Sequence[TrainSample]) -> list[_Work]:
        """Return this rank's micro-batches: the same number as on every other rank, so that collectives match."""
        ranks, device = self.parallel.world, self.parallel.device
        micros = pack(samples, self.config.optimizer.tokens, multiple=ranks, rows=self.policy.traits.rows)
        works = [_Work(micro.to(device), True) for micro in micros[self.parallel.rank :: ranks]]
        missing = -(-len(micros) // ranks) - len(works)
        return works + [_Work(micros[-1].to(device), False)] * missing

    @torch.no_grad()
    def _evaluate(self, micro: MicroBatch, *, reference: bool) -> Tensor:
        policy = self.policy
        adapters: AbstractContextManager[None] = nullcontext()
        if reference and self.config.model.lora is not None:
            adapters = _exchanged(self.parameters, self._adapters) if self._adapters else without_adapters(self.model)
        elif reference:
            if self.reference is None:
                raise ValueError("there is a reference only with a KL term in the loss, with DPO, or with LoRA")
            policy = self.reference
        with adapters:
            logprobs: Tensor = policy(micro, False)[0]
        # The next update would not reach the gathered parameters that a forward pass alone leaves behind.
        reshard(policy)
        return logprobs

    def _update(self, batch: TrainBatch, works: Sequence[_Work], objective: Objective) -> _Outcome:
        outcome = self._gradient(works, objective)
        # The same on every rank: a rank that raised alone would leave the others waiting in a collective.
        if not outcome.finite:
            raise self._not_finite(batch, objective, outcome)
        clip_gradient(self.parameters, self.config.optimizer.clip_gradient, outcome.norm)
        # Before the step, because an interruption within it leaves weights that belong to no batch.
        self.whole = False
        self.optimizer.step()
        self.optimizer.zero_grad()
        return outcome

    def _gradient(self, works: Sequence[_Work], objective: Objective) -> _Outcome:
        """Compute the gradient of the whole loss in place, and return the sums over all ranks."""
        self.optimizer.zero_grad()
        rows: list[Tensor] = []
        names: list[str] = []
        for work in works:
            logprobs, entropy = self.policy(work.micro, objective is not linear_objective)
            if not work.counts:  # it takes part in the collectives, but not in the sums
                torch.autograd.backward(logprobs.sum() * 0.0)
                continue
            loss, metrics = objective(work.tokens(logprobs, entropy))
            torch.autograd.backward(loss)
            metrics["loss"] = loss.detach()
            # Read after the loop: a value on the CPU would make the GPU wait for every micro-batch.
            rows.append(torch.stack([value.double() for value in metrics.values()]))
            names = list(metrics)
        norm = gradient_norm(self.parameters)
        local_sums = _merge(dict(zip(names, values.tolist(), strict=True)) for values in rows)
        return _Outcome(_merge(self.parallel.gather(local_sums)), float(norm))

    def _not_finite(self, batch: TrainBatch, objective: Objective, outcome: _Outcome) -> LearningError:
        """Return an error that names the samples whose loss or gradient is not finite when each is tried alone."""
        origins = {
            id(sample): f"group {group.number} of {group.environment}, task {group.task!r}, rollout {number}"
            for group in batch.groups
            for number, rollout in enumerate(group.rollouts)
            for sample in rollout.samples
        }
        named: list[str] = []
        for number, item in enumerate(batch.samples):
            # Every rank tries the same samples until `named` is full, since `_gradient` is collective.
            if len(named) < CULPRITS and not self._gradient(self._prepare([item], objective), objective).finite:
                origin = origins.get(id(item.sample), f"sequence {item.sequence}")
                named.append(f"sample {number} ({origin})")
        self.optimizer.zero_grad()
        loss = outcome.sums["loss"]
        problem = f"gradient is {outcome.norm}" if math.isfinite(loss) else f"loss is {loss}"
        alone = f"Not finite alone: {'; '.join(named)}." if named else "Each sample alone is finite; their sum is not."
        return LearningError(
            f"batch {self.batches}: the {problem}, so nothing was changed. {alone} Look at those rewards and "
            "log-probabilities in rollouts.jsonl, and at loss/gradient_norm and loss/ratio_max of the steps before; a "
            "smaller optimizer.learning_rate or loss.dual_clip helps when they grew"
        )

    def logprobs(self, samples: Sequence[Sample], *, reference: bool = False) -> list[Tensor]:
        """Return the log-probabilities of the sampled tokens, without gradient.

        Args:
            samples: the same on all ranks.
            reference: use the reference, which is available only with LoRA or a KL term in the loss.

        Returns:
            For each sample [sampled] float32 on the CPU, the same on all ranks.
        """
        counting = [TrainSample(s, (0.0,) * len(s.ids), tuple(map(float, s.mask)), i) for i, s in enumerate(samples)]
        by_sample: dict[int, Tensor] = {}
        for work in self._share(counting):
            logprobs = self._evaluate(work.micro, reference=reference).cpu()
            pieces = torch.split(logprobs, torch.bincount(work.micro.sample).tolist())
            by_sample.update(zip(work.micro.samples, pieces, strict=True))
        for part in self.parallel.gather(by_sample):
            by_sample.update(part)
        return [by_sample.get(i, torch.empty(0)) for i in range(len(samples))]

    def sequence_logprobs(self, ids: Sequence[int]) -> list[float]:
        """Return the log-probability of each of `ids[1:]` given the ids before it.

        They are computed in a row after another sample, if rows of training hold several, so that the canary sees a
        model that mixes the samples of a row.
        """
        n, ranks = len(ids), self.parallel.world

        def sample(ids: Sequence[int]) -> Sample:
            return Sample(tuple(ids), (False,) + (True,) * (n - 1), (0.0,) * n, (0,) * n, (0,) * n)

        # As many of each as there are ranks, of equal length: so each rank's row has one of both, in this order.
        samples = [sample(ids[::-1])] * ranks + [sample(ids)] * ranks
        values: list[float] = self.logprobs(samples)[ranks].tolist()
        return values

    def weights(self, dtype: torch.dtype, *, as_checkpoint: bool = False) -> Iterator[tuple[str, Tensor]]:
        """Return whole tensors with their names: parameters in `dtype`, with adapters merged, and persistent buffers in
        their own dtype; tied tensors once. Names are those of transformers' model, or with `as_checkpoint` those of its
        checkpoint, which differ for a mixture of experts.

        Collective: every rank iterates to the end, in the same order. Some tensors are the parameters themselves, so
        copy those that must stay unchanged after the next step.
        """
        named = self._named_weights(dtype)
        return checkpoint_tensors(self.model, named) if as_checkpoint else named

    def _named_weights(self, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
        for name, tensor in kept_tensors(self.model):
            owner, _, kind = name.partition(".base_layer.")
            if ".lora_" in name:
                continue
            if kind == "weight":
                layer: Any = self.model.get_submodule(owner)
                down, up = (whole(part["default"].weight.detach()) for part in (layer.lora_A, layer.lora_B))
                merged = whole(tensor.detach()) + layer.scaling["default"] * (up @ down)
                yield f"{owner}.weight", merged.to(dtype)
            elif isinstance(tensor, nn.Parameter):
                yield name.replace(".base_layer.", "."), whole(tensor.detach().to(dtype))
            else:  # never rounded: forward computes with the buffer as it is, and it may hold integers
                yield name.replace(".base_layer.", "."), tensor.detach()

    def save_adapter(self, folder: Path) -> None:
        """Write the LoRA adapter in PEFT's format. Collective; only the first rank writes."""
        named = self.model.named_parameters()
        tensors = {name: whole(parameter.detach()) for name, parameter in named if ".lora_" in name}
        if self.parallel.first:
            save_adapter(self.model, tensors, folder)

    def export(self, tokenizer: PreTrainedTokenizerBase, folder: Path, stop: Sequence[int] = ()) -> None:
        """Write the policy in Hugging Face format, in the configured dtype, and load it again to compare it with the
        learner. Collective; only the first rank writes. See `ludus.trainer.learning.model.export` for `stop`.

        Raises:
            ModelError: it cannot be written, or what was written is another model than the policy.
        """
        ids = probe_ids(tokenizer)
        expected = self.sequence_logprobs(ids)
        tensors: dict[str, Tensor] = {}
        # Every rank iterates to the end, because each tensor is gathered collectively; only the first keeps it.
        for name, tensor in self.weights(self.dtype):
            if self.parallel.first:
                tensors[name] = tensor.cpu()

        def again() -> Iterator[tuple[str, Tensor]]:
            self.parallel.broadcast(None)  # writing may take longer than a rank waits in a gather
            yield from self.weights(self.dtype)

        def compare(written: Path) -> None:
            tensors.clear()  # makes room for the model that is loaded
            limit = max(LIMITS[self.config.model.dtype][0], self.config.engine.canary.tolerance or 0.0)
            require_equal(written, again(), ids, expected, limit)

        if self.parallel.first:
            export(self.model, tokenizer, folder, tensors, stop, check=compare)
        else:
            deque(again(), 0)

    def state(self) -> dict[str, Any]:
        """Return the state for torch.distributed.checkpoint: trained parameters, optimizer and schedule. The learner
        has no random state."""
        options = StateDictOptions(ignore_frozen_params=True)
        return {
            "model": get_model_state_dict(self.policy, options=options),
            "optimizer": get_optimizer_state_dict(self.policy, self.optimizer, options=options),
            "batches": self.batches,
        }

    @torch.no_grad()
    def keep_reference(self) -> None:
        """Make the policy as it is now the reference. Do nothing without a KL term in the loss."""
        if self.config.loss.kl == "none":
            return
        if self.config.model.lora is not None:
            self._adapters = [parameter.detach().clone() for parameter in self.parameters]
        else:
            assert self.reference is not None
            _copy(self.policy.parameters(), self.reference.parameters())
        self.reference_kept = True

    def reference_tensors(self) -> list[Tensor]:
        """Return the tensors of a reference that was kept; a checkpoint is loaded into them."""
        if self._adapters or self.reference is None:
            return self._adapters
        return [parameter.detach() for parameter in self.reference.parameters()]

    def require_finite(self) -> None:
        """Raise LearningError on every rank if a trained weight is not finite on any rank."""
        finite_here = [bool(part.detach().isfinite().all()) for part in map(local, self.parameters)]
        if not all(map(all, self.parallel.gather(finite_here))):
            raise LearningError(
                "weights are not finite any more, so they are not saved; the newest checkpoint is from before. Lower "
                "optimizer.learning_rate and start the same command again"
            )

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`, in the form that `state()` returns."""
        # Not strict, since the frozen parameters are not in the state.
        options = StateDictOptions(ignore_frozen_params=True, strict=False)
        set_model_state_dict(self.policy, state["model"], options=options)
        set_optimizer_state_dict(self.policy, self.optimizer, state["optimizer"], options=options)
        self.batches = state["batches"]


def _copy(source: Iterable[Tensor], target: Iterable[Tensor]) -> None:
    for value, parameter in zip(source, target, strict=True):
        parameter.copy_(value)


@contextmanager
def _exchanged(parameters: Sequence[Tensor], values: Sequence[Tensor]) -> Iterator[None]:
    """Run the body, which computes no gradient, with other values of the parameters."""
    originals = [parameter.detach().clone() for parameter in parameters]
    _copy(values, parameters)
    try:
        yield
    finally:
        _copy(originals, parameters)


def scheduled_rate(config: OptimizerConfig, batch: int, batches: int) -> float:
    """Return the learning rate of batch `batch`, counted from 0, of `batches`: a linear increase over `warmup`, then
    the schedule, which (unless constant) reaches 0 after the last batch."""
    if batch < config.warmup:
        return config.learning_rate * (batch + 1) / config.warmup
    fraction_left = 1 - min(1.0, (batch - config.warmup) / max(1, batches - config.warmup))
    match config.schedule:
        case "constant":
            return config.learning_rate
        case "linear":
            return config.learning_rate * fraction_left
        case "cosine":
            return config.learning_rate * (1 - math.cos(math.pi * fraction_left)) / 2


def _optimizer(parameters: Sequence[nn.Parameter], config: OptimizerConfig) -> torch.optim.Optimizer:
    matrices, vectors = [p for p in parameters if p.ndim >= 2], [p for p in parameters if p.ndim < 2]
    groups = [
        {"params": alike, "weight_decay": decay}
        for alike, decay in ((matrices, config.weight_decay), (vectors, 0.0))
        if alike
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=True)


def _merge(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Add up metrics by name; take the maximum of those whose name ends in `/max`."""
    merged: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            so_far = merged.setdefault(name, -math.inf if name.endswith("/max") else 0.0)
            merged[name] = max(so_far, value) if name.endswith("/max") else so_far + value
    return merged


def _summary(outcomes: Sequence[_Outcome]) -> dict[str, float]:
    """Return means over tokens, or over optimizer steps for metrics of a step."""
    if not outcomes:
        return {}
    sums = _merge(outcome.sums for outcome in outcomes)
    loss, tokens = sums.pop("loss"), sums.pop("tokens")
    metrics = {
        f"loss/{name.replace('/', '_')}": value if name.endswith("/max") else value / max(tokens, 1)
        for name, value in sums.items()
    }
    norm = sum(outcome.norm for outcome in outcomes)
    steps = len(outcomes)
    return {**metrics, "loss/total": loss / steps, "loss/gradient_norm": norm / steps, "loss/tokens": tokens}
