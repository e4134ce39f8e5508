"""Uploads made of noise: each gets an answer with a typed error, and the hub goes on."""

from __future__ import annotations

import json
import random
from pathlib import Path

import httpx
import pytest
from hubs import HubProcess, WheelParts, kind_of, publish, release, twine_form, upload
from hypothesis import given, settings
from hypothesis import strategies as st
from suite_selection import selected_suites

from ludus.hub.registry.wheels import read_wheel
from ludus.hub.settings.hub import HubLimits
from ludus.registry.types.errors import WheelRefused

THOROUGH = "hub" in selected_suites()

WHEEL = WheelParts("alice-coin").pack()
NAME = WheelParts("alice-coin").filename


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "wheel"


def mutated(seed: int) -> bytes:
    """A wheel with a few bytes changed, removed, repeated or moved."""
    chance = random.Random(seed)
    data = bytearray(WHEEL)
    for _ in range(chance.randint(1, 6)):
        start = chance.randrange(len(data))
        end = min(len(data), start + chance.choice((1, 2, 4, 30, 400)))
        match chance.randrange(4):
            case 0:
                data[start:end] = chance.randbytes(end - start)
            case 1:
                del data[start:end]
            case 2:
                data[start:start] = data[start:end]
            case _:
                data[start:end] = b"\xff" * (end - start)
        if not data:
            break
    return bytes(data)


@pytest.mark.suite("hub", sample=True)
@settings(max_examples=1500 if THOROUGH else 200)
@given(seed=st.integers(0, 2**32))
def test_a_damaged_wheel_is_read_the_same_or_refused(seed: int, place: Path) -> None:
    place.write_bytes(mutated(seed))
    try:
        facts = read_wheel(place, NAME, HubLimits())
    except WheelRefused:
        return
    assert (facts.distribution, facts.version, set(facts.sources)) == ("alice-coin", "1.0.0", {"toss"})


@pytest.mark.suite("hub", sample=True)
@settings(max_examples=200 if THOROUGH else 15)
@given(seed=st.integers(0, 2**32))
def test_a_hub_refuses_damaged_wheels_over_both_ways_of_upload(seed: int, plain_hub: HubProcess) -> None:
    one = release("fuzz/coin", wheel=mutated(seed), filename=NAME.replace("alice", "fuzz"))
    with plain_hub.client() as client:
        for answer in (publish(client, one), upload(client, one)):
            assert 400 <= answer.status_code < 500
            assert kind_of(answer) == "WheelRefused"


TEXT = st.text(max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)
FIELDS = ("id", "version", "description", "license", "tags", "environments", "secrets", "network", "provenance")


@pytest.mark.suite("hub", sample=True)
@settings(max_examples=500 if THOROUGH else 25)
@given(changes=st.dictionaries(st.sampled_from(FIELDS) | TEXT, VALUES, min_size=1, max_size=3))
def test_a_hub_answers_manifests_of_any_shape(changes: dict[str, object], plain_hub: HubProcess) -> None:
    one = release("fuzz/coin")
    fields = one.fields()
    fields["manifest"] = json.dumps({**json.loads(fields["manifest"]), **changes})
    with plain_hub.client() as client:
        files = {"wheel": (one.filename, one.wheel)}
        answer = client.post("/api/v1/environments/fuzz/coin/versions", data=fields, files=files)
    assert answer.status_code == 201 or kind_of(answer) in ("ManifestRefused", "SignatureRefused")


@pytest.mark.suite("hub", sample=True)
@settings(max_examples=500 if THOROUGH else 25)
@given(
    changes=st.dictionaries(st.sampled_from(sorted(twine_form(release("a1/b")))) | TEXT, TEXT, min_size=1, max_size=3)
)
def test_a_hub_answers_forms_of_any_shape(changes: dict[str, str], plain_hub: HubProcess) -> None:
    one = release("fuzz/other")
    with plain_hub.client() as client:
        files = {"content": (one.filename, one.wheel)}
        answer = client.post("/index/upload/", data={**twine_form(one), **changes}, files=files)
        assert answer.status_code == 200 or kind_of(answer) in ("UploadRefused", "DigestMismatch", "NameRefused")


@pytest.mark.suite("hub", sample=True)
@settings(max_examples=500 if THOROUGH else 25)
@given(body=st.binary(max_size=300), boundary=st.from_regex(r"[a-zA-Z0-9]{1,20}", fullmatch=True))
def test_a_hub_answers_bodies_of_any_bytes(body: bytes, boundary: str, plain_hub: HubProcess) -> None:
    kind = {"content-type": f"multipart/form-data; boundary={boundary}"}
    with httpx.Client(base_url=plain_hub.url, timeout=30) as client:
        for where in ("/index/upload/", "/api/v1/environments/fuzz/coin/versions"):
            whole = b"--" + boundary.encode() + b"\r\nContent-Disposition: form-data; " + body
            for content in (body, whole):
                assert kind_of(client.post(where, content=content, headers=kind)) == "UploadRefused"
