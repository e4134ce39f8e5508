"""Aviary's environments: `reset` gives the prompt and the tools, and each tool call is one `step`."""

from __future__ import annotations

import functools
import json
import os
import re
from typing import Any

from .adapter import Adapter, HostedEpisode, NotUsable, description, need, split
from .loops import LoopThread
from .targets import load
from .values import number, result

_KINDS = {"train": "train", "eval": "validation", "validation": "validation", "test": "test"}
_ROLES = ("system", "user", "assistant")
_DATA_URL = re.compile(r"data:(image/[a-z+.-]+);base64,(.+)", re.DOTALL)


class AviaryAdapter(Adapter):
    """An environment or a task dataset: `module:NAME`, `file.py:NAME`, or a name of Aviary's registry.

    Options: `make`, `splits`, `tasks`, `tool_errors` and `final_message`.
    """

    def __init__(self, target: str, options: dict[str, Any]) -> None:
        super().__init__(target, options)
        self.aviary = need("aviary.core", "fhaviary")
        self.made = self._find()
        self.tasks: list[str] | None = options.get("tasks")
        given = options.get("make") or {}
        self.splits = {name: {**given, **more} for name, more in (options.get("splits") or {"train": {}}).items()}
        kind = self.made if isinstance(self.made, type) else type(self.made)
        self.is_environment = issubclass(kind, self.aviary.Environment)
        if self.tasks and not self.is_environment:
            raise NotUsable(f"the option tasks is for environment classes, and {target!r} is none")
        self.datasets: dict[str, Any] = {}
        if not self.is_environment:
            self._make_datasets()
        self.sample = self._sample()

    def _find(self) -> Any:
        if ":" in self.target:
            found = load(self.target, "module:NAME or path/file.py:NAME")
            if isinstance(found, self.aviary.Environment):
                raise NotUsable(
                    f"{self.target!r} is one environment, which cannot be reset for several episodes at once; "
                    "name its class, or a function that makes it"
                )
            if not callable(found) and not isinstance(found, self.aviary.TaskDataset):
                raise NotUsable(f"{self.target!r} is a {type(found).__name__}, and no environment or task dataset")
            return found
        datasets, environments = self.aviary.TASK_DATASET_REGISTRY, need("aviary.env", "fhaviary").ENV_REGISTRY
        if self.target not in datasets and self.target not in environments:
            known = ", ".join(sorted({*datasets, *environments}))
            raise NotUsable(
                f"Aviary has no environment named {self.target!r}; it has: {known}. Or write module:NAME or "
                "file.py:NAME"
            )
        module, name = datasets.get(self.target) or environments[self.target]
        return getattr(need(module, f"fhaviary[{self.target}]"), name)

    def _make_datasets(self) -> None:
        if isinstance(self.made, self.aviary.TaskDataset):
            if any(self.splits.values()):
                raise NotUsable(f"{self.target!r} is made already, so it takes no options make and splits")
            self.datasets = dict.fromkeys(self.splits, self.made)
            return
        for name, arguments in self.splits.items():
            found = self._call(self.made, arguments)
            if isinstance(found, self.aviary.Environment):  # the target is a function that makes environments
                self.is_environment, self.datasets = True, {}
                return
            if not isinstance(found, self.aviary.TaskDataset):
                raise NotUsable(
                    f"{self.target!r} returned a {type(found).__name__}, and no environment or task dataset of Aviary"
                )
            self.datasets[name] = found

    def _call(self, function: Any, arguments: dict[str, Any]) -> Any:
        try:
            return function(**arguments)
        except TypeError as error:
            raise NotUsable(f"{self.target}({_written(arguments)}) failed: {error}; see the option make") from error

    def make(self, split: str, index: int) -> Any:
        """Return a new environment for a task."""
        if not self.is_environment:
            dataset = self.datasets[split]
            return dataset.get_new_env() if _length(dataset) is None else dataset.get_new_env_by_idx(index)
        if self.tasks:
            return self.made.from_task(self.tasks[index])
        return self._call(self.made, self.splits[split])

    def _sample(self) -> Any:
        """Return the messages and the tools of the first task, which shows early whether the target can be used."""
        loop = LoopThread()
        try:
            environment = self.make(next(iter(self.splits)), 0)
            _, tools = loop.run(environment.reset())
            loop.run(environment.close())
        finally:
            loop.close()
        return environment.__doc__, [described(tool) for tool in tools]

    def describe(self) -> list[dict[str, Any]]:
        about, tools = self.sample
        splits = [split(name, self._count(name), _KINDS.get(name)) for name in self.splits]
        version = _version("fhaviary")
        return [
            description(
                os.path.basename(self.target).replace(".py:", "-").replace(":", "-"),
                f"The Aviary environment {os.path.basename(self.target)}. {(about or '').strip()[:2000]}",
                splits,
                tools,
                task_tools=True,
                gradable=self.options.get("final_message") != "none",
                package=f"fhaviary {version}",
                version=version,
                seedable=False,
                not_promised={
                    "seeds": "Aviary's environments take none",
                    "parallel calls": "each call is a step of its own, while one message for Aviary may hold several",
                },
            )
        ]

    def _count(self, name: str) -> int | None:
        if self.is_environment:
            return len(self.tasks) if self.tasks else None
        return _length(self.datasets[name])

    def task(self, environment: str, split: str, index: int) -> dict[str, Any]:
        return {"id": f"{split}-{index}", "private": {"split": split, "index": index}}

    def open(self, environment: str, task: dict[str, Any], seed: int) -> HostedEpisode:
        return AviaryEpisode(self, task["private"]["split"], task["private"]["index"])


