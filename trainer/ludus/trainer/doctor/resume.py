"""The check of checkpoints: a run that was stopped and resumed in another process equals one that was not."""

from __future__ import annotations

from typing import Any, Final

from safetensors.torch import load_file

from ludus.trainer.core.checkpoints import Checkpoints
from ludus.trainer.doctor.context import CheckFailed, Context, read_json, write_json
from ludus.trainer.doctor.learning import (
    batch_of,
    configuration,
    distance,
    lengths_of,
    make_learner,
    random_samples,
    save_weights,
)
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.losses import linear_objective

STEPS: Final = 6
STOP: Final = 3
"""The number of steps before the checkpoint."""
TOKENS, LONGEST, RATE = 4_096, 1_024, 1e-5
SMALL_TOKENS, SMALL_LONGEST, SMALL_RATE = 256, 64, 1e-3
LIMITS: Final = {"cpu": 1e-4, "cuda": 0.1}
"""The highest difference of the parameters, relative to the way that they went in all steps. On a GPU some sums are
added in an order that changes from run to run, and AdamW amplifies differences of small gradients."""
LOSS_LIMITS: Final = {"cpu": 1e-5, "cuda": 2e-2}
"""The highest difference of a step's loss, in nats per token."""


def run(context: Context) -> None:
    """Run both in processes of their own, and compare parameters and losses."""
    context.run(uninterrupted)
    context.run(resumed)
    compare(context)


def uninterrupted(context: Context) -> None:
    """Learn for all steps, with a checkpoint in the middle."""
    learner = _learner(context)
    save_weights(learner, context.folder / "begin.safetensors")
    losses = [_step(context, learner, number) for number in range(STOP)]
    _checkpoints(context).save(STOP, {"losses": losses}, {"learner": learner.state()})
    losses += [_step(context, learner, number) for number in range(STOP, STEPS)]
    save_weights(learner, context.folder / "uninterrupted.safetensors")
    write_json(context.folder / "uninterrupted.json", losses)


def resumed(context: Context) -> None:
    """Load the checkpoint and learn for the rest of the steps."""
    learner, checkpoints = _learner(context), _checkpoints(context)
    path = checkpoints.latest()
    if path is None:
        raise CheckFailed("there is no complete checkpoint to resume from")
    tensors = {"learner": learner.state()}
    state: dict[str, Any] = checkpoints.load(path, tensors)
    learner.load_state(tensors["learner"])
    losses = state["losses"] + [_step(context, learner, number) for number in range(STOP, STEPS)]
    save_weights(learner, context.folder / "resumed.safetensors")
    write_json(context.folder / "resumed.json", losses)


def compare(context: Context) -> None:
    """Compare what the two runs left in the folder."""
    folder, device = context.folder, context.setting.device
    begin, uninterrupted, resumed = (
        load_file(folder / f"{name}.safetensors") for name in ("begin", "uninterrupted", "resumed")
    )
    losses, again = read_json(folder / "uninterrupted.json"), read_json(folder / "resumed.json")
    distance_learned = distance(uninterrupted, begin)
    difference = distance(uninterrupted, resumed) / distance_learned
    loss_difference = max(abs(a - b) for a, b in zip(losses, again, strict=True))
    context.record(
        steps=STEPS, stopped_after=STOP, losses=losses, parameter_difference=difference,
        parameter_limit=LIMITS[device], loss_difference=loss_difference, loss_limit=LOSS_LIMITS[device],
        equal_tensors=sum(bool((uninterrupted[name] == resumed[name]).all()) for name in uninterrupted),
        tensors=len(uninterrupted),
    )  # fmt: skip
    if not difference <= LIMITS[device]:
        raise CheckFailed(
            f"the parameters of the resumed run differ by {difference:.2g} of the way that they went "
            f"(limit {LIMITS[device]:g})"
        )
    if not loss_difference <= LOSS_LIMITS[device]:
        raise CheckFailed(f"a loss of the resumed run differs by {loss_difference:.2g} (limit {LOSS_LIMITS[device]:g})")


def _learner(context: Context) -> Learner:
    small = context.setting.small
    tokens, rate = (SMALL_TOKENS, SMALL_RATE) if small else (TOKENS, RATE)
    # A rate that changes with the step shows whether the resumed run knows which step it is at.
    config = configuration(context, steps=STEPS, tokens=tokens, learning_rate=rate, schedule="linear")
    return make_learner(context, config)


def _step(context: Context, learner: Learner, number: int) -> float:
    small = context.setting.small
    tokens, longest = (SMALL_TOKENS, SMALL_LONGEST) if small else (TOKENS, LONGEST)
    vocabulary = learner.model.config.get_text_config().vocab_size
    samples = random_samples(lengths_of(tokens, longest), vocabulary, seed=100 + number)
    batch = batch_of(samples, learner.logprobs(samples))
    return float(learner.step(batch, linear_objective)["loss/total"])


def _checkpoints(context: Context) -> Checkpoints:
    return Checkpoints(context.folder / "checkpoints", keep=1)
