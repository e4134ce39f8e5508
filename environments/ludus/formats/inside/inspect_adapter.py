"""Inspect AI's tasks: Inspect's own evaluation of one sample runs in a thread, and its model is the agent.

How this works:

- `open` starts `eval_async` for a task with one sample. Its model is `AgentApi`, whose `generate` hands the messages
  and the tools over and waits for the agent's action.
- The messages of the first `generate` are the prompt. Those that are new at a later one are the outcome of the action
  before. When the evaluation ends, the action before it ends the episode, and the scores are its reward.
- A request of another role, or of another conversation, is never the agent's: the episode fails (`inspect_roles.py`).
- After the agent's final message the solver may want to go on. Its next `generate` then raises what Inspect raises at
  a limit, so that the scorers score what there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import importlib
import math
import os
import queue
import shutil
import tempfile
import threading
from typing import Any

from .adapter import Adapter, HostedEpisode, MissingPackage, NotUsable, description, need, split, tool
from .inspect_messages import content_of, prompt_of, tool_of
from .inspect_roles import Conversation, key_of, watch_roles
from .values import result

REPLY = "reply"
_LATE = (
    "anyio._backends._asyncio", "inspect_ai.agent._acp.server", "inspect_ai.hooks._startup",
    "inspect_ai.model._openai_responses", "numpy", "rich.markdown",
)  # fmt: skip
"""Modules that Inspect imports when an evaluation starts."""


_SCORER_ASKS = (
    "a scorer asks the model that is evaluated, which is the agent itself; name another one with the option "
    'model_roles={"grader":MODEL}, or in the scorer'
)


class InspectAdapter(Adapter):
    """Tasks by `file.py@task`, `file.py` (all of its tasks), or `package/task`.

    Options: `task_args`, `model_roles`, `score`, `split` and `reply`.
    """

    def __init__(self, target: str, options: dict[str, Any]) -> None:
        super().__init__(target, options)
        self.inspect = need("inspect_ai", "inspect-ai")
        for module in _LATE:  # so that not each episode imports them, in its own process
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        watch_roles()
        self.tasks = {task.name.rpartition("/")[2]: task for task in self._load()}
        for name, task in self.tasks.items():
            self._check(name, task)

    def _load(self) -> list[Any]:
        load = need("inspect_ai._eval.loader", "inspect-ai").load_tasks
        file = self.target.partition("@")[0]
        if file.endswith(".py") and not os.path.isfile(file):
            raise NotUsable(f"the file {file} does not exist; a relative path begins at {os.getcwd()}")
        try:
            found = load([self.target], self.options.get("task_args") or {})
        except ModuleNotFoundError as error:
            raise MissingPackage((error.name or "").partition(".")[0], f"{self.target} needs it") from None
        except Exception as error:
            raise NotUsable(f"Inspect cannot load {self.target!r}: {type(error).__name__}: {error}") from error
        if not found:
            raise NotUsable(f"{self.target!r} names no task of Inspect; write file.py@task or package/task")
        return list(found)

    def _check(self, name: str, task: Any) -> None:
        if getattr(task, "sample_source", None) is not None and not len(task.dataset):
            raise NotUsable(f"the samples of {name!r} are made while it runs, so they cannot be listed as tasks")
        kinds = {_kind(one) for one in (task.sandbox, *(sample.sandbox for sample in task.dataset)) if one is not None}
        if kinds:
            raise NotUsable(
                f"the task {name!r} runs code in a sandbox of Inspect ({', '.join(sorted(kinds))}), which cannot be "
                "hosted; serve a task without a sandbox"
            )
        if not task.scorer:
            raise NotUsable(f"the task {name!r} has no scorer, so it has no reward")

    def describe(self) -> list[dict[str, Any]]:
        version = str(self.inspect.__version__)
        kind = self.options.get("split") or "test"
        return [
            description(
                name,
                f"The Inspect task {name}. {(getattr(task, 'description', None) or '').strip()}",
                [split(kind, len(task.dataset), kind)],
                task_tools=True,
                gradable=True,
                version=version,
                package=f"inspect-ai {version}",
                seedable=False,
                not_promised={
                    "seeds": "Inspect's solvers and tools take none",
                    "parallel calls": "each call is a message of its own, while a model of Inspect may make several",
                    "changing tools": "the tools are those of the solver's first request",
                },
            )
            for name, task in self.tasks.items()
        ]

    def task(self, environment: str, split: str, index: int) -> dict[str, Any]:
        sample = self.tasks[_own(environment, self.tasks)].dataset[index]
        name = index + 1 if sample.id is None else sample.id
        return {"id": f"{index}-{name}"[:120], "private": {"index": index}}

    def open(self, environment: str, task: dict[str, Any], seed: int) -> HostedEpisode:
        return InspectEpisode(self, self.tasks[_own(environment, self.tasks)], int(task["private"]["index"]))


class InspectEpisode(HostedEpisode):
    """The evaluation of one sample."""

    def __init__(self, adapter: InspectAdapter, task: Any, index: int) -> None:
        self.adapter = adapter
        self.model = need("inspect_ai.model", "inspect-ai")
        self.requests: queue.Queue[Any] = queue.Queue()
        self.seen: set[Any] = set()
        self.final = False
        self.ended: dict[str, Any] | None = None
        self.conversation = Conversation()
        self.folder = tempfile.mkdtemp(prefix="ludus-inspect-")
        self._reply: asyncio.Future[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        own = copy.copy(task)
        sample = task.dataset[index]
        sample = sample.model_copy(update={"id": index + 1 if sample.id is None else sample.id})
        own.dataset = need("inspect_ai.dataset").MemoryDataset([sample], task.dataset.name, task.dataset.location)
        own.model = None
        threading.Thread(target=self._run, args=(own,), daemon=True, name="inspect").start()
        first = self._next()
        self.prompt, self.tools = self._shown(first)

    # ── the evaluation's thread ────────────────────────────────────────────────────────────────────────────────────

    def _run(self, task: Any) -> None:
        try:
            ended = asyncio.run(self._evaluate(task))
        except BaseException as error:
            ended = {"error": f"{type(error).__name__}: {error}"}
        self.requests.put(ended)

    async def _evaluate(self, task: Any) -> dict[str, Any]:
        self._loop = asyncio.get_running_loop()
        need("inspect_ai.util._display", "inspect-ai").init_display_type("none")
        logs = await self.adapter.inspect._eval.eval.eval_async(
            task, model=self._agent(), model_roles=self.adapter.options.get("model_roles"), log_dir=self.folder,
            epochs=1, max_samples=1, log_samples=True, log_realtime=False, ctl_server=False, log_level="error",
        )  # fmt: skip
        log = logs[0]
        if not log.samples:
            raise RuntimeError(f"the evaluation ended as {log.status!r}: {log.error.message if log.error else ''}")
        sample = log.samples[0]
        if sample.error is not None:
            raise RuntimeError(f"the sample failed: {sample.error.message}")
        return {"scores": sample.scores or {}, "limit": sample.limit.type if sample.limit else None}

    def _agent(self) -> Any:
        episode = self

        class AgentApi(self.model.ModelAPI):  # type: ignore[misc, name-defined]
            """The agent as a model, by the role that a solver names."""

            conversation = episode.conversation
            role: str | None = None

            async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> Any:
                return await episode._generate(input, tools, self.role)

        self.model.modelapi(name="ludus")(AgentApi)
        return self.model.get_model("ludus/agent", memoize=False)

    async def _generate(self, messages: Any, tools: Any, role: str | None) -> Any:
        assert self._loop is not None
        while self._reply is not None:  # another solver of the same sample waits for the agent
            await asyncio.wait([self._reply])
        fault = _SCORER_ASKS if _is_scoring() else self.conversation.admit(role, list(messages))
        if fault is not None:
            self.requests.put({"error": fault})
            await asyncio.Event().wait()  # a solver may catch what is raised here, go on and be scored
        if self.final:
            raise need("inspect_ai.util", "inspect-ai").LimitExceededError(
                "custom", value=1, limit=1, message="The agent's final message ended the episode."
            )
        reply = self._reply = self._loop.create_future()
        self.requests.put({"messages": list(messages), "tools": list(tools)})
        try:
            return await reply
        finally:
            if self._reply is reply:
                self._reply = None

    # ── the agent's side ───────────────────────────────────────────────────────────────────────────────────────────

    def _next(self) -> dict[str, Any]:
        """Return the next request of the model, or the end of the evaluation. Blocks."""
        if self.ended is None:
            found: dict[str, Any] = self.requests.get()
            if "messages" in found:
                return found
            self.ended = found
        if "error" in self.ended:
            raise RuntimeError(self.ended["error"])
        return self.ended

    def _shown(self, request: dict[str, Any]) -> tuple[Any, list[dict[str, Any]]]:
        """Return the prompt and the tools of the first request."""
        if "messages" not in request:  # the solver asks no model
            return [{"role": "user", "content": "There is nothing to do: answer with any message."}], []
        self._new(request)
        tools = [tool_of(one) for one in request["tools"]]
        offered = self.adapter.options.get("reply") or "auto"
        if (offered == "always" or (offered == "auto" and tools)) and REPLY not in [one["name"] for one in tools]:
            tools.append(tool(REPLY, "Send a message without calling another tool.", {"text": {"type": "string"}}))
        return prompt_of(request["messages"]), tools

    def _new(self, request: dict[str, Any]) -> list[Any]:
        """Return the messages that no earlier request had."""
        found = [one for one in request["messages"] if key_of(one) not in self.seen]
        self.seen.update(key_of(one) for one in request["messages"])
        return [one for one in found if one.role != "assistant"]

    def _act(self, output: Any) -> dict[str, Any]:
        """Answer the request that waits, and return the next one or the end."""
        loop, reply = self._loop, self._reply
        self.conversation.last_reply = output.choices[0].message
        if self.ended is None and reply is not None:
            assert loop is not None
            loop.call_soon_threadsafe(lambda: None if reply.done() else reply.set_result(output))
        return self._next()

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        output = self.model.ModelOutput
        if tool == REPLY:
            made = output.from_content("agent", arguments["text"])
        else:
            made = output.for_tool_call("agent", tool, arguments)
        found = self._act(made)
        if "messages" not in found:
            return self._outcome(found)
        content = [block for message in self._new(found) for block in content_of(message)]
        return result(content)

    def grade(self, answer: str) -> dict[str, Any]:
        self.final = True
        found = self._act(self.model.ModelOutput.from_content("agent", answer))
        while "messages" in found:
            found = self._next()
        return self._outcome(found)

    def _outcome(self, ended: dict[str, Any]) -> dict[str, Any]:
        reward, components = reward_of(ended["scores"], self.adapter.options.get("score"))
        metadata = {
            "limit": ended["limit"],
            "scores": {
                name: {"value": score.value, "answer": score.answer, "explanation": score.explanation}
                for name, score in ended["scores"].items()
            },
        }
        cut = ended["limit"] is not None and not self.final
        return result(
            "The task has ended.", reward=reward, components=components, finished=not cut, truncated=cut,
            metadata=metadata, unscored="the scorer left the sample unscored" if reward is None else None,
        )  # fmt: skip

    def close(self) -> None:
        loop, reply = self._loop, self._reply
        self.final = True
        if self.ended is None and loop is not None and reply is not None:
            loop.call_soon_threadsafe(reply.cancel)
        shutil.rmtree(self.folder, ignore_errors=True)


def reward_of(scores: dict[str, Any], chosen: str | None) -> tuple[float | None, dict[str, float]]:
    """Return the reward and all scores by name, as numbers; a reward of None is unscored.

    Raises:
        ValueError: the score that is the reward does not exist, or has several values.
    """
    to_float = need("inspect_ai.scorer", "inspect-ai").value_to_float()
    values: dict[str, Any] = {}
    for name, score in scores.items():
        if isinstance(score.value, dict):
            values.update({f"{name}.{key}": value for key, value in score.value.items()})
        elif isinstance(score.value, (list, tuple)):
            values.update({f"{name}.{position}": value for position, value in enumerate(score.value)})
        else:
            values[name] = score.value
    if not scores:
        return None, {}
    wanted = chosen or next(iter(scores))
    if wanted not in values:
        raise ValueError(f"the scores are {', '.join(values)}; choose the reward among them with the option score=NAME")
    numbers = {
        name: float(to_float(value))
        for name, value in values.items()
        if value is not None and not (isinstance(value, float) and math.isnan(value))
    }
    return numbers.get(wanted), numbers if len(numbers) > 1 else {}


def _is_scoring() -> bool:
    events = need("inspect_ai.log", "inspect-ai").transcript().events
    return any(event.event == "span_begin" and event.type == "scorers" for event in events)


def _kind(sandbox: Any) -> str:
    return str(getattr(sandbox, "type", sandbox))


def _own(environment: str, tasks: dict[str, Any]) -> str:
    return environment if environment in tasks else next(iter(tasks))


ADAPTER = InspectAdapter