class AviaryEpisode(HostedEpisode):
    """One environment, from `reset` to `close`, whose coroutines run on a loop of its own."""

    def __init__(self, adapter: AviaryAdapter, split: str, index: int) -> None:
        self.aviary = adapter.aviary
        self.loop = LoopThread()
        self.env = adapter.make(split, index)
        if adapter.options.get("tool_errors") == "show":
            self.env.exec_tool_calls = functools.partial(self.env.exec_tool_calls, handle_tool_exc=True)
        messages, tools = self.loop.run(self.env.reset())
        self.prompt = [
            {"role": message.role if message.role in _ROLES else "user", "content": content_of(message)}
            for message in messages
        ]
        self.tools = [described(tool) for tool in tools]

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        request = self.aviary.ToolCall.from_name(tool)
        request.function.arguments = arguments  # an argument may be called `id`
        return self._step(self.aviary.ToolRequestMessage(tool_calls=[request]))

    def grade(self, answer: str) -> dict[str, Any]:
        return self._step(self.aviary.ToolRequestMessage(content=answer, tool_calls=[]))

    def _step(self, action: Any) -> dict[str, Any]:
        messages, reward, done, truncated = self.loop.run(self.env.step(action))
        content = [block for message in messages for block in content_of(message)]
        return result(content, reward=number(reward, "the reward"), finished=done, truncated=truncated)

    def close(self) -> None:
        try:
            self.loop.run(self.env.close())
        finally:
            self.loop.close()


def described(tool: Any) -> dict[str, Any]:
    """Return a tool of Aviary in the form of `adapter.tool`."""
    parameters = tool.info.parameters
    schema = {} if parameters is None else parameters.model_dump(exclude_none=True)
    schema = {"type": "object", "properties": {}, "additionalProperties": False, **schema}
    return {"name": tool.info.name, "description": tool.info.description, "schema": schema}


def content_of(message: Any) -> list[Any]:
    """Return the content of a message as text and images."""
    content = message.deserialized_content
    if not isinstance(content, list):
        return [content or ""]
    return [_block(block) for block in content]


def _block(block: dict[str, Any]) -> Any:
    if block.get("type") == "text":
        return str(block.get("text", ""))
    url = block.get("image_url")
    url = url.get("url", "") if isinstance(url, dict) else str(url)
    found = _DATA_URL.fullmatch(url)
    return {"type": "image", "data": found[2], "mimeType": found[1]} if found else url


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except TypeError:
        return None


def _written(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in arguments.items())


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


ADAPTER = AviaryAdapter
