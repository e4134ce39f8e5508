"""The training run, a loop of rollouts, advantages, update and weight transfer. Read it from `train` downwards."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from ludus.common.heap import settle_heap
from ludus.rendering import Renderer
from ludus.trainer.collecting.collector import Collector
from ludus.trainer.collecting.episodes import Player
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.errors import Interrupted, LearningError, TrainerError, unwrap_exception_group
from ludus.trainer.core.frozen import FOLDER, LOADED, FrozenPolicies
from ludus.trainer.core.probe import TEXT
from ludus.trainer.core.samples import RolloutGroup
from ludus.trainer.core.stopping import StopRequest, stop_requests
from ludus.trainer.engines.base import Engine, WeightUpdate
from ludus.trainer.engines.canary import Canary
from ludus.trainer.engines.frozen import frozen_engines
from ludus.trainer.evaluation import evaluate
from ludus.trainer.learning.batch import make_batch
from ludus.trainer.learning.idle import IdleSteps
from ludus.trainer.learning.model import load_model, load_tokenizer, model_folder
from ludus.trainer.learning.parallel import Parallel
from ludus.trainer.logs import RunLog
from ludus.trainer.outcome import Progress, recorded
from ludus.trainer.rollouts.harness import HarnessPlayer, open_harness
from ludus.trainer.rollouts.sampler import TaskSampler, open_source
from ludus.trainer.rollouts.summary import TaskSolved, harness_remark
from ludus.trainer.warm_up import WarmUp
from ludus.trainer.worker import Worker, WorkerGroup, worker_loop


async def train(config: TrainConfig, parallel: Parallel, remarks: Sequence[str] = ()) -> None:
    """Run a configuration on the first rank until its last step, or until the task is solved.

    Args:
        config: the configuration.
        parallel: the processes of the run.
        remarks: messages about the run's input, which the log shows first.

    Raises:
        TrainerError: see `core/errors.py`. The progress is saved first, except after a `LearningError`; a note
            on the error says what was saved.
    """
    async with open_run(config, parallel, remarks) as run:
        for remark in (*remarks, *run.source.remarks):
            run.log.note(remark)
        try:
            await run.warm_up.run(run)
            run.note_images()
            if run.warm_up.steps:
                await run.workers.command(Worker.keep_reference)
            await run.sync()  # before any rollout, so that rollouts always use the learner's weights
            await run.snapshot()
            async with run.collector:
                run.collector.on_weights_updated(run.step)
                await run.steps()
            await run.finish()
        finally:
            await run.save_at_exit(sys.exception())


def run(config: TrainConfig, remarks: Sequence[str] = ()) -> None:
    """Run a configuration in this process: alone, or as one of torchrun's ranks. The arguments are those of `train`.

    Raises:
        TrainerError: as `train`.
    """
    disable_progress_bar()
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    parallel = Parallel(config.parallel, config.device)
    settle_heap((50_000, 10, 10))  # a cycle may hold a tensor, so the oldest objects are not left for long
    try:
        if parallel.first:
            asyncio.run(train(config, parallel, remarks))
        else:
            worker_loop(Worker(config, parallel))
    finally:
        parallel.close()


@dataclass(slots=True)
class Run:
    """The parts of a run and its progress."""

    config: TrainConfig
    workers: WorkerGroup
    engine: Engine
    renderer: Renderer
    source: TaskSampler
    log: RunLog
    collector: Collector
    stop: StopRequest
    warm_up: WarmUp
    idle: IdleSteps
    progress: Progress
    canary: Canary
    harness: HarnessPlayer | None = None
    """The program that plays the episodes; None for the trainer's own loop."""
    frozen: FrozenPolicies | None = None
    """The snapshots that play as frozen opponents; None without self-play."""
    step: int = 0
    """The number of batches learned from, which is the version of the learner's weights."""
    evaluated: int = -1
    """The step of the last evaluation."""
    ended: bool = False
    """Whether the run has ended before its last step."""
    saved: tuple[int, int] | None = None
    """The progress at the last checkpoint."""
    sampled: int = 0
    """The number of tokens that the collector had sampled by the last step."""
    blind: bool = False
    """Whether the log says that the policy does not see images."""

    @property
    def batches(self) -> tuple[int, int]:
        """The numbers of batches learned from, in the warm-up and after it."""
        return self.warm_up.steps, self.step

    async def steps(self) -> None:
        """Learn from batches until the last step, or until the task is solved."""
        config = self.config
        if self.evaluation_due():
            await self.evaluate()
        while self.step < config.steps:
            try:
                await self.one_step()
            except TaskSolved as solved:
                self.log.note(f"{solved}. The run ends after step {self.step} of {config.steps}")
                self.ended = True
                break
            if self.due(config.checkpoints.every):
                await self.save()
            if self.evaluation_due():
                await self.evaluate()
            if (reason := self.reason_to_end()) is not None:
                self.log.note(f"{reason}. The run ends after step {self.step} of {config.steps}")
                self.ended = True
                break

    def reason_to_end(self) -> str | None:
        """Return why the run ends before its last step; None if it goes on."""
        if self.step == self.config.steps:
            return None
        if self.progress.stalled:
            return f"the last {self.config.max_idle_steps} steps had nothing to learn from"
        if self.progress.flat:
            return f"the rewards have reached no new height for {self.config.plateau} steps"
        return None

    async def one_step(self) -> None:
        """Learn from the next batch, and give the engine the new weights."""
        clock = time.perf_counter()
        async with self.stop.interruptible():
            groups, metrics = await self.collector.batch()
        waited = time.perf_counter() - clock
        self.note_images()
        metrics |= await self.learn(groups)
        metrics |= await self.sync()
        await self.snapshot()
        self.collector.on_weights_updated(self.step)
        seconds, sampled = time.perf_counter() - clock, self.collector.sampled - self.sampled
        self.sampled += sampled
        metrics |= {"time/wait": waited, "time/step": seconds, "throughput/sampled_tokens": sampled / seconds}
        self.log.rollouts(self.step, groups)
        self.log.metrics(self.step, metrics)
        self.progress.step(groups, metrics, solved=all(map(self.source.solved, groups)))
        for remark in self.source.mixer.news():
            self.log.note(remark)
        if self.step == 1 and (samples := harness_remark(metrics)) is not None:
            self.log.note(samples)

    def note_images(self) -> None:
        """Say once, with the first episode that has one, that the policy does not see images."""
        if self.renderer.saw_image and not self.blind:
            self.blind = True
            self.log.note(
                "an environment sent an image. The trainer's policies read text only: they see the words "
                "`[image: image/png]` in its place, so a task that needs the image cannot be learned"
            )

    async def own_groups(self, count: int) -> list[RolloutGroup]:
        """Run `count` groups of episodes with the current policy and return them."""
        await self.sync()
        player = Player(
            self.engine, self.renderer, self.config.rollouts, self.source.episode_slots, harness=self.harness,
            frozen=self.frozen,
        )  # fmt: skip

        async def play(number: int) -> RolloutGroup:
            draw = await self.source.draw(number)
            rollouts = await player.group(draw, self.config.rollouts.group_size)
            return RolloutGroup(number, draw.environment.label, draw.task.id, rollouts, self.step, draw.plan)

        with unwrap_exception_group():
            async with self.stop.interruptible(), asyncio.TaskGroup() as tasks:
                # Negative numbers, so that no group of the run has the same task and seeds.
                running = [tasks.create_task(play(-1 - number)) for number in range(count)]
        return [task.result() for task in running]

    async def learn(self, groups: Sequence[RolloutGroup]) -> dict[str, float]:
        """Learn from one batch. Afterwards the learner is one version ahead of the engine."""
        clock = time.perf_counter()
        batch = await asyncio.to_thread(make_batch, groups, self.config)
        metrics = await self.workers.command(Worker.learn, batch)
        self.step += 1
        if (remark := self.idle.check(self.step, batch, metrics)) is not None:
            self.log.note(remark)
        seconds = time.perf_counter() - clock
        tokens = metrics.pop("loss/tokens", 0.0)
        if self.config.advantages.credit == "monte_carlo":
            metrics["credit/unvalued_turns"] = float(batch.unvalued)
        metrics["loss/zero_gradient"] = float(metrics.get("loss/gradient_norm", 0.0) == 0)
        metrics["loss/no_signal"] = float(remark is not None)
        return {**metrics, "time/update": seconds, "throughput/trained_tokens": tokens / seconds}

    async def sync(self) -> dict[str, float]:
        """Send the learner's weights to the engine, and check that it has them.

        Raises:
            EngineError: the engine did not accept the weights.
            CanaryError: the engine has other weights than the learner.
        """
        clock = time.perf_counter()
        config = self.config
        if config.engine.kind == "vllm" and config.engine.vllm.sync == "lora":
            adapters = config.engine.vllm.folder or config.output / "adapters"
            await self.workers.command(Worker.save_adapter, adapters / f"v{self.step}")
            await self.engine.update_weights(WeightUpdate(self.step, (), adapters / f"v{self.step}"))
            # Open requests may still use the adapters of allowed earlier versions, which vLLM may read again.
            shutil.rmtree(adapters / f"v{self.step - config.rollouts.staleness - 2}", ignore_errors=True)
        else:
            await self.engine.update_weights(WeightUpdate(self.step, await self.workers.weights()))
        difference = await self.canary.check(lambda ids: self.workers.command(Worker.logprobs, ids))
        return {"time/sync": time.perf_counter() - clock, "canary/difference": difference}

    async def snapshot(self) -> None:
        """Add the policy to the pool of frozen opponents, if that is due."""
        if self.frozen is None or self.source.opponents is None:
            return
        if (name := self.source.opponents.due(self.step)) is not None:
            folder = self.frozen.folder / name
            if self.config.engine.kind == "vllm":
                await self.workers.command(Worker.save_adapter, folder)
            else:
                await self.workers.command(Worker.export, folder, self.renderer.stop)
            self.source.opponents.add(name)

    def evaluation_due(self) -> bool:
        """Return whether to evaluate before the next step. An interrupted evaluation is due again."""
        if self.evaluated == self.step:
            return False
        return self.config.evaluation.first if self.step == 0 else self.due(self.config.evaluation.every)

    async def evaluate(self) -> None:
        """Evaluate on the held-out tasks, at most once per step."""
        if self.evaluated != self.step:
            clock = time.perf_counter()
            async with self.stop.interruptible():
                parts = (self.engine, self.renderer, self.source, self.config)
                metrics, groups = await evaluate(*parts, harness=self.harness, frozen=self.frozen)
                if self.step == 0 and self.config.evaluation.persistent:
                    metrics |= (await evaluate(*parts, persistent=True, frozen=self.frozen)).metrics
            self.evaluated = self.step
            self.note_images()
            self.log.rollouts(self.step, groups, held_out=True)
            self.log.metrics(self.step, {**metrics, "time/evaluation": time.perf_counter() - clock})
            self.progress.evaluation(metrics)

    async def save(self) -> None:
        """Write a checkpoint of the last completed batch, unless there is one."""
        if self.saved != self.batches:
            collected = self.collector.state(self.step)
            canary = [self.config.engine.kind, self.config.model.dtype, self.canary.measured]
            state: dict[str, Any] = {
                "step": self.step,
                "collector": collected,
                "warm_up": asdict(self.warm_up),
                "canary": canary,
                "clock": self.renderer.clock.isoformat(),
            }
            warming = self.warm_up.unfinished(self.config)
            await self.workers.command(Worker.save, self.warm_up.steps if warming else self.step, state, warming)
            self.saved = self.batches
            if self.frozen is not None and self.source.opponents is not None:
                folder = self.config.output / "checkpoints"
                await self.frozen.prune(self.source.opponents.members, folder)

    async def save_at_exit(self, error: BaseException | None) -> None:
        """Save the progress before the run ends. If an error ends it, add a note to the error that says what was saved.

        Do nothing after a cancellation, which a second signal causes.
        """
        if error is None:
            await self.save()
        if not isinstance(error, Exception):
            return
        await self.workers.drain_weights()
        if isinstance(error, LearningError) or not self.workers.can_save:
            outcome = "nothing more is saved; the newest checkpoint is as it was"
        elif self.batches == (0, 0) and not isinstance(error, Interrupted):
            outcome = "nothing had been learned yet, so nothing is saved"
        else:
            try:
                await self.save()
                warming = self.warm_up.unfinished(self.config)
                place = f"warm-up step {self.warm_up.steps}" if warming else f"step {self.step}"
                outcome = f"{place} is saved in {self.config.output}; the same command goes on from there"
            except Exception as failure:
                outcome = f"what was learned since the newest checkpoint is lost: {failure}"
        error.add_note(outcome)
        with suppress(TrainerError):  # the disk may be full, which may also be the error itself
            self.log.note(f"{str(error) or type(error).__name__}: {outcome}")

    async def finish(self) -> None:
        """Save, run the last evaluation, and export the policy in Hugging Face format.

        Raises:
            DidNotLearn: all episodes earned the same.
        """
        await self.save()
        await self.evaluate()
        if self.config.checkpoints.export:
            folder = self.config.output / "model"
            await self.workers.command(Worker.export, folder, self.renderer.stop)
            self.log.note(f"the trained policy is in {folder}")
        if (remark := self.idle.summary()) is not None:
            self.log.note(remark)
        if not self.ended and (remark := self.progress.still_rising()) is not None:
            self.log.note(remark)
        if (failure := self.progress.failure()) is not None:
            raise failure

    def due(self, every: int) -> bool:
        """Return whether an action that is done every `every` steps is due now; 0 means never."""
        return every > 0 and self.step % every == 0


