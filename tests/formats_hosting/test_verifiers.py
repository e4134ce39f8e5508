"""Environments of verifiers: the same actions as in verifiers' own runner give the same rewards and observations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from peer_clients import ROOT, peer_variables, python_of

from ludus.protocol import EndReason, TextBlock
from ludus.protocol.errors import AuthoringError, LudusError
from ludus.server.tasks.formats import parse_source, resolve
from ludus.testing import play

pytestmark = [
    pytest.mark.suite("formats"),
    pytest.mark.timeout(600),
]  # importing verifiers takes a minute on a busy machine
HERE = Path(__file__).parent
EXAMPLES = ROOT / "examples" / "formats" / "verifiers"
V0 = ("word_sums", "number_hunt", "stock_room")
V1 = ("roman_numerals", "letter_game", "parcel_scale")
suite = pytest.mark.suite("formats")  # importing verifiers takes about ten seconds of CPU for each environment
SAMPLED = ["number_hunt", "stock_room", "roman_numerals"]
REST = [pytest.param(name, marks=suite) for name in ("word_sums", "letter_game", "parcel_scale")]


def environment_of(target: str, peer: str = "verifiers-v0", **options: str) -> Any:
    """Return the environment of a target, in the interpreter of a peer."""
    text = "".join(f",{name}={value.replace('%', '%25').replace(',', '%2C')}" for name, value in options.items())
    source = parse_source(f"verifiers:{target}#python={python_of(peer)}{text}")
    assert source is not None
    return resolve(source)[0]


def example(name: str, /, **options: str) -> Any:
    return environment_of(str(EXAMPLES / f"{name}.py"), "verifiers-v0" if name in V0 else "verifiers", **options)


@cache
def golden(version: str) -> list[dict[str, Any]]:
    """Return what verifiers' own runner gave."""
    text = (HERE / "golden" / f"verifiers_{version}.json").read_text(encoding="utf-8")
    episodes: list[dict[str, Any]] = json.loads(text)["episodes"]
    return episodes


def recorded(name: str) -> list[dict[str, Any]]:
    return [one for one in golden("v0" if name in V0 else "v1") if one["environment"] == name]


@pytest.fixture(scope="module")
def hosted() -> Iterator[Any]:
    """Return `hosted(name)`: an example, whose interpreter runs for all tests of this module."""
    found: dict[str, Any] = {}

    def get(name: str) -> Any:
        if name not in found:
            found[name] = example(name)
        return found[name]

    yield get
    for environment in found.values():
        environment.process.close()


async def played(world: Any, episode: dict[str, Any]) -> dict[str, Any]:
    """Play the actions of a recorded episode, and return what Ludus gives in the form of the record."""
    current = await world.start(split="train", index=episode["index"], seed=1)
    prompt = [block.text for message in current.remote.prompt for block in message.content]
    seen: list[list[str]] = []
    for number, action in enumerate(episode["actions"], 1):
        last = number == len(episode["actions"])
        if "tool" in action:
            step = await current.call(action["tool"], **action["arguments"])
        elif "reply" in current.tools and not (last and episode["index"] % 2):
            step = await current.call("reply", message=action["say"])
        else:
            assert last
            await current.answer(action["say"])
            seen.append(list(episode["last"]))  # a final message has no observation
            break
        assert step.error is None, step.text
        seen.append([block.text for block in step.result.content if isinstance(block, TextBlock)])
    reward = (await current.remote.info()).reward
    assert reward is not None
    ends = {EndReason.COMPLETED: False, EndReason.TRUNCATED: True, EndReason.SUBMITTED: episode["cut"]}
    return {
        "environment": episode["environment"],
        "index": episode["index"],
        "kind": episode["kind"],
        "prompt": prompt,
        "actions": episode["actions"],
        "observations": seen[:-1],
        "last": seen[-1],
        "reward": reward.value,
        "components": {name: part.value for name, part in reward.components.items()},
        "cut": ends[current.end_reason],
    }


