"""Evaluation: play models × environments × splits into a folder, resumable at any point.

    results = await evaluate(read_config("eval.toml"), Path("results"))

How this works:

* All environments and models are opened and checked before the first episode, so a wrong name wastes none.
* Cells are played one after another, each with `config.concurrency` episodes at once. A cell that loses its server or
  its model stops with its `problem` set; the other cells are played.
* Episodes are kept in the cell's file as they end. With `resume`, only episodes without a reward are played, with the
  same seeds; so a run that was killed ends with the same results as one that was not.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from ludus.client import EnvironmentInfo, Harness, Policy, Progress, RemoteEnvironment, connect
from ludus.client.environment import find_split
from ludus.common.distribution import installed_version
from ludus.evaluation.config import EnvironmentSpec, EvaluationConfig, ModelSpec
from ludus.evaluation.figures import cell_figures, probe_figures
from ludus.evaluation.folder import RESULTS, cell_file, locked, open_file, read_results, write_results
from ludus.evaluation.models import open_model
from ludus.evaluation.playing import play_cell
from ludus.evaluation.probes import probed
from ludus.protocol.errors import InvalidParams, LudusError
from ludus.protocol.evaluation import (
    EVALUATION_FORMAT,
    Cell,
    EvaluationResults,
    Limits,
    Model,
    Probe,
    ProbeFigures,
)
from ludus.protocol.messages import did_you_mean
from ludus.protocol.trajectory import Trajectory, latest

SAME_ATTEMPTS: Final = 8
"""A cell stops early after this many attempts, if all of them left no reward for the same reason."""


class OpenEnvironment(NamedTuple):
    """A connected environment."""

    remote: RemoteEnvironment
    info: EnvironmentInfo


EnvironmentOpener = Callable[[EnvironmentSpec], AbstractAsyncContextManager[OpenEnvironment]]
"""Connects to an environment until the block is left."""

PolicyOpener = Callable[[ModelSpec], AbstractAsyncContextManager[Policy]]
"""Opens a policy until the block is left, and raises an error if it cannot work."""


@dataclass(frozen=True, slots=True)
class CellPlan:
    """One cell to play."""

    spec: ModelSpec
    environment: OpenEnvironment
    split: str
    n: int | None
    planned: int
    success_at: float

    @property
    def name(self) -> str:
        """The cell in words."""
        return f"{self.spec.label} on {self.environment.info.name} / {self.split}"


async def evaluate(
    config: EvaluationConfig,
    folder: Path,
    *,
    open_environment: EnvironmentOpener | None = None,
    open_policy: PolicyOpener = open_model,
    resume: bool = False,
    keep_going: bool = False,
    on_cell: Callable[[str], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> EvaluationResults:
    """Play every cell of the configuration and return the results, which are also in the folder.

    Args:
        config: models, environments and settings.
        folder: where to write; it is made if it does not exist.
        open_environment: connects to an environment; `open_remote` when None, which needs the address of a server.
        open_policy: opens a model or another policy; by default models behind endpoints.
        resume: go on with what the folder holds.
        keep_going: play on when every attempt of a cell leaves no reward for the same reason, or when the
            infrastructure of many consecutive episodes fails.
        on_cell: called with the name of each cell or check before it is played.
        on_progress: called after each episode.

    Raises:
        InvalidParams: the folder holds results and `resume` is false; the results are of another evaluation; another
            process plays into the folder; or the configuration names a split twice.
        RequestError: an environment, a split or a model does not exist, or refuses the credential.
        TransportError: a server is not reachable at the beginning.
    """
    connected = open_environment or open_remote
    with locked(folder):
        stored = _held(folder, resume)
        async with AsyncExitStack() as stack:
            opened = [(spec, await stack.enter_async_context(connected(spec))) for spec in config.environments]
            policies = {spec.label: await stack.enter_async_context(open_policy(spec)) for spec in config.models}
            plans = _plans(config, opened)
            if stored is not None:
                _check_same(stored, config, plans, folder)
            run = _Run(config, folder, plans, policies, keep_going, on_cell, on_progress)
            run.started_at = stored.started_at if stored is not None else run.started_at
            return await run.play()


@asynccontextmanager
async def open_remote(spec: EnvironmentSpec) -> AsyncIterator[OpenEnvironment]:
    """Connect to an environment of a running server until the block is left.

    Raises:
        InvalidParams: the target is not an address, the variable of the token is not set, or the server has several
            environments and none is named.
        EnvironmentNotFound: the server has no such environment.
    """
    if not spec.target.startswith(("http://", "https://")):
        raise InvalidParams(f"{spec.target!r} is not the address of a server, such as http://localhost:8000")
    async with connect(spec.target, token=token_of(spec)) as client:
        infos = await client.environments()
        names = [info.name for info in infos]
        name = spec.environment if spec.environment is not None or len(names) != 1 else names[0]
        if name is None:
            raise InvalidParams(f"the server {spec.target} has several environments, name one: {', '.join(names)}")
        yield OpenEnvironment(client.environment(name), await client.environment(name).info())


def token_of(spec: EnvironmentSpec) -> str | None:
    """Return the trainer token of an environment; None for that of `LUDUS_TOKEN`, if it is set.

    Raises:
        InvalidParams: the variable that the specification names is not set.
    """
    if spec.token_env is None:
        return None
    token = os.environ.get(spec.token_env)
    if token is None:
        raise InvalidParams(f"{spec.target}: the environment variable {spec.token_env} is not set")
    return token


def _held(folder: Path, resume: bool) -> EvaluationResults | None:
    """Return the results that the folder holds; None if it is empty."""
    if (folder / RESULTS).exists():
        if not resume:
            raise InvalidParams(f"{folder} has the results of an evaluation; say --resume or another --out")
        return read_results(folder)
    if any(folder.glob("*.jsonl")):
        raise InvalidParams(f"{folder} holds trajectories and no {RESULTS}, so it is no evaluation; name another --out")
    return None


def _plans(config: EvaluationConfig, opened: Sequence[tuple[EnvironmentSpec, OpenEnvironment]]) -> list[CellPlan]:
    """Return the cells, environment by environment.

    Raises:
        SplitNotFound: an environment has no such split.
        InvalidParams: a split is endless and there is no `n`, or a split of an environment occurs twice.
    """
    plans: list[CellPlan] = []
    pairs: set[tuple[str, str]] = set()
    for spec, environment in opened:
        info = environment.info
        n = spec.n if spec.n is not None else config.n
        for split in spec.splits or (info.splits[0].name,):
            if (info.name, split) in pairs:
                raise InvalidParams(f"the split {split!r} of {info.name!r} occurs twice in the evaluation")
            pairs.add((info.name, split))
            count = find_split(info, split, n).count
            tasks = count if n is None else n if count is None else min(n, count)
            greatest = info.reward_range[1] if info.reward_range is not None else 1.0
            success_at = greatest if spec.success_at is None else spec.success_at
            plans += [
                CellPlan(model, environment, split, n, (tasks or 0) * config.samples, success_at)
                for model in config.models
            ]
    return plans


def _check_same(stored: EvaluationResults, config: EvaluationConfig, plans: Sequence[CellPlan], folder: Path) -> None:
    """Check that the held results are of the same evaluation, which may have grown by models, splits and episodes.

    Raises:
        InvalidParams: they are not.
    """
    _same(folder, "seed", stored.seed, config.seed)
    _same(folder, "limits", stored.limits, _limits(config))
    if any(cell.probes for cell in stored.cells):
        _same(folder, "prompt_share", stored.prompt_share, config.prompt_share)
    if config.samples < stored.samples:
        raise InvalidParams(f"{folder} has {stored.samples} episodes per task, and samples is {config.samples}")
    models = {model.name: model for model in stored.models}
    for spec in config.models:
        if (previous := models.get(spec.label)) is not None:
            now = _model(spec)
            for name in ("wire", "model", "options"):
                _same(folder, f"{name} of {spec.label!r}", getattr(previous, name), getattr(now, name))
    planned = {(plan.spec.label, plan.environment.info.name, plan.split): plan for plan in plans}
    for cell in stored.cells:
        plan = planned.get(cell.key)
        if plan is None:
            names = ", ".join(sorted({f"{key[0]} on {key[1]} / {key[2]}" for key in planned}))
            near = did_you_mean(cell.environment, [key[1] for key in planned if key[1] != cell.environment])
            raise InvalidParams(
                f"{folder} has results of {cell.model} on {cell.environment} / {cell.split}, which the configuration "
                f"does not name{near}; it has {names}"
            )
        _same(
            folder, f"version of {cell.environment!r}", cell.environment_version, plan.environment.info.version
        )  # fmt: skip
        if plan.planned < cell.planned:
            raise InvalidParams(f"{folder} has {cell.planned} episodes of {plan.name}, more than {plan.planned}")


def _same(folder: Path, setting: str, before: object, now: object) -> None:
    if before != now:
        raise InvalidParams(
            f"{folder} was played with another {setting} ({before!r}, now {now!r}), so the episodes cannot be mixed; "
            "name another --out"
        )


@dataclass(slots=True)
class _Run:
    config: EvaluationConfig
    folder: Path
    plans: Sequence[CellPlan]
    policies: dict[str, Policy]
    keep_going: bool
    on_cell: Callable[[str], None] | None
    on_progress: Callable[[Progress], None] | None
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    cells: dict[tuple[str, str, str], Cell] = field(default_factory=dict)

    async def play(self) -> EvaluationResults:
        for plan in self.plans:
            self._record(plan, self._read(plan), [], None)
        self._write()
        for plan in self.plans:
            await self._play_cell(plan)
        return self._write()

    async def _play_cell(self, plan: CellPlan) -> None:
        """Play the cell and its checks, and write the results after each."""
        probes: list[ProbeFigures] = []
        episodes, problem = await self._play(plan, None)
        self._record(plan, episodes, probes, problem)
        self._write()
        for probe in self.config.probes:
            file = self._file(plan, probe)
            applies = _applies(probe, plan.environment.info)
            checked: list[Trajectory] = []
            if applies:
                checked, trouble = await self._play(plan, probe)
                problem = problem or trouble
            probes.append(
                probe_figures(
                    probe,
                    checked,
                    episodes,
                    spec=plan.spec,
                    applies=applies,
                    planned=plan.planned if applies else 0,
                    success_at=plan.success_at,
                    reward_range=plan.environment.info.reward_range,
                    trajectories=file.name,
                )  # fmt: skip
            )
            self._record(plan, episodes, probes, problem)
            self._write()

    async def _play(self, plan: CellPlan, probe: Probe | None) -> tuple[list[Trajectory], str | None]:
        """Play what is missing; return all episodes, and why it stopped early, if it did."""
        config, info = self.config, plan.environment.info
        policy = self.policies[plan.spec.label]
        if probe is not None:
            policy = probed(policy, probe, config.prompt_share)
        if self.on_cell is not None:
            self.on_cell(plan.name + (f" ({probe})" if probe else ""))
        writer, episodes = open_file(self._file(plan, probe))
        problem = None
        with writer:
            if len(writer.done) >= plan.planned:
                return episodes, None
            try:
                played = await play_cell(
                    plan.environment.remote, policy, split=plan.split, n=plan.n, samples=config.samples,
                    seed=config.seed if info.seedable else None, concurrency=config.concurrency,
                    retries=config.retries, harness=_harness(config), writer=writer, on_progress=self.on_progress,
                    stop_after_same_failure=None if self.keep_going else SAME_ATTEMPTS,
                    stop_after_lost=None if self.keep_going else max(SAME_ATTEMPTS, 2 * config.concurrency),
                )  # fmt: skip
            except LudusError as error:
                return open_again(self._file(plan, probe)), f"{type(error).__name__}: {error.message}"
            episodes = latest([*episodes, *played.trajectories])
            if played.stopped is not None:
                problem = played.stopped.message
        return episodes, problem

    def _read(self, plan: CellPlan) -> list[Trajectory]:
        path = self._file(plan, None)
        return open_again(path) if path.exists() else []

    def _file(self, plan: CellPlan, probe: Probe | None) -> Path:
        return self.folder / cell_file(plan.spec.label, plan.environment.info.name, plan.split, probe)

    def _record(
        self, plan: CellPlan, episodes: Sequence[Trajectory], probes: Sequence[ProbeFigures], problem: str | None
    ) -> None:
        info = plan.environment.info
        cell = cell_figures(
            episodes, spec=plan.spec, environment=info.name, version=info.version, split=plan.split,
            seeded=info.seedable, planned=plan.planned, samples=self.config.samples, success_at=plan.success_at,
            reward_range=info.reward_range, probes=probes, problem=problem[:4_000] if problem else None,
            trajectories=self._file(plan, None).name,
        )  # fmt: skip
        self.cells[cell.key] = cell

    def _write(self) -> EvaluationResults:
        cells = tuple(self.cells.values())
        probes = len(self.config.probes)
        results = EvaluationResults(
            format=EVALUATION_FORMAT,
            ludus_version=installed_version(),
            started_at=self.started_at,
            updated_at=datetime.now(UTC),
            finished=all(_is_finished(cell, probes) for cell in cells),
            seed=self.config.seed,
            samples=self.config.samples,
            limits=_limits(self.config),
            prompt_share=self.config.prompt_share,
            models=tuple(map(_model, self.config.models)),
            cells=cells,
        )
        write_results(self.folder, results)
        return results


def open_again(path: Path) -> list[Trajectory]:
    """Return the episodes of a cell's file."""
    writer, episodes = open_file(path)
    writer.close()
    return episodes


def _is_finished(cell: Cell, probes: int) -> bool:
    probes_finished = all(probe.episodes == probe.planned for probe in cell.probes)
    return cell.problem is None and cell.episodes == cell.planned and len(cell.probes) == probes and probes_finished


def _applies(probe: Probe, info: EnvironmentInfo) -> bool:
    """Return whether a check can earn rewards: without tools, only a graded final message can."""
    return info.gradable or probe == "truncated-prompt"


def _harness(config: EvaluationConfig) -> Harness:
    return Harness(max_turns=config.max_turns, turn_seconds=config.turn_seconds, episode_seconds=config.episode_seconds)


def _limits(config: EvaluationConfig) -> Limits:
    return Limits(max_turns=config.max_turns, turn_seconds=config.turn_seconds, episode_seconds=config.episode_seconds)


def _model(spec: ModelSpec) -> Model:
    kind = spec.wire or (spec.model if spec.model in ("random", "oracle", "demonstrator") else "callable")
    return Model(
        name=spec.label,
        wire=kind,
        model=spec.endpoint_name,
        endpoint=spec.shown_url,
        options=spec.options,
        price_in=spec.price_in,
        price_out=spec.price_out,
    )