@asynccontextmanager
async def open_run(config: TrainConfig, parallel: Parallel, remarks: Sequence[str] = ()) -> AsyncIterator[Run]:
    """Open and check the parts of a run, the cheapest checks first: environments, model, engine."""
    async with AsyncExitStack() as stack:
        stop = stack.enter_context(stop_requests())
        try:
            async with stop.interruptible():
                run = await _open(config, parallel, stack, stop, remarks)
        except Interrupted as error:
            error.add_note("the run had not begun yet, so there was nothing to save")
            raise
        yield run


async def _open(
    config: TrainConfig, parallel: Parallel, stack: AsyncExitStack, stop: StopRequest, remarks: Sequence[str]
) -> Run:
    source = await stack.enter_async_context(open_source(config))
    tokenizer = await asyncio.to_thread(load_tokenizer, config.model)
    renderer = Renderer(tokenizer, tool_calls=config.rollouts.tool_calls)
    for environment in source.environments:  # before the model is loaded, which may take minutes
        renderer.require_tools(environment.tools)
    worker = await asyncio.to_thread(Worker, config, parallel)
    workers = WorkerGroup(worker)
    stack.push_async_callback(workers.shutdown)
    resumed = await workers.command(Worker.resume)
    step = 0 if resumed is None else int(resumed["step"])
    if resumed is not None and renderer.tells_time:
        clock = datetime.fromisoformat(resumed["clock"])
        renderer = Renderer(tokenizer, tool_calls=config.rollouts.tool_calls, clock=clock)
    log = RunLog(config, worker.tokenizer, resumed=None if resumed is None else step)
    stack.callback(log.close)
    if renderer.tells_time:
        log.note(f"the chat template gets the same time in the whole run: {renderer.clock:%Y-%m-%d %H:%M}")
    if (remark := worker.learner.policy.traits.remark) is not None:
        log.note(remark)
    engine = await open_engine(config, parallel.device)
    stack.push_async_callback(engine.aclose)
    harness = await stack.enter_async_context(open_harness(config.rollouts, engine, renderer))
    frozen = _open_opponents(config, engine, parallel.device, stack)
    collector = Collector(config, engine, renderer, source, harness, frozen)
    warm_up, measured = WarmUp(), None
    if resumed is not None:
        collector.load_state(resumed["collector"])
        warm_up = WarmUp(**resumed["warm_up"])
        *how, measured = resumed["canary"]
        measured = measured if how == [config.engine.kind, config.model.dtype] else None
    canary = Canary(
        engine, config.engine.canary, dtype=config.model.dtype, ids=renderer.encode(TEXT), measured=measured
    )
    progress = Progress(config, remarks, () if resumed is None else recorded(config.output / "metrics.jsonl"))
    run = Run(
        config, workers, engine, renderer, source, log, collector, stop, warm_up, IdleSteps(config), progress, canary,
        harness, frozen, step,
    )  # fmt: skip
    run.evaluated = log.evaluated
    run.saved = None if resumed is None else run.batches
    return run


