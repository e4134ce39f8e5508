"""Environments for ors-sdk and openreward: the package's own server runs here without a network."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
from typing import Any

from . import ors_wire as wire
from .adapter import Adapter, HostedEpisode, NotUsable, need
from .asgi import App
from .forked import call as call_forked
from .targets import load

EXAMPLE = "ors:path/to/file.py:MyEnvironment or ors:package.module:server"
PACKAGES = {"ors": "ors-sdk", "openreward": "openreward"}


class OrsAdapter(Adapter):
    """An environment class of ors-sdk or openreward, or a `Server` of several.

    Options: `secrets`, the names of environment variables that the environment gets; `deterministic`, whether the same
    task and actions give the same episode.
    """

    def __init__(self, target: str, options: dict[str, Any]) -> None:
        super().__init__(target, options)
        os.environ.setdefault("OPENREWARD_DISABLE_UPDATE_CHECK", "1")
        os.environ.setdefault("LOG_LEVEL", "WARNING")  # the servers write a line for each request
        found = load(target, EXAMPLE)
        self.classes, self.package = _classes(found, target)
        self.secrets = _secrets(options.get("secrets") or [])
        server = need(f"{'ors' if self.package == 'ors' else 'openreward.environments'}.server", PACKAGES[self.package])
        self.server = server.Server
        self.process = os.getpid()
        self.made = self._make()
        self.facts = {one["name"]: one for one in call_forked(self._probe)}

    def _make(self) -> Any:
        try:
            return self.server(self.classes).app
        except (ValueError, TypeError) as error:
            raise NotUsable(f"{self.target}: {error}") from None

    def app(self) -> App:
        """Start the server."""
        return App(self.made if os.getpid() != self.process else self._make())

    def _probe(self) -> Any:
        app = self.app()
        found = run(app, wire.facts())
        app.close()
        return found

    def describe(self) -> list[dict[str, Any]]:
        package = PACKAGES[self.package]
        version = importlib.metadata.version(package)
        texts = {cls.name().lower(): inspect.cleandoc(cls.__doc__ or "")[:2000] for cls in self.classes}
        return [
            wire.describe(
                fact,
                package=f"{package} {version}",
                text=texts.get(name, ""),
                deterministic=bool(self.options.get("deterministic")),
                broken={},
            )
            for name, fact in self.facts.items()
        ]

    def task(self, environment: str, split: str, index: int) -> dict[str, Any]:
        return wire.task_of(split, index)

    def open(self, environment: str, task: dict[str, Any], seed: int) -> HostedEpisode:
        return OrsEpisode(self, self.facts[environment], task)


class OrsEpisode(HostedEpisode):
    """One session of the server."""

    def __init__(self, adapter: OrsAdapter, facts: dict[str, Any], task: dict[str, Any]) -> None:
        self.facts = facts
        self.shows_errors = adapter.options.get("tool_errors") == "show"
        self.app = adapter.app()
        begun = run(self.app, wire.begin(facts, task, adapter.secrets))
        self.sid: str = begun["sid"]
        self.prompt = begun["prompt"]
        self.tools = begun["tools"]

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        plan = wire.call(self.facts, self.sid, tool, arguments, shows_errors=self.shows_errors)
        found: dict[str, Any] = run(self.app, plan)
        return found

    def grade(self, answer: str) -> dict[str, Any]:
        found: dict[str, Any] = run(self.app, wire.grade(self.facts, self.sid, answer))
        return found

    def close(self) -> None:
        run(self.app, wire.end(self.sid))
        self.app.close()


def run(app: App, plan: wire.Plan) -> Any:
    """Return what a plan returns, with an application that answers its requests."""
    try:
        request = next(plan)
        while True:
            request = plan.send(app.request(request.method, request.path, request.body, request.headers))
    except StopIteration as ended:
        return ended.value


def _classes(found: Any, target: str) -> tuple[list[Any], str]:
    """Return the environment classes that an object holds, and the package that they are written for."""
    classes = list(getattr(found, "_env_classes", {}).values()) or [found]
    packages = set()
    for cls in classes:
        bases = [base for base in cls.__mro__ if base.__name__ == "Environment"] if inspect.isclass(cls) else []
        known = [base.__module__.partition(".")[0] for base in bases]
        if not known or known[-1] not in PACKAGES:
            raise NotUsable(
                f"{target} is neither an Environment class of ors-sdk or openreward nor a Server; write {EXAMPLE}"
            )
        if inspect.isabstract(cls):
            missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
            raise NotUsable(f"{target} is abstract; it lacks {missing}")
        packages.add(known[-1])
    return classes, packages.pop()


def _secrets(names: list[str]) -> dict[str, str]:
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise NotUsable(f"the option secrets: the environment variable {missing[0]!r} is not set")
    return {name: os.environ[name] for name in names}


ADAPTER = OrsAdapter
