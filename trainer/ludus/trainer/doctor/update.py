"""The check of the learner's update: its speed and memory, that it does not depend on how a batch is split, and that
the loss falls."""

from __future__ import annotations

import statistics
import time
from typing import Final

import torch

from ludus.trainer.core.samples import TrainBatch
from ludus.trainer.doctor.context import CheckFailed, Context
from ludus.trainer.doctor.flops import PEAKS, training_flops
from ludus.trainer.doctor.learning import batch_of, configuration, lengths_of, make_learner, random_samples
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.losses import policy_objective

TOKENS, LONGEST, RATE = 16_384, 4_096, 1e-5
SMALL_TOKENS, SMALL_LONGEST, SMALL_RATE = 512, 128, 1e-3
MICRO_BATCHES: Final = 2
STEPS: Final = 4
"""Steps that are measured, after one that is not."""
SPLIT_LIMITS: Final = {"float32": 1e-4, "bfloat16": 3e-2}
"""The highest relative difference of the gradient's norm between two ways to split the same batch."""


def run(context: Context) -> None:
    """Measure updates, and check them."""
    small = context.setting.small
    tokens, longest = (SMALL_TOKENS, SMALL_LONGEST) if small else (TOKENS, LONGEST)
    config = configuration(context, tokens=tokens, learning_rate=SMALL_RATE if small else RATE)
    learner = make_learner(context, config)
    vocabulary = learner.model.config.get_text_config().vocab_size
    samples = random_samples(lengths_of(MICRO_BATCHES * tokens, longest), vocabulary, seed=2)
    batch = batch_of(samples, learner.logprobs(samples))
    context.record(
        tokens_per_microbatch=tokens, tokens_per_step=sum(len(s.ids) for s in samples), samples=len(samples),
        dtype=context.setting.dtype, attention=learner.policy.attention, checkpoint_activations=True,
    )  # fmt: skip
    _check_split(context, learner, batch)
    _measure(context, learner, batch)


def _check_split(context: Context, learner: Learner, batch: TrainBatch) -> None:
    """Compare the gradient of the batch in micro-batches of full and of half size. The rate is 0, so weights stay."""
    config = learner.config
    half = config.optimizer.model_copy(update={"tokens": config.optimizer.tokens // 2})
    norms = []
    for optimizer in (config.optimizer, half):
        learner.config = config.model_copy(update={"optimizer": optimizer})
        metrics = learner.step(batch, policy_objective(config.loss), learning_rate=0.0)
        norms.append(metrics["loss/gradient_norm"])
    learner.config = config
    difference, limit = abs(norms[0] - norms[1]) / norms[0], SPLIT_LIMITS[context.setting.dtype]
    context.record(gradient_norm=norms[0], split_difference=difference, split_limit=limit)
    if not difference <= limit:
        raise CheckFailed(
            f"the norm of the gradient depends on the size of the micro-batches: {norms[0]:.4g} and {norms[1]:.4g} "
            f"(relative difference {difference:.2g}, limit {limit:.2g})"
        )


def _measure(context: Context, learner: Learner, batch: TrainBatch) -> None:
    cuda = learner.parallel.device.type == "cuda"
    seconds, losses = [], []
    for _ in range(STEPS + 1):
        if cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        losses.append(learner.step(batch, policy_objective(learner.config.loss))["loss/total"])
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    step = statistics.median(seconds[1:])
    lengths = [len(item.sample.ids) for item in batch.samples]
    counted = sum(item.sample.sampled for item in batch.samples)
    flops = training_flops(learner.model.config.get_text_config(), lengths, counted)
    name = torch.cuda.get_device_name() if cuda else None
    peak = PEAKS.get(name) if name is not None and context.setting.dtype == "bfloat16" else None
    mfu, note = None, None
    if flops is None:
        note = "no MFU: the operations of this kind of model are not known"
    elif peak is None:
        note = "no MFU: the peak of this device is not known"
    else:
        mfu = flops / step / peak
    context.record(
        seconds_per_step=step, slowest_step=max(seconds[1:]), first_step=seconds[0],
        tokens_per_second=sum(lengths) / step,
        flops_per_step=flops, mfu=mfu, mfu_note=note, loss_before=losses[0], loss_after=losses[-1],
    )  # fmt: skip
    if not losses[-1] < losses[0]:
        raise CheckFailed(f"{STEPS} updates on one batch did not lower its loss: {losses[0]:.4g} to {losses[-1]:.4g}")
