"""A benchmark of CUBE whose tasks break as the actions say."""

import os
from typing import Any, ClassVar

from cube.benchmark import Benchmark, BenchmarkConfig, BenchmarkMetadata
from cube.core import Observation
from cube.task import Task, TaskConfig, TaskMetadata
from cube.tool import Tool, ToolConfig, tool_action


class Doer(Tool):
    def __init__(self) -> None:
        self.what = ""
        self.shared = ""

    @tool_action
    def do(self, what: str) -> str:
        """Break in some way.

        Args:
            what: How.
        """
        self.what = what
        if what == "raise":
            raise RuntimeError("broken action")
        if what == "exit":
            os._exit(3)
        if what == "hang up":
            raise SystemExit(1)
        return self.shared


class DoerConfig(ToolConfig):
    def make(self, container: Any = None) -> Doer:
        return Doer()


class Faulty(Task):
    def reset(self) -> tuple[Observation, dict]:
        if self.metadata.id == "reset":
            raise RuntimeError("broken reset")
        self.tool.shared = self.runtime_context["state"]
        return Observation.from_text("Break it."), {}

    def agent_roles(self) -> dict:
        return {"buyer": 1, "seller": 1} if self.metadata.id == "several" else {None: 1}

    def finished(self, obs: Any = None) -> bool:
        return self.tool.what in ("evaluate", "nan", "win")

    def evaluate(self, obs: Any = None) -> tuple[float, dict]:
        if self.tool.what == "evaluate":
            raise RuntimeError("broken evaluation")
        return (float("nan") if self.tool.what == "nan" else float(self.tool.what == "win")), {}


class FaultyConfig(TaskConfig):
    def make(self, runtime_context: Any = None) -> Faulty:
        return Faulty(metadata=self.metadata, tool_config=DoerConfig(), runtime_context=runtime_context)


class FaultyToo(FaultyConfig):
    pass


class Faults(Benchmark):
    def _setup(self) -> None:
        self._runtime_context["state"] = "ready"

    def close(self) -> None:
        pass


class FaultsConfig(BenchmarkConfig):
    benchmark_metadata: ClassVar[BenchmarkMetadata] = BenchmarkMetadata(
        name="faults", version="1", description="Breaks."
    )
    task_metadata: ClassVar[dict[str, TaskMetadata]] = {
        name: TaskMetadata(id=name) for name in ("plain", "reset", "several")
    }
    task_config_class: ClassVar[type[TaskConfig]] = FaultyConfig
    benchmark_class: ClassVar[type[Benchmark]] = Faults


class Broken(Faults):
    def _setup(self) -> None:
        raise RuntimeError("no server")


class BrokenConfig(BenchmarkConfig):
    benchmark_metadata: ClassVar[BenchmarkMetadata] = BenchmarkMetadata(
        name="broken", version="1", description="Breaks."
    )
    task_metadata: ClassVar[dict[str, TaskMetadata]] = {"plain": TaskMetadata(id="plain")}
    task_config_class: ClassVar[type[TaskConfig]] = FaultyToo
    benchmark_class: ClassVar[type[Benchmark]] = Broken

    @classmethod
    def install(cls) -> None:
        raise OSError("no data here")
