"""Resources servers of NeMo Gym: the server's own application runs here without a network, Ray or NeMo Gym's head."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import threading
from typing import Any
from urllib.parse import urlsplit

from . import nemo_gym_wire as wire
from .adapter import Adapter, HostedEpisode, NotUsable, need
from .asgi import App, run
from .targets import load, load_file

EXAMPLE = "nemo-gym:path/to/app.py:MyServer#tasks=rows.jsonl"


class NemoGymAdapter(Adapter):
    """A server's class, its configuration, or the name of a server that the package comes with.

    Options: `tasks`, `splits`, `max_steps`, `tool_errors`, `config` and `servers`.
    """

    def __init__(self, target: str, options: dict[str, Any]) -> None:
        super().__init__(target, options)
        self.base = need("nemo_gym.base_resources_server", "nemo-gym").SimpleResourcesServer
        self.utils = need("nemo_gym.server_utils", "nemo-gym")
        self.omegaconf = need("omegaconf", "nemo-gym").OmegaConf
        if target.endswith((".yaml", ".yml")) or ":" not in target:
            found = self._of_configuration(target if ":" in target or target.endswith(("yaml", "yml")) else self._own())
            self.server_class, self.name, given, files, steps = found
        else:
            self.server_class = _checked(load(target, EXAMPLE), target, self.base)
            self.name, given, files, steps = self.server_class.__name__, {}, {}, None
        self.max_steps: int | None = options.get("max_steps") or steps
        chosen = options.get("tasks") or options.get("splits")
        self.rows = wire.Rows(wire.files_of(options, EXAMPLE) if chosen or not files else files)
        self.config = self._config({**given, **(options.get("config") or {})})
        self.client = self._client()
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.shared: App | None = None
        self.made = self._make()
        wire.check_routes(self.made.openapi().get("paths"), target)

    def _own(self) -> str:
        """Return the configuration of a server that the package comes with."""
        folder = os.path.dirname(os.path.dirname(os.path.abspath(self.utils.__file__)))
        place = os.path.join(folder, "resources_servers", self.target, "configs")
        if not os.path.isdir(place):
            raise NotUsable(f"nemo-gym comes with no resources server named {self.target!r}; or write {EXAMPLE}")
        files = sorted(name for name in os.listdir(place) if name.endswith(".yaml"))
        named = self.target + ".yaml"
        if named not in files and len(files) != 1:
            raise NotUsable(
                f"{self.target!r} has several configurations; name one of them: {', '.join(files)} ({place})"
            )
        return os.path.join(place, named if named in files else files[0])

    def _of_configuration(self, path: str) -> tuple[Any, str, dict[str, Any], dict[str, str], int | None]:
        """Return the class, the name, the fields, the files of rows and the limit of calls that a file names."""
        if not os.path.isfile(path):
            raise NotUsable(f"there is no file {path!r} (looked in {os.getcwd()})")
        try:
            found = self.omegaconf.to_container(self.omegaconf.load(path), resolve=False)
            servers = {name: one["resources_servers"] for name, one in found.items() if "resources_servers" in one}
            (name, kind), *others = servers.items()
            ((module, fields),) = kind.items()
            entry = fields["entrypoint"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise NotUsable(f"{path} is no configuration with one resources server: {error!r}") from None
        if others:
            raise NotUsable(f"{path} has several resources servers; keep one of them in a file of its own")
        root = _root_of(os.path.abspath(path), module, entry)
        code = load_file(os.path.join(root, "resources_servers", module, entry))
        classes = [
            one
            for one in vars(code).values()
            if inspect.isclass(one) and issubclass(one, self.base) and one.__module__ == code.__name__
        ]
        if len(classes) != 1:
            raise NotUsable(f"{entry} of {path} has {len(classes)} server classes; name one: {EXAMPLE}")
        agents = [one.get("responses_api_agents", {}) for one in found.values() if isinstance(one, dict)]
        settings = [agent for one in agents for agent in one.values()]
        files: dict[str, str] = {}
        for data in [data for agent in settings for data in agent.get("datasets") or []]:
            place = os.path.join(root, data.get("jsonl_fpath", ""))
            if os.path.isfile(place):
                files.setdefault(data.get("name", "train"), place)
        steps = next((agent["max_steps"] for agent in settings if agent.get("max_steps")), None)
        return classes[0], name, {**fields, "name": name}, files, steps

    def _config(self, given: dict[str, Any]) -> Any:
        kind = self.server_class.model_fields["config"].annotation
        fields = {"name": self.name, "host": "127.0.0.1", "port": 1, "entrypoint": "app.py", **given}
        try:
            return kind.model_validate(fields)
        except ValueError as error:
            raise NotUsable(
                f"the configuration of {self.target!r} cannot be used: {error}; see the option config"
            ) from None

    def _client(self) -> Any:
        """Return NeMo Gym's client of other servers, which knows those of the option `servers`."""
        known = {}
        for name, address in (self.options.get("servers") or {}).items():
            parts = urlsplit(address)
            if parts.scheme != "http" or not parts.hostname:
                raise NotUsable(f"the option servers: {address!r} is no address such as http://127.0.0.1:9000")
            place = {"host": parts.hostname, "port": parts.port or 80, "entrypoint": "app.py"}
            known[name] = {"responses_api_models": {name: place}}
        settings = need("nemo_gym.global_config", "nemo-gym")
        whole = self.omegaconf.create(known)
        parser = settings.GlobalConfigDictParserConfig(
            skip_load_from_cli=True, skip_load_from_dotenv=True, initial_global_config_dict=whole
        )
        settings.get_global_config_dict(parser)
        head = need("nemo_gym.config_types", "nemo-gym").BaseServerConfig(host="127.0.0.1", port=1)
        return self.utils.ServerClient(head_server_config=head, global_config_dict=whole)

    def _make(self) -> Any:
        server = self.server_class(config=self.config, server_client=self.client)
        app = server.setup_webserver()
        server.setup_exception_middleware(app)  # as its `run_webserver` does
        return app

    def app(self) -> App:
        """Return the running application: one for each forked process, or one that all episodes share."""
        with self.lock:
            if self.shared is not None:
                return self.shared
            run(self._set_client())
            started = App(self.made)
            if not self.is_forked:
                self.shared = started
            return started

    @property
    def is_forked(self) -> bool:
        """Whether this process is that of one episode."""
        return os.getpid() != self.process

    async def _set_client(self) -> None:
        self.utils.set_global_aiohttp_client(self.utils.GlobalAIOHTTPAsyncClientConfig())

    def describe(self) -> list[dict[str, Any]]:
        version = importlib.metadata.version("nemo-gym")
        text = inspect.cleandoc(self.server_class.__doc__ or "") if "__doc__" in vars(self.server_class) else ""
        return [
            wire.describe(
                self.name, self.rows, package=f"nemo-gym {version}", version=version, text=text[:2000], broken={}
            )
        ]

    def task(self, environment: str, split: str, index: int) -> dict[str, Any]:
        return wire.task_of(split, index)

    def open(self, environment: str, task: dict[str, Any], seed: int) -> HostedEpisode:
        return NemoGymEpisode(self, task)


