"""OpenEnv environments: the package's own server runs here without a network, and an episode is a WebSocket of it."""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import json
import os
import sys
import typing
from typing import Any

from . import openenv_wire as wire
from .adapter import Adapter, HostedEpisode, NotUsable, Refused, need
from .asgi import App
from .forked import call as call_forked
from .targets import load

EXAMPLE = "openenv:path/to/file.py:MyEnvironment, openenv:package.server.app:app, or openenv:path/to/folder"

_APP = ("server", "app.py")
"""Where OpenEnv's own template puts the application of a package."""

_WEB = "openenv.core.env_server.web_interface"
"""Not imported, which openenv allows: it brings gradio, which takes longer to import than all the rest."""


class OpenEnvAdapter(Adapter):
    """An environment class, an application, or a folder with `openenv.yaml` or `server/app.py`.

    Options: `make`, the keyword arguments of the class; `action` and `observation`, the names of its models; `reset`,
    further arguments of every reset; `metadata`, whether the agent sees the metadata of observations; `deterministic`,
    whether the same task and actions give the same episode.
    """

    def __init__(self, target: str, options: dict[str, Any]) -> None:
        super().__init__(target, options)
        os.environ["ENABLE_WEB_INTERFACE"] = "false"
        sys.modules.setdefault(_WEB, None)  # type: ignore[arg-type]
        self.http = need("openenv.core.env_server.http_server", "openenv")
        self.reset = dict(options.get("reset") or {})
        self.shows_metadata = bool(options.get("metadata"))
        self.shows_errors = options.get("tool_errors", "show") == "show"
        self.environment, self.application, self.module = self._find(target)
        self.seeded = None if self.environment is None else _accepts_seed(self.environment)
        self.process = os.getpid()
        if self.environment is not None:
            self.action, self.observation = self._models(self.environment)
            self.made = self._make()
        self.facts: dict[str, Any] = call_forked(self._probe)

    def _find(self, target: str) -> tuple[Any, Any, Any]:
        found = _load_folder(target) if os.path.isdir(target) else load(target, EXAMPLE)
        module = sys.modules.get(getattr(found, "__module__", ""))
        base = need("openenv.core.env_server.interfaces", "openenv").Environment
        if inspect.isclass(found) and issubclass(found, base):
            if inspect.isabstract(found):
                missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
                raise NotUsable(f"{target} is abstract; it lacks {missing}")
            return found, None, module
        if hasattr(found, "routes") and callable(found):
            return None, found, module
        raise NotUsable(f"{target} is neither an OpenEnv Environment class nor an application; write {EXAMPLE}")

    def _models(self, environment: Any) -> tuple[Any, Any]:
        """Return the models of actions and observations of a class."""
        types = need("openenv.core.env_server.types", "openenv")
        mcp = need("openenv.core.env_server.mcp_types", "openenv")
        defaults = (None, None)
        if hasattr(environment, "mcp_session"):
            defaults = (mcp.CallToolAction, mcp.CallToolObservation)
        declared = _generic_models(environment)
        hints = _hints(environment.step)
        named = [self._named(option) for option in ("action", "observation")]
        action = named[0] or declared[0] or hints.get("action") or _first_hint(environment.step) or defaults[0]
        observation = named[1] or declared[1] or hints.get("return") or defaults[1]
        if defaults[0] is not None and action in (None, types.Action):
            action, observation = named[0] or defaults[0], named[1] or defaults[1]
        if not (inspect.isclass(action) and issubclass(action, types.Action)):
            raise NotUsable(
                f"the action model of {environment.__name__} is not known: annotate the argument of step, or name the "
                "model with the option action=NAME"
            )
        if not (inspect.isclass(observation) and issubclass(observation, types.Observation)):
            observation = types.Observation
        return action, observation

    def _named(self, option: str) -> Any:
        name = self.options.get(option)
        if not name:
            return None
        if ":" in name:
            return load(name, f"{option}=module:Name")
        found = getattr(self.module, name, None)
        if found is None:
            raise NotUsable(f"the option {option}: {getattr(self.module, '__name__', 'the module')} has no {name!r}")
        return found

    def app(self) -> App:
        """Start the server: the application itself, or one of the class's own."""
        if self.application is not None:
            return App(self.application)
        # A forked child has this application for itself; episodes in threads must not share one.
        return App(self.made if os.getpid() != self.process else self._make())

    def _make(self) -> Any:
        arguments = self.options.get("make") or {}
        factory = functools.partial(self.environment, **arguments) if arguments else self.environment
        return self.http.create_fastapi_app(
            factory, self.action, self.observation, env_name=self.environment.__name__, mode="simulation"
        )

    def _probe(self) -> dict[str, Any]:
        """Return what the server says about itself; runs in a process of its own."""
        app = self.app()

        def request(method: str, path: str, body: Any) -> tuple[int, Any]:
            status, content = app.request(method, path, body)
            try:
                return status, json.loads(content)
            except ValueError:
                return status, None

        facts = wire.facts_of(request)
        if wire.is_mcp(facts["action"]):
            socket = app.websocket("/ws")
            asked = wire.list_tools()
            try:
                message = next(asked)
                while True:
                    socket.send(message)
                    message = asked.send(socket.receive())
            except StopIteration as ended:
                facts["tools"] = ended.value
            socket.close()
        app.close()
        if self.environment is not None and facts["text"] == f"{self.environment.__name__} environment":
            facts["text"] = inspect.cleandoc(self.environment.__doc__ or "")[:2000]
        return facts

    def describe(self) -> list[dict[str, Any]]:
        return [
            wire.describe(
                self.facts,
                package=f"openenv {importlib.metadata.version('openenv')}",
                seeded=self.seeded,
                deterministic=bool(self.options.get("deterministic")),
                broken={
                    "isolation": "OpenEnv publishes environments as containers; here the environment, and code that it "
                    "runs for the agent, runs on this machine with the server's rights"
                },
            )
        ]

    def task(self, environment: str, split: str, index: int) -> dict[str, Any]:
        return wire.task_of(self.facts, self.seeded, split, index)

    def open(self, environment: str, task: dict[str, Any], seed: int) -> HostedEpisode:
        return OpenEnvEpisode(self, task)


