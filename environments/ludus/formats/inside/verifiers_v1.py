"""Tasksets of verifiers' v1 API: tasks with rewards, tools over MCP, and a harness that talks to a model's endpoint.

How this works: an episode is `Env.run_episode` of verifiers itself, with its interception server and its scoring. The
model is an endpoint in this process, whose completions wait for the agent. Unless a taskset brings a harness of its
own, `ChatHarness` plays: the same loop as verifiers' harness `null`, but without a process for it.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import os
import secrets
import sys
import types
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from .adapter import HostedEpisode, NotUsable, need
from .values import number
from .verifiers_rollout import Exchange, Overlong, RolloutEpisode

HARNESS = "ludus_chat_harness"
_KEY = "LUDUS_AGENT_ENDPOINT_KEY"


class LoadedTaskset:
    """A taskset, with the attributes of `verifiers_v0.LoadedEnvironment`."""

    def __init__(self, module: str, options: dict[str, Any]) -> None:
        self.vf = need("verifiers.v1", "verifiers")
        self._loaders = importlib.import_module("verifiers.v1.utils.loaders")
        self._agents = importlib.import_module("verifiers.v1.configs.agent")
        self._runtimes = importlib.import_module("verifiers.v1.runtimes")
        self.module = module
        self.unsafe_shell = bool(options.get("unsafe_shell"))
        self.reply = options.get("reply", "auto")
        install_harness()
        self.config = self._config(options.get("args") or {}, options.get("agent") or {})
        try:
            self.env = self._loaders.load_environment(self.config)
            self.endless = not self.env.taskset.bounded
            self.tasks = [] if self.endless else list(self.env.taskset)
        except Exception as error:
            raise NotUsable(f"the taskset {module!r} cannot be loaded: {type(error).__name__}: {error}") from error
        if not self.endless and not self.tasks:
            raise NotUsable(f"the taskset {module!r} has no tasks")
        self.not_promised = self._check_commands()
        self.doc = type(self.env.taskset).__doc__ or ""
        self.splits = [("train", None if self.endless else len(self.tasks), "train")]
        self.tools: list[dict[str, Any]] = []
        self.task_tools = True

    def _config(self, arguments: dict[str, Any], agent: dict[str, Any]) -> Any:
        """Return the config of the environment: the taskset's fields, and those of its agent."""
        try:
            kind = self._loaders.env_config_type(self.module)
            own = self._loaders.default_harness_id(self.module) == self.module
        except Exception as error:
            raise NotUsable(f"{self.module!r} is no taskset: {error}") from error
        roles = [
            name
            for name, model_field in kind.model_fields.items()
            if isinstance(model_field.default, self._agents.AgentConfig)
        ]
        if len(roles) != 1:
            raise NotUsable(f"{self.module!r} has the agents {', '.join(roles)}; only one agent can be served")
        chosen = {"runtime": {"type": "subprocess"}, **({} if own else {"harness": {"id": HARNESS}}), **agent}
        try:
            return self._loaders.resolve_env_config({"taskset": {**arguments, "id": self.module}, roles[0]: chosen})
        except Exception as error:
            raise NotUsable(f"the options args or agent do not fit the taskset {self.module!r}: {error}") from error

    def _check_commands(self) -> dict[str, str]:
        """Return what is not promised about commands, which verifiers runs in a sandbox by default.

        Raises:
            NotUsable: the taskset needs a container, or commands would run on this machine without `unsafe_shell`.
        """
        agents = self._agents.agent_config_fields(self.env.config)
        if len(agents) != 1:
            raise NotUsable(f"{self.module!r} has the agents {', '.join(agents)}; only one agent can be served")
        ((role, agent),) = agents.items()
        if not isinstance(agent.runtime, self._runtimes.SubprocessConfig):
            return {}
        if type(self.env.taskset).task_type().NEEDS_CONTAINER:
            raise NotUsable(
                f'tasks of {self.module!r} need a container; choose one with #agent={{"runtime":{{"type":"docker"}}}}'
            )
        running = self._running_commands(role)
        if not running:
            return {"a shell": "verifiers plays tasks with its harness bash; here only a task's own tools are offered"}
        if not self.unsafe_shell:
            raise NotUsable(
                f"{running} of {self.module!r} runs commands, which verifiers runs in a sandbox, and here they would "
                "run on this machine with the server's rights; name a sandbox of verifiers in the option agent, such "
                'as {"runtime":{"type":"docker"}}, or allow them here with unsafe_shell=true'
            )
        return {"isolation": f"{running} runs commands on this machine with the server's rights (unsafe_shell=true)"}

    def _running_commands(self, role: str) -> str:
        """Return what may run an agent's commands in the runtime of a role; an empty text if nothing does."""
        harness = self.env._harnesses[role]
        if harness.EXECUTES_CODE:
            return f"the harness {harness.config.id!r}"
        task = self.task(0)
        for kind in ("reward", "metric"):
            for function in task.hooks(kind):
                if "runtime" in inspect.signature(function).parameters:
                    return f"the {kind} {function.__name__!r}"
        for judge in task.plugged_judges():
            if "runtime" in inspect.signature(judge.score).parameters:
                return f"the judge {judge.reward_name!r}"
        if type(task).finalize is not self.vf.Task.finalize:
            return "finalize()"
        if any(getattr(toolset.config, "colocated", False) for toolset in task.toolsets(task.config)):
            return "a tool server in the agent's sandbox (colocated)"
        return ""

    def task(self, index: int) -> Any:
        """Return a task."""
        if not self.endless:
            return self.tasks[index]
        return next(itertools.islice(iter(self.env.taskset), index, None))

    def digest(self, split: str, index: int) -> str:
        """Return the identity of a task."""
        return str(self.task(index).hash)

    def open(self, split: str, index: int) -> HostedEpisode:
        """Begin a rollout of a task."""
        task = self.task(index)

        async def rollout(exchange: Exchange) -> Any:
            async with endpoint(exchange) as address, self.env.serving():
                client = self.vf.EvalClientConfig(base_url=address, api_key_var=_KEY)
                context = self.vf.ModelContext(model="agent", client=client)
                return await self.env.run_episode(task, context)

        return RolloutEpisode(rollout, outcome, self.replies())

    def replies(self) -> bool:
        """Return whether the agent can send messages that do not end the episode: an environment may answer them."""
        alone = importlib.import_module("verifiers.v1.envs.single_agent").SingleAgentEnv
        return self.reply == "always" or (self.reply == "auto" and type(self.env) is not alone)


