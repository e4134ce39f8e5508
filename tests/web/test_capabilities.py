from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ludus.protocol.errors import CapabilityRefused
from ludus.server.auth import CapabilitySigner
from ludus.server.auth.capabilities import tools_digest

SIGNER = CapabilitySigner(b"k" * 32)
episodes = st.text(min_size=1, max_size=60).filter(lambda text: text.isprintable())
tool_lists = st.lists(st.text(min_size=1, max_size=20), max_size=8)


@given(episodes, tool_lists)
def test_what_is_signed_verifies_and_says_the_same(episode: str, tools: list[str]) -> None:
    capability, expires_at = SIGNER.sign(episode, tools)
    claims = SIGNER.verify(capability)
    assert (claims.episode, claims.expires_at) == (episode, expires_at)
    claims.require_tools(tools)
    assert capability.startswith("play_")
    assert "/" not in capability


@given(episodes, tool_lists, st.data())
def test_any_flipped_bit_is_refused(episode: str, tools: list[str], data: st.DataObject) -> None:
    capability, _ = SIGNER.sign(episode, tools)
    place = data.draw(st.integers(0, len(capability) - 1))
    bit = data.draw(st.integers(0, 6))
    forged = capability[:place] + chr(ord(capability[place]) ^ (1 << bit)) + capability[place + 1 :]
    with pytest.raises(CapabilityRefused):
        SIGNER.verify(forged)


@given(st.text(max_size=200))
def test_text_that_was_never_signed_is_refused(text: str) -> None:
    for guess in (text, "play_" + text):
        with pytest.raises(CapabilityRefused):
            SIGNER.verify(guess)


@given(episodes, st.integers(1, 80))
def test_a_truncated_or_lengthened_capability_is_refused(episode: str, cut: int) -> None:
    capability, _ = SIGNER.sign(episode, ["a"])
    for forged in (capability[:-cut], capability + "A" * cut, capability + "="):
        with pytest.raises(CapabilityRefused):
            SIGNER.verify(forged)


@given(episodes, tool_lists, tool_lists)
def test_claims_refuse_another_tool_list(episode: str, tools: list[str], others: list[str]) -> None:
    assume(others != tools)
    claims = SIGNER.verify(SIGNER.sign(episode, tools)[0])
    with pytest.raises(CapabilityRefused):
        claims.require_tools(others)


def test_tool_lists_that_concatenate_alike_have_different_digests() -> None:
    lists = [("ab", "c"), ("a", "bc"), ("abc",), ("ab,c",), ("1:a,", "b")]
    assert len({tools_digest(tools) for tools in lists}) == len(lists)


def test_an_expired_capability_is_refused_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    capability, expires_at = CapabilitySigner(b"k" * 32, ttl_seconds=60).sign("e", ["a"])
    monkeypatch.setattr(time, "time", lambda: expires_at)
    with pytest.raises(CapabilityRefused, match="expired"):
        SIGNER.verify(capability)


def test_workers_agree_exactly_when_they_share_the_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("ab" * 32 + "\n")
    first, second = (CapabilitySigner.from_file(tmp_path / "key") for _ in range(2))
    capability, _ = first.sign("e", ["a"])
    assert second.verify(capability).episode == "e"
    with pytest.raises(CapabilityRefused):
        CapabilitySigner.random().verify(capability)


@pytest.mark.parametrize("text", ["", "short", "zz" * 32, "ab" * 31])
def test_an_unusable_key_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal digits") as refused:
        CapabilitySigner.from_text(text)
    assert not text or text not in str(refused.value)