class OpenEnvEpisode(HostedEpisode):
    """One WebSocket of the server, from its reset on."""

    def __init__(self, adapter: OpenEnvAdapter, task: dict[str, Any]) -> None:
        self.adapter = adapter
        self.app = adapter.app()
        self.socket = self.app.websocket("/ws")
        try:
            reply = self._ask(wire.reset_message(task, adapter.reset))
            self.prompt = wire.prompt_of(adapter.facts, reply, adapter.shows_metadata)
        except BaseException:
            self.close()
            raise

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if self.adapter.environment is not None and self.adapter.facts["tools"] is None:
            self._check(arguments)
        reply = self._ask(wire.step_message(self.adapter.facts, tool, arguments))
        return wire.outcome_of(reply, self.adapter.shows_metadata, shows_errors=self.adapter.shows_errors)

    def _check(self, action: dict[str, Any]) -> None:
        """Refuse an action that the model refuses: the server would end the session over a custom validator's error."""
        pydantic = need("pydantic")
        try:
            self.adapter.action.model_validate(action)
        except pydantic.ValidationError as error:
            raise Refused(wire.refusal(error.errors())) from None

    def _ask(self, message: str) -> str:
        self.socket.send(message)
        return self.socket.receive()

    def close(self) -> None:
        self.socket.close()
        self.app.close()


def _load_folder(folder: str) -> Any:
    """Return the application of a folder: the one that `openenv.yaml` names, or else `PACKAGE.server.app:app`.

    Raises:
        NotUsable: there is none, or it cannot be imported.
    """
    named = _named_app(folder)
    if named is not None:
        sys.path.insert(0, os.path.abspath(folder))
        try:
            return load(named, EXAMPLE)
        except NotUsable:
            if not os.path.isfile(os.path.join(folder, *_APP)):
                raise
            failure = sys.exc_info()[1]
    elif os.path.isfile(os.path.join(folder, *_APP)):
        failure = None
    else:
        raise NotUsable(
            f"the folder {folder!r} has neither an openenv.yaml with `app: module:name` nor {'/'.join(_APP)}; name a "
            f"class or an application: {EXAMPLE}"
        )
    parent, package = os.path.split(os.path.abspath(folder))
    sys.path.insert(0, parent)
    try:
        return load(f"{package}.server.app:app", EXAMPLE)
    except NotUsable:
        if failure is not None:
            raise failure from None
        raise


def _named_app(folder: str) -> str | None:
    """Return the application that a folder's `openenv.yaml` names; None if there is no such file or entry."""
    path = os.path.join(folder, "openenv.yaml")
    if not os.path.isfile(path):
        return None
    yaml = need("yaml", "pyyaml")
    with open(path, encoding="utf-8-sig") as stream:
        try:
            manifest = yaml.safe_load(stream)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise NotUsable(f"{path} cannot be read: {error}") from None
    app = manifest.get("app") if isinstance(manifest, dict) else None
    if app is not None and (not isinstance(app, str) or ":" not in app):
        raise NotUsable(f"{path}: `app: {app}` is not of the form module:name")
    return app


def _accepts_seed(environment: Any) -> bool:
    base = need("openenv.core.env_server.interfaces", "openenv").Environment
    method = environment.reset if environment.reset_async is base.reset_async else environment.reset_async
    parameters = inspect.signature(method).parameters.values()
    return any(parameter.name == "seed" or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def _generic_models(environment: Any) -> tuple[Any, Any]:
    """Return the models in the class's bases, as in `Environment[MyAction, MyObservation, State]`."""
    for base in environment.__mro__:
        for generic in getattr(base, "__orig_bases__", ()):
            arguments = typing.get_args(generic)
            if len(arguments) >= 2 and all(inspect.isclass(argument) for argument in arguments[:2]):
                return arguments[0], arguments[1]
    return None, None


def _hints(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # annotations that cannot be resolved say nothing
        return {}


def _first_hint(function: Any) -> Any:
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    return _hints(function).get(names[0]) if names else None


ADAPTER = OpenEnvAdapter
