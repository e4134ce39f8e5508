"""The configuration: what a file and the options may say, and that nothing else passes."""

from __future__ import annotations

import contextlib
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peer_clients import ROOT

from ludus.evaluation.config import LARGEST_FILE, EvaluationConfig, ModelSpec, parse_config, read_config
from ludus.protocol.errors import InvalidParams

SMALL: dict[str, Any] = {"models": [{"model": "random"}], "environments": [{"target": "sums"}]}

WHOLE = """
n = 50
samples = 4
seed = 1
probes = ["no-tools", "truncated-prompt"]

[[models]]
model = "anthropic:claude-haiku-4-5"
options = { temperature = 0 }
price_in = 1.0
price_out = 5

[[models]]
name = "local"
model = "openai:qwen2.5:7b@http://localhost:8001/v1"
api_key_env = "MY_KEY"

[[environments]]
target = "http://localhost:8000"
environment = "countdown"
splits = ["test", "validation"]
token_env = "MY_TOKEN"

[[environments]]
target = "guess_number"
success_at = 0.5
n = 10
"""


def test_a_file_says_models_environments_and_settings(tmp_path: Path) -> None:
    path = tmp_path / "eval.toml"
    path.write_text(WHOLE)
    config = read_config(path)
    assert (config.n, config.samples, config.seed) == (50, 4, 1)
    haiku, local = config.models
    assert (haiku.wire, haiku.label, haiku.url) == (
        "anthropic", "claude-haiku-4-5", "https://api.anthropic.com/v1"
    )  # fmt: skip
    assert (local.wire, local.label, local.endpoint_name, local.url) == (
        "openai", "local", "qwen2.5:7b", "http://localhost:8001/v1"
    )  # fmt: skip
    assert config.environments[0].splits == ("test", "validation")
    assert config.environments[1].n == 10


def test_the_configuration_of_the_documentation_is_one() -> None:
    config = read_config(ROOT / "docs" / "snippets" / "eval.toml")
    assert [(model.label, model.wire, model.url) for model in config.models] == [
        ("claude-haiku-4-5", "anthropic", "https://api.anthropic.com/v1"),
        ("local", "openai", "http://127.0.0.1:8001/v1"),
    ]
    assert [spec.target for spec in config.environments] == ["http://127.0.0.1:8000", "guess_number"]


@pytest.mark.parametrize(
    ("model", "wire", "name", "url"),
    [
        ("openai:gpt", "openai", "gpt", "https://api.openai.com/v1"),
        ("openai-responses:a@b@http://h:1/v1", "openai-responses", "a@b", "http://h:1/v1"),
        ("google:models/gemini", "google", "models/gemini", "https://generativelanguage.googleapis.com/v1beta"),
        ("random", None, "random", None),
        ("my_policy.py:play", None, "my_policy.py:play", None),
        ("openai_stub:play", None, "openai_stub:play", None),
    ],
)
def test_a_model_is_named_by_wire_name_and_address(model: str, wire: str | None, name: str, url: str | None) -> None:
    spec = ModelSpec(model=model)
    assert (spec.wire, spec.endpoint_name, spec.url) == (wire, name, url)


def test_an_address_is_shown_without_credentials() -> None:
    assert ModelSpec(model="openai:m@https://me:secret@h:1/v1?key=secret").shown_url == "https://h:1/v1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": []}, "models"),
        ({"models": [{"model": "random"}] * 2}, "two models have the name 'random'"),
        ({"models": [{"model": "openai:"}]}, "names no model"),
        ({"models": [{"model": "random", "options": {"a": 1}}]}, "takes no options"),
        ({"models": [{"model": "openai:m", "price_in": 1}]}, "price_in and price_out go together"),
        ({"models": [{"model": "openai:m", "price_in": -1, "price_out": 1}]}, r"models\.0\.price_in: -1.* too small"),
        (
            {"models": [{"model": "openai:m", "prices_in": 1}]},
            r"no field models\.0\.prices_in; did you mean 'price_in'",
        ),
        ({"environments": [{"target": "sums", "splits": ["a", "a"]}]}, "a split occurs twice"),
        ({"environments": [{"target": "sums", "success_at": float("nan")}]}, "not a finite number"),
        ({"smaples": 3}, "no field smaples; did you mean 'samples'"),
        ({"samples": 0}, "samples: 0 is too small"),
        ({"samples": True}, "samples: True is not a whole number"),
        ({"samples": "3"}, "samples: '3' is not a whole number"),
        ({"seed": -1}, "seed: -1 is too small"),
        ({"probes": ["blind"]}, r"probes\.0: 'blind' is not one of 'no-tools'"),
        ({"probes": ["no-tools", "no-tools"]}, "a probe occurs twice"),
        ({"prompt_share": 1.0}, "prompt_share: 1.0 is too large"),
        ({"turn_seconds": 0}, "turn_seconds: 0.* is too small"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParams, match=message):
        parse_config({**SMALL, **change}, "eval.toml")


@pytest.mark.parametrize("data", [b"models = [", b"\xff\xfe", b"a = 1\na = 2", b"[" * 5000, b"#" * (LARGEST_FILE + 1)])
def test_files_that_are_no_configuration_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "eval.toml"
    path.write_bytes(data)
    with pytest.raises(InvalidParams, match=r"eval\.toml"):
        read_config(path)


NAMES = sorted({*EvaluationConfig.model_fields, "model", "target", "splits", "options", "price_in", "nonsense"})
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(string.printable, max_size=8),
    st.sampled_from(["random", "openai:m@http://h", "no-tools", "sums"]),
)  # fmt: skip
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
)


@pytest.mark.suite("breadth")
@settings(max_examples=400)
@given(st.dictionaries(st.sampled_from(NAMES), values, max_size=5))
def test_any_mapping_is_a_configuration_or_refused(mapping: dict[str, Any]) -> None:
    for candidate in (mapping, {**SMALL, **mapping}):
        with contextlib.suppress(InvalidParams):  # any other exception fails the test
            config = parse_config(candidate, "fuzzed")
            assert config.models
            assert config.environments
            assert 1 <= config.samples <= 10_000


@settings(max_examples=200)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_configuration_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.toml"
    path.write_bytes(data)
    with pytest.raises(InvalidParams):
        read_config(path)
