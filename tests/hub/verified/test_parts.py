"""The parts of the model proxy: which addresses it calls, and what of an answer it passes on."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from ludus.hub.hub import Hub
from ludus.hub.settings import HubSettings
from ludus.hub.verified import boxes, model_hosts
from ludus.hub.verified.answers import EventStream, KeyFilter, KeyShown
from ludus.hub.verified.model_hosts import ModelHosts
from ludus.hub.verified.sealing import Sealer
from ludus.hub.verified.settings import VerifiedSettings, read_settings
from ludus.protocol.errors import AuthoringError, InvalidParams


async def test_a_name_that_leads_to_private_addresses_is_not_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [ip_address("10.0.0.1"), ip_address("::1")]

    async def look_up(name: str) -> list[object]:
        return list(found)

    monkeypatch.setattr(model_hosts, "look_up", look_up)
    hosts = ModelHosts(VerifiedSettings(), None)
    assert hosts.check_url("https://models.example.org/v1") == "models.example.org"
    resolver = hosts.resolver()
    with pytest.raises(OSError, match="has no address"):
        await resolver.resolve("models.example.org", 443)
    found.append(ip_address("1.1.1.1"))
    assert [one["host"] for one in await resolver.resolve("models.example.org", 443)] == ["1.1.1.1"]
    with pytest.raises(OSError, match="has no address"):
        await resolver.resolve("models.example.org", 8443)


def test_the_operator_chooses_the_hosts() -> None:
    hosts = ModelHosts(VerifiedSettings(hosts=("api.example.org", "*.corp.example:8443")), "https://hub.example.org")
    assert hosts.check_url("https://api.example.org/v1") == "api.example.org"
    assert hosts.check_url("https://a.corp.example:8443/v1") == "a.corp.example:8443"
    for url in ("https://other.example.org/v1", "https://corp.example:8443/v1", "https://a.corp.example/v1"):
        with pytest.raises(InvalidParams):
            hosts.check_url(url)
    everything = ModelHosts(VerifiedSettings(), "https://hub.example.org")
    with pytest.raises(InvalidParams):
        everything.check_url("https://hub.example.org/e/a/b")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_key_is_found_in_however_many_pieces_it_comes(size: int) -> None:
    def passed(data: bytes) -> bytes:
        one = KeyFilter("abcab")
        return b"".join(one.pass_on(data[at : at + size]) for at in range(0, len(data), size)) + one.rest()

    harmless = b"abca abcb ababc abcaabc"
    assert passed(harmless) == harmless
    for secret in (b"abcab", b"xxabcabxx", b"abcabcab", b"aabcab"):
        with pytest.raises(KeyShown):
            passed(secret)


def test_no_part_of_a_key_is_passed_on_before_the_rest_has_come() -> None:
    one = KeyFilter("abcab")
    assert one.pass_on(b"xabca") == b"x"
    with pytest.raises(KeyShown):
        one.pass_on(b"b")


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_events_pass_unchanged_and_their_usage_is_read(size: int, end: bytes) -> None:
    chunk = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
    usage = b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}\n\n'
    whole = chunk + usage + b"data: [DONE]\n\n"
    for hides, wanted in ((False, whole), (True, chunk + b"data: [DONE]\n\n")):
        events = EventStream(hides_usage=hides)
        sent = whole.replace(b"\n", end)
        got = b"".join(events.pass_on(sent[at : at + size]) for at in range(0, len(sent), size)) + events.rest()
        assert got == wanted
        assert events.tokens == (5, 2)


def test_a_sealed_key_opens_with_the_file_of_its_hub_only(tmp_path: Path) -> None:
    one, other = Sealer(tmp_path / "one"), Sealer(tmp_path / "other")
    sealed = one.seal("sk-1")
    assert "sk-1" not in sealed
    assert Sealer(tmp_path / "one").open(sealed) == "sk-1"
    assert other.open(sealed) is None
    assert (tmp_path / "one").stat().st_mode & 0o077 == 0


def test_settings_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "verified.toml"
    file.write_text('hosts = ["api.example.org"]\nruns = 1\n')
    found = read_settings(file)
    assert (found.enabled, found.hosts, found.runs) == (True, ("api.example.org",), 1)
    assert (VerifiedSettings().runs, VerifiedSettings().run_seconds) == (2, 72 * 3600), "as the documentation says"
    assert not read_settings(None).enabled
    for text in ("runs = 0", "other = 1", 'hosts = ["a b"]', "runs ="):
        file.write_text(text)
        with pytest.raises(AuthoringError, match="verified"):
            read_settings(file)


async def test_a_folder_of_harnesses_that_cannot_be_used_leaves_no_provider_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    providers = [AsyncMock(), AsyncMock()]
    left = iter(providers)
    monkeypatch.setattr(boxes, "find_provider", lambda name: next(left))
    (tmp_path / boxes.FOLDER).write_text("not a folder")
    hub = Hub(HubSettings(data=tmp_path), None)
    made = boxes.Boxes(hub, VerifiedSettings())
    with pytest.raises(OSError, match=boxes.FOLDER):
        await made.open()
    (tmp_path / boxes.FOLDER).unlink()
    await made.open()
    await made.aclose()
    await hub.close()
    assert [one.aclose.await_count for one in providers] == [1, 1]
