"""`nemo-gym:`: rows played here with resources servers give what NeMo Gym's own agent gets from them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from peer_clients import peer_variables, python_of

from ludus.formats.inside import nemo_gym_wire as wire
from ludus.protocol.errors import AuthoringError, LudusError
from ludus.protocol.lifecycle import EndReason
from ludus.server import EpisodeLimits
from ludus.server.tasks.formats import parse_source, resolve
from ludus.testing import play

pytestmark = [pytest.mark.suite("formats"), pytest.mark.timeout(400)]

PEERS = Path(__file__).parent / "peers"
EXAMPLES = Path(__file__).parents[2] / "examples" / "formats" / "nemo_gym"
FAULTS = PEERS / "nemo_gym_faults.py"
PLAN = {
    "coins": 30, "example_session_state_mgmt": 10, "example_multi_step": 10, "example_single_tool_call": 5,
    "workplace_assistant": 20, "math_advanced_calculations": 10, "indirect_prompt_injection": 10, "mcqa": 10,
    "example_tool_call_multireward": 10,
}  # fmt: skip
"""Episodes of each resources server."""
STEPS = {"workplace_assistant": 6, "example_tool_call_multireward": 1, "indirect_prompt_injection": 5}
"""The limits of the agents that recorded them."""
HOSTED = ("coins", "example_session_state_mgmt", "workplace_assistant", "example_tool_call_multireward")
"""Servers whose code runs here too."""


class Recorded:
    """NeMo Gym's servers, and what its agent recorded from them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [python_of("nemo-gym"), str(PEERS / "nemo_gym_golden.py"), str(EXAMPLES), str(folder)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=peer_variables(),
            cwd=folder,
        )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(PLAN).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.close()
            raise AssertionError("the peer's servers did not start")
        found = json.loads(line)
        self.urls: dict[str, str] = found["urls"]
        self.episodes: dict[str, list[dict[str, Any]]] = found["episodes"]

    def rows(self, name: str) -> str:
        return str(self.folder / f"{name}.jsonl")

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    recorded = Recorded(tmp_path_factory.mktemp("gym"))
    yield recorded
    recorded.close()


def environments_of(target: str, **options: Any) -> list[Any]:
    source = parse_source(f"nemo-gym:{target}")
    assert source is not None
    return list(resolve(source.with_options({name: str(value) for name, value in options.items()})))


@pytest.fixture
def hosted() -> Iterator[Any]:
    """Return environments of code in NeMo Gym's interpreter."""
    made: list[Any] = []

    def make(target: str, **options: Any) -> Any:
        made.extend(environments_of(target, python=python_of("nemo-gym"), **options))
        return made[-1]

    yield make
    for environment in made:
        environment.process.close()


async def recorded_bodies(url: str) -> list[Any]:
    async with aiohttp.ClientSession() as http, http.get(url + "/recorded") as reply:
        found: list[Any] = await reply.json()
        return found


def without_chance(texts: list[Any]) -> list[Any]:
    """Return texts without the random ids that tools of one of the servers make up."""
    return [re.sub(r"\b[A-Z]+-[0-9A-F]{6}\b", "ID", text) for text in texts]


def comparable(bodies: list[Any]) -> list[Any]:
    """Return bodies without the ids, the model and the time of a response, which its maker chooses."""
    for _, body in bodies:
        for name in ("id", "created_at", "model"):
            body.get("response", {}).pop(name, None)
        for item in body.get("response", {}).get("output", []):
            item.update({"output": without_chance([item["output"]])[0]} if "output" in item else {})
    return bodies


async def differences(environment: Any, recorded: list[dict[str, Any]], url: str | None = None) -> list[Any]:
    """Play the recorded actions and return what differs: outputs, rewards, metrics, and bodies if there is a URL."""
    found: list[Any] = []
    async with play(environment) as world:
        for number, episode in enumerate(recorded):
            local = await world.start(index=episode["index"])
            outputs, reward, parts = [], None, {}
            for action in episode["actions"][: len(episode["calls"]) + episode["said"]]:
                if isinstance(action, str):
                    graded = await local.answer(action)
                    assert graded is not None
                    reward, parts = graded.value, {name: part.value for name, part in graded.components.items()}
                    continue
                made = await local.call(action[0], **action[1])
                assert made.error is None, (action, made.text)
                outputs.append(made.text)
                if made.ended:
                    reward, parts = made.reward, local.components
            assert local.ended
            got = (without_chance(outputs), reward, parts)
            want = (without_chance(episode["outputs"]), episode["reward"], episode["numbers"])
            if got != want:
                found.append((number, got, want))
            if url is not None:
                sent = comparable(await recorded_bodies(url))
                if sent != comparable(episode["bodies"]):
                    found.append((number, sent, episode["bodies"]))
    return found


