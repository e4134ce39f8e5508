"""The Helm chart: what it renders is valid, starts real servers and a real nginx, and refuses wrong values."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from free_ports import free_port
from helm_charts import CHART, Objects, container, nginx_conf, pod, render
from proxy_processes import program_of, running_proxy
from worker_servers import WORLD

from ludus.cli.app import app
from ludus.client import connect, text_of
from ludus.protocol.errors import EpisodeNotFound
from ludus.protocol.workers import EPISODE_HEADER
from ludus.server.auth.tokens import TokenFile, new_token
from ludus.server.workers.processes import EXIT_SECONDS

SNIPPETS = Path(__file__).parents[2] / "docs" / "snippets"
TOKEN, RECORD = new_token("trainer", ("tasks:read", "episodes:run", "rewards:read"))
PATIENCE = 60.0
pytestmark = [pytest.mark.timeout(300)]
with_processes = pytest.mark.suite("kubernetes")

EVERYTHING: dict[str, Any] = {
    "journal": {"kind": "postgres", "sync": "full"},
    "publicUrl": "https://lab.example.org",
    "imagePullSecrets": [{"name": "registry"}],
    "metrics": {"open": True, "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
    "env": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}],
    "envFrom": [{"secretRef": {"name": "keys"}}],
    "drain": {"seconds": 600, "tokenSecretName": "drain"},
    "extraArgs": ["--max-episodes=50", "--access-log"],
    "podAnnotations": {"note": "yes"},
    "serviceAccount": {"name": "sandboxes", "automount": True},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "rl", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "gateway": {"replicas": 1, "service": {"type": "LoadBalancer", "annotations": {"note": "yes"}}},
}
VALUES: dict[str, dict[str, Any]] = {
    "default": {},
    "one server": {"replicas": 1},
    "three servers": {"replicas": 3},
    "postgres": {"journal": {"kind": "postgres"}},
    "no journal": {"journal": {"kind": "none"}, "drain": {"seconds": 60, "tokenSecretName": "drain"}},
    "everything": EVERYTHING,
    "the example": yaml.safe_load((SNIPPETS / "kubernetes-values.yaml").read_text(encoding="utf-8")),
}


def test_the_chart_has_no_fault() -> None:
    helm = pytest.importorskip("helm_python.chart", reason="helm-python-sdk is not installed")
    report = helm.lint(CHART, strict=True)
    assert report["errors"] == []
    assert [one for one in report["messages"] if one["severity"] > 1] == []


@pytest.mark.parametrize("version", ["1.27", "1.37"])
@pytest.mark.parametrize("values", VALUES.values(), ids=list(VALUES))
def test_every_object_is_valid(values: dict[str, Any], version: str) -> None:
    checker = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    objects = render(values)
    for (kind, _), one in objects.items():
        if kind != "ServiceMonitor":  # an object of the Prometheus operator, not of Kubernetes
            checker.validate(one, version, strict=True)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicas": 0}, "replicas"),
        ({"replicas": "two"}, "replicas"),
        ({"environments": []}, "environments"),
        ({"journal": {"kind": "redis"}}, "kind"),
        ({"image": {"repository": ""}}, "repository"),
        ({"tokens": {"secretName": "Upper Case"}}, "secretName"),
        ({"extraArgs": ["--worker=w7"]}, "extraArgs"),
        ({"shutdownSeconds": -1}, "shutdownSeconds"),
        ({"gateway": {"bodySize": "4 MB"}}, "bodySize"),
        ({"replicaCount": 3}, "replicaCount"),
    ],
    ids=str,
)
def test_wrong_values_are_refused_by_name(values: dict[str, Any], named: str) -> None:
    errors = pytest.importorskip("helm_python.errors", reason="helm-python-sdk is not installed")
    with pytest.raises(errors.HelmError, match=named):
        render(values)


@pytest.mark.parametrize("values", VALUES.values(), ids=list(VALUES))
def test_every_selector_finds_pods(values: dict[str, Any]) -> None:
    objects = render(values)
    labels = [pod(objects, kind, name)["metadata"]["labels"] for kind, name in objects if kind in SETS]
    for (kind, name), one in objects.items():
        if kind == "Service":
            selector = dict(one["spec"]["selector"])
            of_pod = selector.pop("statefulset.kubernetes.io/pod-name", None)
            assert of_pod in (None, name)
            assert sum(selector.items() <= found.items() for found in labels) == 1, name
        elif kind == "PodDisruptionBudget":
            assert sum(one["spec"]["selector"]["matchLabels"].items() <= found.items() for found in labels) == 1
        elif kind == "ServiceMonitor":
            services = [found for (kind, _), found in objects.items() if kind == "Service"]
            wanted = one["spec"]["selector"]["matchLabels"].items()
            matched = [found["metadata"]["name"] for found in services if wanted <= found["metadata"]["labels"].items()]
            assert matched == ["lab-ludus-servers"]


SETS = ("StatefulSet", "Deployment")


@pytest.mark.parametrize("values", VALUES.values(), ids=list(VALUES))
def test_pods_run_without_privileges_and_have_time_to_end(values: dict[str, Any]) -> None:
    objects = render(values)
    for kind, name in objects:
        if kind in SETS:
            spec = pod(objects, kind, name)["spec"]
            assert spec["securityContext"]["runAsNonRoot"] is True
            account = values.get("serviceAccount", {}) if kind == "StatefulSet" else {}
            assert spec["automountServiceAccountToken"] is account.get("automount", False)
            for one in spec["containers"]:
                assert one["securityContext"]["readOnlyRootFilesystem"] is True
                assert one["securityContext"]["allowPrivilegeEscalation"] is False
                assert {"livenessProbe", "readinessProbe", "resources"} <= one.keys()
                assert one["readinessProbe"]["httpGet"]["path"] == "/health", "a full server is not `/ready`"
    spec = pod(objects, "StatefulSet", "lab-ludus")["spec"]
    *_, pause, drain = container(objects)["lifecycle"]["preStop"]["exec"]["command"]
    (seconds,) = (float(one.partition("=")[2]) for one in container(objects)["args"] if "--shutdown-seconds" in one)
    needed = float(pause) + float(drain) + seconds + EXIT_SECONDS
    assert needed <= spec["terminationGracePeriodSeconds"]


def command_of(objects: Objects, folder: Path, hostname: str) -> list[str]:
    """The arguments that `ludus` gets in a pod, from the real shell with a stub in place of the command."""
    stub = folder / "ludus"
    stub.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n", encoding="utf-8")
    stub.chmod(0o755)
    one = container(objects)
    arguments = [argument.replace("$(LUDUS_JOURNAL)", "postgresql://user@db/ludus") for argument in one["args"]]
    shown = subprocess.run(
        [*one["command"], *arguments], env={"PATH": f"{folder}:/usr/bin:/bin", "HOSTNAME": hostname},
        capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    found: list[str] = json.loads(shown.stdout)
    return found


def parsed(arguments: list[str]) -> dict[str, Any]:
    """The parameters that the real command line reads from arguments."""
    import typer

    group: Any = typer.main.get_command(app)
    with group.make_context("ludus", list(arguments)) as context:
        name, command, rest = group.resolve_command(context, arguments)
        assert name == "serve"
        found: dict[str, Any] = command.make_context(name, rest, parent=context).params
    return found


@pytest.mark.parametrize("values", VALUES.values(), ids=list(VALUES))
def test_the_command_line_is_accepted_and_names_the_worker(values: dict[str, Any], tmp_path: Path) -> None:
    objects = render(values)
    params = parsed(command_of(objects, tmp_path, "lab-ludus-2"))
    assert params["worker"] == "w2"
    assert params["environments"] == values.get("environments", ["guess_number"])
    kind = values.get("journal", {}).get("kind", "sqlite")
    assert (params["journal"] is None) == (kind == "none")
    assert str(params["token_file"]) == "/run/ludus/tokens.json"


def test_the_task_of_skypilot_runs_an_accepted_command_line() -> None:
    task = yaml.safe_load((SNIPPETS / "skypilot.yaml").read_text(encoding="utf-8"))
    assert task.keys() == {"name", "resources", "workdir", "setup", "run"}, "fields of SkyPilot's tasks"
    (line,) = (line for line in task["run"].splitlines() if "ludus serve" in line)
    params = parsed(line.removeprefix("exec ludus ").split())
    assert params["port"] == task["resources"]["ports"]
    assert int(params["workers"]) < int(task["resources"]["cpus"].rstrip("+"))


def routing(text: str) -> list[str]:
    """The lines of a configuration from the first map to the upstreams, without its comments."""
    body = text[text.index("map $http_upgrade") : text.index("upstream w0")]
    return [line.strip() for line in body.splitlines() if line.strip() and not line.strip().startswith("#")]


def test_the_gateway_routes_as_the_documented_configuration() -> None:
    documented = (SNIPPETS / "nginx-workers.conf").read_text(encoding="utf-8")
    assert routing(nginx_conf(render({"replicas": 2}))) == routing(documented)


def local(text: str, servers: list[str], port: int, folder: Path) -> str:
    """The configuration of the gateway, changed only in its addresses and in where it keeps files."""
    for number, server in reversed(list(enumerate(servers))):
        text = text.replace(f"lab-ludus-{number}:8000", server)
    text = text.replace("/tmp/", f"{folder}/").replace("listen 8080;", f"listen 127.0.0.1:{port};")
    text = text.replace("listen 8081;", f"listen 127.0.0.1:{free_port()};")
    return re.sub(r"worker_processes auto;|pid [^;]*;", "", text)


@pytest.mark.parametrize("replicas", [1, 3, 12])
def test_nginx_accepts_the_configuration(replicas: int, tmp_path: Path) -> None:
    program = program_of("nginx")
    servers = [f"127.0.0.1:{8000 + number}" for number in range(replicas)]
    config = tmp_path / "nginx.conf"
    config.write_text(local(nginx_conf(render({"replicas": replicas})), servers, 8080, tmp_path), encoding="utf-8")
    done = subprocess.run(
        [program, "-t", "-e", "stderr", "-c", config, "-p", tmp_path, "-g", f"pid {tmp_path}/pid;"],
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "[warn]" not in done.stderr.replace('the "user" directive', "")


class Pod:
    """A server as its pod starts it, with files in a folder instead of volumes."""

    def __init__(self, objects: Objects, number: int, folder: Path) -> None:
        self.objects, self.number, self.folder = objects, number, folder
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.process: asyncio.subprocess.Process | None = None
        (folder / f"journal-{number}").mkdir()

    async def start(self) -> None:
        one = container(self.objects)
        arguments = [
            argument.replace("/run/ludus", str(self.folder))
            .replace("/var/lib/ludus", str(self.folder / f"journal-{self.number}"))
            .replace("--port=8000", f"--port={self.port}")
            for argument in one["args"]
        ]
        variables = {**os.environ, "HOSTNAME": f"lab-ludus-{self.number}", "HOME": str(self.folder)}
        variables["PATH"] = f"{Path(sys.executable).parent}:{variables['PATH']}"
        with (self.folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *one["command"], *arguments, env=variables, cwd=self.folder, stderr=log,
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)
        assert line.startswith(b"Serving"), (self.folder / "log").read_text()

    async def end(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(self.process.wait(), PATIENCE)


@pytest.fixture
async def pods(tmp_path: Path) -> AsyncIterator[list[Pod]]:
    values = {"environments": [f"{WORLD}:Ledger"], "trustedProxies": ["127.0.0.1"]}
    objects = render(values)
    (tmp_path / "tokens.json").write_text(TokenFile(tokens=(RECORD,)).model_dump_json(), encoding="utf-8")
    async with AsyncExitStack() as stack:
        found = [Pod(objects, number, tmp_path) for number in range(2)]
        for one in found:
            stack.push_async_callback(one.end)
        await asyncio.gather(*(one.start() for one in found))
        yield found


@with_processes
async def test_episodes_of_rendered_pods_survive_a_rolling_restart(pods: list[Pod], tmp_path: Path) -> None:
    port = free_port()
    text = local(nginx_conf(pods[0].objects), [one.address for one in pods], port, tmp_path)
    async with running_proxy("nginx", text, port, tmp_path):
        for wire in ("channel", "mcp", "ors"):
            url = f"http://127.0.0.1:{port}"
            async with connect(url, token=TOKEN, wire=wire, reconnect_seconds=PATIENCE) as client:
                episode = await client.environment("ledger").start(split="train", index=0)
                assert text_of((await episode.call("add", number=1)).content).startswith("1 ")
                for one in pods:
                    await one.end()
                    await one.start()
                assert text_of((await episode.call("add", number=2)).content).startswith("3 ")
                assert re.match(r"(e_)?w[01]\.", episode.id)
                await episode.close()


@with_processes
async def test_the_gateway_shows_no_metrics(pods: list[Pod], tmp_path: Path) -> None:
    port = free_port()
    text = local(nginx_conf(pods[0].objects), [one.address for one in pods], port, tmp_path)
    async with running_proxy("nginx", text, port, tmp_path), aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            assert answer.status == 404
        async with session.get(f"http://127.0.0.1:{port}/health") as answer:
            assert answer.status == 200


@with_processes
async def test_an_episode_of_a_server_that_was_removed_is_not_found(pods: list[Pod], tmp_path: Path) -> None:
    """The gateway of one server, after there were two."""
    port = free_port()
    text = local(nginx_conf(render({"replicas": 1})), [pods[0].address], port, tmp_path)
    body = {"jsonrpc": "2.0", "id": 1, "method": "dev.ludus/episodes/get", "params": {"episode": "e_w1.abcdef"}}
    headers = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {TOKEN}"}
    headers[EPISODE_HEADER] = "e_w1.abcdef"
    async with running_proxy("nginx", text, port, tmp_path), aiohttp.ClientSession(headers=headers) as session:
        async with session.post(f"http://127.0.0.1:{port}/mcp", json=body) as answer:
            assert (await answer.json())["error"]["code"] == EpisodeNotFound.code


@with_processes
async def test_the_drain_hook_waits_until_no_episode_runs(pods: list[Pod]) -> None:
    address = f"http://{pods[0].address}"
    async with connect(address, token=TOKEN) as client:
        episode = await client.environment("ledger").start(split="train", index=0)
        hook = await asyncio.create_subprocess_exec(
            sys.executable, str(CHART / "files" / "drain.py"), "0", "600",
            env={**os.environ, "LUDUS_ADDRESS": address, "LUDUS_TOKEN": TOKEN},
        )  # fmt: skip
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(hook.wait(), 3)
        await episode.close()
        assert await asyncio.wait_for(hook.wait(), PATIENCE) == 0


@with_processes
async def test_the_drain_hook_ends_at_once_if_there_is_nothing_to_wait_for(pods: list[Pod]) -> None:
    address = f"http://{pods[0].address}"
    async with connect(address, token=TOKEN) as client:
        await client.environment("ledger").start(split="train", index=0)
        hook = await asyncio.create_subprocess_exec(
            sys.executable, str(CHART / "files" / "drain.py"), "0", "0",
            env={**os.environ, "LUDUS_ADDRESS": address, "LUDUS_TOKEN": TOKEN},
        )  # fmt: skip
        assert await asyncio.wait_for(hook.wait(), PATIENCE) == 0


def test_the_schema_knows_every_value() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

    def check(value: dict[str, Any], known: dict[str, Any], place: str) -> None:
        for name, one in value.items():
            assert name in known["properties"], f"{place}{name}"
            if isinstance(one, dict) and "properties" in known["properties"][name]:
                check(one, known["properties"][name], f"{place}{name}.")

    check(copy.deepcopy(values), schema, "")