@pytest.mark.parametrize("name", [*SAMPLED, *REST])
async def test_episodes_are_those_of_verifiers_own_runner(hosted: Any, name: str) -> None:
    episodes = recorded(name)
    assert len(episodes) >= 10
    async with play(hosted(name)) as world:
        for episode in episodes:
            wanted = {field: value for field, value in episode.items() if field != "stop"}
            assert await played(world, episode) == wanted


def test_a_hundred_recorded_episodes_end_in_every_way() -> None:
    episodes = [one for name in (*V0, *V1) for one in recorded(name)]
    assert len(episodes) >= 100
    assert {one["cut"] for one in episodes} == {True, False}
    assert {"has_final_env_response", "max_turns_reached", "no_tools_called"} <= {one["stop"] for one in episodes}


@suite
@pytest.mark.parametrize(("peer", "names"), [("verifiers-v0", V0), ("verifiers", V1)])
def test_the_recording_is_what_verifiers_gives_now(peer: str, names: tuple[str, ...]) -> None:
    tools = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [python_of(peer), str(HERE / "peers" / "verifiers_golden.py"), str(EXAMPLES), *names],
        env={**peer_variables(), "PATH": tools, "PYTHONPATH": str(EXAMPLES)},
        capture_output=True, text=True, timeout=500, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["episodes"] == golden("v0" if peer == "verifiers-v0" else "v1")


async def test_the_description_names_the_package_and_what_it_cannot_promise(hosted: Any) -> None:
    environment = hosted("number_hunt")
    assert environment.splits["train"].count == 10
    assert "Hosted package: verifiers 0.1.14." in environment.__doc__
    assert "Not promised: seeds" in environment.__doc__


async def test_the_agent_sees_no_answers(hosted: Any) -> None:
    async with play(hosted("number_hunt")) as world:
        episode = await world.start(index=0)
        assert episode.remote.task.fields == {"index": 0}
        assert episode.prompt == "I think of a number from 1 to 50. What is it?"


async def test_a_final_message_in_a_conversation_that_goes_on_is_scored_as_a_full_context(hosted: Any) -> None:
    async with play(hosted("number_hunt")) as world:
        episode = await world.start(index=0)
        await episode.call("reply", message="9")
        await episode.answer("I give up")
        assert (episode.reward, episode.components["solved"]) == (0.5, 0.0)


@suite
async def test_options_reach_the_environment_and_the_eval_split_has_its_own_rows() -> None:
    environment = example("word_sums", args='{"few_shot":true,"format_weight":0.5}', reply="always", name="sums")
    async with play(environment) as world:
        episode = await world.start(split="eval", index=3)
        assert [message.role for message in episode.remote.prompt] == ["system", "user", "assistant", "user"]
        assert (environment.name, environment.splits["eval"].count, episode.tools) == ("sums", 4, ("reply",))
        await episode.call("reply", message="<reasoning>x</reasoning><answer>48</answer>")
        assert (episode.reward, episode.end_reason) == (1.5, EndReason.TRUNCATED)
    environment.process.close()


@suite
async def test_the_agent_option_limits_a_taskset_and_args_are_fields_of_its_config() -> None:
    environment = example("letter_game", agent='{"max_turns":2}')
    async with play(environment) as world:
        episode = await world.start(index=0)
        await episode.call("reply", message="a")
        await episode.call("reply", message="e")
        assert episode.end_reason is EndReason.TRUNCATED
    environment.process.close()
    environment = example("roman_numerals", args='{"largest":50}')
    assert environment.splits["train"].count == 5
    environment.process.close()


@suite
async def test_an_empty_final_message_earns_what_verifiers_gives(hosted: Any) -> None:
    async with play(hosted("word_sums")) as world:
        episode = await world.start(index=0)
        await episode.answer("")
        assert episode.reward == 0.0


async def test_episodes_next_to_each_other_have_states_of_their_own(hosted: Any) -> None:
    async with play(hosted("stock_room")) as world:
        one, other = await world.start(index=0), await world.start(index=0)
        await one.call("move", pieces=4, source="back", target="front")
        assert (await other.call("count", shelf="front")).text == "front: 0"
        assert (await one.call("count", shelf="front")).text == "front: 4"


