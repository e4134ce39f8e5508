"""The checks of packed attention: logits and gradients next to those of transformers' eager attention.

The reference computes each sample alone in float32. The packed row holds all samples, and some share a prompt. In
bfloat16 even eager attention is not exact, so its own error is measured, and the checked implementation may have a
multiple of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from ludus.trainer.core.errors import ModelError
from ludus.trainer.core.samples import Sample
from ludus.trainer.doctor.context import CheckFailed, CheckSkipped, Context
from ludus.trainer.doctor.learning import batch_of, random_samples
from ludus.trainer.learning.attention import NAME, Kind, Layout, choose
from ludus.trainer.learning.packing import MicroBatch, pack

LENGTHS: Final = (1500, 130, 2, 2048, 700, 96)
SMALL_LENGTHS: Final = (60, 40, 2, 130, 77, 34)
POSITIONS: Final = 48
"""The number of tokens at the end of each sample whose logits are compared."""
FLOAT32: Final = 1e-3
"""The highest relative difference in float32."""
MULTIPLE: Final = 3.0
"""In bfloat16, the highest multiple of eager attention's own error."""
LEAST: Final = 1e-3
"""In bfloat16, an error that is always allowed."""


def sdpa(context: Context) -> None:
    """Check torch's scaled dot product attention."""
    _compare(context, "sdpa")


def flex(context: Context) -> None:
    """Check flex attention. It has no backward pass on a CPU, so there only logits are compared."""
    _compare(context, "flex")


def flash(context: Context) -> None:
    """Check flash attention, in bfloat16 only."""
    _compare(context, "flash")


@dataclass(frozen=True, slots=True)
class Found:
    """What one implementation computes."""

    logits: Tensor
    """[positions, vocabulary], float32."""
    gradients: dict[str, Tensor] | None
    """By parameter, float32."""

    def error(self, reference: Found) -> tuple[float, float | None]:
        """Return the relative differences of logits and of gradients."""
        logits = relative([self.logits], [reference.logits])
        if self.gradients is None or reference.gradients is None:
            return logits, None
        return logits, relative([self.gradients[name] for name in reference.gradients], reference.gradients.values())


def relative(values: Any, reference: Any) -> float:
    """Return the 2-norm of the difference of lists of tensors, relative to that of the reference."""
    pairs = [(a.double(), b.double()) for a, b in zip(values, reference, strict=True)]
    return float(sum((a - b).square().sum() for a, b in pairs) ** 0.5 / sum(b.square().sum() for _, b in pairs) ** 0.5)


def _compare(context: Context, kind: Kind) -> None:
    device = torch.device(context.setting.device)
    dtypes = [dtype for dtype in (torch.float32, torch.bfloat16) if _runs(kind, device, dtype)]
    if not dtypes:
        _require(kind, device)
    backward = not (kind == "flex" and device.type == "cpu")
    samples, micro = _inputs(context)
    context.record(tokens=len(micro.ids), gradients_compared=backward)
    reference = _eager(_load(context, torch.float32, "eager"), samples, micro, backward)
    failures = []
    for dtype in dtypes:
        name = str(dtype).removeprefix("torch.")
        limits = [FLOAT32, FLOAT32]
        if dtype != torch.float32:
            eager_errors = _eager(_load(context, dtype, "eager"), samples, micro, backward).error(reference)
            limits = [max(LEAST, MULTIPLE * (error or 0.0)) for error in eager_errors]
            context.record(**{f"{name}_eager_error": eager_errors[0], f"{name}_eager_gradient_error": eager_errors[1]})
        errors = _packed(_load(context, dtype, NAME), kind, micro, backward).error(reference)
        for quantity, error, limit in zip(("logits", "gradient"), errors, limits, strict=True):
            context.record(**{f"{name}_{quantity}_error": error, f"{name}_{quantity}_limit": limit})
            if error is not None and not error <= limit:
                failures.append(
                    f"the {quantity} in {name} differ by {error:.2g} from eager attention (limit {limit:.2g})"
                )
    if failures:
        raise CheckFailed("; ".join(failures))


def _runs(kind: Kind, device: torch.device, dtype: torch.dtype) -> bool:
    if kind == "flex":
        return True
    try:
        choose(kind, device, dtype)
    except ModelError:
        return False
    return True


def _require(kind: Kind, device: torch.device) -> None:
    try:
        choose(kind, device, torch.bfloat16)
    except ModelError as error:
        raise CheckSkipped(str(error)) from None


def _load(context: Context, dtype: torch.dtype, attention: str) -> PreTrainedModel:
    model: Any = AutoModelForCausalLM.from_pretrained(
        Path(context.setting.model), dtype=dtype, attn_implementation=attention
    )
    loaded: PreTrainedModel = model.to(context.setting.device).eval()
    return loaded


def _inputs(context: Context) -> tuple[list[Sample], MicroBatch]:
    """Return samples, and the row that holds all of them; of each sample the last tokens count."""
    from transformers import AutoConfig

    vocabulary = AutoConfig.from_pretrained(context.setting.model).get_text_config().vocab_size
    lengths = SMALL_LENGTHS if context.setting.small else LENGTHS
    samples = [_last_counted(sample) for sample in random_samples(lengths, vocabulary, seed=1)]
    batch = batch_of(samples, [torch.zeros(sample.sampled) for sample in samples])
    (micro,) = pack(batch.samples, sum(lengths))
    if micro.spread is None:
        raise CheckFailed("the packed row shares no prompt, so shared prompts were not checked")
    return samples, micro.to(context.setting.device)


def _last_counted(sample: Sample) -> Sample:
    n = len(sample.ids)
    counted = min(POSITIONS, n - 1)
    mask = (False,) * (n - counted) + (True,) * counted
    return Sample(sample.ids, mask, sample.logprobs, (0,) * n, (0,) * n)


def _eager(model: PreTrainedModel, samples: Sequence[Sample], micro: MicroBatch, backward: bool) -> Found:
    """Compute each sample alone."""
    parts = []
    with torch.set_grad_enabled(backward):
        for number in micro.samples:
            sample = samples[number]
            ids = torch.tensor([sample.ids[:-1]], device=micro.ids.device)
            hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state[0]
            parts.append(hidden[len(sample.ids) - sample.sampled - 1 :])
        return _found(model, torch.cat(parts), backward)


def _packed(model: PreTrainedModel, kind: Kind, micro: MicroBatch, backward: bool) -> Found:
    layout = Layout(micro.lengths, kind, micro.ids.device, micro.spread, micro.kept)
    with torch.set_grad_enabled(backward):
        hidden = model.get_decoder()(
            input_ids=micro.ids[None], position_ids=micro.positions[None], layout=layout, use_cache=False
        ).last_hidden_state[0]
        return _found(model, hidden[micro.index], backward)


def _found(model: PreTrainedModel, hidden: Tensor, backward: bool) -> Found:
    """Return the logits, and the gradient of a function that depends on each of them."""
    head: Any = model.get_output_embeddings()
    logits = head(hidden).float()
    gradients = None
    if backward:
        torch.autograd.backward((logits.log_softmax(-1)[:, :: max(1, logits.shape[1] // 64)]).mean())
        gradients = {name: p.grad.float().cpu() for name, p in model.named_parameters() if p.grad is not None}
    return Found(logits.detach().cpu(), gradients)
