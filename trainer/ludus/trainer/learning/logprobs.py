"""Log-probabilities and entropies of tokens, computed without keeping the logits of all tokens in memory.

The logits of 16,384 tokens over a vocabulary of 152,000 would take 10 GB, and their gradient another 10 GB. Here they
are computed for `chunk` tokens at a time. The forward pass keeps only log Σ exp(logits) of each token, and the backward
pass computes the logits again, in the buffer that becomes their gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True, slots=True)
class Head:
    """How a model makes logits of z = hidden @ weight.T + bias: scale · z, and then cap · tanh(scale · z / cap)."""

    scale: float = 1.0
    cap: float | None = None


PLAIN = Head()


def token_logprobs(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    chunk: int,
    entropy: bool = False,
    bias: Tensor | None = None,
    head: Head = PLAIN,
) -> tuple[Tensor, Tensor | None]:
    """Return log softmax(logits)[targets], and the entropy of that distribution. See `Head` for the logits.

    Args:
        hidden: the last hidden states of the tokens that count, [N, d].
        weight: the weight of the LM head, [V, d].
        targets: the token that follows each hidden state, [N] int64.
        chunk: the number of tokens whose logits exist at once.
        entropy: whether to compute the entropies. They are differentiable, and cost more in the backward pass only if
            something depends on them.
        bias: the bias of the LM head, [V].
        head: what the model does to the LM head's result.

    Returns:
        Log-probabilities and entropies, in nats, [N] each, in float32 or wider, which is also the dtype in which
        products are accumulated, whatever the dtype of `hidden`.
    """
    return cast(
        tuple[Tensor, Tensor | None],
        _TokenLogprobs.apply(hidden, weight, bias, targets, chunk, entropy, head),  # type: ignore[no-untyped-call]
    )


def token_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, head: Head = PLAIN) -> Tensor:
    """Return the logits, [N, V] in float32 or wider. The arguments are those of `token_logprobs`."""
    return _logits(hidden, weight, bias, head)


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        chunk: int,
        entropy: bool,
        head: Head,
    ) -> tuple[Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)
        log_z, chosen, entropies = (hidden.new_empty(len(hidden), dtype=_wide(hidden)) for _ in range(3))
        for rows in _chunks(len(hidden), chunk):
            logits = _logits(hidden[rows], weight, bias, head)
            chosen[rows] = logits.gather(1, targets[rows, None])[:, 0]
            peak = logits.amax(1, keepdim=True)
            logits -= peak
            powers = torch.exp(logits, out=None if entropy else logits)
            total = powers.sum(1)
            log_total = total.log()
            log_z[rows] = log_total + peak[:, 0]
            if entropy:  # H = log Z - Σ p × logit
                entropies[rows] = log_total - powers.mul_(logits).sum(1) / total
        ctx.save_for_backward(hidden, weight, bias, targets, log_z, entropies)
        ctx.chunk, ctx.head = chunk, head
        return chosen - log_z, entropies if entropy else None

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  # pyrefly: ignore[bad-override] (as torch has it)
        ctx: Any, *gradients: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, log_z, entropies = ctx.saved_tensors
        of_logprobs, of_entropy = gradients
        of_logprobs = torch.zeros_like(log_z) if of_logprobs is None else of_logprobs
        of_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        of_weight = torch.zeros_like(weight, dtype=_wide(hidden)) if ctx.needs_input_grad[1] else None
        of_bias = torch.zeros_like(bias, dtype=_wide(hidden)) if ctx.needs_input_grad[2] else None
        for rows in _chunks(len(hidden), ctx.chunk):
            gradient = _logits(hidden[rows], weight, bias, ctx.head)
            slope = _slope(gradient, ctx.head)  # before `gradient`, here the logits, changes in place
            gradient.sub_(log_z[rows, None])
            row_gradients = of_logprobs[rows, None]
            if of_entropy is None:  # d log p_t / d logit_j = [j = t] - p_j
                gradient.exp_().mul_(-row_gradients)
            else:  # d H / d logit_j = -p_j (log p_j + H)
                of_h = of_entropy[rows, None]
                powers = gradient.exp()
                gradient.add_(entropies[rows, None]).mul_(of_h).add_(row_gradients).mul_(powers).neg_()
            gradient.scatter_add_(1, targets[rows, None], row_gradients)
            if slope is not None:
                gradient.mul_(slope)
            if of_bias is not None:
                of_bias += gradient.sum(0)
            gradient = gradient.to(hidden.dtype)
            if of_hidden is not None:
                of_hidden[rows] = gradient @ weight.to(hidden.dtype)
            if of_weight is not None:
                _accumulate(of_weight, gradient.T, hidden[rows])
        return of_hidden, _like(of_weight, weight), _like(of_bias, bias), None, None, None, None


def _chunks(count: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, count, size)]


def _wide(tensor: Tensor) -> torch.dtype:
    """Return the dtype for sums: float32 or wider."""
    return torch.promote_types(tensor.dtype, torch.float32)


def _mixed(tensor: Tensor) -> bool:
    """Return whether one kernel can multiply in this dtype and sum in float32; CPUs have no such kernel."""
    return tensor.is_cuda and tensor.dtype in (torch.bfloat16, torch.float16)


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, head: Head) -> Tensor:
    """Return the logits [chunk, V] in float32 or wider."""
    if _mixed(hidden):
        logits = torch.mm(hidden, weight.to(hidden.dtype).T, out_dtype=torch.float32)
    else:
        logits = torch.mm(hidden.to(_wide(hidden)), weight.to(_wide(hidden)).T)
    if bias is not None:
        logits.add_(bias)
    if head.scale != 1.0:
        logits.mul_(head.scale)
    return logits if head.cap is None else logits.div_(head.cap).tanh_().mul_(head.cap)


def _slope(logits: Tensor, head: Head) -> Tensor | float | None:
    """Return d logits / d (hidden @ weight.T + bias); None means 1."""
    if head.cap is None:
        return None if head.scale == 1.0 else head.scale
    return (logits / head.cap).square_().neg_().add_(1.0).mul_(head.scale)


def _accumulate(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left @ right to `total` in place, without rounding the product first."""
    if _mixed(left):
        torch.addmm(total, left, right, out_dtype=torch.float32, out=total)
    else:
        total.addmm_(left.to(total.dtype), right.to(total.dtype))


def _like(gradient: Tensor | None, parameter: Tensor | None) -> Tensor | None:
    return gradient if gradient is None or parameter is None else gradient.to(parameter.dtype)
