"""`agentenv:`: tasks of AgentEnv played here get what AgentEnv's own server for bundles gives."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from golden_episodes import hosted, hosting, shown
from peer_clients import peer_variables, python_of

from ludus.protocol.errors import AuthoringError, LudusError
from ludus.protocol.lifecycle import EndReason
from ludus.testing import play

pytestmark = [pytest.mark.suite("formats"), pytest.mark.timeout(600)]

PEERS = Path(__file__).parent / "peers"
BUNDLE = Path(__file__).parents[2] / "examples" / "formats" / "agentenv"
EPISODES = 100
AT_ONCE = 4


class Recorded:
    """The episodes that AgentEnv's OpenEnv server played, and the folder of the bundle with a tool."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        variables = {**peer_variables(), **variables_of(folder), "XDG_STATE_HOME": str(folder / "state")}
        program = [str(PEERS / "agentenv_golden.py"), str(folder), str(BUNDLE), str(EPISODES)]
        self.process = subprocess.Popen(
            [python_of("agentenv"), *program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=variables, cwd=folder,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.close()
            raise AssertionError("the peer's servers did not start")
        self.episodes: dict[str, list[dict[str, Any]]] = json.loads(line)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def variables_of(folder: Path) -> dict[str, str]:
    """Return the variables with which AgentEnv has the env type of `agentenv_live.py`."""
    config = folder / "config.toml"
    config.write_text('[envs]\nimpls = ["agentenv_live:LiveEnv"]\n', encoding="utf-8")
    return {"AGENT_ENV_CONFIG": str(config), "PYTHONPATH": str(PEERS)}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    recorded = Recorded(tmp_path_factory.mktemp("agentenv"))
    yield recorded
    recorded.close()


@pytest.fixture
def of(golden: Recorded, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return environments in AgentEnv's interpreter."""
    for name, value in variables_of(golden.folder).items():
        monkeypatch.setenv(name, value)
    with hosting("agentenv") as make:
        yield lambda target: make(f"agentenv:{target}")


async def differences(environment: Any, recorded: list[dict[str, Any]]) -> list[Any]:
    """Play the recorded actions and return what differs."""
    found: list[Any] = []
    room = asyncio.Semaphore(AT_ONCE)
    async with play(environment) as world:

        async def compare(episode: dict[str, Any]) -> None:
            async with room:
                split = "train" if episode["split"] == "all" else episode["split"]
                local = await world.start(split=split, index=episode["index"])
                prompt = [(one.role, shown(one.content)) for one in local.remote.prompt]
                system = [("system", [episode["system"]])] if episode["system"] else []
                texts = [(await local.call(tool, **arguments)).text for tool, arguments in episode["calls"]]
                graded = await local.answer(episode["answer"])
                assert graded is not None
                parts = {name: part.value for name, part in graded.components.items()}
                got = (local.remote.task.id, prompt, texts, graded.value, parts)
                want = (
                    episode["id"], [*system, ("user", [episode["prompt"]])], episode["shown"], episode["reward"],
                    episode["scores"],
                )  # fmt: skip
                if got != want or not local.ended:
                    found.append((got, want))

        async with asyncio.TaskGroup() as group:
            for episode in recorded:
                group.create_task(compare(episode))
    return found


async def test_prompts_turns_and_scores_are_those_of_agentenvs_own_server(golden: Recorded, of: Any) -> None:
    recorded = golden.episodes["bundle"]
    assert len(recorded) == EPISODES
    assert len({one["reward"] for one in recorded}) > 3
    assert any(one["calls"] for one in recorded)
    assert await differences(of(str(BUNDLE)), recorded) == []


async def test_tools_of_an_env_give_what_they_give_there(golden: Recorded, of: Any) -> None:
    recorded = golden.episodes["stock"]
    assert sum(len(one["calls"]) for one in recorded) > 10
    assert {one["reward"] for one in recorded} == {0.0, 1.0}
    assert await differences(of(str(golden.folder / "stock")), recorded) == []


async def test_evals_are_the_splits_and_what_is_not_promised_is_said(of: Any) -> None:
    environment = of(str(BUNDLE))
    assert environment.name == "agentenv"
    assert {name: (split.count, split.type) for name, split in environment.splits.items()} == {
        "train": (7, "train"), "test": (3, "test"),
    }  # fmt: skip
    assert environment.described.package == "agentenv-framework 0.9.1364"
    assert not environment.seedable
    assert set(environment.described.not_promised) == {
        "seeds", "parallel calls", "tools that change", "teardown",
    }  # fmt: skip


async def test_end_turn_may_end_the_task_and_a_final_message_ends_all_turns(of: Any) -> None:
    async with play(of(str(BUNDLE))) as world:
        episode = await world.start(split="train", index=6)
        assert episode.tools == ("end_turn",)
        assert (await episode.end_turn(response="40")).text == "Three layers were taken off. How many boxes are left?"
        ended = await episode.end_turn(response="25")
        assert (ended.reward, ended.ended, episode.end_reason) == (1.0, True, EndReason.COMPLETED)
        early = await world.start(split="train", index=6)
        graded = await early.answer("25")  # the reply to the first of two questions
        assert graded is not None
        assert (graded.value, early.ended) == (0.0, True)


async def test_the_states_of_a_server_are_removed_with_it(of: Any) -> None:
    def folders() -> set[Path]:
        return set(Path(os.environ.get("TMPDIR", "/tmp")).glob("ludus-agentenv-*"))

    before = folders()
    environment = of(str(BUNDLE))
    assert len(folders() - before) == 1
    environment.process.close()
    assert folders() == before


def write_task(folder: Path, steps: list[dict[str, Any]]) -> str:
    (folder / "tasks").mkdir()
    (folder / "tasks" / "one.json").write_text(json.dumps(steps), encoding="utf-8")
    return str(folder)


DEPLOY: dict[str, Any] = {"id": "agent", "type": "deploy_agent", "agent_name": "clerk"}
ASK: dict[str, Any] = {"id": "ask", "type": "prompt_agent", "agent_name": "clerk", "prompt_id": "ask", "prompt": "Go."}


def check(name: str) -> dict[str, Any]:
    return {
        "id": name, "type": "agent_prompt_response_verifier", "prompt_id": "ask", "verifier_id": name,
        "criteria": [{"type": "response_contains", "needles": [name]}],
    }  # fmt: skip


async def test_the_option_reward_chooses_between_several_scores(of: Any, tmp_path: Path) -> None:
    bundle = write_task(tmp_path, [DEPLOY, ASK, check("red"), check("blue")])
    with pytest.raises(AuthoringError, match="the task 'one' records scores at red, blue; choose one"):
        of(bundle)
    with pytest.raises(AuthoringError, match="the task 'one' records no score at 'green', but at: red, blue"):
        of(bundle + "#reward=green")
    async with play(of(bundle + "#reward=blue")) as world:
        graded = await (await world.start()).answer("red")
        assert graded is not None
        assert graded.value == 0.0
        assert {name: (part.value, part.weight) for name, part in graded.components.items()} == {
            "red": (1.0, 0.0), "blue": (0.0, 1.0),
        }  # fmt: skip


async def test_a_run_that_fails_is_unscored(of: Any, tmp_path: Path) -> None:
    broken = {**check("red"), "criteria": [{"type": "no_such_criterion"}]}
    async with play(of(write_task(tmp_path, [DEPLOY, ASK, broken]))) as world:
        episode = await world.start()
        with pytest.raises(LudusError):
            await episode.answer("red")
        await episode.refresh()
        assert (episode.end_reason, episode.reward) == (EndReason.ENVIRONMENT_ERROR, None)


def test_wrong_targets_and_options_are_explained(of: Any, tmp_path: Path) -> None:
    with pytest.raises(AuthoringError, match="no folder and no installed bundle 'nosuch'"):
        of("nosuch")
    with pytest.raises(AuthoringError, match="the task 'hello' cannot be played: .*prompts no agent"):
        of("hello")
    with pytest.raises(AuthoringError, match="cannot be prepared: BundleError"):
        of(str(tmp_path))
    with pytest.raises(AuthoringError, match="has no option 'rewards'; did you mean 'reward'"):
        of(f"{BUNDLE}#rewards=check")
    with pytest.raises(AuthoringError, match="doesn't prompt"):
        of(f"{BUNDLE}#agent=porter")


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    python = python_of("cube")
    with pytest.raises(
        AuthoringError, match=f"needs the package 'agentenv-framework'.*{python} -m pip install agenten"
    ):
        hosted(f"agentenv:hello#python={python}")
