"""The run: rollouts, advantages, update, new weights, and again. Read it from `train` downwards."""

from __future__ import annotations

import asyncio
import functools
import gc
import shutil
import signal
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from transformers.utils.logging import disable_progress_bar

from ludus.trainer.config import TrainConfig
from ludus.trainer.engines import canary
from ludus.trainer.engines.base import Engine, WeightUpdate
from ludus.trainer.errors import TrainerError
from ludus.trainer.evaluation import evaluate
from ludus.trainer.learning.batch import make_batch
from ludus.trainer.learning.dpo import preference_pairs
from ludus.trainer.learning.model import load_model, model_folder
from ludus.trainer.learning.parallel import Parallel
from ludus.trainer.learning.sft import demonstrations, own_episodes, sft_batches
from ludus.trainer.logs import RunLog
from ludus.trainer.rollouts.collector import Collector
from ludus.trainer.rollouts.episodes import Player, single_error
from ludus.trainer.rollouts.source import TaskSource, open_source
from ludus.trainer.samples import RolloutGroup
from ludus.trainer.tokens.renderer import Renderer
from ludus.trainer.worker import Team, Worker, follow

T = TypeVar("T")


class Interrupted(TrainerError):
    """SIGTERM or Ctrl-C: what was learned is saved."""

    exit_code: ClassVar[int] = 143


async def train(config: TrainConfig, parallel: Parallel) -> None:
    """Run a configuration to its end, on the first rank.

    Raises:
        TrainerError: see `ludus.trainer.errors`. The newest checkpoint is as it was.
        Interrupted: a signal came; a checkpoint of the last whole step is saved.
    """
    async with open_run(config, parallel) as run:
        if run.resumed is None:
            await run.warm_up()
        await run.sync()  # before the first wait: rollouts must never be of other weights than the learner's
        if run.resumed is None and config.evaluation.first:
            await run.evaluate()
        async with Collector(config, run.engine, run.renderer, run.source) as collector:
            if run.resumed:
                collector.load_state(run.resumed["collector"])
            collector.synced(run.step)
            while run.step < config.steps:
                clock = time.perf_counter()
                groups, metrics = await run.batch(collector)
                waited = time.perf_counter() - clock
                metrics |= await run.learn(groups)
                metrics |= await run.sync()
                collector.synced(run.step)
                metrics |= run.rates(waited, time.perf_counter() - clock, collector.sampled)
                run.log.rollouts(run.step, groups)
                run.log.metrics(run.step, metrics)
                if run.due(config.evaluation.every):
                    await run.evaluate()
                if run.due(config.checkpoints.every):
                    await run.save(collector)
            await run.save(collector)
        await run.finish()


def run(config: TrainConfig) -> None:
    """Run a configuration in this process: alone, or as one of torchrun's ranks.

    Raises:
        TrainerError: as `train`.
    """
    disable_progress_bar()
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    parallel = Parallel(config.parallel, config.device)
    gc.freeze()  # A collection would look at all objects of the libraries each time, which takes 0.2 s in mid-step.
    try:
        if parallel.first:
            asyncio.run(train(config, parallel))
        else:
            follow(Worker(config, parallel))
    finally:
        parallel.close()