class NemoGymEpisode(HostedEpisode):
    """One session of the server's application."""

    def __init__(self, adapter: NemoGymAdapter, task: dict[str, Any]) -> None:
        self.app = adapter.app()
        self.owns_app = adapter.is_forked
        row = adapter.rows.get(task)
        self.rollout = wire.Rollout(row, adapter.max_steps, adapter.options.get("tool_errors") or "show")
        begun = self._run(self.rollout.begin())
        self.prompt, self.tools = begun["prompt"], begun["tools"]

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self._run(self.rollout.call(tool, arguments))
        return found

    def grade(self, answer: str) -> dict[str, Any]:
        found: dict[str, Any] = self._run(self.rollout.grade(answer))
        return found

    def _run(self, plan: wire.Plan) -> Any:
        try:
            request = next(plan)
            while True:
                status, headers, body = self.app.exchange("POST", request.path, request.body, request.headers)
                cookies = tuple(value for name, value in headers if name == "set-cookie")
                request = plan.send(wire.Reply(status, body, cookies))
        except StopIteration as ended:
            return ended.value

    def close(self) -> None:
        if self.owns_app:
            self.app.close()


def _root_of(config: str, module: str, entry: str) -> str:
    """Return the folder that has `resources_servers/MODULE/ENTRY`, next to or above a configuration."""
    folder = os.path.dirname(config)
    while True:
        if os.path.isfile(os.path.join(folder, "resources_servers", module, entry)):
            return folder
        if os.path.dirname(folder) == folder:
            raise NotUsable(f"no folder above {config} has resources_servers/{module}/{entry}")
        folder = os.path.dirname(folder)


def _checked(found: Any, target: str, base: Any) -> Any:
    if not inspect.isclass(found) or not issubclass(found, base):
        raise NotUsable(f"{target} is no subclass of SimpleResourcesServer; write {EXAMPLE}")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        raise NotUsable(f"{target} is abstract; it lacks {missing}")
    return found


ADAPTER = NemoGymAdapter
