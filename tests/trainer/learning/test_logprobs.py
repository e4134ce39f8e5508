from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ludus.trainer.learning.logprobs import token_logprobs

N, D, V = 11, 4, 13


def make(dtype: torch.dtype = torch.float64, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(N, D, generator=random).to(dtype) * scale
    weight, bias = torch.randn(V, D, generator=random).to(dtype), torch.randn(V, generator=random).to(dtype)
    targets = torch.randint(V, (N,), generator=random)
    return hidden.requires_grad_(), weight.requires_grad_(), bias.requires_grad_(), targets


def plain(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> tuple[Tensor, Tensor]:
    logits = torch.nn.functional.linear(hidden, weight, bias).log_softmax(-1)
    return logits.gather(1, targets[:, None])[:, 0], -(logits.exp() * logits).sum(-1)


@pytest.mark.parametrize("chunk", [1, 7, N, 1000])
def test_they_are_those_of_the_whole_softmax_for_every_chunk(chunk: int) -> None:
    hidden, weight, bias, targets = make()
    found = token_logprobs(hidden, weight, targets, chunk=chunk, entropy=True, bias=bias)
    torch.testing.assert_close(found, plain(hidden, weight, bias, targets), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("entropy", [False, True])
def test_gradients_are_those_of_finite_differences(entropy: bool) -> None:
    hidden, weight, bias, targets = make()

    def function(hidden: Tensor, weight: Tensor, bias: Tensor) -> Any:
        logprobs, entropies = token_logprobs(hidden, weight, targets, chunk=5, entropy=entropy, bias=bias)
        return logprobs if entropies is None else (logprobs, entropies)

    assert torch.autograd.gradcheck(function, (hidden, weight, bias))


def test_an_entropy_alone_has_a_gradient() -> None:
    hidden, weight, _, targets = make()
    _, entropies = token_logprobs(hidden, weight, targets, chunk=5, entropy=True)
    assert entropies is not None
    ours = torch.autograd.grad(entropies.square().sum(), (hidden, weight))
    theirs = torch.autograd.grad(plain(hidden, weight, None, targets)[1].square().sum(), (hidden, weight))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_great_logits_do_not_overflow() -> None:
    hidden, weight, bias, targets = make(torch.float32, scale=1e4)
    logprobs, entropies = token_logprobs(hidden, weight, targets, chunk=7, entropy=True, bias=bias)
    assert entropies is not None
    torch.autograd.backward(logprobs.sum() + entropies.sum())
    assert logprobs.isfinite().all()
    assert entropies.isfinite().all()
    assert hidden.grad is not None
    assert hidden.grad.isfinite().all()


def test_bfloat16_states_meet_a_float32_head_with_sums_in_float32() -> None:
    hidden, weight, _, targets = make(torch.float32)
    narrow = hidden.detach().bfloat16().requires_grad_()
    logprobs, _ = token_logprobs(narrow, weight, targets, chunk=7)
    torch.autograd.backward(logprobs.sum())
    exact, _ = plain(narrow.detach().float(), weight, None, targets)
    torch.testing.assert_close(logprobs, exact, rtol=1e-6, atol=1e-6)
    assert narrow.grad is not None
    assert narrow.grad.dtype == torch.bfloat16
    assert weight.grad is not None
    (expected,) = torch.autograd.grad(exact.sum(), weight)
    torch.testing.assert_close(weight.grad, expected, rtol=2e-2, atol=2e-2)


def test_a_frozen_head_gets_no_gradient() -> None:
    hidden, weight, _, targets = make()
    torch.autograd.backward(token_logprobs(hidden, weight.requires_grad_(False), targets, chunk=7)[0].sum())
    assert hidden.grad is not None
    assert weight.grad is None


def test_no_tokens_are_no_logprobs_and_no_gradient() -> None:
    hidden, weight, _, targets = make()
    logprobs, _ = token_logprobs(hidden[:0], weight, targets[:0], chunk=7)
    torch.autograd.backward(logprobs.sum())
    assert logprobs.shape == (0,)
    assert weight.grad is not None
    assert not weight.grad.any()


def test_whole_logits_never_exist() -> None:
    class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
        size = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            sizes = [leaf.untyped_storage().nbytes() for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
            Largest.size = max([Largest.size, *sizes])
            return out

    hidden, weight = torch.randn(512, 4, requires_grad=True), torch.randn(1000, 4, requires_grad=True)
    with Largest():  # type: ignore[no-untyped-call]
        logprobs, entropies = token_logprobs(hidden, weight, torch.zeros(512, dtype=torch.long), chunk=16, entropy=True)
        assert entropies is not None
        torch.autograd.backward(logprobs.sum() + entropies.sum())
    assert Largest.size == 16 * 1000 * 4
