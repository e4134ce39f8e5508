"""Benchmarks of CUBE: `reset` gives the prompt, an action is one `step`, and `evaluate` gives the reward.

How this works: the benchmark is installed and set up once, in the process that the episodes are forked from, as CUBE's
runners set it up once for all their tasks; each episode makes its own task. CUBE's reward is what `evaluate` returns
last. A task with `validate_per_step` evaluates after each step; then a step earns the difference to the evaluation
before, so that the rewards add up to the last one.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import re
from typing import Any

from .adapter import Adapter, HostedEpisode, NotUsable, description, need, split
from .targets import load
from .values import number, result

EXAMPLE = "cube:arithmetic-cube, cube:module:MyBenchmarkConfig or cube:path/to/file.py:MyBenchmarkConfig"
_GROUP = "cube.benchmarks"
_STOP = "final_step"
_KINDS = {"train": "train", "val": "validation", "test": "test"}
_DATA_URL = re.compile(r"data:(image/[a-z+.-]+);base64,(.+)", re.DOTALL)


class CubeAdapter(Adapter):
    """A benchmark's config: a name of the entry-point group `cube.benchmarks`, a class, or an object.

    Options: `make`, `subset`, `tasks`, `infra` and `install`.
    """

    def __init__(self, target: str, options: dict[str, Any]) -> None:
        super().__init__(target, options)
        self.cube = need("cube.benchmark", "cube-standard")
        self.core = need("cube.core", "cube-standard")
        self.config = self._narrowed(self._made(self._find()))
        self.configs: dict[str, list[Any]] = {}
        for get_task_config in self.config.get_task_configs():
            self.configs.setdefault(get_task_config.metadata.split, []).append(get_task_config)
        if not self.configs:
            raise NotUsable(f"the benchmark {self.config.name!r} has no tasks")
        if options.get("install", True):
            self._run("install()", self.config.install)
        infra = self._infra()
        self.benchmark = self._run("make()", lambda: self.config.make(infra))
        atexit.register(self._close)

    def _find(self) -> Any:
        if ":" in self.target:
            return load(self.target, EXAMPLE)
        entries = {one.name: one for one in importlib.metadata.entry_points(group=_GROUP)}
        if self.target not in entries:
            known = ", ".join(sorted(entries)) or "none"
            raise NotUsable(f"no benchmark named {self.target!r} is installed; there is: {known}. Or write {EXAMPLE}")
        return need(entries[self.target].module, self.target) and entries[self.target].load()

    def _made(self, found: Any) -> Any:
        given = self.options.get("make") or {}
        if isinstance(found, self.cube.BenchmarkConfig):
            return self._run("the option make", lambda: type(found).model_validate({**dict(found), **given}))
        if not isinstance(found, type) or not issubclass(found, self.cube.BenchmarkConfig):
            raise NotUsable(f"{self.target!r} is no BenchmarkConfig; write {EXAMPLE}")
        known = sorted(getattr(found, "model_fields", ()))
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise NotUsable(
                f"the option make: {found.__name__} has no field {unknown[0]!r}; it has: {', '.join(known)}"
            )
        return self._run("the option make", lambda: found(**given))

    def _narrowed(self, config: Any) -> Any:
        subset, tasks = self.options.get("subset"), self.options.get("tasks")
        if subset is not None:
            known = list(config.benchmark_metadata.named_subsets)
            if subset not in known:
                raise NotUsable(f"{config.name!r} has no subset {subset!r}; it has: {', '.join(known) or 'none'}")
            config = config.named_subset(subset)
        if tasks:
            missing = [task for task in tasks if task not in config.tasks()]
            if missing:
                raise NotUsable(f"the option tasks: {config.name!r} has no task {missing[0]!r}")
            config = config.subset_from_list(tasks)
        return config

    def _infra(self) -> Any:
        name = self.options.get("infra")
        if name is None:
            return None
        if name == "local":
            return need("cube", "cube-standard").LocalInfraConfig()
        found, base = load(name, "local or module:NAME"), need("cube.resource", "cube-standard").InfraConfig
        if isinstance(found, base):
            return found
        if not isinstance(found, type) or not issubclass(found, base):
            raise NotUsable(f"the option infra: {name!r} is no InfraConfig of CUBE")
        return self._run("the option infra", found)

    def _run(self, what: str, function: Any) -> Any:
        try:
            return function()
        except NotUsable:
            raise
        except Exception as error:
            raise NotUsable(f"{what} of {self.target!r} failed: {type(error).__name__}: {error}") from error

    def _close(self) -> None:
        with contextlib.suppress(Exception):
            self.benchmark.close()

    def describe(self) -> list[dict[str, Any]]:
        metadata = self.config.benchmark_metadata
        isolation = metadata.reset_isolation
        broken = {
            "seeds": "a task has the seed that the benchmark's own seed_generator gives it, or none",
            "parallel calls": "each action is a step of its own",
            "actions that change": "the agent gets the actions of the episode's start",
            "text of the final message": f"a final message is the action {_STOP}",
        }
        if isolation is not None and isolation.value == "app_level":
            broken["isolation"] = "the benchmark resets the state of its application only"
        version = importlib.metadata.version("cube-standard")
        return [
            description(
                self.config.name,
                metadata.description,
                [split(name, len(tasks), _KINDS[name]) for name, tasks in self.configs.items()],
                task_tools=True,
                gradable=True,
                package=f"cube-standard {version}, {metadata.name} {metadata.version}",
                version=metadata.version,
                seedable=False,
                not_promised=broken,
            )
        ]

    def task(self, environment: str, split: str, index: int) -> dict[str, Any]:
        config = self.configs[split][index]
        seed = "" if config.seed is None else f"-{config.seed}"
        return {"id": f"{config.task_id}{seed}", "private": {"split": split, "index": index}}

    def open(self, environment: str, task: dict[str, Any], seed: int) -> HostedEpisode:
        config = self.configs[task["private"]["split"]][task["private"]["index"]]
        return CubeEpisode(self, self.benchmark.spawn(config))


class CubeEpisode(HostedEpisode):
    """One task, from `reset` to `close`."""

    def __init__(self, adapter: CubeAdapter, task: Any) -> None:
        self.core = adapter.core
        self.fails = adapter.options.get("tool_errors") == "fail"
        self.cube_task = task
        self.earned = 0.0
        try:
            if task.agent_roles() != {None: 1}:
                raise NotUsable(f"the task {task.id!r} has several agents, and one can be hosted")
            self.last, self.facts = task.reset()
            actions = task.action_set
        except BaseException:
            with contextlib.suppress(Exception):
                task.close()
            raise
        self.prompt = [{"role": "user", "content": content_of(self.last)}]
        self.tools = [
            {"name": action.name, "description": action.description, "schema": {"properties": {}, **action.parameters}}
            for action in actions
        ]
        self.can_stop = any(action.name == _STOP for action in actions)

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        found = self.cube_task.step(self.core.Action(name=tool, arguments=arguments))
        self.last = found.obs
        metadata = {name: value for name, value in found.info.items() if name != "profiling"}
        if found.error is not None:
            if self.fails:
                raise RuntimeError(f"the action raised {found.error.error_type}: {found.error.exception_str}")
            metadata["error"] = f"{found.error.error_type}: {found.error.exception_str}"
        evaluated = found.done or self.cube_task.validate_per_step
        return result(
            content_of(found.obs),
            reward=self._difference(found.reward) if evaluated else None,
            finished=found.done and not found.truncated,
            truncated=found.truncated,
            metadata=metadata,
        )

    def grade(self, answer: str) -> dict[str, Any]:
        if self.can_stop:
            return self.call(_STOP, {})
        reward, info = self.cube_task.evaluate(self.last)
        return result("", reward=self._difference(reward), finished=True, metadata=dict(info))

    def _difference(self, evaluation: Any) -> float:
        now = number(evaluation, "the reward of evaluate()")
        earned, self.earned = now - self.earned, now
        return earned

    def close(self) -> None:
        self.cube_task.close()


def content_of(observation: Any) -> list[Any]:
    """Return the contents of an observation as CUBE writes them for models, as text and images."""
    found: list[Any] = []
    for message in observation.to_llm_messages():
        content = message["content"]
        if isinstance(content, str):
            found.append(content)
            continue
        for part in content:
            if part["type"] == "text":
                found.append(part["text"])
                continue
            image = _DATA_URL.fullmatch(part["image_url"]["url"])
            found.append(
                {"type": "image", "data": image[2], "mimeType": image[1]} if image else part["image_url"]["url"]
            )
    return found or [""]


ADAPTER = CubeAdapter