BROKEN = """
import verifiers as vf
from datasets import Dataset
from openai import AsyncOpenAI

def bad(completion, judge, prompt, answer, state):
    raise KeyError("a bug")

async def judged(judge, prompt, completion, answer, state):
    return float("yes" in await judge(prompt, completion, answer, state))

class Hunt(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        raise RuntimeError("the environment broke")

def load_environment(kind="judge"):
    rows = Dataset.from_list([{"question": "Well?", "answer": "yes"}])
    if kind == "empty":
        raise ValueError("there is no data")
    if kind == "group":
        def best(completions) -> list[float]:
            return [1.0 for _ in completions]
        return vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric(funcs=[best]))
    if kind == "breaks":
        return Hunt(dataset=rows, rubric=vf.Rubric(funcs=[lambda completion: 1.0]))
    client = AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="x", max_retries=0)
    rubric = vf.JudgeRubric(judge_client=client)
    rubric.add_reward_func(judged if kind == "judge" else bad)
    return vf.SingleTurnEnv(dataset=rows, rubric=rubric)
"""


@pytest.fixture
def broken(tmp_path: Path) -> str:
    (tmp_path / "broken.py").write_text(BROKEN, encoding="utf-8")
    return str(tmp_path / "broken.py")


@pytest.mark.parametrize(
    ("kind", "options", "value"),
    [
        ("judge", {}, None),
        pytest.param("bug", {}, 0.0, marks=suite),
        pytest.param("bug", {"failing_rewards": "unscored"}, None, marks=suite),
    ],
)
async def test_a_judge_that_fails_leaves_the_episode_unscored_and_a_raising_function_earns_nothing(
    broken: str, kind: str, options: dict[str, str], value: float | None
) -> None:
    environment = environment_of(broken, args=json.dumps({"kind": kind}), **options)
    async with play(environment) as world:
        episode = await world.start()
        try:
            await episode.answer("yes")
        except LudusError:
            assert value is None
        reward = (await episode.remote.info()).reward
        assert reward is None or reward.value == value
    environment.process.close()


@suite
async def test_an_environment_that_breaks_leaves_the_episode_unscored(broken: str) -> None:
    environment = environment_of(broken, args='{"kind":"breaks"}')
    async with play(environment) as world:
        episode = await world.start()
        with pytest.raises(LudusError):
            await episode.call("reply", message="hello")
        assert (await episode.remote.info()).end_reason is EndReason.ENVIRONMENT_ERROR
    environment.process.close()


