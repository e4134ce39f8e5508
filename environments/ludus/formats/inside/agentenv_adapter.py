"""Bundles of AgentEnv: the framework runs a task, and waits at each turn of the agent that is played here.

How this works: the bundle is prepared once, as `agent-env run` prepares it, in a forked child, because the local stores
keep a connection that must not be forked. An episode is the framework's own `Episode`: it deploys what the task names,
hands over the turn's prompt and tools, and scores the task after the last turn, as `agent-env run` does.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.metadata
import math
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from .adapter import Adapter, HostedEpisode, NotUsable, description, need, split, tool
from .forked import call as call_forked
from .loops import LoopThread
from .values import number, result

PACKAGE = "agentenv-framework"
END_TURN = "end_turn"
_LAZY = (
    "httpcore", "uvicorn.protocols.http.auto", "uvicorn.protocols.websockets.auto", "uvicorn.loops.auto",
    "uvicorn.lifespan.on", "anyio._backends._asyncio",
)  # fmt: skip
"""Modules that the framework's own servers and clients import when they are first used."""
_KINDS = {"train": "train", "test": "test"}


class AgentEnvAdapter(Adapter):
    """A folder with tasks, or the name of a bundle that an installed package provides. Its evals are the splits; tasks
    that no eval names are left out, as `agent-env run` does. Without evals there is one split, `train`.

    Options: `reward`, `sandbox`, `agent`, `turn_seconds`, `tool_seconds` and `state`.
    """

    def __init__(self, target: str, options: dict[str, Any]) -> None:
        super().__init__(target, options)
        self._place_stores()
        self.framework = need("agent_env.task", PACKAGE)
        self.bundle = need("agent_env.bundle", PACKAGE)
        self.installed = need("agent_env.bundle.installed", PACKAGE)
        self.routing = need("agent_env.store.routing", PACKAGE).namespace_routing
        self.steps = need("agent_env.task_step.registry", PACKAGE)
        _preload()
        found = call_forked(self._prepare)
        self.name: str = found["name"]
        self.splits: dict[str, list[dict[str, Any]]] = found["splits"]

    def _place_stores(self) -> None:
        """Let AgentEnv keep its local state in one folder."""
        state = self.options.get("state")
        if state is None:
            state = tempfile.mkdtemp(prefix="ludus-agentenv-")
            atexit.register(shutil.rmtree, state, ignore_errors=True)
        os.environ["XDG_STATE_HOME"] = os.path.abspath(state)
        os.environ.setdefault("AGENT_ENV_LOCAL_SANDBOX_DIR", os.path.join(os.path.abspath(state), "sandboxes"))

    def _prepare(self) -> dict[str, Any]:
        """Prepare the bundle and return its name and the tasks of its splits as JSON values."""
        root, id_root = self._root()
        kinds = self.bundle.BundleKind
        try:
            with self.routing():
                entries = self.bundle.parse_bundle(root, id_root=id_root).entries
                prepared = self.bundle.prepare_bundle(
                    root,
                    tasks=[one.name for one in entries if one.kind is kinds.TASK],
                    evals=[one.name for one in entries if one.kind is kinds.EVAL],
                    sandbox=self.options.get("sandbox"),
                    id_root=id_root,
                    played=True,
                )
                tasks = {task.id: self._described(entry.name, task) for entry, task in prepared.tasks}
                splits = {
                    eval_.entry.name: [tasks[ref.id] for ref in eval_.references] for eval_ in prepared.plan.evals
                }
        except NotUsable:
            raise
        except Exception as error:
            raise NotUsable(f"{self.target!r} cannot be prepared: {type(error).__name__}: {error}") from error
        return {"name": prepared.plan.bundle.bundle.name, "splits": splits or {"train": list(tasks.values())}}

    def _root(self) -> tuple[Path, Any]:
        if os.path.isdir(self.target):
            return Path(self.target), None
        try:
            root, id_root = self.installed.locate_bundle(self.target)
        except Exception as error:
            raise NotUsable(f"there is no folder and no installed bundle {self.target!r}: {error}") from None
        return Path(root), id_root

    def _described(self, name: str, task: Any) -> dict[str, Any]:
        try:
            self.spec(task)
        except self.framework.EpisodeError as error:
            raise NotUsable(f"the task {name!r} cannot be played: {error}; see the option agent") from None
        scoring = [step.id for step in task.steps if getattr(step, "verifier_id", None)]
        chosen = self.options.get("reward")
        if chosen is not None and chosen not in scoring:
            known = ", ".join(scoring) or "none"
            raise NotUsable(f"the option reward: the task {name!r} records no score at {chosen!r}, but at: {known}")
        if chosen is None and len(scoring) != 1:
            what = f"records scores at {', '.join(scoring)}; choose one" if scoring else "records no score"
            raise NotUsable(f"the task {name!r} {what}; see the option reward")
        steps = [step.to_dict() for step in task.steps]
        return {"name": name, "id": task.id, "version": task.version, "steps": steps, "reward": chosen or scoring[0]}

    def spec(self, task: Any) -> Any:
        """Return the framework's reading of a task as an episode."""
        agent, seconds = self.options.get("agent"), self.options.get("turn_seconds")
        return self.framework.EpisodeSpec.from_task(
            task, trainer_agents=None if agent is None else [agent], turn_timeout=seconds and math.ceil(seconds)
        )

    def describe(self) -> list[dict[str, Any]]:
        version = importlib.metadata.version(PACKAGE)
        return [
            description(
                self.name,
                f"Tasks of the AgentEnv bundle {self.name}.",
                [split(name, len(tasks), _KINDS.get(name, "validation")) for name, tasks in self.splits.items()],
                task_tools=True,
                gradable=True,
                package=f"{PACKAGE} {version}",
                version=version,
                seedable=False,
                not_promised={
                    "seeds": "tasks take none",
                    "parallel calls": "each call is a step of its own",
                    "tools that change": "the agent gets the tools of its first turn in all turns",
                    "teardown": "what an episode has deployed is left to its provider if it is given up and does not "
                    "end within seconds",
                },
            )
        ]

    def task(self, environment: str, split: str, index: int) -> dict[str, Any]:
        return {"id": self.splits[split][index]["name"], "private": {"split": split, "index": index}}

    def open(self, environment: str, task: dict[str, Any], seed: int) -> HostedEpisode:
        return AgentEnvEpisode(self, self.splits[task["private"]["split"]][task["private"]["index"]])


