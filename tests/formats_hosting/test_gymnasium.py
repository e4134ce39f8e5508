"""`gymnasium:` plays what Gymnasium's own loop plays, with the same rewards, whatever the environment does."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import struct
import subprocess
import sys
import zlib
from typing import Any

import pytest
from hosted_peers import PROGRAMS, hosted, record, spec_of
from peer_clients import python_of

from ludus.client import connect
from ludus.protocol import ImageBlock, TextBlock
from ludus.protocol.errors import AuthoringError, EpisodeFailed, LudusError
from ludus.protocol.lifecycle import EndReason
from ludus.server import EpisodeLimits
from ludus.server.tasks.formats import parse_source, resolve
from ludus.testing import play
from ludus.validation.core.server_process import serving

pytestmark = pytest.mark.timeout(300)
"""The interpreters of peers take long to import their packages on a busy machine."""
SMALL = f"{PROGRAMS / 'small_spaces.py'}"
FAULTY = f"{PROGRAMS / 'faulty_gym.py'}"
PIXELS = f"{PROGRAMS / 'pixel_gym.py'}"
KINDS = (
    "discrete", "box", "whole", "binary", "multi", "text", "dict", "tuple", "choice", "sequence", "nested",
)  # fmt: skip
PACKAGED: dict[str, dict[str, Any]] = {
    "FrozenLake-v1": {"is_slippery": False},
    "Taxi-v4": {},
    "CartPole-v1": {},
    "Blackjack-v1": {"natural": True},
    "CliffWalking-v1": {},
    "Pendulum-v1": {},
    "MountainCarContinuous-v0": {},
    "minigrid:MiniGrid-Empty-5x5-v0": {"max_steps": 8},
    "minigrid:BabyAI-GoToRedBall-v0": {"max_steps": 8},
}
CASES = [(target, make) for target, make in PACKAGED.items()]
CASES += [(f"{SMALL}:Small", {"kind": kind}) for kind in KINDS] + [(f"{SMALL}:Small-v0", {"kind": "dict"})]
EPISODES = 6
STEPS = 10


@pytest.fixture(scope="module")
def golden() -> list[dict[str, Any]]:
    """Return what Gymnasium's own loop records."""
    return record(
        "gymnasium",
        "gymnasium_golden.py",
        [
            {"target": target, "make": make, "seed": seed, "steps": STEPS, "render": ""}
            for target, make in CASES
            for seed in range(EPISODES)
        ],
    )


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize("case", range(len(CASES)), ids=[str(case).rpartition("/")[2] for case in CASES])
async def test_episodes_are_those_of_gymnasiums_own_loop(case: int, golden: list[dict[str, Any]]) -> None:
    target, make = CASES[case]
    recorded = golden[case * EPISODES : (case + 1) * EPISODES]
    assert len(recorded) == EPISODES
    assert all(episode["order"]["target"] == target for episode in recorded)
    with hosted("gymnasium", f"gymnasium:{target}", make=make) as (environment,):
        async with play(environment) as world:
            for episode in recorded:
                await _replay(world, episode)
        assert environment.process.starts == 1


async def _replay(world: Any, recorded: dict[str, Any]) -> None:
    episode = await world.start(index=recorded["order"]["seed"], split="train")
    seen = [episode.prompt.partition("The first observation:\n")[2]]
    rewards = []
    for action in recorded["actions"]:
        step = await episode.call("act", action=action)
        assert step.error is None, step.text
        seen.append(step.text)
        rewards.append(step.reward)
    words = all(isinstance(observation, str) for observation in recorded["seen"])
    shown = seen if words else [json.loads(text) for text in seen]
    assert shown == recorded["seen"]
    assert rewards == recorded["rewards"]
    if recorded["terminated"]:
        assert episode.end_reason == EndReason.COMPLETED
    elif recorded["truncated"]:
        assert episode.end_reason == EndReason.TRUNCATED
    else:
        assert not episode.ended
        await episode.close()


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize(
    ("target", "mode"),
    [("FrozenLake-v1", "ansi"), ("FrozenLake-v1", "rgb_array"), ("CartPole-v1", "rgb_array")],
)
async def test_an_observation_shows_what_the_environment_renders(target: str, mode: str) -> None:
    order = {"target": target, "make": {"render_mode": mode}, "seed": 3, "steps": 3, "render": mode}
    (recorded,) = record("gymnasium", "gymnasium_golden.py", [order])
    with hosted("gymnasium", f"gymnasium:{target}", render=mode) as (environment,):
        async with play(environment) as world:
            episode = await world.start(index=3, split="train")
            rendered = [_shown(episode.remote.prompt[0].content[-1])]
            for action in recorded["actions"]:
                step = await episode.call("act", action=action)
                rendered.append(_shown(step.result.content[-1]))
    assert rendered == recorded["rendered"]


