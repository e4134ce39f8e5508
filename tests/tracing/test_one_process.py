"""The spans of one process with a tracer provider of its own, and what tracing costs where it is off."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from trace_collector import Span, path_of

from ludus.server.transports.ors.routes import ENVIRONMENT_ROUTES, ROOT_ROUTES
from ludus.server.web.telemetry import ORS_NAMES, route_of
from ludus.telemetry.tracing import is_configured

PROGRAM = Path(__file__).parent / "one_process.py"


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    """The spans of the program."""
    variables = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, timeout=60, env=variables)
    assert done.returncode == 0, done.stderr
    return [Span(**one) for one in json.loads(done.stdout)]


def paths(spans: list[Span], name: str) -> list[list[str]]:
    """The paths of the spans of a name, without the requests between."""
    found = [path_of(span, spans) for span in spans if span.name == name]
    return [[one for one in path if not one.startswith("dev.ludus/")] for path in found]


def test_a_provider_of_the_program_gets_the_spans_below_the_callers_own(spans: list[Span]) -> None:
    assert ["outer", "episode", "tool work", "sandbox command"] in paths(spans, "sandbox command")


def test_spans_of_a_setup_are_below_the_start(spans: list[Span]) -> None:
    assert paths(spans, "author setup").count(["outer", "episode", "author setup"]) == 1
    (outer,) = (path_of(one, spans) for one in spans if one.name == "author setup" and "outer" in path_of(one, spans))
    assert outer == ["outer", "episode", "dev.ludus/episodes/start", "dev.ludus/episodes/start", "author setup"]


def test_the_judge_is_below_the_tool_that_asks_it(spans: list[Span]) -> None:
    assert paths(spans, "judge") == [["outer", "episode", "tool ask", "judge"]]


def test_episodes_of_a_group_are_below_it_and_begin_with_their_start(spans: list[Span]) -> None:
    assert ["group", "episode", "tool work"] in paths(spans, "tool work")
    (group,) = (span for span in spans if span.name == "group")
    members = [span for span in spans if span.name == "episode" and span.parent == group.id]
    assert len(members) == 2
    assert all(one.began <= group.ended for one in members)


def test_spans_of_a_policy_are_below_the_episode(spans: list[Span]) -> None:
    assert paths(spans, "policy") == [["episode", "policy"]] * 2


def test_an_unknown_tool_is_not_the_name_of_a_span(spans: list[Span]) -> None:
    (wrong,) = (span for span in spans if span.attributes.get("ludus.tool_error") == "unknown_tool")
    assert wrong.name == "tool"
    assert "ludus.tool" not in wrong.attributes


def test_every_span_has_ended_within_its_trace(spans: list[Span]) -> None:
    known = {span.id: span.trace for span in spans}
    assert all(known[span.parent] == span.trace for span in spans if span.parent)


@pytest.mark.parametrize(
    ("variables", "configured"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_variables_of_opentelemetry_turn_tracing_on(variables: dict[str, str], configured: bool) -> None:
    assert is_configured(variables) is configured


CLIENT = """
import ludus.client, ludus.client.agent_loop
for wire in ("auto", "channel", "mcp", "ors"):
    ludus.client.connect("http://127.0.0.1:9", wire=wire)
"""
SERVER = """
import ludus.environments.guess_number, ludus.sandbox
from ludus.server.serving import serve
serve.build([ludus.environments.guess_number.GuessNumber], serve.ServerSettings(), {})
"""


@pytest.mark.parametrize(
    ("program", "kept"),
    [(CLIENT, ("opentelemetry",)), (SERVER, ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.proto"))],
    ids=["client", "server, whose packages import the API themselves"],
)
def test_nothing_of_opentelemetry_is_imported_until_it_is_configured(program: str, kept: tuple[str, ...]) -> None:
    ending = f"import sys\nsys.exit(', '.join(name for name in sys.modules if name.startswith({kept!r})) or None)\n"
    variables = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", program + ending], capture_output=True, text=True, timeout=60, env=variables
    )
    assert done.returncode == 0, done.stderr


def test_a_collector_that_never_answers_does_not_hold_up_the_end_of_a_process() -> None:
    program = "from ludus.telemetry.tracing import from_environment\nwith from_environment().span('one'):\n    pass\n"
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        variables = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{deaf.getsockname()[1]}"}
        variables["OTEL_EXPORTER_OTLP_TIMEOUT"] = "600"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=50, env=variables)
    assert (done.returncode, done.stderr) == (0, b"")


def test_routes_hold_nothing_that_a_caller_chose() -> None:
    assert ORS_NAMES == {*ROOT_ROUTES, *ENVIRONMENT_ROUTES}
    assert route_of("/play/play_w0.secret/mcp") == "/play/{capability}/mcp"
    assert route_of("/secret/call") == "/{environment}/call"
    assert route_of("/create_session") == "/create_session"
    assert route_of("/secret") == route_of("/secret/secret") == route_of("/call/secret") == "/{ors}"
