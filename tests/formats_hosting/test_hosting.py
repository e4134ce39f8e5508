"""Hosted code with every fault there is, in an interpreter of its own and in the server's own process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from waiting import is_running, wait_until

from ludus.formats.hosting import HostedCodeError, HostingSettings, host_environments
from ludus.formats.hosting.description import read_outcome, usable_names
from ludus.formats.hosting.process import ForeignProcess
from ludus.formats.inside import values
from ludus.protocol import ImageBlock, Reward
from ludus.protocol.errors import AuthoringError, EpisodeFailed, InvalidParams, LudusError
from ludus.protocol.lifecycle import EndReason
from ludus.server import EpisodeLimits
from ludus.server.tasks.formats import FormatSource, parse_source, resolve
from ludus.testing import play

ADAPTER = Path(__file__).parent / "adapters" / "faults_adapter.py"


def old_python() -> str | None:
    """Return an interpreter of Python 3.8, the oldest that adapters run on, if there is one."""
    found = shutil.which("python3.8")
    places = [Path(found)] if found else []
    places += sorted(Path.home().glob(".pyenv/versions/3.8.*/bin/python"))
    return next((str(place) for place in places if "shims" not in place.parts), None)


def settings_of(kind: str) -> HostingSettings:
    if kind == "python3.8":
        python = old_python()
        if python is None:
            pytest.skip("there is no Python 3.8 here")
        return HostingSettings(python=python)
    if kind == "thread":
        return HostingSettings(isolation="thread")
    return HostingSettings(in_process=kind == "in_process")


def hosted(target: str = "faults", **settings: Any) -> Any:
    return host_environments("faults", target, HostingSettings(**settings), ADAPTER)[0]


@pytest.fixture(params=["process", "thread", "python3.8", "in_process"])
def environment(request: pytest.FixtureRequest) -> Iterator[Any]:
    found: Any = host_environments("faults", "faults", settings_of(request.param), ADAPTER)[0]
    yield found
    if hasattr(found, "process"):
        found.process.close()


@pytest.fixture
def foreign() -> Iterator[Any]:
    found = hosted()
    yield found
    found.process.close()


@pytest.mark.parametrize("blocking", [True, False])
async def test_without_blocking_the_calls_of_hosted_code_need_no_thread(blocking: bool) -> None:
    async with play(hosted(in_process=True, blocking=blocking)) as world:
        episode = await world.start(index=2, seed=7)
        assert episode.prompt == "Task train-2 with seed 7."
        step = await episode.do(what="thread")
        assert (step.text == "ludus-worker") == blocking
        assert await episode.answer("2")
        assert episode.end_reason == EndReason.SUBMITTED


def test_blocking_is_refused_for_an_interpreter_of_its_own() -> None:
    with pytest.raises(AuthoringError, match=r"#blocking=false: blocking=false is for in_process=true"):
        FormatSource("gymnasium", "FrozenLake-v1", {"blocking": "false"}).settings(HostingSettings)


async def test_an_episode_is_played_and_graded_in_hosted_code(environment: Any) -> None:
    async with play(environment) as world:
        episode = await world.start(index=2, seed=7)
        assert episode.prompt == "Task train-2 with seed 7."
        assert episode.remote.task.fields == {"index": 2}
        step = await episode.do(what="step")
        assert (step.text, step.reward, step.result.metadata) == ("step 1", 0.5, {"steps": 1})
        assert await episode.answer("2")
        assert (episode.reward, episode.end_reason) == (1.5, EndReason.SUBMITTED)


@pytest.mark.suite("formats", first=1)
async def test_the_adapters_solution_is_the_oracle(environment: Any) -> None:
    async with play(environment) as world:
        assert (await world.oracle(index=3)).reward == 1.5


async def test_a_step_ends_the_episode_as_finished_or_as_truncated(environment: Any) -> None:
    async with play(environment) as world:
        for what, reason, reward in (("finish", EndReason.COMPLETED, 1.0), ("cut", EndReason.TRUNCATED, 0.25)):
            episode = await world.start()
            await episode.do(what=what)
            assert (episode.end_reason, episode.reward) == (reason, reward)


@pytest.mark.suite("formats", first=1)
async def test_what_hosted_code_refuses_is_shown_and_the_episode_goes_on(environment: Any) -> None:
    async with play(environment) as world:
        episode = await world.start()
        step = await episode.do(what="refuses")
        assert (step.error, step.text) == ("refused", "that move is not legal")
        assert (await episode.do(what="step")).text == "step 2"


@pytest.mark.suite("formats", first=1)
async def test_prints_reads_and_odd_values_of_hosted_code_do_no_harm(environment: Any) -> None:
    async with play(environment) as world:
        episode = await world.start()
        assert (await episode.do(what="prints")).text == "printed"
        facts = (await episode.do(what="facts")).result.metadata
        assert facts["raw"] == "cmF3"
        assert facts["set"] == [1, 2]
        assert facts["inf"] == "inf"
        assert facts["odd"].startswith("<object")
        content = (await episode.do(what="image")).result.content
        assert isinstance(content[1], ImageBlock)
        assert (await episode.call("odd_name")).text == "odd"


@pytest.mark.suite("formats", first=4)
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("raises", "KeyError: 'the state is broken'"),
        ("exits", "SystemExit: 3"),
        ("inf", "the reward is inf, and a reward must be finite"),
        ("nan", "the reward is nan, and a reward must be finite"),
        ("word", "the reward is str, not a number"),
        ("bytes", ""),
        ("nothing", "the outcome of a step that cannot be used"),
    ],
)
async def test_what_hosted_code_breaks_is_unscored_with_its_own_message(
    environment: Any, what: str, message: str
) -> None:
    async with play(environment) as world:
        other = await world.start(index=1)
        episode = await world.start()
        await episode.do(what="step")
        with pytest.raises(EpisodeFailed) as failure:
            await episode.do(what=what)
        assert message in str(failure.value.__cause__)
        await episode.refresh()
        assert (episode.end_reason, episode.reward) == (EndReason.ENVIRONMENT_ERROR, None)
        assert (await other.do(what="step")).text == "step 1"


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize("what", ["dies", "huge"])
async def test_a_crash_ends_one_episode_and_no_other(foreign: Any, what: str) -> None:
    async with play(foreign) as world:
        other = await world.start(index=1)
        episode = await world.start()
        with pytest.raises(EpisodeFailed):
            await episode.do(what=what)
        await episode.refresh()
        assert (episode.end_reason, episode.reward) == (EndReason.ENVIRONMENT_ERROR, None)
        assert (await other.do(what="step")).text == "step 1"


async def test_a_call_that_hangs_reaches_its_limit_and_its_process_is_killed(foreign: Any) -> None:
    foreign.limits = EpisodeLimits(tool_seconds=0.3)
    async with play(foreign) as world:
        other = await world.start(index=1)
        episode = await world.start()
        pid = int((await episode.do(what="pid")).text)
        with contextlib.suppress(LudusError):
            await episode.do(what="hangs")
        await wait_until(lambda: not is_running(pid))
        assert (await other.do(what="step")).text == "step 1"


async def test_episodes_share_neither_memory_nor_a_process(foreign: Any) -> None:
    async with play(foreign) as world:
        pids = set()
        for index in range(3):
            episode = await world.start(index=index)
            pids.add((await episode.do(what="pid")).text)
            assert (await episode.do(what="opened")).text == "1"
        assert len(pids) == 3
        assert foreign.process.starts == 1


async def test_an_episode_that_does_not_close_is_killed_with_what_it_started(foreign: Any) -> None:
    async with play(foreign) as world:
        episode = await world.start()
        pid = int((await episode.do(what="pid")).text)
        child = int((await episode.do(what="leaves")).text)
        await episode.do(what="stubborn")
        await episode.close()
        await wait_until(lambda: not is_running(pid) and not is_running(child))


async def test_an_interpreter_that_was_killed_makes_its_episodes_unscored_and_starts_again(foreign: Any) -> None:
    async with play(foreign) as world:
        episode = await world.start()
        pid = int((await episode.do(what="pid")).text)
        os.kill(foreign.process.pid, signal.SIGKILL)
        await wait_until(lambda: not is_running(pid))
        with pytest.raises(EpisodeFailed):
            await episode.do(what="step")
        await episode.refresh()
        assert episode.reward is None
        assert episode.end_reason in (EndReason.ENVIRONMENT_ERROR, EndReason.INFRASTRUCTURE_ERROR)
        again = await world.start()
        assert (await again.do(what="step")).text == "step 1"
        assert foreign.process.starts == 2


async def test_nothing_is_left_when_the_server_stops(foreign: Any) -> None:
    async with play(foreign) as world:
        episode = await world.start()
        pids = [foreign.process.pid, int((await episode.do(what="pid")).text)]
    await wait_until(lambda: not any(map(is_running, pids)))
    assert not foreign.process.is_running
    assert not Path(foreign.process.address).parent.exists()


async def test_nothing_is_left_when_the_server_is_killed(tmp_path: Path) -> None:
    code = f"""
