"""The hub's chart, image and compose files: what they render is valid, and starts a real hub."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
import yaml
from helm_charts import CHART, Objects, pod, render
from hubs import HubProcess

from ludus.hub.settings.endpoints import read_settings
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file

HUB_CHART = CHART.parent / "ludus-hub"
DEPLOY = CHART.parents[1] / "hub"
EVERYTHING: dict[str, Any] = {
    "database": {"kind": "postgres"},
    "blobs": {"url": "s3://hub/wheels", "secretName": "store"},
    "publicUrl": "https://hub.example.org",
    "seed": False,
    "endpoints": 'network = ["alice/my-env"]\n[limits]\nrunning = 4\n',
    "sandboxes": True,
    "imagePullSecrets": [{"name": "registry"}],
    "env": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}],
    "envFrom": [{"secretRef": {"name": "keys"}}],
    "extraArgs": ["--log-level=DEBUG"],
    "podAnnotations": {"note": "yes"},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "rl", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "data": {"size": "1Gi", "storageClass": "fast"},
    "service": {"type": "LoadBalancer", "annotations": {"note": "yes"}},
    "metrics": {"serviceMonitor": {"enabled": True, "tokenSecretName": "scrape"}},
}
VALUES = {"default": {}, "everything": EVERYTHING}


def objects_of(values: dict[str, Any]) -> Objects:
    return render(values, chart_folder=HUB_CHART)


def test_the_chart_has_no_fault() -> None:
    helm = pytest.importorskip("helm_python.chart", reason="helm-python-sdk is not installed")
    report = helm.lint(HUB_CHART, strict=True)
    assert report["errors"] == []
    assert [one for one in report["messages"] if one["severity"] > 1] == []


@pytest.mark.parametrize("values", VALUES.values(), ids=list(VALUES))
def test_every_object_is_valid(values: dict[str, Any]) -> None:
    checker = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    objects = objects_of(values)
    assert {"StatefulSet", "Service"} <= {kind for kind, _ in objects}
    for (kind, _), one in objects.items():
        if kind != "ServiceMonitor":  # an object of the Prometheus operator, not of Kubernetes
            checker.validate(one, "1.27", strict=True)


@pytest.mark.parametrize(
    "values",
    [{"replicas": 2}, {"blobs": {"url": "gs://x"}}, {"database": {"kind": "mysql"}}, {"extraArgs": ["x"]}],
    ids=["unknown", "blobs", "database", "argument"],
)
def test_wrong_values_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=next(iter(values))):
        objects_of(values)


@pytest.mark.suite("breadth")
def test_the_pod_starts_a_hub(tmp_path: Path) -> None:
    values: dict[str, Any] = {**EVERYTHING, "blobs": {"url": ""}, "database": {"kind": "sqlite"}}
    container = pod(objects_of(values), "StatefulSet", "lab-ludus-hub")["spec"]["containers"][0]
    (tmp_path / "endpoints.toml").write_text(values["endpoints"])
    assert read_settings(tmp_path / "endpoints.toml").limits.running == 4
    token, record = new_token("alice", ("tasks:read",))
    write_token_file(tmp_path / "tokens.json", TokenFile(tokens=(record,)))
    places = {"/run/ludus": str(tmp_path), "/etc/ludus": str(tmp_path), "--port=8400": "", "--data=/data": ""}
    arguments = list(container["args"])
    assert arguments.pop(0) == "run"
    for given, own in places.items():
        arguments = [one.replace(given, own) for one in arguments]
    hub = HubProcess(tmp_path / "data", *filter(None, arguments))
    try:
        with hub.client(token) as client:
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                assert client.get(container[probe]["httpGet"]["path"]).status_code == 200
            assert client.get("/metrics").status_code == 200
        assert httpx.get(f"{hub.url}/metrics").status_code == 401, "the ServiceMonitor needs its token"
    finally:
        assert hub.stop() == 0


def test_a_pod_gets_its_secrets_from_secrets() -> None:
    container = pod(objects_of(EVERYTHING), "StatefulSet", "lab-ludus-hub")["spec"]["containers"][0]
    assert "--blobs=s3://hub/wheels" in container["args"]
    assert {"secretRef": {"name": "store"}} in container["envFrom"]
    assert [one["name"] for one in container["env"] if "valueFrom" in one] == ["LUDUS_HUB_DATABASE"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is True
    assert container["securityContext"]["procMount"] == "Unmasked"
    assert pod(objects_of(EVERYTHING), "StatefulSet", "lab-ludus-hub")["spec"]["hostUsers"] is False
    plain = pod(objects_of({}), "StatefulSet", "lab-ludus-hub")["spec"]
    assert plain["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is False
    assert "procMount" not in plain["containers"][0]["securityContext"]
    assert plain["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_the_compose_files_name_variables_that_the_hub_reads() -> None:
    files = [yaml.safe_load((DEPLOY / name).read_text()) for name in ("compose.yaml", "compose.s3.yaml")]
    done = subprocess.run(
        [sys.executable, "-m", "ludus.cli", "hub", "run", "--help"], capture_output=True, text=True, timeout=60,
        env={**os.environ, "COLUMNS": "300"},
    )  # fmt: skip
    for file in files:
        for name in file["services"]["hub"]["environment"]:
            assert name.startswith("AWS_") or name in re.sub(r"[\s│]+", "", done.stdout), name
    (port,) = files[0]["services"]["hub"]["ports"]
    assert port.startswith("127.0.0.1:"), "not open to everybody by default"


def test_the_compose_files_are_valid_and_take_every_secret_from_a_file() -> None:
    schema = json.loads((Path(__file__).parent / "schemas" / "compose-spec.json").read_text())
    for name in ("compose.yaml", "compose.s3.yaml"):
        file = yaml.safe_load((DEPLOY / name).read_text())
        jsonschema.Draft202012Validator(schema).validate(file)
        for one in file["secrets"].values():
            assert one["file"].startswith("./secrets/")
        for service in file["services"].values():
            held = {entry if isinstance(entry, str) else entry["source"] for entry in service.get("secrets", ())}
            assert held <= set(file["secrets"])
            for variable in service["environment"]:
                assert variable.endswith("_FILE") or not re.search("PASSWORD|SECRET|ACCESS_KEY", variable), variable


def test_the_image_runs_the_command_without_privileges() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert "USER 10001:10001" in lines
    entry = json.loads(next(line for line in lines if line.startswith("ENTRYPOINT")).removeprefix("ENTRYPOINT "))
    command = json.loads(next(line for line in lines if line.startswith("CMD")).removeprefix("CMD "))
    assert [*entry, *command][:3] == ["ludus", "hub", "run"]