def _shown(block: Any) -> str:
    """Return a text, or the digest of an image's pixels."""
    if not isinstance(block, ImageBlock):
        return str(block.text)
    file = base64.b64decode(block.data)
    width, height = struct.unpack(">II", file[16:24])
    start = file.index(b"IDAT")
    (length,) = struct.unpack(">I", file[start - 4 : start])
    rows = zlib.decompress(file[start + 4 : start + 4 + length])
    line = 1 + 3 * width
    pixels = b"".join(rows[row * line + 1 : (row + 1) * line] for row in range(height))
    return hashlib.sha256(pixels).hexdigest()


def pixels_of(block: Any) -> tuple[int, list[int]]:
    """Return the color type and the bytes of the pixels of an image block."""
    assert isinstance(block, ImageBlock), block
    file = base64.b64decode(block.data)
    width, height, _, color = struct.unpack(">IIBB", file[16:26])
    start = file.index(b"IDAT")
    (length,) = struct.unpack(">I", file[start - 4 : start])
    rows = zlib.decompress(file[start + 4 : start + 4 + length])
    line = 1 + {0: 1, 2: 3, 6: 4}[color] * width
    return color, [value for row in range(height) for value in rows[row * line + 1 : (row + 1) * line]]


@pytest.mark.suite("formats", first=2)
@pytest.mark.parametrize(
    ("make", "color"),
    [
        ({}, 2),
        ({"shape": [8, 8, 3]}, 2),
        ({"shape": [40, 33]}, 0),
        ({"shape": [40, 33, 1]}, 0),
        ({"shape": [40, 33, 4]}, 6),
        ({"part": True}, 2),
    ],
)
async def test_an_array_of_pixels_is_an_image(make: dict[str, Any], color: int) -> None:
    shape = make.get("shape", [36, 48, 3])
    with hosted("gymnasium", f"gymnasium:{PIXELS}:Pixels", make=make) as (environment,):
        async with play(environment) as world:
            episode = await world.start(split="train")
            count = math.prod(shape)
            assert pixels_of(episode.remote.prompt[0].content[-1]) == (color, [value % 256 for value in range(count)])
            step = await episode.act(action=1)
            *texts, last = step.result.content
            assert pixels_of(last) == (color, [(value + 1) % 256 for value in range(count)])
            expected = ['{"screen": "[image 1]", "lives": 3}'] if make.get("part") else []
            assert [block.text for block in texts if isinstance(block, TextBlock)] == expected


@pytest.mark.suite("formats", first=2)
@pytest.mark.parametrize(
    ("make", "options", "blocks"),
    [
        ({"high": 2, "shape": [40, 40]}, {}, ["text"]),
        ({"part": True, "shape": [7, 7, 3]}, {}, ["text"]),
        ({"shape": [4, 40, 40]}, {}, ["text"]),
        ({}, {"observation": "text"}, ["text"]),
        ({}, {"observation": "image"}, ["image"]),
        ({"part": True}, {"observation": "image"}, ["image"]),
        ({"part": True}, {"observation": "none"}, ["text"]),
    ],
)
async def test_boards_and_symbols_stay_text_and_an_option_says_what_is_shown(
    make: dict[str, Any], options: dict[str, str], blocks: list[str]
) -> None:
    with hosted("gymnasium", f"gymnasium:{PIXELS}:Pixels", make=make, **options) as (environment,):
        async with play(environment) as world:
            episode = await world.start(split="train")
            step = await episode.act(action=1)
            assert [block.type for block in step.result.content] == blocks
            if options.get("observation") == "none":
                assert step.text == "The observation is not shown."


async def test_a_long_observation_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    make = {"shape": [84, 84, 3]}
    with hosted("gymnasium", f"gymnasium:{PIXELS}:Pixels", make=make, observation="text") as (environment,):
        async with play(environment) as world:
            for _ in range(2):
                episode = await world.start(split="train")
                await episode.act(action=1)
    (warning,) = [one.getMessage() for one in caplog.records if one.name == "ludus.formats"]
    assert "'pixels' shows the agent" in warning
    assert "observation=none and render=rgb_array" in warning