def outcome(episode: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the outcome of an episode of verifiers.

    Raises:
        RuntimeError: it failed, or it has more than one rollout.
    """
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if not episode.ok or errors:
        raise RuntimeError(
            f"the rollout failed: {'; '.join(f'{one.type}: {one.message}' for one in errors) or 'no reason is given'}"
        )
    if len(episode.traces) != 1:
        raise RuntimeError(f"the environment ran {len(episode.traces)} rollouts for one episode")
    trace = episode.traces[0]
    components: dict[str, Any] = {
        name: {"value": value, "weight": 0.0} for name, value in trace.metrics.items() if value is not None
    }
    components |= {
        name: {"value": one.score, "weight": one.weight} for name, one in trace.rewards.items() if one is not None
    }
    cut = bool(trace.is_truncated or trace.is_timeout)
    reward = number(trace.reward, "the reward")
    ended = {"reward": reward, "components": components, "finished": not cut, "truncated": cut,
             "metadata": {"stop_condition": trace.stop_condition}}  # fmt: skip
    return ended, []


@asynccontextmanager
async def endpoint(exchange: Exchange) -> AsyncIterator[str]:
    """Serve an OpenAI-shaped endpoint on this machine, whose completions wait for the agent."""
    web = need("aiohttp.web", "aiohttp")
    key = os.environ.setdefault(_KEY, secrets.token_urlsafe(24))

    async def respond(request: Any) -> Any:
        if request.headers.get("Authorization") != f"Bearer {key}":
            return web.json_response({"error": {"message": "wrong key"}}, status=401)
        body = await request.json()
        try:
            completion = await exchange.complete(body)
        except Overlong as error:
            return web.json_response({"error": {"message": str(error), "code": "context_length_exceeded"}}, status=400)
        if not body.get("stream"):
            return web.json_response(completion)
        return web.Response(text=events_of(completion), content_type="text/event-stream")

    application = web.Application(client_max_size=1 << 30)
    application.router.add_post("/v1/chat/completions", respond)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def events_of(completion: dict[str, Any]) -> str:
    """Return a completion as a stream of server-sent events."""
    choice = completion["choices"][0]
    message = dict(choice["message"])
    calls = [{"index": index, **call} for index, call in enumerate(message.pop("tool_calls", None) or ())]
    head = {name: completion[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    delta = {**message, **({"tool_calls": calls} if calls else {})}
    chunks: list[dict[str, Any]] = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
        {**head, "choices": [], "usage": completion["usage"]},
    ]
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def install_harness() -> None:
    """Make `ChatHarness` known to verifiers, which finds harnesses by the names of modules."""
    if HARNESS not in sys.modules:
        module = types.ModuleType(HARNESS)
        module.__dict__.update(ChatHarness=chat_harness(), __all__=["ChatHarness"])
        sys.modules[HARNESS] = module


def chat_harness() -> Any:
    """Return the class of a harness that plays in this process."""
    vf = importlib.import_module("verifiers.v1")
    config = importlib.import_module("verifiers.v1.configs.harness").HarnessConfig
    mcp = importlib.import_module("verifiers.v1.harnesses.utils.mcp")
    compaction = importlib.import_module("verifiers.v1.harnesses.utils.compaction")
    wire = importlib.import_module("verifiers.v1.dialects.chat").message_to_wire
    httpx = need("httpx")

    class ChatHarnessConfig(config):  # type: ignore[misc, valid-type]
        """The config of `ChatHarness`, which has no fields of its own."""

    class ChatHarness(vf.Harness[ChatHarnessConfig]):  # type: ignore[misc, name-defined]
        """A loop of completions and tool calls that ends with a message without calls."""

        APPENDS_SYSTEM_PROMPT = True
        SUPPORTS_MCP = True
        SUPPORTS_RESUME = True
        SUPPORTS_TOOL_INTERCEPTION = True
        EXECUTES_CODE = False
        NEEDS_CONTAINER = False

        async def launch(
            self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: dict[str, str],
            data: Any, tool_interception_url: str | None = None,
        ) -> Any:  # fmt: skip
            system, prompt = self.resolve_prompt(data)
            messages = [{"role": "system", "content": system}] if system else []
            if isinstance(prompt, str):
                messages.append({"role": "user", "content": prompt})
            else:
                messages += [wire(message) for message in prompt or ()]
            servers = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
            async with AsyncExitStack() as stack:
                headers = {"Authorization": f"Bearer {secret}"}
                client = await stack.enter_async_context(httpx.AsyncClient(headers=headers, timeout=None))
                tools, places, connected = await mcp.connect_mcp({"mcpServers": servers}, stack)
                body = {"model": ctx.model, "messages": messages, **({"tools": tools} if tools else {})}
                while True:
                    response = await client.post(f"{endpoint}/chat/completions", json=body)
                    if response.status_code != 200:
                        if "context_length_exceeded" in response.text:
                            break  # the agent has ended the episode
                        raise RuntimeError(f"the model's endpoint answered {response.status_code}: {response.text}")
                    message = response.json()["choices"][0]["message"]
                    messages.append({name: value for name, value in message.items() if value is not None})
                    if not message.get("tool_calls"):
                        break
                    for call in message["tool_calls"]:
                        content = await self._gated(client, tool_interception_url, call)
                        if content is None:
                            content = await self._called(call, places, connected)
                        result = {"role": "tool", "tool_call_id": call["id"], "content": content,
                                  "name": call["function"]["name"]}  # fmt: skip
                        messages.append(compaction.bound_tool_message(result))
            return vf.ProgramResult(exit_code=0, stdout="", stderr="")

        async def _called(self, call: dict[str, Any], places: dict[str, Any], connected: dict[str, Any]) -> Any:
            name = call["function"]["name"]
            if name not in places:
                return f"error: unknown tool {name!r}"
            return await mcp.call_mcp(connected, places, name, json.loads(call["function"]["arguments"]))

        async def _gated(self, client: Any, url: str | None, call: dict[str, Any]) -> Any:
            """Return what the task's policy puts in place of a call's result; None if it lets the call pass."""
            if url is None:
                return None
            function = call["function"]
            asked = {"tool_call_id": call["id"], "name": function["name"],
                     "arguments": json.loads(function["arguments"])}  # fmt: skip
            response = await client.post(url, json=asked)
            response.raise_for_status()
            decision = response.json()
            if decision["action"] == "stop":
                raise RuntimeError(decision["reason"])
            return decision["message"]["content"] if decision["action"] == "deny" else None

    return ChatHarness