def test_the_recorded_episodes_are_a_hundred_with_rewards_of_all_kinds(golden: Recorded) -> None:
    episodes = [one for name in PLAN for one in golden.episodes[name]]
    assert len(episodes) >= 100
    for name in ("coins", "example_session_state_mgmt", "example_multi_step", "workplace_assistant", "mcqa"):
        assert len({one["reward"] for one in golden.episodes[name]}) > 1, name
    assert len({one["reward"] for one in episodes}) > 4
    assert sum(len(one["calls"]) for one in episodes) > 150
    assert any(not one["said"] for one in episodes)


@pytest.mark.parametrize("name", list(PLAN))
async def test_outputs_rewards_and_request_bodies_equal_those_of_the_own_agent(golden: Recorded, name: str) -> None:
    limit = {"max_steps": STEPS[name]} if name in STEPS else {}
    (environment,) = environments_of(golden.urls[name], tasks=golden.rows(name), **limit)
    await recorded_bodies(golden.urls[name])
    assert await differences(environment, golden.episodes[name], golden.urls[name]) == []


@pytest.mark.parametrize("name", HOSTED)
async def test_code_that_is_run_here_gives_the_same(golden: Recorded, hosted: Any, name: str) -> None:
    limit = {"max_steps": 1} if name == "example_tool_call_multireward" else {}
    target = f"{EXAMPLES / 'coins.py'}:Coins" if name == "coins" else name
    environment = hosted(target, tasks=golden.rows(name), **limit)
    assert await differences(environment, golden.episodes[name]) == []


async def test_a_configuration_names_the_rows_the_limit_and_the_fields(hosted: Any) -> None:
    environment = hosted("workplace_assistant")
    assert (environment.name, {one: split.count for one, split in environment.splits.items()}) == (
        "workplace_assistant", {"example": 5},
    )  # fmt: skip
    assert environment.described.package == "nemo-gym 0.4.0"
    assert not environment.seedable
    assert set(environment.described.not_promised) == {
        "seeds", "parallel calls", "text next to calls", "calls with invalid arguments",
    }  # fmt: skip
    async with play(environment) as world:
        episode = await world.start()
        steps = [await episode.call("company_directory_find_email_address", name="carlos") for _ in range(6)]
        assert [step.result.truncated for step in steps] == [False] * 5 + [True]


async def test_fields_of_the_configuration_are_an_option(hosted: Any) -> None:
    rows = str(EXAMPLES / "rows.jsonl")
    environment = hosted(f"{EXAMPLES / 'coins.py'}:Coins", tasks=rows, config='{"most_weighings":1}')
    async with play(environment) as world:
        episode = await world.start(index=9)
        assert (await episode.weigh(left=[1], right=[2])).text == '{"sinks":"neither"}'
        assert "worn out" in (await episode.weigh(left=[1], right=[2])).text
    with pytest.raises(AuthoringError, match="see the option config"):
        hosted(f"{EXAMPLES / 'coins.py'}:Coins", tasks=rows, config='{"most_weighings":"many"}')


# ── faults ──────────────────────────────────────────────────────────────────────────────────────────────────────────

TOOLS = [
    {"type": "function", "name": "do", "strict": True,
     "parameters": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}},
    {"type": "function", "name": "forget", "parameters": {"type": "object", "properties": {}}},
]  # fmt: skip
REPLIES = {
    "count": "count", "nan": '{"reward": NaN}', "infinite": '{"reward": Infinity}', "none": "{}",
    "null": '{"reward": null}', "text": '{"reward": "1"}', "flag": '{"reward": true}', "list": "[1]", "html": "<html>",
    "masked": '{"reward": 1.0, "mask_sample": true}', "unmasked": '{"reward": 1.0, "mask_sample": false}',
}  # fmt: skip