import sys, time
sys.path[:0] = {sys.path!r}
from pathlib import Path
from ludus.formats.hosting import HostingSettings, host_environments
found = host_environments("faults", "faults", HostingSettings(), Path({str(ADAPTER)!r}))[0]
found.process.ask("task", environment="Faults / 1", split="train", index=0)
print(found.process.pid, flush=True)
time.sleep(600)
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    pid = int(await process.stdout.readline())
    assert is_running(pid)
    process.kill()
    await process.wait()
    await wait_until(lambda: not is_running(pid))


@pytest.mark.suite("formats", first=3)
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("missing", "needs the package 'surely-not-installed'"),
        ("missing", f"{sys.executable} -m pip install surely-not-installed"),
        ("missing", "#python=PATH"),
        ("unusable", "there is no environment 'unusable'; there is 'faults'"),
        ("raises", "'raises' cannot be loaded: ZeroDivisionError: division by zero"),
        ("exits", "SystemExit: 3"),
        ("dies", "ended with code 4 before the format 'faults' was ready"),
        ("undescribed", "description that cannot be used: 0.splits: it is missing"),
    ],
)
def test_a_target_that_cannot_be_loaded_is_refused_with_the_reason(target: str, message: str) -> None:
    with pytest.raises(AuthoringError) as refusal:
        hosted(target)
    assert message in refusal.value.message