async def test_the_command_line_serves_an_environment() -> None:
    spec = spec_of("gymnasium", "gymnasium:FrozenLake-v1", make={"is_slippery": False})
    async with serving([spec]) as server, connect(server.url) as client:
        (info,) = await client.environments()
        assert (info.name, info.version) == ("frozenlake-v1", "1.4.0")
        assert [(split.name, split.count) for split in info.splits] == [("train", None), ("test", 1000)]
        episode = await client.environment(info.name).start(split="train", index=0)
        for action in (1, 1, 2, 2, 1, 2):
            result = await episode.call("act", action=action)
        assert result.reward is not None
        assert (result.reward.value, result.end_reason) == (1.0, EndReason.COMPLETED)


async def test_the_two_splits_have_different_reset_seeds() -> None:
    with hosted("gymnasium", "gymnasium:FrozenLake-v1") as (environment,):
        async with play(environment) as world:
            seeds = [(await world.start(index=1, split=split)).task.shown["reset_seed"] for split in ("train", "test")]
    assert seeds == [1, 1_000_000_001]


async def test_a_prompt_shows_no_address_of_an_object() -> None:
    with hosted("gymnasium", "gymnasium:minigrid:MiniGrid-DoorKey-5x5-v0") as (environment,):
        async with play(environment) as world:
            prompt = (await world.start(index=0, split="train")).prompt
            assert "MissionSpace(DoorKeyEnv._gen_mission, None)" in prompt
            assert " at 0x" not in prompt


async def test_an_action_outside_the_space_is_refused_and_the_episode_goes_on() -> None:
    with hosted("gymnasium", f"gymnasium:{SMALL}:Small", make={"kind": "text"}) as (environment,):
        async with play(environment) as world:
            episode = await world.start(split="train")
            step = await episode.call("act", action="xyz")
            assert step.error == "refused"
            assert 'the action "xyz" is not in Text(' in step.text
            assert (await episode.call("act", action="abc")).error is None


@pytest.fixture
def faulty() -> Any:
    with hosted("gymnasium", f"gymnasium:{FAULTY}:Faulty") as (environment,):
        environment.limits = EpisodeLimits(tool_seconds=30.0)
        yield environment


@pytest.mark.suite("formats", first=2)
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("inf", "the reward is inf, and a reward must be finite"),
        ("nan", "the reward is nan, and a reward must be finite"),
        ("none", "the reward is NoneType, not a number"),
        ("word", "the reward is str, not a number"),
        ("object", "the observation is a object, which has no JSON form"),
        ("four", "ValueError: not enough values to unpack (expected 5, got 4)"),
        ("raises", "KeyError: 'the state is broken'"),
        ("exits", "SystemExit: 3"),
        ("dies", "the process of the hosted episode ended"),
    ],
)
async def test_what_an_environment_breaks_is_unscored_and_other_episodes_go_on(
    faulty: Any, what: str, message: str
) -> None:
    async with play(faulty) as world:
        other = await world.start(index=1, split="train")
        episode = await world.start(split="train")
        assert (await episode.call("act", action="go")).reward == 1.0
        with pytest.raises(EpisodeFailed) as failure:
            await episode.call("act", action=what)
        assert message in str(failure.value.__cause__)
        await episode.refresh()
        assert (episode.end_reason, episode.reward) == (EndReason.ENVIRONMENT_ERROR, None)
        assert (await other.call("act", action="go")).text == "1"


async def test_a_step_that_raises_is_shown_with_tool_errors_and_a_reward_that_is_nan_fails_the_episode() -> None:
    with hosted("gymnasium", f"gymnasium:{FAULTY}:Faulty", tool_errors="show") as (environment,):
        async with play(environment) as world:
            episode = await world.start(split="train")
            refused = await episode.act(action="raises")
            assert (refused.error, "KeyError: 'the state is broken'" in refused.text) == ("refused", True)
            assert (await episode.act(action="finish")).reward == 1.0
            episode = await world.start(split="train")
            with pytest.raises(EpisodeFailed):
                await episode.act(action="nan")


async def test_a_step_that_hangs_is_unscored_and_other_episodes_go_on(faulty: Any) -> None:
    faulty.limits = EpisodeLimits(tool_seconds=0.5)
    async with play(faulty) as world:
        other = await world.start(index=1, split="train")
        episode = await world.start(split="train")
        with pytest.raises(LudusError):
            await episode.call("act", action="hangs")
        await episode.refresh()
        assert episode.reward is None
        assert (await other.call("act", action="go")).text == "1"


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize(
    ("what", "text", "reward"),
    [("prints", "1", 1.0), ("big", "7", 0.5), ("raw", "cmF3", 0.25), ("forks", "1", 1.0)],
)
async def test_prints_numbers_bytes_and_forks_do_no_harm(faulty: Any, what: str, text: str, reward: float) -> None:
    async with play(faulty) as world:
        episode = await world.start(split="train")
        step = await episode.call("act", action=what)
        assert (step.text, step.reward) == (text, reward)
        for count in ("2", "3"):
            assert (await episode.call("act", action="go")).text == count
        await episode.call("act", action="finish")
        assert episode.end_reason == EndReason.COMPLETED


