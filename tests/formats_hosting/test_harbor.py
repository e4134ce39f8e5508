"""Harbor's task folders: what the agent sees, when tests run, options, and what cannot run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from harbor_episodes import EXAMPLES, write_task
from sandboxing import NEEDS_BUBBLEWRAP, leftovers

from ludus.client import Episode, connect
from ludus.formats.harbor_tasks.dockerfile import NeedsEngine, read_dockerfile
from ludus.formats.harbor_tasks.folder import HarborSettings, read_folder
from ludus.protocol.content import TextBlock
from ludus.protocol.errors import AuthoringError, InfrastructureFailed
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import Reward
from ludus.sandbox.core.stale import OWNER
from ludus.server import Environment, Split
from ludus.server.runtime.limits import ServerLimits
from ludus.server.tasks.formats import parse_source, resolve
from ludus.validation import Settings, validate

REWARD = "echo 1 > /logs/verifier/reward.txt"


def environment_of(spec: str) -> type[Environment[Any]]:
    source = parse_source(spec)
    assert source is not None
    (found,) = resolve(source)
    return found


def tasks_of(spec: str) -> list[Any]:
    split = environment_of(spec).splits["train"]
    assert isinstance(split, Split)
    split.prepare()
    assert split.count is not None
    return [split.get(index) for index in range(split.count)]


@asynccontextmanager
async def episode_of(serve: Callable[..., Any], spec: str) -> AsyncIterator[Episode]:
    cls = environment_of(spec)
    server = await serve(cls)
    async with connect(server.url) as client, client.environment(cls.name).episode() as episode:
        yield episode


async def graded(serve: Callable[..., Any], spec: str, *commands: str) -> Reward:
    async with episode_of(serve, spec) as episode:
        for command in commands:
            await episode.call("bash", command=command)
        reward = (await episode.grade("")).reward
        assert reward is not None
        return reward


async def output(episode: Episode, command: str) -> str:
    (block,) = (await episode.call("bash", command=command)).content
    assert isinstance(block, TextBlock)
    return block.text


# ── what the agent sees ────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_agent_sees_files_variables_and_directory_of_the_image_but_neither_tests_nor_solution(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    dockerfile = "ENV A=1 B='two words'\nWORKDIR /srv/work\nCOPY data /srv/data\nCOPY --chmod=755 run.sh ./"
    write_task(tmp_path, config='[environment.env]\nC = "${LUDUS_UNSET:-three}"', dockerfile=dockerfile)
    (tmp_path / "environment/data").mkdir()
    (tmp_path / "environment/data/x.txt").write_text("content\n")
    (tmp_path / "environment/run.sh").write_text("#!/bin/sh\necho ran\n")
    async with episode_of(serve, f"harbor:{tmp_path}") as episode:
        assert await output(episode, "echo $A $B $C; pwd") == "1 two words three\n/srv/work\n(exit code 0)"
        assert await output(episode, "./run.sh; cat /srv/data/x.txt") == "ran\ncontent\n(exit code 0)"
        assert await output(episode, "ls -A /tests /solution /logs") == (
            "/logs:\nagent\nartifacts\nverifier\n\n/solution:\n\n/tests:\n(exit code 0)"
        )


async def test_files_are_read_and_written_by_tools_with_paths_as_in_the_instruction(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    async with episode_of(serve, f"harbor:{write_task(tmp_path)}") as episode:
        await episode.call("write_file", path="/app/a/b.txt", text="hello")
        assert await output(episode, "cat a/b.txt") == "hello\n(exit code 0)"
        (block,) = (await episode.call("read_file", path="a/b.txt")).content
        assert isinstance(block, TextBlock)
        assert block.text == "hello"
        refused = await episode.call("read_file", path="/etc/passwd")
        assert "outside of the task's directories" in str(refused.content)


async def test_marks_for_searches_in_training_data_are_not_part_of_the_instruction(tmp_path: Path) -> None:
    write_task(tmp_path)
    (tmp_path / "instruction.md").write_text("<!-- a CANARY string -->\n# canary 123\n\nDo it.\n# no canary here\n")
    (task,) = tasks_of(f"harbor:{tmp_path}")
    assert task.instruction == "Do it.\n# no canary here\n"
    assert set(task.model_dump()) == {"id", "instruction"}


async def test_marks_of_editors_are_no_part_of_the_instruction_the_configuration_and_the_dockerfile(
    tmp_path: Path,
) -> None:
    write_task(tmp_path, dockerfile="ENV A=one\u2028two")
    (tmp_path / "instruction.md").write_text("<!-- a CANARY string -->\n\nWrite a file.\n")
    for name in ("instruction.md", "task.toml", "environment/Dockerfile"):
        file = tmp_path / name
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    folder = read_folder(tmp_path, HarborSettings())
    assert folder.instruction == "Write a file.\n"
    assert folder.env["A"] == "one\u2028two"


@pytest.mark.parametrize("name", ["instruction.md", "task.toml"])
def test_a_file_in_another_encoding_is_refused_at_startup_with_its_name_and_the_byte(tmp_path: Path, name: str) -> None:
    write_task(tmp_path)
    file = tmp_path / name
    place = len(file.read_bytes())
    file.write_bytes(file.read_bytes() + "# \xe9t\xe9\n".encode("latin-1"))
    with pytest.raises(AuthoringError, match=rf"{name} is not UTF-8 \(byte {place + 2}\)"):
        environment_of(f"harbor:{tmp_path}")


def test_a_dockerfile_in_another_encoding_is_left_to_an_engine(tmp_path: Path) -> None:
    write_task(tmp_path)
    (tmp_path / "environment" / "Dockerfile").write_bytes(b"FROM debian\nENV NAME=\xe9t\xe9\n")
    with pytest.raises(NeedsEngine, match="not UTF-8"):
        read_dockerfile(tmp_path / "environment")
    environment_of(f"harbor:{tmp_path}#sandbox=docker")


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize(("seconds", "arguments"), [(1, {}), (600, {"timeout_seconds": 1})])
async def test_a_command_ends_at_the_options_limit_or_at_an_earlier_one_of_the_agent(
    serve: Callable[..., Any], tmp_path: Path, seconds: int, arguments: dict[str, int]
) -> None:
    async with episode_of(serve, f"harbor:{write_task(tmp_path)}#command-seconds={seconds}") as episode:
        (block,) = (await episode.call("bash", command="sleep 1000", **arguments)).content
        assert isinstance(block, TextBlock)
        assert block.text == "(ended by its limit on seconds)"
        assert await output(episode, "echo still here") == "still here\n(exit code 0)"


# ── when the tests run ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_forged_reward_and_planted_tests_count_for_nothing(serve: Callable[..., Any], tmp_path: Path) -> None:
    test = "[ -e /tests/planted ] && echo 1 > /logs/verifier/reward.txt; [ -e /app/done ] || exit 0"
    reward = await graded(
        serve, f"harbor:{write_task(tmp_path, test=test)}",
        "echo 1 > /logs/verifier/reward.txt; touch /tests/planted; mkdir /tests/test.sh",
    )  # fmt: skip
    assert reward.value == 0.0
    assert "wrote neither" in str(reward.reason)


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /logs/verifier; ln -s /app /logs/verifier",
        "rm -rf /box/logs; touch /box/logs",
        "chmod 000 /box/logs/verifier /box/tests",
    ],
)
async def test_the_agent_cannot_avoid_its_reward_by_what_it_leaves_in_the_directories_of_the_verifier(
    serve: Callable[..., Any], tmp_path: Path, command: str
) -> None:
    assert (await graded(serve, f"harbor:{write_task(tmp_path)}", command)).value == 1.0


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize("command", ["cd / && rm -rf /box/app", "head -c 100M /dev/zero > big"])
async def test_an_agent_that_leaves_no_place_for_the_tests_earns_nothing(
    serve: Callable[..., Any], tmp_path: Path, command: str
) -> None:
    folder = write_task(tmp_path, config="[environment]\nstorage_mb = 16")
    reward = await graded(serve, f"harbor:{folder}", command)
    assert reward.value == 0.0
    assert "cannot be verified" in str(reward.reason)


async def test_tests_that_do_not_end_in_time_are_worth_nothing_or_unscored_if_asked(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    folder = write_task(tmp_path, test="sleep 30; " + REWARD, config="[verifier]\ntimeout_sec = 0.5")
    reward = await graded(serve, f"harbor:{folder}")
    assert reward.value == 0.0
    assert "did not end within 0.5 s" in str(reward.reason)
    assert (await graded(serve, f"harbor:{folder}#failed-verifier=unscored")).value is None


async def test_an_agent_that_makes_its_tests_hang_until_the_servers_limit_earns_nothing(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    folder = write_task(tmp_path, test="sh /app/program.sh; " + REWARD)
    cls = environment_of(f"harbor:{folder}")
    server = await serve(cls, limits=ServerLimits(tool_seconds=5.0))
    async with connect(server.url) as client, client.environment(cls.name).episode() as episode:
        await episode.call("bash", command="echo 'sleep 1000' > program.sh")
        reward = (await episode.grade("")).reward
    assert reward is not None
    assert reward.value == 0.0
    assert "did not end within" in str(reward.reason)


async def test_a_sandbox_that_the_machine_loses_while_the_tests_run_leaves_the_episode_unscored(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    folder = write_task(tmp_path, test="sleep 987.25; " + REWARD)
    async with episode_of(serve, f"harbor:{folder}") as episode:
        grading = asyncio.create_task(episode.grade(""))
        while not await asyncio.to_thread(slow_tests_run):
            assert not grading.done()
        for process in [left.split()[1] for left in leftovers(OWNER) if left.startswith("process")]:
            os.kill(int(process), signal.SIGKILL)
        with pytest.raises(InfrastructureFailed):
            await grading
        assert (await episode.rewards()).total.value is None


def slow_tests_run() -> bool:
    """Whether the tests of the task above run in any sandbox of this machine."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (entry / "cmdline").read_bytes() == b"sleep\x00987.25\x00":
                return True
    return False