@pytest.mark.suite("formats")
def test_a_target_that_hangs_is_refused_in_time() -> None:
    with pytest.raises(AuthoringError, match=r"was not ready within 0\.5 s; raise the option start_seconds"):
        hosted("hangs", start_seconds=0.5)


def test_an_interpreter_that_does_not_exist_is_named() -> None:
    with pytest.raises(AuthoringError, match=r"'/no/such/python' for the format 'faults' cannot be run: No such file"):
        hosted(python="/no/such/python")


async def test_tasks_of_a_wrong_form_are_an_error_of_the_environment() -> None:
    found = hosted("bad-tasks")
    try:
        async with play(found) as world:
            with pytest.raises(LudusError) as failure:
                await world.start()
            assert not isinstance(failure.value, InvalidParams)
    finally:
        found.process.close()


async def test_a_start_that_raises_fails_with_the_hosted_message() -> None:
    found = hosted("broken-start")
    try:
        async with play(found) as world:
            with pytest.raises(EpisodeFailed) as failure:
                await world.start()
            assert isinstance(failure.value.__cause__, HostedCodeError)
            assert "LookupError: no such level" in str(failure.value.__cause__)
    finally:
        found.process.close()


@pytest.mark.suite("formats", first=1)
async def test_the_catalog_shows_the_tools_and_what_is_not_promised(environment: Any) -> None:
    async with play(environment) as world:
        info = await world.remote.info()
        assert info.name == "faults-1"
        assert [tool.name for tool in info.tools] == ["do", "odd_name"]
        assert "Not promised: seeds (it never looks at them)." in info.description
        assert [(split.name, split.count) for split in info.splits] == [("train", 5), ("test", None)]


def test_secrets_of_the_server_do_not_reach_hosted_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDUS_TOKEN", "secret-token")
    monkeypatch.setenv("LUDUS_TEST_SECRET", "secret-of-tests")
    process = ForeignProcess("faults", ADAPTER, "faults", HostingSettings())
    process.start()
    try:
        variables = Path(f"/proc/{process.pid}/environ").read_bytes()
        assert b"secret-token" not in variables
        assert b"secret-of-tests" not in variables
    finally:
        process.close()


def test_no_tool_is_published_under_a_name_of_ludus_or_under_one_name_with_another() -> None:
    names = ["submit_answer", "start_episode", "submit_answer_2", "look around", "look_around"]
    assert list(usable_names(names).values()) == [
        "submit_answer_2", "start_episode_2", "submit_answer_2_2", "look_around", "look_around_2",
    ]  # fmt: skip


def test_an_outcome_that_the_hosted_system_does_not_score_is_unscored() -> None:
    found = read_outcome(values.result("", reward=1.0, unscored="it is masked"))
    assert isinstance(found.reward, Reward)
    assert (found.reward.value, found.reward.reason) == (None, "it is masked")
    assert read_outcome(values.result("", reward=1.0)).reward == 1.0


@pytest.mark.parametrize(
    ("spec", "header", "value"),
    [
        ("nemo-gym", "Authorization", "Bearer t0p"),
        ("openenv", "Authorization", "Bearer t0p"),
        ("ors", "X-API-Key", "t0p"),
    ],
)
def test_a_running_server_gets_the_token_of_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spec: str, header: str, value: str
) -> None:
    monkeypatch.setenv("THE_TOKEN", "t0p")
    rows = tmp_path / "rows.jsonl"
    rows.write_text(NEMO_GYM_ROW)
    tasks = f",tasks={rows}" if spec == "nemo-gym" else ""
    with recording_server() as (address, requests):
        source = parse_source(f"{spec}:{address}#token_variable=THE_TOKEN{tasks}")
        assert source is not None
        with pytest.raises(AuthoringError):
            resolve(source)
    assert requests
    assert {request.get(header) for request in requests} == {value}


NEMO_GYM_ROW = '{"responses_create_params": {"input": [{"role": "user", "content": "Go."}], "tools": []}}\n'


@contextlib.contextmanager
def recording_server() -> Iterator[tuple[str, list[Any]]]:
    """The address of a server that refuses every request, and the headers of its requests."""
    requests: list[Any] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.headers)
            self.send_error(401)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", requests
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("spec", ["verifiers:x", "inspect:x.py", "bfcl:multi_turn_base", "reasoning-gym:leg_counting"])
def test_packages_that_alone_decide_about_errors_of_tools_refuse_the_option(spec: str) -> None:
    source = parse_source(f"{spec}#tool_errors=show")
    assert source is not None
    with pytest.raises(AuthoringError, match="leave out tool_errors: "):
        resolve(source)
