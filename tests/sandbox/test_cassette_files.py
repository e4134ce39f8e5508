"""The file of a cassette, and calls that an environment records: strict reading, atomic writing, secrets, versions."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from origins import origin
from sandboxing import TIGHT, settings_of

from ludus.protocol import EndReason
from ludus.protocol import episodes as e
from ludus.protocol.errors import InfrastructureFailed
from ludus.sandbox import Cassette, CassetteError, CassetteMiss
from ludus.sandbox.cassettes import Tape
from ludus.sandbox.cassettes import library as libraries
from ludus.sandbox.cassettes.file import Entry, HttpAnswer, read_cassette, write_cassette
from ludus.sandbox.cassettes.requests import http_request
from ludus.server import Environment, EpisodeHost, Split, Task, tool
from ludus.server.auth.principal import Principal

Start = Callable[..., Awaitable[EpisodeHost]]
OPEN = Principal.open()

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(autouse=True)
def _own_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUDUS_CASSETTE", raising=False)
    monkeypatch.setattr(libraries, "_libraries", {})


def recorded(path: Path, *answers: tuple[str, Any], version: str = "1.0") -> list[str]:
    write_cassette(path, version, [Entry({"call": {"name": name, "arguments": {}}}, one) for name, one in answers])
    return path.read_text(encoding="utf-8").splitlines()


# ── the file ────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.tuples(st.text(max_size=5), st.dictionaries(st.text(), JSON, max_size=2), JSON), max_size=5))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[str, Any, Any]]) -> None:
    path = tmp_path_factory.mktemp("cassette") / "c"
    entries = [Entry({"call": {"name": name, "arguments": arguments}}, answer) for name, arguments, answer in calls]
    write_cassette(path, "1.0", entries)
    assert read_cassette(path, "1.0") == entries
    assert [one.name for one in path.parent.iterdir()] == ["c"], "no temporary file is left"


@given(st.binary(max_size=200), st.integers(100, 999), st.text(st.characters(max_codepoint=255), max_size=9))
def test_every_body_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, body: bytes, status: int, value: str
) -> None:
    path = tmp_path_factory.mktemp("cassette") / "c"
    answer = HttpAnswer(status, "", (("x-value", value),), body)
    request = http_request(Cassette(path=str(path)), "GET", "http://example.org/", (), b"")
    write_cassette(path, "", [Entry(request, answer.to_json())])
    assert HttpAnswer.from_json(read_cassette(path, "")[0].answer) == answer


def changed(lines: list[str], number: int, **changes: Any) -> list[str]:
    return [*lines[:number], json.dumps({**json.loads(lines[number]), **changes}), *lines[number + 1 :]]


HTTP = {"method": "GET", "url": "http://a/"}
BROKEN: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "cut off": (lambda lines: lines[:1], "cut off after 1 lines"),
    "without its last line": (lambda lines: lines[:-1], r"line 3 .*answers"),
    "an answer changed": (lambda lines: changed(lines, 1, answer=7), "was changed after it was recorded"),
    "an answer removed": (lambda lines: [lines[0], lines[2], lines[3]], "has 1 answers, and its last line says 2"),
    "another format": (lambda lines: changed(lines, 0, **{"ludus-cassette": 2}), "has format 2"),
    "another version": (lambda lines: changed(lines, 0, version="0.9"), "recorded for version 0.9 .* now is 1.0"),
    "no JSON": (lambda lines: [lines[0], "{", *lines[2:]], "line 2 of the cassette .* it is not JSON"),
    "a constant": (lambda lines: [lines[0], lines[1].replace("1}", "NaN}"), *lines[2:]], "line 2"),
    "nested deeply": (lambda lines: [lines[0], "[" * 100_000, *lines[2:]], "line 2 .*nested too deeply"),
    "an unknown field": (lambda lines: changed(lines, 1, more=1), "line 2 .*more"),
    "no request": (lambda lines: [lines[0], '{"n":1,"answer":1}', *lines[2:]], "line 2 .*either `http` or `call`"),
    "an answer of the wrong kind": (lambda lines: changed(lines, 1, http=HTTP, call=None), "line 2"),
    "a wrong number": (
        lambda lines: [*changed(lines, 1, n=2)[:-1], '{"answers":2}'], "line 2 .* has answer 2 where 1 must follow"),
    "a body that is no base64": (
        lambda lines: [lines[0], json.dumps({"http": HTTP, "n": 1, "answer": {"status": 200, "headers": [],
                                                                             "base64": "§"}}), *lines[2:]],
        "line 2 .*cannot be decoded"),
    "two bodies": (
        lambda lines: [lines[0], json.dumps({"http": HTTP, "n": 1, "answer": {"status": 200, "headers": [],
                                                                             "base64": "", "text": ""}}), *lines[2:]],
        "line 2 .*either `text` or `base64`"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_an_error_that_names_the_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "c"
    lines = recorded(path, ("a", 1), ("b", 2))
    change, why = BROKEN[name]
    path.write_text("".join(f"{line}\n" for line in change(lines)), encoding="utf-8")
    with pytest.raises(CassetteError, match=why) as caught:
        read_cassette(path, "1.0")
    assert str(path) in caught.value.message


@given(st.binary(max_size=300))
def test_no_bytes_make_the_reader_fail_otherwise(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("cassette") / "c"
    path.write_bytes(data)
    with pytest.raises(CassetteError):
        read_cassette(path, "")


@given(st.data())
def test_no_change_of_a_byte_goes_unnoticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("cassette") / "c"
    recorded(path, ("a", {"x": [1, "é"]}), ("a", 2))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[at]))
    path.write_bytes(content)
    try:
        found = read_cassette(path, "1.0")
    except CassetteError:
        return
    assert [one.answer for one in found] == [{"x": [1, "é"]}, 2], "only the name of an unused field may differ"


def test_a_person_may_change_an_answer_on_purpose(tmp_path: Path) -> None:
    path = tmp_path / "c"
    lines = recorded(path, ("a", 1))
    path.write_text("\n".join([lines[0], lines[1].replace('"answer":1', '"answer":5'), '{"answers":1}', ""]))
    assert [one.answer for one in read_cassette(path, "1.0")] == [5]


# ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def cassette(path: Path, **changes: Any) -> Cassette:
    return Cassette(path=str(path), **changes)


async def test_calls_are_replayed_by_name_and_arguments(tmp_path: Path) -> None:
    tape = Tape(cassette(tmp_path / "c", mode="record"))
    numbers = iter(range(100))

    async def live() -> dict[str, Any]:
        return {"number": next(numbers), "pair": (1, 2)}

    first = await tape.call("search", {"q": "a", "n": 1}, live)
    assert first == {"number": 0, "pair": [1, 2]}, "the answer is what a replay gives"
    assert (await tape.call("search", {"n": 1, "q": "a"}, live))["number"] == 1
    assert (await tape.call("search", {"q": "b"}, lambda: {"number": 7}))["number"] == 7
    again = Tape(cassette(tmp_path / "c"))
    assert await again.call("search", {"q": "a", "n": 1}, live) == first
    first["number"] = 99
    assert (await Tape(cassette(tmp_path / "c")).call("search", {"q": "a", "n": 1}, live))["number"] == 0
    with pytest.raises(CassetteMiss, match="no answers to .*other"):
        await again.call("other", {}, live)
    assert next(numbers) == 2, "a replay calls nothing"


async def test_an_error_of_the_live_call_is_not_recorded(tmp_path: Path) -> None:
    tape = Tape(cassette(tmp_path / "c", mode="record"))

    def broken() -> None:
        raise OSError("no network")

    with pytest.raises(OSError, match="no network"):
        await tape.call("search", {}, broken)
    assert await tape.call("search", {}, lambda: "found") == "found"
    assert await Tape(cassette(tmp_path / "c")).call("search", {}, broken) == "found"


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), b"bytes"])
async def test_what_is_no_json_is_refused(value: object, tmp_path: Path) -> None:
    tape = Tape(cassette(tmp_path / "c", mode="record"))
    with pytest.raises(CassetteError, match="only JSON"):
        await tape.call("search", {}, lambda: value)
    with pytest.raises(CassetteError, match="only JSON"):
        await tape.call("search", {"x": value}, lambda: 1)


@pytest.mark.parametrize("where", ["argument", "answer", "escaped"])
async def test_a_secret_is_never_written(where: str, tmp_path: Path) -> None:
    secret = 'key"\n-123' if where == "escaped" else "key-123"
    tape = Tape(cassette(tmp_path / "c", mode="record"), [secret, ""])
    arguments = {"auth": f"Bearer {secret}"} if where == "argument" else {}
    with pytest.raises(CassetteError, match="has a secret in it") as caught:
        await tape.call("search", arguments, lambda: {"text": f"you sent {secret}"} if not arguments else 1)
    assert secret not in caught.value.message
    assert not (tmp_path / "c").exists()
    ignoring = Tape(cassette(tmp_path / "c", mode="record", ignore=("argument:auth",)), [secret])
    await ignoring.call("search", {"auth": secret, "q": 1}, lambda: 1)
    assert secret not in (tmp_path / "c").read_text(encoding="utf-8")


async def test_episodes_that_record_at_the_same_time_agree_and_lose_nothing(tmp_path: Path) -> None:
    tapes = [Tape(cassette(tmp_path / "c", mode="record")) for _ in range(20)]
    numbers = iter(range(10_000))

    async def play(tape: Tape) -> list[int]:
        async def live() -> int:
            await asyncio.sleep(0)
            return next(numbers)

        return [await tape.call("draw", {"n": n % 7}, live) for n in range(21)]

    results = await asyncio.gather(*map(play, tapes))
    assert all(result == results[0] for result in results)
    assert await play(Tape(cassette(tmp_path / "c"))) == results[0]


async def test_a_file_is_whole_at_every_moment_while_it_is_recorded(tmp_path: Path) -> None:
    path, done = tmp_path / "c", threading.Event()
    seen: list[int] = []

    def look() -> None:
        while not done.is_set():
            if path.exists():
                seen.append(len(read_cassette(path, "")))

    looking = asyncio.create_task(asyncio.to_thread(look))
    tape = Tape(cassette(path, mode="record"))
    for number in range(60):
        await tape.call("draw", {"n": number}, lambda: "x" * 5000)
    done.set()
    await looking
    assert seen == sorted(seen)
    assert len(read_cassette(path, "")) == 60


def _other_process(path: str, out: Any) -> None:
    try:
        Tape(Cassette(path=path, mode="record"))
    except CassetteError as error:
        out.put(error.message)
    else:
        out.put("recording")


def test_two_processes_do_not_record_the_same_file(tmp_path: Path) -> None:
    Tape(cassette(tmp_path / "c", mode="record"))
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    process = context.Process(target=_other_process, args=(str(tmp_path / "c"), out))
    process.start()
    try:
        assert "another process records the cassette" in out.get(timeout=60)
    finally:
        process.join(30)
        out.close()


@pytest.mark.parametrize(
    ("path", "mode", "variable", "why"),
    [
        ("missing/c", "record", "", "its folder is missing or read-only"),
        ("c", "replay", "", "cannot be read: No such file"),
        ("c", "replay", "often", "LUDUS_CASSETTE is 'often'; it must be one of replay, record, record-missing"),
    ],
)
def test_what_cannot_work_is_said_at_once(
    path: str, mode: Any, variable: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUDUS_CASSETTE", variable)
    with pytest.raises(CassetteError, match=why):
        Tape(cassette(tmp_path / path, mode=mode))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ignore": ("cookies",)}, "'cookies' is no part of a request"),
        ({"headers": ("Authorization",)}, "'authorization' is secret"),
        ({"mode": "rewind"}, "mode"),
        ({"path": ""}, "path"),
        ({"loud": True}, "loud"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], why: str) -> None:
    values: dict[str, Any] = {"path": "c", **changes}
    with pytest.raises(ValueError, match=why):
        Cassette(**values)


def test_a_cassette_without_a_network_is_refused() -> None:
    with pytest.raises(ValueError, match="`network`, which is empty"):
        settings_of("bubblewrap").but(cassette=Cassette(path="c"))


# ── episodes ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Page(Task):
    """Find out what the page says."""


class Searching(Environment[Page]):
    splits: ClassVar[Any] = {"train": Split([Page(id="one")])}
    blocking = False
    version = "1.0"
    found: ClassVar[list[str]] = []

    def prompt(self) -> str:
        return "What does the page say?"

    @tool
    async def search(self, query: str) -> str:
        """Search.

        Args:
            query: words.
        """

        async def live() -> str:
            self.found.append(query)
            return f"result {len(self.found)} for {query}"

        text: str = await self.cassette.call("search", {"query": query}, live)
        return text

    def grade(self, answer: str) -> float:
        return float(answer == "result 1 for a")


def searching(path: Path, **more: Any) -> type[Searching]:
    return type("Searching", (Searching,), {"cassette_settings": Cassette(path=str(path)), "found": [], **more})


async def play(host: EpisodeHost, *queries: str) -> tuple[str, list[str], e.EpisodeInfo]:
    start = e.StartParams(environment="searching", split="train", key=str(id(queries)))
    episode = (await host.start(start, OPEN)).episodes[0].episode
    texts = []
    for number, query in enumerate(queries, 1):
        params = e.StepParams(episode=episode, step=number, tool="search", arguments={"query": query}, key=f"s{number}")
        result = await host.step(params, OPEN)
        texts.append("".join(getattr(block, "text", "") for block in result.content))
    return episode, texts, (await host.get_episode(e.GetEpisodeParams(episode=episode), OPEN)).info


async def test_episodes_replay_what_one_recorded_and_a_miss_leaves_them_unscored(
    host: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUDUS_CASSETTE", "record")
    recording = await host(searching(tmp_path / "c"))
    _, texts, _ = await play(recording, "a", "b", "a")
    assert texts == ["result 1 for a", "result 2 for b", "result 3 for a"]
    monkeypatch.delenv("LUDUS_CASSETTE")
    world = searching(tmp_path / "c")
    replaying = await host(world)
    for _ in range(3):
        assert (await play(replaying, "a", "b", "a"))[1] == texts
    with pytest.raises(InfrastructureFailed) as missed:
        await play(replaying, "c")
    info = (await replaying.get_episode(e.GetEpisodeParams(episode=missed.value.data["episode"]), OPEN)).info
    assert info.end_reason == EndReason.INFRASTRUCTURE_ERROR
    assert info.reward is None or info.reward.value is None
    assert world.found == []


@pytest.mark.parametrize("change", ["missing", "changed", "version"])
async def test_a_server_does_not_start_with_a_cassette_that_it_cannot_use(
    change: str, host: Start, tmp_path: Path
) -> None:
    path = tmp_path / "c"
    lines = recorded(path, ("search", "x"))
    if change == "missing":
        path.unlink()
    if change == "changed":
        path.write_text("\n".join([lines[0], lines[1].replace('"x"', '"y"'), lines[2], ""]), encoding="utf-8")
    version = "1.1" if change == "version" else "1.0"
    with pytest.raises(CassetteError, match=f"the cassette {path}"):
        await host(searching(path, version=version))


async def test_a_request_of_a_background_process_that_was_missed_leaves_the_episode_unscored(
    host: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = (
        "import urllib.request as u\ntry: u.urlopen('http://127.0.0.1:{port}/never', timeout=20)\nexcept OSError: pass"
    )

    async with origin() as server:
        settings = settings_of("bubblewrap", TIGHT.but(processes=40)).but(
            network=(f"127.0.0.1:{server.port}",), cassette=Cassette(path=str(tmp_path / "web"), miss="unscored")
        )
        write_cassette(tmp_path / "web", "", [])

        class Asking(Searching):
            name = "searching"
            sandbox_settings = settings

            @tool
            async def search(self, query: str) -> str:
                """Ask in the background, and look at nothing afterwards."""
                process = await self.sandbox.spawn(["python3", "-c", ask.format(port=server.port)])
                await process.wait()
                return "done"

        running = await host(Asking)
        with pytest.raises(InfrastructureFailed):
            await play(running, "a")
        assert server.connections == 0
