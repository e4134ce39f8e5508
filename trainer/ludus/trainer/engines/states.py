"""The torch engine's other cache: for each row what transformers itself keeps of a sequence.

Recurrent layers keep one state of all tokens so far, and some kinds of attention more than keys and values. So each
row is computed alone, by transformers' own code. That is slower than a pass over all rows at once, and such a state
cannot go back: a sequence that does not continue its row's tokens is computed from its beginning.

Not every model continues rightly from what it keeps. `find_states` tries it: several tokens at once, then one at a
time. What can do neither computes the whole sequence for each new token.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any, Final, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ludus.trainer.core.errors import EngineError
from ludus.trainer.core.probe import LIMITS

PROBE: Final = (9, 6, 1, 1, 1)
"""The tokens of the passes in which `find_states` computes a sequence."""
Continues = Literal["several", "one", "none"]
"""With how many tokens at once a kept state can be continued."""


class States:
    """The state of each row after its tokens so far.

    Args:
        rows: the number of rows.
        width: the maximum number of tokens of a row, which takes no memory before there are so many.
        continues: how the model continues from what it keeps.
    """

    rewinds = False

    def __init__(self, rows: int, width: int, *, continues: Continues) -> None:
        self.rows, self.width, self.continues = rows, width, continues
        self._states: dict[int, tuple[int, Any]] = {}
        """By row the number of tokens, and transformers' cache of them, or the tokens."""

    def swap(self, one: int, other: int, tokens: int) -> None:
        """Exchange two rows."""
        moved = {one: other, other: one}
        self._states = {moved.get(row, row): state for row, state in self._states.items()}

    def advance(self, model: PreTrainedModel, row: int, first: int, ids: Tensor) -> Tensor:
        """Compute the next tokens of a row, of which the first has the position `first`, and return the last one's
        logits, [vocabulary]."""
        count, kept = self._states.pop(row, (0, None))
        if first == 0:  # another sequence, or other weights
            count, kept = 0, None
        if count != first:
            raise EngineError(f"the torch engine lost tokens of a sequence: it kept {count} of {first}")
        if self.continues == "none":
            kept = ids if kept is None else torch.cat([kept, ids])
            result = _call(model, kept, 0, use_cache=False)
        else:
            name = "cache_params" if "cache_params" in _parameters(model) else "past_key_values"
            *parts, last = torch.split(ids, 1) if self.continues == "one" and kept is not None else (ids,)
            for part in parts:
                kept = _call(model, part, count, use_cache=True, **{name: kept})[name]
                count += len(part)
            result = _call(model, last, count, use_cache=True, **{name: kept})
            kept = result[name]
        logits: Tensor = result.logits[0, -1]
        self._states[row] = (first + len(ids), kept)
        return logits


def _call(model: PreTrainedModel, ids: Tensor, first: int, **options: Any) -> Any:
    """Compute tokens that begin at the position `first`; only the last one's logits, if the model can leave out the
    others."""
    positions = torch.arange(first, first + len(ids), device=ids.device)
    if "logits_to_keep" in _parameters(model):
        options["logits_to_keep"] = 1
    return model(input_ids=ids[None], position_ids=positions[None], **options)


def _parameters(model: PreTrainedModel) -> frozenset[str]:
    return frozenset(inspect.signature(model.forward).parameters)


@torch.no_grad()
def find_states(model: PreTrainedModel, dtype: torch.dtype) -> partial[States]:
    """Return what makes the cache of a model that is computed row by row: the fastest that gives a sequence which is
    computed in several passes the probabilities that it has at once."""
    embeddings: Any = model.get_input_embeddings()
    ids = torch.arange(sum(PROBE)).remainder(embeddings.num_embeddings).to(model.device)
    positions = torch.arange(len(ids), device=ids.device)
    at_once = model(input_ids=ids[None], position_ids=positions[None], use_cache=False).logits[0]
    limit = LIMITS[str(dtype).removeprefix("torch.")][0]
    tried: tuple[Continues, ...] = ("several", "one")
    for continues in tried:
        try:
            if _difference(model, States(1, len(ids), continues=continues), ids, at_once) <= limit:
                return partial(States, continues=continues)
        except Exception:  # whatever a model raises that keeps nothing, or not in this way
            continue
    return partial(States, continues="none")


def _difference(model: PreTrainedModel, states: States, ids: Tensor, at_once: Tensor) -> float:
    """Return the greatest mean difference of log-probabilities, in nats, between passes and all tokens at once."""
    first, differences = 0, list[Tensor]()
    for count in PROBE:
        logits = states.advance(model, 0, first, ids[first : first + count])
        first += count
        differences.append((logits.float().log_softmax(-1) - at_once[first - 1].float().log_softmax(-1)).abs().mean())
    return float(torch.stack(differences).max())