class AgentEnvEpisode(HostedEpisode):
    """One run of a task, on an event loop of its own."""

    def __init__(self, adapter: AgentEnvAdapter, task: dict[str, Any]) -> None:
        self.adapter = adapter
        self.reward_step: str = task["reward"]
        self.loop = LoopThread()
        self.stack = contextlib.ExitStack()
        self.episode: Any = None
        self.turn: Any = None
        try:
            self.stack.enter_context(adapter.routing())
            registry = adapter.steps.get_task_step_registry()
            steps = [registry[step["type"]].from_dict(step) for step in task["steps"]]
            made = adapter.framework.Task(id=task["id"], version=task["version"], steps=steps)
            self.loop.run(self._start(adapter.spec(made)))
            if self.turn is None:
                raise RuntimeError("the run ended before the first turn of the agent")
        except BaseException:
            self.close()
            raise
        system = [self.turn.system_prompt] if self.turn.system_prompt else []
        system += [f"Skill {skill.name} ({skill.path}): {skill.description}" for skill in self.turn.skills]
        self.prompt = [{"role": "system", "content": [text]} for text in system]
        self.prompt.append({"role": "user", "content": [self.turn.prompt]})
        self.tools = [described(one) for one in self.offered.list()]
        self.tools.append(
            tool(
                END_TURN,
                "End your turn with a reply, and read the next message. A final message ends the last turn.",
                {"response": {"type": "string", "description": "Your reply."}},
            )
        )

    async def _start(self, spec: Any) -> None:
        self.episode = await spec.start(sandbox=self.adapter.options.get("sandbox"))
        await self._next_turn()

    async def _next_turn(self) -> None:
        self.turn = await self.episode.next_turn()
        if self.turn is not None:
            self.offered = self.turn.tools(timeout=float(self.adapter.options.get("tool_seconds") or 600.0))
            await self.offered.__aenter__()  # which lists them; leaving it does nothing

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if tool == END_TURN:
            self.loop.run(self._end_turn(arguments["response"]))
            if self.turn is None:
                return self._scored("The task has ended.", finished=True)
            return result(self.turn.prompt)
        found = self.loop.run(self.offered.call(tool, arguments))
        if found.isError and self.adapter.options.get("tool_errors") == "fail":
            raise RuntimeError(f"the tool {tool!r} failed: {[_block(one) for one in found.content]}")
        return result([_block(one) for one in found.content], metadata={"is_error": bool(found.isError)})

    def grade(self, answer: str) -> dict[str, Any]:
        self.loop.run(self._end_turn(answer))
        while self.turn is not None:  # the agent says no more
            self.loop.run(self._end_turn(""))
        return self._scored("", finished=True)

    async def _end_turn(self, response: str) -> None:
        await self.turn.end(response)
        await self._next_turn()

    def _scored(self, text: str, *, finished: bool) -> dict[str, Any]:
        scores = self.loop.run(self.episode.result())
        if self.reward_step not in scores:
            raise RuntimeError(f"the run recorded no score at the step {self.reward_step!r}, but: {scores}")
        components = {
            name: {"value": score, "weight": 1.0 if name == self.reward_step else 0.0} for name, score in scores.items()
        }
        return result(
            text, reward=number(scores[self.reward_step], "the score"), components=components, finished=finished
        )

    def close(self) -> None:
        try:
            if self.episode is not None:
                self.loop.run(self.episode.abandon("the episode was closed"))
        finally:
            self.stack.close()
            self.loop.close()


def _preload() -> None:
    """Import what an episode needs, so that the episodes, which are forked, need not: most of the cost of a start."""
    with contextlib.suppress(Exception):
        importlib.import_module("agentenv_protocol.a2a_agent.proxy").ProxyAgent(shell=False).create_app()
    for name in _LAZY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def described(one: Any) -> dict[str, Any]:
    """Return a tool of a turn in the form of `adapter.tool`."""
    schema = {"type": "object", "properties": {}, **(one.inputSchema or {})}
    return {"name": one.name, "description": one.description or "", "schema": schema}


def _block(block: dict[str, Any]) -> Any:
    if block.get("type") == "image":
        return {"type": "image", "data": block["data"], "mimeType": block["mimeType"]}
    return str(block["text"]) if block.get("type") == "text" else re.sub(r"\s+", " ", str(block))[:1000]


ADAPTER = AgentEnvAdapter