@suite
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"args": '{"kind":"empty"}'}, "there is no data"),
        ({"args": '{"kind":"group"}'}, "compares the rollouts of a group"),
        ({"args": '{"sort":1}'}, "unexpected keyword argument 'sort'"),
        ({"agent": '{"max_turns":1}'}, "the option agent is for tasksets"),
        ({"unsafe_shell": "true"}, "the option unsafe_shell is for tasksets"),
    ],
)
def test_what_cannot_be_loaded_says_why(broken: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(AuthoringError, match=message):
        environment_of(broken, **options)


@pytest.mark.parametrize(
    ("target", "peer", "message"),
    [
        ("no-such-thing", "verifiers", "there is no environment 'no-such-thing'.*has no module 'no_such_thing'"),
        ("./nowhere.py", "verifiers", "nowhere.py does not exist"),
        (str(EXAMPLES), "verifiers", "define load_environment or __all__; give the path of the file"),
    ],
)
def test_a_wrong_target_is_named(target: str, peer: str, message: str) -> None:
    with pytest.raises(AuthoringError, match=message):
        environment_of(target, peer)


def test_a_taskset_needs_a_newer_verifiers_and_load_environment_an_older_one(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("def load_environment():\n    return None\n", encoding="utf-8")
    with pytest.raises(AuthoringError, match=r"needs verifiers below 0\.4, and .* has verifiers 0\.4\.0"):
        environment_of(str(tmp_path / "old.py"), "verifiers")


COMMANDS = """
import verifiers.v1 as vf

__all__ = ["Errands"]

class Tools(vf.Toolset[vf.ToolsetConfig, vf.State]):
    @vf.tool
    async def look(self) -> str:
        \"\"\"Look around.\"\"\"
        return "nothing"

class Errand(vf.Task[vf.TaskData]):
    KIND

class Errands(vf.Taskset[Errand, vf.TasksetConfig]):
    def load(self):
        yield Errand(vf.TaskData(prompt="Run the errand."), self.config.task)
"""
KINDS = {
    "plain": "pass",
    "reward": """
    @vf.reward
    async def checked(self, trace, runtime) -> float:
        return float((await runtime.run(["sh", "-c", trace.last_reply], {})).exit_code == 0)
""",
    "metric": """
    @vf.metric
    async def measured(self, trace: vf.Trace, runtime: vf.Runtime = None) -> float:
        return 0.0
""",
    "finalize": """
    async def finalize(self, trace, runtime):
        await runtime.run(["sh", "-c", trace.last_reply], {})
""",
    "colocated": """
    @classmethod
    def toolsets(cls, config):
        return [Tools(vf.ToolsetConfig(colocated=True))]
""",
}
HARNESS = """
class Runner(vf.Harness[vf.HarnessConfig]):
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        return await runtime.run(["id"], {})

__all__.append("Runner")
"""


@pytest.fixture
def errands(tmp_path: Path) -> Any:
    """Return `errands(kind, **options)`: a taskset that runs commands in one way."""

    def get(kind: str, **options: str) -> Any:
        code = COMMANDS.replace("KIND", KINDS.get(kind, "pass").strip()) + (HARNESS if kind == "harness" else "")
        (tmp_path / f"errands_{kind}.py").write_text(code, encoding="utf-8")
        return environment_of(str(tmp_path / f"errands_{kind}.py"), "verifiers", **options)

    return get


@pytest.mark.parametrize(
    ("kind", "options", "what"),
    [
        ("plain", {"agent": '{"harness":{"id":"bash"}}'}, "the harness 'bash'"),
        ("plain", {"agent": '{"harness":{"id":"bash"},"runtime":{"type":"subprocess"}}'}, "the harness 'bash'"),
        ("harness", {}, "the harness 'errands_harness'"),
        ("reward", {}, "the reward 'checked'"),
        ("metric", {}, "the metric 'measured'"),
        ("finalize", {}, r"finalize\(\)"),
        ("colocated", {}, r"a tool server in the agent's sandbox \(colocated\)"),
    ],
)
def test_commands_that_verifiers_runs_in_a_sandbox_run_on_this_machine_only_with_unsafe_shell(
    errands: Any, kind: str, options: dict[str, str], what: str
) -> None:
    with pytest.raises(AuthoringError, match=f"{what} of .* runs commands.*unsafe_shell=true"):
        errands(kind, **options)
    environment = errands(kind, **options, unsafe_shell="true")
    assert "runs commands on this machine with the server's rights" in environment.described.not_promised["isolation"]
    environment.process.close()


def test_a_taskset_without_commands_and_one_with_a_sandbox_need_no_unsafe_shell(errands: Any) -> None:
    environment = errands("plain")
    assert "isolation" not in environment.described.not_promised
    assert "here only a task's own tools are offered" in environment.described.not_promised["a shell"]
    environment.process.close()
    environment = errands("reward", agent='{"harness":{"id":"bash"},"runtime":{"type":"docker"}}')
    assert not {"isolation", "a shell"} & set(environment.described.not_promised)
    environment.process.close()


def test_a_missing_package_and_a_wrong_option_say_what_to_do() -> None:
    python = sys.executable
    for text, message in (
        (f"verifiers:gsm8k#python={python}", "needs the package 'verifiers'.*pip install verifiers.*#python=PATH"),
        ("verifiers:gsm8k#arg=1", "has no option 'arg'"),
        ("verifiers:gsm8k#args=7", "option args"),
        ("verifiers:gsm8k#in_process=true", "leave out in_process"),
    ):
        source = parse_source(text)
        assert source is not None
        with pytest.raises(AuthoringError, match=message):
            resolve(source)