async def test_at_the_time_limit_of_the_task_the_episode_ends_with_the_reward_so_far(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    test = "[ -e /app/done ] && " + REWARD
    folder = write_task(tmp_path, test=test, config="[agent]\ntimeout_sec = 1.0")
    async with episode_of(serve, f"harbor:{folder}") as episode:
        result = await episode.call("bash", command="touch done; sleep 30; rm done")
    assert result.end_reason is EndReason.COMPLETED
    assert result.reward is not None
    assert result.reward.value == 1.0
    assert "time limit of the task has passed" in str(result.content)


async def test_a_separate_verifier_gets_the_artifacts_and_nothing_else(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    test = "cd /app; cat out/a.txt data.txt /logs/artifacts/b.txt; [ ! -e c.txt ] && [ -e out/a.txt ] && " + REWARD
    config = 'artifacts = ["/app/out"]\n[verifier]\nenvironment_mode = "separate"'
    folder = write_task(tmp_path, test=test, config=config, dockerfile="WORKDIR /app\nCOPY data.txt .")
    (folder / "environment/data.txt").write_text("unchanged\n")
    commands = "mkdir out; echo a > out/a.txt; echo c > c.txt; echo changed > data.txt"
    assert (await graded(serve, f"harbor:{folder}", commands)).value == 1.0
    shared = await graded(serve, f"harbor:{folder}#verifier=shared", commands)
    assert shared.value == 0.0


async def test_the_option_verifier_separates_tasks_that_share_their_sandbox(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    test = '[ -e /app/done ] && [ ! -e /tmp/left ] && [ -z "$(ls /logs/agent)" ] && ' + REWARD
    folder = write_task(tmp_path, test=test)
    commands = "touch /app/done /tmp/left /logs/agent/x"
    assert (await graded(serve, f"harbor:{folder}#verifier=separate", commands)).value == 1.0
    assert (await graded(serve, f"harbor:{folder}", commands)).value == 0.0


# ── rewards with several keys ──────────────────────────────────────────────────────────────────────────────────────

KEYS = 'echo \'{"speed": 0.5, "size": 1}\' > /logs/verifier/reward.json'


async def test_without_a_key_reward_one_must_be_chosen(serve: Callable[..., Any], tmp_path: Path) -> None:
    folder = write_task(tmp_path, test=KEYS)
    plain = await graded(serve, f"harbor:{folder}")
    assert plain.value is None
    assert "speed, size; choose one" in str(plain.reason)
    for key, value in (("speed", 0.5), ("size", 1.0), ("mean", 0.75), ("other", 0.0)):
        reward = await graded(serve, f"harbor:{folder}#reward={key}")
        assert reward.value == value
        assert {name: part.value for name, part in reward.components.items()} == {"speed": 0.5, "size": 1.0}
        assert sum(part.value * part.weight for part in reward.components.values()) == value


# ── what cannot run ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ('[[steps]]\nname = "one"', "it has several steps"),
        ('[environment]\nos = "windows"', "it is for windows"),
        ("[environment]\ngpus = 1", "it needs an accelerator"),
        ('[[environment.mcp_servers]]\nname = "x"\nurl = "http://x"', "it gives the agent MCP servers"),
        ('[environment.healthcheck]\ncommand = "true"', "it has a health check"),
        ('[[verifier.collect]]\ncommand = "true"\nservice = "db"', "it has further containers: db"),
        ('[[artifacts]]\nsource = "/x"\nservice = "db"', "it has further containers: db"),
        ('[verifier.environment]\ndocker_image = "x"', "its verifier has an image of its own"),
        ('[environment.env]\nA = "${LUDUS_UNSET}"', "the environment variable LUDUS_UNSET is not set"),
    ],
)
def test_a_task_that_cannot_run_is_refused_with_the_reason_or_left_out(tmp_path: Path, config: str, why: str) -> None:
    write_task(tmp_path / "bad", config=config)
    write_task(tmp_path / "good")
    with pytest.raises(AuthoringError, match=f"unsupported=skip:\n  bad: {why}"):
        environment_of(f"harbor:{tmp_path}")
    assert [task.id for task in tasks_of(f"harbor:{tmp_path}#unsupported=skip")] == ["good"]


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("environment/docker-compose.yaml", r"it has further containers \(compose\)"),
        ("environment/docker-compose.yml", r"it has further containers \(compose\)"),
        ("tests/.harborignore", "it has a file .harborignore"),
        ("trajectory.json", "it continues a conversation"),
    ],
)
def test_a_task_with_a_file_that_has_no_effect_here_is_refused_with_the_reason(
    tmp_path: Path, file: str, why: str
) -> None:
    (write_task(tmp_path / "bad") / file).write_text("")
    write_task(tmp_path / "good")
    with pytest.raises(AuthoringError, match=f"bad: {why}"):
        environment_of(f"harbor:{tmp_path}")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("harbor:{0}/missing", "there is no folder"),
        ("harbor:{0}/empty", "has no task.toml"),
        ("harbor:{0}/broken", "task.toml cannot be read"),
        ("harbor:{0}/untyped", "verifier.timeout_sec"),
        ("harbor:{0}/untested", "has no tests/test.sh"),
        ("harbor:{0}/good#verifer=shared", "has no option 'verifer'; did you mean 'verifier'"),
        ("harbor:{0}/good#verifier=none", "option verifier"),
        ("harbor:{0}/engine#sandbox=bubblewrap", "the task needs RUN apt-get install -y jq; use sandbox=docker"),
    ],
)
def test_a_wrong_target_or_option_is_refused_with_what_to_change(tmp_path: Path, spec: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    write_task(tmp_path / "broken", config="[verifier")
    write_task(tmp_path / "untyped", config='[verifier]\ntimeout_sec = "long"')
    (write_task(tmp_path / "untested") / "tests/test.sh").unlink()
    write_task(tmp_path / "good")
    write_task(tmp_path / "engine", dockerfile="RUN apt-get install -y jq")
    with pytest.raises(AuthoringError) as raised:
        environment_of(spec.format(tmp_path))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "line",
    ["RUN pip install x", "COPY --from=other a b", "ADD https://example.org/x .", "FROM other", "COPY x /usr/bin/x",
     "COPY $NAME /app", "ARG NAME", "COPY missing.txt ."],
)  # fmt: skip
def test_what_only_an_engine_can_build_is_left_to_it(tmp_path: Path, line: str) -> None:
    folder = write_task(tmp_path, dockerfile=f"WORKDIR /app\n{line}")
    (folder / "environment/x").write_text("x")
    with pytest.raises(NeedsEngine):
        read_dockerfile(folder / "environment")
    settings = read_folder(folder, HarborSettings()).sandbox
    assert settings.provider == "docker"
    assert settings.build is not None