@pytest.fixture
def faulty(tmp_path: Path) -> str:
    """Return a file with a row for each reply of `verify`, and one without tools."""
    rows: list[dict[str, Any]] = [
        {"responses_create_params": {"input": "Go.", "tools": TOOLS}, "reply": reply} for reply in REPLIES.values()
    ]
    rows.append({"responses_create_params": {"input": "Go.", "tools": TOOLS}, "reply": "{}", "status": 500})
    rows.append({"responses_create_params": {"input": "Say it."}, "reply": '{"reward": 0.5}'})
    file = tmp_path / "faulty.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("is_code", [False, True])
async def test_a_verdict_without_a_finite_reward_leaves_the_episode_unscored(
    golden: Recorded, hosted: Any, faulty: str, is_code: bool
) -> None:
    environment = (
        hosted(f"{FAULTS}:Faults", tasks=faulty) if is_code else environments_of(golden.urls["faulty"], tasks=faulty)[0]
    )
    names = [*REPLIES, "refused", "no tools"]
    async with play(environment) as world:
        for name in ("nan", "infinite", "none", "null", "text", "flag", "list", "html", "refused"):
            episode = await world.start(index=names.index(name))
            with pytest.raises(LudusError):
                await episode.answer("Done.")
            await episode.refresh()
            assert (episode.end_reason, episode.reward) == (EndReason.ENVIRONMENT_ERROR, None), name
        masked = await world.start(index=names.index("masked"))
        graded = await masked.answer("Done.")
        assert graded is not None
        assert (graded.value, graded.reason) == (None, "the resources server set mask_sample")
        unmasked = await world.start(index=names.index("unmasked"))
        graded = await unmasked.answer("Done.")
        assert graded is not None
        assert graded.value == 1.0
        bare = await world.start(index=names.index("no tools"))
        assert bare.tools == ()
        graded = await bare.answer("Said.")
        assert graded is not None
        assert graded.value == 0.5


async def test_a_tool_with_status_500_is_shown_as_by_the_own_agent_unless_it_is_to_fail(
    golden: Recorded, faulty: str
) -> None:
    (showing,) = environments_of(golden.urls["faulty"], tasks=faulty)
    async with play(showing) as world:
        episode = await world.start()
        step = await episode.do(what="raise")
        assert (step.text, step.result.metadata) == ("\"RuntimeError('broken tool')\"", {"status": 500})
        assert (await episode.do(what="count")).text == '{"count":1}'
        graded = await episode.answer("")
        assert graded is not None
        assert graded.value == 1.0
    (failing,) = environments_of(golden.urls["faulty"], tasks=faulty, tool_errors="fail")
    async with play(failing) as world:
        episode = await world.start()
        with pytest.raises(LudusError):
            await episode.do(what="raise")
        await episode.refresh()
        assert (episode.end_reason, episode.reward) == (EndReason.ENVIRONMENT_ERROR, None)


async def test_a_lost_cookie_leaves_the_episode_unscored_and_no_other(golden: Recorded, faulty: str) -> None:
    (environment,) = environments_of(golden.urls["faulty"], tasks=faulty)
    async with play(environment) as world:
        other, lost = await world.start(), await world.start()
        with pytest.raises(LudusError):
            await lost.forget()
        await lost.refresh()
        assert (lost.end_reason, lost.reward) == (EndReason.INFRASTRUCTURE_ERROR, None)
        assert (await other.do(what="count")).text == '{"count":1}'


