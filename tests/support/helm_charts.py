"""The Helm chart of this repository, rendered without a cluster and without the helm command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "ludus"

Objects = dict[tuple[str, str], dict[str, Any]]
"""Objects of Kubernetes, by kind and name."""


def render(values: dict[str, Any] | None = None, name: str = "lab", chart_folder: Path = CHART) -> Objects:
    """Render the chart, after checking the values against its schema; skip the test if the package is missing."""
    helm = pytest.importorskip("helm_python.chart", reason="helm-python-sdk is not installed")
    objects: Objects = {}
    with helm.Chart.load(chart_folder) as chart:
        chart.validate_schema(chart.merge_values(values or {}))
        for path, text in chart.render(values or {}, name=name, namespace="rl").items():
            if path.endswith(".yaml"):
                for one in filter(None, yaml.safe_load_all(text)):
                    objects[one["kind"], one["metadata"]["name"]] = one
    return objects


def pod(objects: Objects, kind: str, name: str) -> dict[str, Any]:
    """Return the template of the pods of an object."""
    template: dict[str, Any] = objects[kind, name]["spec"]["template"]
    return template


def container(objects: Objects) -> dict[str, Any]:
    """Return the container of the servers."""
    found: dict[str, Any] = pod(objects, "StatefulSet", "lab-ludus")["spec"]["containers"][0]
    return found


def nginx_conf(objects: Objects) -> str:
    """Return the configuration of the gateway."""
    text: str = objects["ConfigMap", "lab-ludus-gateway"]["data"]["nginx.conf"]
    return text