@pytest.mark.suite("formats", first=1)
@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("NoReset", {}, "TypeError: cannot unpack non-iterable NoneType object"),
        ("Faulty", {"make": {"at_reset": "raises"}}, "KeyError: 'the state is broken'"),
        ("Oddly", {"render": "ansi"}, "the environment rendered int as 'ansi', not text"),
        ("Oddly", {"render": "rgb_array"}, "rendered int of the shape None, not uint8"),
    ],
)
async def test_a_start_that_fails_says_why(target: str, options: dict[str, Any], message: str) -> None:
    with hosted("gymnasium", f"gymnasium:{FAULTY}:{target}", **options) as (environment,):
        async with play(environment) as world:
            with pytest.raises(EpisodeFailed) as failure:
                await world.start(split="train")
            assert message in str(failure.value.__cause__)


async def test_an_environment_that_is_registered_as_nondeterministic_promises_no_seeds() -> None:
    with hosted("gymnasium", f"gymnasium:{FAULTY}:Flaky-v0") as (environment,):
        assert (environment.seedable, environment.forkable) == (False, False)
        assert "Not promised: seeds" in environment.__doc__
    with hosted("gymnasium", f"gymnasium:{FAULTY}:Faulty") as (environment,):
        assert (environment.seedable, environment.forkable) == (True, False)
        assert "the class alone decides whether equal seeds give equal episodes" in environment.__doc__


@pytest.mark.suite("formats", first=4)
@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("FrozenLak-v1", {}, "gymnasium.make('FrozenLak-v1') failed: "),
        ("FrozenLake-v1", {"make": {"wet": True}}, "unexpected keyword argument 'wet'"),
        ("Taxi-v4", {"render": "rgb_arra"}, "option render: 'rgb_arra' is not one of"),
        ("CartPole-v1", {"render": "ansi"}, "does not render 'ansi'; it renders: human, rgb_array"),
        ("Taxi-v4", {"observation": "image"}, "hold no image (uint8 from 0 to 255): Discrete(500); leave out"),
        ("no_such_module:Class", {}, "needs the package 'no_such_module'"),
        ("no/such/file.py:Class", {}, "there is no file 'no/such/file.py'"),
        (f"{SMALL}:NoSuch", {}, "registers no environment 'NoSuch', and has no class of this name"),
        (f"{SMALL}:NOT_CALLABLE", {}, "and has no class of this name"),
        (f"{SMALL}:number", {}, "makes a int, which is no gymnasium.Env"),
        (f"{SMALL}:Small", {"make": {"size": 3}}, "unexpected keyword argument 'size'"),
        (f"{SMALL}:Graphs", {}, "actions of a Graph space have no JSON form"),
    ],
)
def test_a_target_or_an_option_that_cannot_be_used_is_refused(
    target: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AuthoringError) as refusal, hosted("gymnasium", f"gymnasium:{target}", **options):
        pass
    assert message in refusal.value.message


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    source = parse_source("gymnasium:FrozenLake-v1")
    assert source is not None
    with pytest.raises(AuthoringError, match=r"needs the package 'gymnasium'.* -m pip install gymnasium"):
        resolve(source)


async def test_a_function_can_be_named_instead_of_a_class() -> None:
    with hosted("gymnasium", f"gymnasium:{SMALL}:make", make={"kind": "multi"}) as (environment,):
        assert environment.name == "make"
        schema = environment.described.tools[0].schema_["properties"]["action"]
        assert schema["items"] == {"type": "integer", "minimum": 0, "maximum": 3}


IN_PROCESS = """
import asyncio, sys
sys.path.append(sys.argv[1])
from ludus.server.tasks.formats import parse_source, resolve
from ludus.testing import play

async def main():
    (environment,) = resolve(parse_source('gymnasium:FrozenLake-v1#in_process=true,make={"is_slippery":false}'))
    async with play(environment) as world:
        episode = await world.start(split="train")
        for action in (1, 1, 2, 2, 1, 2):
            await episode.call("act", action=action)
        print(episode.reward, episode.end_reason.value)

asyncio.run(main())
"""


def test_an_environment_runs_in_the_servers_own_process() -> None:
    place = [python_of("gymnasium"), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.run(place, capture_output=True, text=True, check=True).stdout.strip()
    command = [sys.executable, "-c", IN_PROCESS, packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1.0", "completed"], done.stderr