@pytest.fixture
def own_server() -> Iterator[str]:
    """Return the address of a server that a test may break."""
    process = subprocess.Popen(
        [python_of("nemo-gym"), str(FAULTS)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=peer_variables()
    )
    assert process.stdout is not None
    yield f"http://127.0.0.1:{process.stdout.readline().decode().strip()}"
    process.kill()
    process.communicate()


async def test_a_server_that_is_gone_leaves_all_its_episodes_unscored(own_server: str, faulty: str) -> None:
    (environment,) = environments_of(own_server, tasks=faulty)
    async with play(environment) as world:
        first, second = await world.start(), await world.start()
        assert (await second.do(what="count")).text == '{"count":1}'
        with pytest.raises(LudusError):
            await first.do(what="exit")
        with pytest.raises(LudusError):
            await second.answer("Done.")
        for episode in (first, second):
            await episode.refresh()
            assert (episode.end_reason, episode.reward) == (EndReason.INFRASTRUCTURE_ERROR, None)
        with pytest.raises(LudusError):
            await world.start()


async def test_hosted_code_that_exits_or_hangs_costs_one_episode(hosted: Any, faulty: str) -> None:
    environment = hosted(f"{FAULTS}:Faults", tasks=faulty)
    environment.limits = EpisodeLimits(tool_seconds=2)
    async with play(environment) as world:
        other = await world.start()
        for what in ("exit", "hang"):
            episode = await world.start()
            with pytest.raises(LudusError):
                await episode.do(what=what)
            await episode.refresh()
            assert what == "hang" or (episode.end_reason, episode.reward) == (EndReason.ENVIRONMENT_ERROR, None)
        assert (await other.do(what="count")).text == '{"count":1}'


# ── rows and options ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("[]", "line 2: a row needs `responses_create_params` with an `input`"),
        ("{", "line 2: Expecting"),
        ('{"responses_create_params": {"input": [{"role": "user"}]}}', "line 2: .* has another form .*'content'"),
        (
            '{"responses_create_params": {"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}}',
            "a part of the type 'input_audio', which cannot be shown",
        ),
        (
            '{"responses_create_params": {"input": "a", "tools": [{"type": "web_search"}]}}',
            "is no function with a name of letters",
        ),
        (
            '{"responses_create_params": {"input": "a", "tools": [{"type": "function", "name": "verify"}]}}',
            "the tool 'verify' has the name of a route that is not for agents",
        ),
        (
            '{"responses_create_params": {"input": "a", "tools": [{"type": "function", "name": "../verify"}]}}',
            "is no function with a name of letters",
        ),
    ],
)
def test_a_row_that_cannot_be_played_is_named_with_its_line(tmp_path: Path, row: str, message: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"responses_create_params": {"input": "a"}}\n' + row + "\n", encoding="utf-8")
    with pytest.raises(AuthoringError, match=message):
        environments_of("http://127.0.0.1:9", tasks=file)


def test_wrong_options_and_targets_are_refused_with_what_to_do(golden: Recorded, hosted: Any, faulty: str) -> None:
    address = golden.urls["coins"]
    with pytest.raises(AuthoringError, match="no tasks of its own; name a file of rows"):
        environments_of(address)
    with pytest.raises(AuthoringError, match="either the option tasks or the option splits"):
        environments_of(address, tasks=faulty, splits='{"test":"a"}')
    with pytest.raises(AuthoringError, match=r"'nosuch.jsonl' cannot be read: No such file"):
        environments_of(address, tasks="nosuch.jsonl")
    with pytest.raises(AuthoringError, match="has no option 'task'; did you mean 'tasks'"):
        environments_of(address, task=faulty)
    with pytest.raises(AuthoringError, match="the option 'config' is for code that is run here"):
        environments_of(address, tasks=faulty, config="{}")
    with pytest.raises(AuthoringError, match="the option 'token_variable' is for running servers"):
        environments_of("mcqa", token_variable="A")
    with pytest.raises(AuthoringError, match="'NO_SUCH_VARIABLE' of token_variable is not set"):
        environments_of(address, tasks=faulty, token_variable="NO_SUCH_VARIABLE")
    with pytest.raises(AuthoringError, match="cannot be reached: .*; start the server"):
        environments_of("http://127.0.0.1:9", tasks=faulty)
    with pytest.raises(AuthoringError, match="-m pip install nemo-gym"):
        environments_of("mcqa")
    for target, message in (
        ("nosuch", "comes with no resources server named 'nosuch'"),
        ("nosuch.yaml", "there is no file 'nosuch.yaml'"),
        (f"{FAULTS}:app", "is no subclass of SimpleResourcesServer"),
        ("blackjack", "has /step"),
    ):
        with pytest.raises(AuthoringError, match=message):
            hosted(target, tasks=faulty)


def test_prompts_keep_roles_images_and_earlier_calls() -> None:
    image = "data:image/png;base64,QUJD"
    given = [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": image}],
        },
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "7"},
    ]
    assert wire.messages_of({"instructions": "Rules.", "input": given}) == [
        {"role": "system", "content": ["Rules."]},
        {"role": "system", "content": ["Be brief."]},
        {"role": "user", "content": ["Look.", {"type": "image", "data": "QUJD", "mimeType": "image/png"}]},
        {"role": "assistant", "content": ['{"tool": "f", "arguments": "{}"}']},
        {"role": "user", "content": ["7"]},
    ]