def _open_opponents(
    config: TrainConfig, engine: Engine, device: torch.device, stack: AsyncExitStack
) -> FrozenPolicies | None:
    """Return the snapshots that play as frozen opponents; None without self-play."""
    if config.self_play is None:
        return None
    opening = frozen_engines(config, engine, device)
    frozen = FrozenPolicies(config.output / FOLDER, opening)
    stack.push_async_callback(frozen.aclose)
    return frozen


async def open_engine(config: TrainConfig, device: torch.device) -> Engine:
    """Open the engine that the configuration names. It does not hold the run's weights yet."""
    context = config.rollouts.context
    if config.engine.kind == "torch":
        from ludus.trainer.engines.torch import TorchEngine

        # Loaded again, because the learner's model may be sharded or have adapters in its layers.
        plain = config.model.model_copy(update={"lora": None})
        model = await asyncio.to_thread(load_model, plain, device)
        return TorchEngine(model, config.engine.torch, context=context, dtype=getattr(torch, config.model.dtype))
    from ludus.trainer.engines.vllm import VllmEngine

    return await VllmEngine.open(
        config.engine.vllm,
        model=str(model_folder(config.model.path)),
        dtype=config.model.dtype,
        context=context,
        folder=config.output / "vllm",
        device=device,
        lora=config.model.lora,
        frozen=0 if config.self_play is None else LOADED,
    )