@dataclass(slots=True)
class Run:
    """The parts of a run, and how far it is."""

    config: TrainConfig
    team: Team
    engine: Engine
    renderer: Renderer
    source: TaskSource
    log: RunLog
    stop: asyncio.Event
    """Set when a signal came."""
    resumed: dict[str, Any] | None
    """The plain state of the checkpoint that this run goes on from."""
    step: int = 0
    """Batches learned from, which is the version of the learner's weights."""
    evaluated: int = -1
    """The step of the last evaluation."""
    saved: int = -1
    """The step of the last checkpoint."""
    sampled: int = 0
    """Tokens that the collector had sampled at the last step."""

    async def warm_up(self) -> None:
        """Supervised and preference learning before the first rollout, where configured."""
        config = self.config
        if (sft := config.sft) is not None:
            episodes = demonstrations(sft, self.renderer, context=config.rollouts.context)
            if sft.own_groups:
                episodes += own_episodes(await self.own_groups(sft.own_groups), sft.reward)
            losses = []
            for number, batch in enumerate(sft_batches(episodes, sft, seed=config.seed)):
                rate = sft.learning_rate * (1 - number / sft.steps)
                losses.append((await self.do("imitate", batch, rate))["loss/total"])
            self.log.note(
                f"warm-up: {len(losses)} batches of {len(episodes)} episodes, "
                f"loss {losses[0]:.3f} → {losses[-1]:.3f} nats per token"
            )
        if (dpo := config.dpo) is not None:
            pairs = preference_pairs(dpo, self.renderer, context=config.rollouts.context)
            await self.do("take_pairs", pairs)
            metrics: dict[str, float] = {}
            for _ in range(dpo.steps):
                metrics = await self.do("prefer")
            self.log.note(
                f"preferences: {dpo.steps} batches of {len(pairs)} pairs, accuracy {metrics['dpo/accuracy']:.2f}"
            )

    async def own_groups(self, count: int) -> list[RolloutGroup]:
        """Groups played with the policy as it is."""
        await self.sync()
        player = Player(self.engine, self.renderer, self.config.rollouts, self.source.places)

        async def play(number: int) -> RolloutGroup:
            draw = await self.source.draw(number)
            rollouts = await player.group(draw, self.config.rollouts.group_size)
            return RolloutGroup(number, draw.environment.label, draw.task.id, rollouts, self.step)

        with single_error():
            async with asyncio.TaskGroup() as tasks:
                # Numbers from the other end, so that no group of the run has the same task and seeds.
                running = [tasks.create_task(play(-1 - number)) for number in range(count)]
        return [task.result() for task in running]

    async def batch(self, collector: Collector) -> tuple[list[RolloutGroup], dict[str, float]]:
        """The next groups to learn from. When a signal comes first, what was learned is saved."""
        try:
            return await self.unless_stopped(collector.batch())
        except Interrupted:
            await self.save(collector)
            raise

    async def learn(self, groups: Sequence[RolloutGroup]) -> dict[str, float]:
        """One batch. Afterwards the learner is one version ahead of the engine."""
        clock = time.perf_counter()
        batch = await asyncio.to_thread(make_batch, groups, self.config)
        metrics: dict[str, float] = await self.team.do("learn", batch)
        self.step += 1
        seconds = time.perf_counter() - clock
        tokens = metrics.pop("loss/tokens", 0.0)
        return {**metrics, "time/update": seconds, "throughput/trained_tokens": tokens / seconds}

    async def sync(self) -> dict[str, float]:
        """Give the engine the learner's weights, and see that it has them.

        Raises:
            EngineError: it did not take them; CanaryError: it took others.
        """
        clock = time.perf_counter()
        config = self.config
        if config.engine.kind == "vllm" and config.engine.vllm.sync == "lora":
            adapters = config.engine.vllm.folder or config.output / "adapters"
            await self.team.do("save_adapter", adapters / f"v{self.step}")
            await self.engine.update_weights(WeightUpdate(self.step, (), adapters / f"v{self.step}"))
            # Requests of episodes that are still allowed may be on an earlier one, and vLLM may read it again.
            shutil.rmtree(adapters / f"v{self.step - config.rollouts.staleness - 2}", ignore_errors=True)
        else:
            await self.engine.update_weights(WeightUpdate(self.step, await self.team.weights()))
        difference = await canary.check(
            self.engine,
            functools.partial(self.team.do, "logprobs"),
            config.engine.canary,
            vocabulary=len(self.renderer.tokenizer),
            dtype=config.model.dtype,
            seed=config.seed,
        )
        return {"time/sync": time.perf_counter() - clock, "canary/difference": difference}

    async def evaluate(self) -> None:
        """Play the held-out tasks, once per step at most."""
        if self.evaluated != self.step:
            clock = time.perf_counter()
            metrics, groups = await self.unless_stopped(evaluate(self.engine, self.renderer, self.source, self.config))
            self.evaluated = self.step
            self.log.rollouts(self.step, groups, held_out=True)
            self.log.metrics(self.step, {**metrics, "time/evaluation": time.perf_counter() - clock})

    async def save(self, collector: Collector) -> None:
        """Write a checkpoint of the last step, unless there is one."""
        if self.saved != self.step:
            await self.team.do("save", self.step, {"step": self.step, "collector": collector.state()})
            self.saved = self.step

    async def finish(self) -> None:
        """The last evaluation, and the policy in Hugging Face format."""
        await self.evaluate()
        if self.config.checkpoints.export:
            folder = self.config.output / "model"
            await self.team.do("export", folder)
            self.log.note(f"the trained policy is in {folder}")

    def due(self, every: int) -> bool:
        """Whether something that happens every so many steps happens now."""
        return every > 0 and self.step % every == 0

    def rates(self, waited: float, seconds: float, sampled: int) -> dict[str, float]:
        """Where the time of a step went."""
        fresh, self.sampled = sampled - self.sampled, sampled
        return {"time/wait": waited, "time/step": seconds, "throughput/sampled_tokens": fresh / seconds}

    async def do(self, order: str, *arguments: Any) -> Any:
        """An order to all ranks, unless a signal came."""
        if self.stop.is_set():
            raise Interrupted("stopped by a signal during the warm-up; nothing is saved")
        return await self.team.do(order, *arguments)

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns; cancelled when a signal comes first.

        Raises:
            Interrupted: a signal came.
        """
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and not self.stop.is_set():
                return task.result()
        finally:
            task.cancel()
            stopped.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)
        raise Interrupted(f"stopped by a signal after step {self.step}")


@asynccontextmanager
async def open_run(config: TrainConfig, parallel: Parallel) -> AsyncIterator[Run]:
    """Everything a run needs, checked in the order in which mistakes are cheap to find: environments, model, engine."""
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(open_source(config))
        worker = await asyncio.to_thread(Worker, config, parallel)
        team = Team(worker)
        stack.push_async_callback(team.dismiss)
        renderer = Renderer(worker.tokenizer, tool_calls=config.rollouts.tool_calls)
        resumed = await resume(team, config)
        step = 0 if resumed is None else int(resumed["step"])
        log = RunLog(config, worker.tokenizer, resumed=None if resumed is None else step)
        stack.callback(log.close)
        engine = await open_engine(config, parallel.device)
        stack.push_async_callback(engine.aclose)
        stop = stack.enter_context(signals())
        yield Run(config, team, engine, renderer, source, log, stop, resumed, step, saved=step if resumed else -1)


async def resume(team: Team, config: TrainConfig) -> dict[str, Any] | None:
    """The state of the newest checkpoint, with its tensors in place; None to start anew."""
    if not config.checkpoints.resume:
        await team.do("forget_checkpoints")
        return None
    path = await team.do("latest")
    state: dict[str, Any] | None = None if path is None else await team.do("load", path)
    return state


async def open_engine(config: TrainConfig, device: torch.device) -> Engine:
    """The engine that the configuration names. It has no weights of the run yet."""
    context = config.rollouts.context
    if config.engine.kind == "torch":
        from ludus.trainer.engines.torch import TorchEngine

        # Loaded anew: the learner's own may be sharded by now, or have adapters in its layers.
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
    )


@contextmanager
def signals() -> Iterator[asyncio.Event]:
    """Set when SIGTERM or SIGINT comes; a second one ends the process in the usual way."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    chosen = (signal.SIGTERM, signal.SIGINT)

    def stop() -> None:
        event.set()
        for number in chosen:
            loop.remove_signal_handler(number)

    for number in chosen:
        loop.add_signal_handler(number, stop)
    try:
        yield event
    finally:
        for number in chosen:
            loop.remove_signal_handler(number)