def test_limits_and_hosts_come_from_the_task_and_the_options(tmp_path: Path) -> None:
    config = (
        '[agent]\ntimeout_sec = 900\nnetwork_mode = "allowlist"\nallowed_hosts = ["pypi.org"]\n'
        '[environment]\nmemory = "1G"\nstorage = "64M"'
    )
    sandbox = read_folder(write_task(tmp_path / "a", config=config), HarborSettings()).sandbox
    assert (sandbox.limits.memory, sandbox.limits.disk, sandbox.limits.seconds) == (2**30, 2**26, 900)
    assert sandbox.network == ("pypi.org",)
    settings = HarborSettings(network="example.org *.example.net")
    assert read_folder(write_task(tmp_path / "b"), settings).sandbox.network == ("example.org", "*.example.net")
    offline = write_task(tmp_path / "c", config='[environment]\nnetwork_mode = "no-network"')
    assert read_folder(offline, settings).sandbox.network == ()


# ── validation ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_option_best_declares_the_range_of_rewards(tmp_path: Path) -> None:
    folder = write_task(tmp_path)
    assert environment_of(f"harbor:{folder}").reward_range is None
    assert environment_of(f"harbor:{folder}#best=2").reward_range == (0.0, 2.0)


@NEEDS_BUBBLEWRAP
@pytest.mark.timeout(600)
@pytest.mark.suite("formats")
async def test_a_solution_that_does_not_earn_the_best_reward_is_found(tmp_path: Path) -> None:
    folder = write_task(tmp_path, test="echo 0.5 > /logs/verifier/reward.txt")
    (report,) = await validate(f"harbor:{folder}#best=1", settings=Settings(tasks=1), only=["oracle-max"])
    assert [finding.kind for finding in report.findings if finding.severity == "error"] == ["oracle-max"]


@NEEDS_BUBBLEWRAP
@pytest.mark.timeout(1800)
@pytest.mark.suite("formats")
async def test_the_example_tasks_pass_validation_with_their_own_solutions() -> None:
    (report,) = await validate(f"harbor:{EXAMPLES}#best=1", settings=Settings(tasks=2))
    findings = [f"{finding.kind}: {finding.message}" for finding in report.findings if finding.severity == "error"]
    assert findings == []
