"""The comparison of an exported model, loaded again, with the learner that wrote it.

A tensor that an export lacks is drawn at random when the model is loaded, and transformers only warns. So the model is
loaded as its users will load it, on the CPU. Its tensors are compared one at a time with those that the learner sends a
second time, and then the probabilities of a few tokens, which depend on the configuration too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from ludus.trainer.core.errors import ModelError
from ludus.trainer.core.probe import TEXT
from ludus.trainer.learning.checkpoint_names import kept_tensors

TOKENS: Final = 64
"""The number of tokens whose probabilities are compared."""
NAMED: Final = 3
"""The maximum number of tensors that an error names."""


def probe_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the tokens whose probabilities are compared."""
    return list(islice(cycle(tokenizer.encode(TEXT, add_special_tokens=False)), TOKENS))


@torch.no_grad()
def require_equal(
    folder: Path, tensors: Iterable[tuple[str, Tensor]], ids: Sequence[int], expected: Sequence[float], limit: float
) -> None:
    """Load the model in `folder` and compare it with the learner.

    Args:
        folder: an export.
        tensors: the tensors of the learner, by their names in the model. Read to the end, whatever differs.
        ids: tokens of ordinary text.
        expected: the learner's log-probabilities of `ids[1:]`.
        limit: the maximum mean difference of log-probabilities, which is that of rounding.

    Raises:
        ModelError: the model cannot be loaded, a tensor is missing or has other values, or the probabilities differ.
    """
    faults: list[str] = []
    model: PreTrainedModel | None = None
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        model = loaded[0].eval()
        faults += [
            f"{len(loaded[1][kind])} tensors are {text}, such as {min(loaded[1][kind])}"
            for kind, text in (("missing_keys", "missing"), ("unexpected_keys", "not of the model"))
            if loaded[1][kind]
        ]
    except Exception as error:  # a broken file can raise any of a dozen types
        faults.append(f"it cannot be loaded: {type(error).__name__}: {error}")
    faults += _different(dict(kept_tensors(model)) if model is not None else {}, tensors)
    if model is not None:
        faults += _improbable(model, ids, expected, limit)
    if faults:
        raise ModelError(
            f"the export in {folder} is another model than the trained one: {'; '.join(faults)}. It stays there, and "
            "an earlier export is as it was; the checkpoints have the trained weights"
        )


def _different(held: dict[str, Tensor], tensors: Iterable[tuple[str, Tensor]]) -> list[str]:
    """Return which tensors of the learner the loaded model holds with other values."""
    differences: dict[str, float] = {}
    for name, tensor in tensors:
        if (own := held.get(name)) is None:
            differences.update({name: math.inf} if held else {})
            continue
        expected = tensor.cpu().to(own.dtype)
        if own.shape != expected.shape:
            differences[name] = math.inf
        elif not torch.equal(own, expected):
            differences[name] = float((own.double() - expected.double()).abs().max())
    if not differences:
        return []
    worst = sorted(differences, key=differences.__getitem__, reverse=True)[:NAMED]
    named = ", ".join(f"{name} by up to {differences[name]:.3g}" for name in worst)
    return [f"{len(differences)} tensors differ: {named}"]


def _improbable(model: PreTrainedModel, ids: Sequence[int], expected: Sequence[float], limit: float) -> list[str]:
    """Return how far the loaded model's log-probabilities are from the learner's, if that is more than rounding."""
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1]
    logprobs = logits.float().log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    distance = float((logprobs.double() - torch.tensor(expected, dtype=torch.float64)).abs().mean())
    if distance <= limit:
        return []
    return [
        f"the log-probabilities of {len(expected)} tokens differ by {distance:.3g} nats on average (allowed: {limit:g})"
    ]
