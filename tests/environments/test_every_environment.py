"""What every built-in environment and variant must keep, whatever it is about."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sandboxing import NEEDS_BUBBLEWRAP
from split_features import Features, features, separability
from suite_selection import whole_or_few

from ludus.environments.browser.driver.chromium import missing_chromium
from ludus.protocol import Answer, Call, EndReason, EpisodeStatus, StartedEpisode, StepResult, Task, ToolSpec, text_of
from ludus.protocol import episodes as e

NAMES = (
    "algebra", "algebra-easy", "algebra-hard", "algebra-medium",
    "arithmetic", "arithmetic-easy", "arithmetic-hard", "arithmetic-medium",
    "browser", "browser-easy", "browser-hard", "browser-medium",
    "code", "code-easy", "code-hard", "code-medium",
    "company", "company-easy", "company-hard", "company-medium",
    "connect_four", "connect_four-easy", "connect_four-hard",
    "countdown", "countdown-easy", "countdown-hard",
    "guess_number", "guess_number-easy", "guess_number-hard", "guess_number-shaped", "guess_number-tiny",
    "negotiation", "negotiation-easy", "negotiation-hard", "negotiation-medium", "negotiation-price",
    "negotiation-shared",
    "research", "research-easy", "research-hard", "research-medium",
    "search", "search-easy", "search-hard", "search-medium",
    "spreadsheet", "spreadsheet-easy", "spreadsheet-hard", "spreadsheet-medium",
    "sql", "sql-easy", "sql-hard", "sql-medium",
    "support_desk", "support_desk-easy", "support_desk-hard", "support_desk-medium",
    "swe", "swe-easy", "swe-hard", "swe-medium",
    "terminal", "terminal-easy", "terminal-hard", "terminal-medium",
    "word_problems", "word_problems-easy", "word_problems-hard", "word_problems-medium",
    "wordle", "wordle-easy", "wordle-hard", "wordle-sparse",
    "workplace", "workplace-easy", "workplace-hard", "workplace-medium",
)  # fmt: skip
SEVERAL_PARAMETERS = ("browser", "company", "negotiation", "spreadsheet", "support_desk", "swe", "workplace")
"""Those whose tools take several arguments, or any text; their own tests try extreme ones."""
SPLITS = ("train", "validation", "test")
SAMPLE = whole_or_few(30, 8)
SMALLER = {
    "browser": 1, "code": 1, "company": 6, "research": 8, "spreadsheet": 4, "support_desk": 8, "swe": 1, "terminal": 2,
    "workplace": 6,
}  # fmt: skip
"""The sample of an environment whose episodes take long, such as those in a sandbox."""

BREADTH = pytest.mark.suite("breadth")
SAMPLED = pytest.mark.suite("breadth", sample=True)
NEEDS_CHROMIUM = pytest.mark.skipif(missing_chromium() is not None, reason=str(missing_chromium()))
SUITES = {
    "browser": pytest.mark.suite("browser"),
    "code": pytest.mark.suite("code"),
    "swe": pytest.mark.suite("swe"),
    "terminal": pytest.mark.suite("terminal"),
}
"""The suites in which the variants of these environments are tested, if not in `breadth`."""

ONLY_IN_SUITES = ("browser", "code", "swe", "terminal")
"""Those that are tested in their suite even without a level, since each of their episodes takes long, and whose own
files have a sample in `make test`."""

DIVIDED_BY = {
    "browser": ("world", "template", "sites"),
    "company": ("company",),
    "research": ("world", "number"),
    "search": ("world", "number"),
    "spreadsheet": ("goals",),
    "swe": ("template", "recipe"),
    "terminal": ("template", "area"),
    "wordle": ("answer",),
    "workplace": ("company",),
}
"""The fields in which splits differ on purpose: words, companies, worlds, kinds of goals, repositories, templates."""

WITHOUT_FORKS = ("algebra", "arithmetic", "connect_four", "negotiation", "word_problems")
"""Those whose episodes cannot be forked: they have one message, or an opponent."""

ENDED_BY_MESSAGE = ("company", "spreadsheet", "terminal", "workplace")
"""The environments with tools of which none ends the episode."""

NUMBERS = (10**5000, -(10**400), 2**63, -1)
TEXTS = ("", " ", "\x00", "a" * 100_000, "(" * 199, "9" * 200, "\ud800", "ﬀ½٣Ⅷ", "crane\ncrane", "1/0", "ſſſſſ")
REFUSED = {"code.run": TEXTS[:4] + ("\ud800",), "terminal.bash": TEXTS[:4] + ("\ud800",)}
"""The extreme texts that a tool refuses, if not all of them, because it takes any program."""


def base_of(name: str) -> str:
    """Return the environment of which a name is a variant."""
    return name.partition("-")[0]


def sample(name: str, count: int | None = None) -> range:
    """Return the indices of the tasks to play."""
    return range(min(count or SAMPLE, SMALLER.get(base_of(name), count or SAMPLE)))


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a name's tests: variants are tested in suites."""
    base = base_of(name)
    needs = [NEEDS_BUBBLEWRAP] if base in SUITES else []
    needs += [NEEDS_CHROMIUM] if base == "browser" else []
    in_every_run = name == base and base not in ONLY_IN_SUITES
    return [*needs, SAMPLED if in_every_run else SUITES.get(base, BREADTH)]


each_environment = pytest.mark.parametrize("name", [pytest.param(name, marks=marks_of(name)) for name in NAMES])
each_split = pytest.mark.parametrize("split", SPLITS)


def problem(task: Task) -> tuple[Any, ...]:
    """What makes two tasks the same problem: all fields but the id, private ones included."""
    fields = {name: getattr(task, name) for name in type(task).model_fields if name not in ("id", "solution")}
    if "numbers" in fields:
        fields["numbers"] = tuple(sorted(fields["numbers"]))
    return tuple(sorted(fields.items()))


def arbitrary(tools: Sequence[ToolSpec], rng: random.Random) -> Generator[Call | Answer, StepResult, None]:
    """Call a random tool with random arguments of the right types, and never learn."""
    while True:
        if not tools:
            yield Answer(str(rng.randint(-100, 100)))
            return
        tool = rng.choice(tools)
        arguments: dict[str, Any] = {}
        for name, schema in tool.input_schema["properties"].items():
            text = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz+*()1234567890", k=5))
            if "enum" in schema:
                arguments[name] = rng.choice(schema["enum"])
            elif schema["type"] == "integer":
                arguments[name] = rng.randint(-10, 100_000)
            else:
                arguments[name] = [text] if schema["type"] == "array" else text
        yield Call(tool.name, arguments)


def shown_by(episode: StartedEpisode, results: Sequence[StepResult]) -> str:
    """All text that a policy sees, in lower case."""
    prompt = [text_of(message.content) for message in episode.prompt]
    tools = [json.dumps(tool.model_dump()) for tool in episode.tools]
    return "\n".join([*prompt, *tools, *(text_of(result.content) for result in results)]).lower()


def extremes(tool: ToolSpec, texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Arguments with one extreme value in each parameter, and the values of a mistake in the other required ones."""
    properties, required = tool.input_schema["properties"], tool.input_schema.get("required", [])
    values = {"integer": NUMBERS, "string": texts, "array": ([], *([text] for text in texts), ["x"] * 10_000)}
    usual: dict[str, Any] = {"integer": 1, "string": "x", "array": ["x"]}
    for parameter, schema in properties.items():
        for value in values[schema["type"]]:
            yield {name: usual[properties[name]["type"]] for name in required} | {parameter: value}


async def transcript(player: Any, name: str, split: str, index: int, seed: int) -> list[str]:
    """Everything that an oracle's episode shows, prompt and rewards included."""
    [episode] = await player.start(name, split, index, seed=seed)
    results = await player.play(episode.episode, player.oracle(name, split, index))
    prompt = [message.model_dump_json() for message in episode.prompt]
    return [*prompt, *(result.model_dump_json() for result in results)]


@NEEDS_BUBBLEWRAP
async def test_the_names_checked_here_are_all_that_is_published(player: Any) -> None:
    assert sorted(player.host.catalog) == sorted(NAMES)


@each_environment
async def test_it_has_the_three_splits_and_announces_its_rewards(player: Any, name: str) -> None:
    info = player.host.catalog[name].info

    assert [(split.name, split.type) for split in info.splits] == [(split, split) for split in SPLITS]
    assert all(split.count or split.name == "train" for split in info.splits), "only training may be endless"
    assert info.reward_range == (0.0, 1.0)
    assert info.description
    assert info.seedable
    assert all(schema.get("description") for tool in info.tools for schema in tool.input_schema["properties"].values())


@each_environment
async def test_validation_and_test_hold_no_problem_twice_and_share_none(player: Any, name: str) -> None:
    splits = player.host.catalog[name].splits
    problems = {split: [problem(splits[split].get(i)) for i in range(splits[split].count)] for split in SPLITS[1:]}

    assert len(set(problems["validation"])) == splits["validation"].count
    assert len(set(problems["test"])) == splits["test"].count
    assert set(problems["validation"]).isdisjoint(problems["test"])


@each_environment
async def test_no_training_problem_is_held_out(player: Any, name: str) -> None:
    splits = player.host.catalog[name].splits
    held_out = {problem(splits[split].get(i)) for split in SPLITS[1:] for i in range(splits[split].count)}
    count = splits["train"].count or 2_000_000
    # Each of these tasks of `search` is about another world, which takes longer to make than a task of the others.
    sample = range(0, count, max(1, count // (8 if name.startswith("search") else 2000)))

    assert held_out.isdisjoint(problem(splits["train"].get(index)) for index in sample)


@NEEDS_BUBBLEWRAP
@pytest.mark.parametrize("name", [pytest.param(name, marks=marks_of(name)) for name in NAMES if name == base_of(name)])
async def test_a_task_does_not_tell_whether_it_is_for_training(player: Any, name: str) -> None:
    splits = player.host.catalog[name].splits

    def drawn(split: str, count: int) -> dict[str, list[Features]]:
        known = splits[split].count or 20_000
        found: dict[str, list[Features]] = {}
        for place in random.Random(split).sample(range(known), min(known, count)):
            task = splits[split].get(place)
            found.setdefault(getattr(task, "difficulty", ""), []).append(features(task, DIVIDED_BY.get(name, ())))
        return found

    most = 60 if name in ("research", "search") else 900  # each task of these makes a world
    training, validation, test = drawn("train", most), drawn("validation", most // 2), drawn("test", most // 2)
    assert set(training) == set(validation) == set(test)
    for difficulty, tasks in training.items():
        assert separability(tasks, [*validation[difficulty], *test[difficulty]]) < 0.7, difficulty


def test_splits_that_differ_in_pairs_of_digits_are_found() -> None:
    class Sum(Task):
        text: str

    sums = [Sum(id=str(n), text=f"{n % 89} + {n % 97}") for n in range(1200)]
    kinds: tuple[list[Features], list[Features]] = ([], [])
    for task in sums:
        kinds[sum(int(digit) for digit in re.findall(r"\d\b", task.text)) % 3 == 0].append(features(task))
    assert separability(*kinds) > 0.95


@each_environment
async def test_a_task_is_found_by_its_id(player: Any, name: str) -> None:
    for split in SPLITS:
        params = e.GetTaskParams(environment=name, split=split, index=17)
        row = (await player.host.get_task(params, player.principal)).task
        again = e.GetTaskParams(environment=name, split=split, task=row.id)

        assert (await player.host.get_task(again, player.principal)).task == row


@each_environment
@each_split
async def test_the_oracle_earns_the_greatest_reward(player: Any, name: str, split: str) -> None:
    best = player.host.catalog[name].info.reward_range[1]
    for index in sample(name):
        [episode] = await player.start(name, split, index, seed=index)
        results = await player.play(episode.episode, player.oracle(name, split, index))
        total, _ = await player.rewards(episode.episode)

        assert total.value == best
        by_tool = bool(results) and results[-1].ended
        last = results[-1].end_reason if by_tool else (await player.info(episode.episode)).end_reason
        assert last is (EndReason.COMPLETED if by_tool else EndReason.SUBMITTED)
        assert by_tool or not results or base_of(name) in ENDED_BY_MESSAGE
        assert not any(result.error for result in results)


@each_environment
async def test_a_reward_is_the_weighted_sum_of_its_components(player: Any, name: str) -> None:
    for index in sample(name):
        [episode] = await player.start(name, "train", index, seed=index)
        await player.play(episode.episode, player.oracle(name, "train", index))
        total, steps = await player.rewards(episode.episode)

        for reward in (*steps, total):
            weighted = sum(part.value * part.weight for part in reward.components.values())
            assert reward.value == pytest.approx(weighted, abs=1e-12)


@each_environment
async def test_equal_seeds_give_equal_episodes(player: Any, name: str) -> None:
    for index in sample(name, 5):
        first = await transcript(player, name, "train", index, seed=9)
        assert first == await transcript(player, name, "train", index, seed=9)


@pytest.mark.parametrize("name", ["guess_number", "wordle-easy"])
async def test_other_seeds_give_other_episodes_where_something_is_drawn(player: Any, name: str) -> None:
    seen = {tuple(await transcript(player, name, "train", 2, seed=seed)) for seed in range(20)}

    assert len(seen) > 3


@each_environment
async def test_the_episodes_of_a_group_hide_the_same(player: Any, name: str) -> None:
    group = await player.start(name, "train", 1, seed=3, count=4)
    played = [await player.play(one.episode, player.oracle(name, "train", 1)) for one in group]

    assert len({one.prompt for one in group}) == 1
    assert all(results == played[0] for results in played)


@each_environment
async def test_doing_nothing_earns_the_least(player: Any, name: str) -> None:
    [episode] = await player.start(name, "train", 0)
    info = await player.answer(episode.episode, "I do not know.")

    assert info.end_reason is EndReason.SUBMITTED
    assert info.reward is not None
    assert info.reward.value == 0.0


@each_environment
async def test_arbitrary_calls_earn_next_to_nothing_and_come_to_an_end(player: Any, name: str) -> None:
    rng = random.Random(4)
    totals = []
    for index in sample(name):
        [episode] = await player.start(name, "train", index, seed=index)
        await player.play(episode.episode, arbitrary(episode.tools, rng))
        total, _ = await player.rewards(episode.episode)
        totals.append(total.value)

        ended = (await player.info(episode.episode)).status
        assert ended in (EpisodeStatus.COMPLETED, EpisodeStatus.TRUNCATED)
    assert sum(totals) / len(totals) <= 0.05


@each_environment
async def test_wrong_arguments_and_unknown_tools_are_the_policys_mistake(player: Any, name: str) -> None:
    for tool in player.host.catalog[name].specs:
        [episode] = await player.start(name, "train", 0)
        wrong: list[dict[str, Any]] = [{"no_such": 1}]
        wrong += [{}] if tool.input_schema.get("required") else []
        for parameter in list(tool.input_schema["properties"])[:1]:
            wrong += [{parameter: None}, {parameter: [1]}, {parameter: {}}]
        for arguments in wrong:
            result = await player.step(episode.episode, tool.name, **arguments)
            assert result.error is not None
            assert result.error.code == "invalid_arguments"
            assert result.status is EpisodeStatus.RUNNING
    [episode] = await player.start(name, "train", 0)
    result = await player.step(episode.episode, "no_such_tool")
    assert result.error is not None
    assert result.error.code == "unknown_tool"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=marks_of(name)) for name in NAMES if base_of(name) not in SEVERAL_PARAMETERS]
)
async def test_extreme_arguments_are_refused_and_cost_nothing(player: Any, name: str) -> None:
    for tool in player.host.catalog[name].specs:
        [episode] = await player.start(name, "train", 0)
        for arguments in extremes(tool, REFUSED.get(f"{base_of(name)}.{tool.name}", TEXTS)):
            result = await player.step(episode.episode, tool.name, **arguments)
            assert result.error is not None
            assert result.error.code in ("refused", "invalid_arguments")
            assert len(text_of(result.content)) < 500
            assert result.reward is None
        await player.play(episode.episode, player.oracle(name, "train", 0))
        assert (await player.rewards(episode.episode))[0].value == 1.0


@each_environment
@each_split
async def test_public_rows_hold_no_private_field(player: Any, name: str, split: str) -> None:
    params = e.ListTasksParams(environment=name, split=split, limit=50)
    for row in (await player.host.list_tasks(params, player.principal)).tasks:
        task = player.task(name, split, row.index)
        public = set(type(task).model_fields) - task.private_fields() - {"id"}

        assert set(row.fields) == (set() if split == "test" else public)
        for field in task.private_fields():
            assert getattr(task, field) not in (row.id, *(v for k, v in row.fields.items() if k != "difficulty"))


@each_environment
async def test_prompt_and_observations_never_tell_a_private_field(player: Any, name: str) -> None:
    rng = random.Random(11)
    [other] = await player.start(name, "train", SAMPLE)
    rules = shown_by(other, [])
    for index in sample(name):
        [episode] = await player.start(name, "train", index, seed=index)
        results = await player.play(episode.episode, arbitrary(episode.tools, rng))
        task = player.task(name, "train", index)
        found_with_tools = player.host.catalog[name].cls.discoverable_fields

        for field in task.private_fields():
            shown = shown_by(episode, [] if field in found_with_tools else results)
            secret = str(getattr(task, field)).lower()
            # A few answers, such as "below", are words of the rules themselves.
            told = re.search(rf"(?<![\w.]){re.escape(secret)}(?![\w.]|\.\d)", shown)
            assert told is None or secret in rules


@pytest.mark.suite("breadth", first=4)
@each_environment
async def test_a_hundred_episodes_at_once_do_not_disturb_each_other(player: Any, name: str) -> None:
    async def one(index: int) -> float | None:
        [episode] = await player.start(name, "train", index, seed=index)
        await player.play(episode.episode, player.oracle(name, "train", index))
        total, _ = await player.rewards(episode.episode)
        value: float | None = total.value
        return value

    assert set(await asyncio.gather(*map(one, sample(name, 100)))) == {1.0}


@each_environment
async def test_the_readme_names_its_tools_fields_components_and_counts(player: Any, name: str) -> None:
    base = base_of(name)
    environments = Path(__file__).parents[2] / "environments"
    folders = (environments / "library" / base, environments / "ludus" / "environments" / base)
    readme = next(path for folder in folders if (path := folder / "README.md").exists()).read_text("utf-8")
    [episode] = await player.start(name, "train", 0)
    await player.play(episode.episode, player.oracle(name, "train", 0))
    total, _ = await player.rewards(episode.episode)
    task = player.task(name, "train", 0)

    components = {one.partition("/")[0] for one in total.components}  # the items of a checklist go by its part
    names = {name, *(tool.name for tool in episode.tools), *components, *type(task).model_fields} - {"id"}
    assert [one for one in names if f"`{one}" not in readme and f"# {one}" not in readme] == []
    if name == base:
        for split, tasks in player.host.catalog[name].splits.items():
            assert f"`{split}` {f'{tasks.count:,}' if tasks.count else 'endless'}" in readme
        assert f"`{player.host.catalog[name].info.version}`" in readme


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=marks_of(name)) for name in NAMES if base_of(name) not in WITHOUT_FORKS],
)
async def test_a_fork_goes_on_as_the_original_does(player: Any, name: str) -> None:
    [episode] = await player.start(name, "train", 2, seed=5)
    tool, parameter = player_mistake(episode)
    await player.step(episode.episode, tool, **parameter)
    forked = await player.host.fork(e.ForkParams(episode=episode.episode, step=1, key="fork"), player.principal)
    original = await player.play(episode.episode, player.oracle(name, "train", 2))

    assert await player.play(forked.episode.episode, player.oracle(name, "train", 2)) == original


def player_mistake(episode: StartedEpisode) -> tuple[str, dict[str, Any]]:
    """A call that every environment refuses."""
    tool = episode.tools[0]
    return tool.name, next(extremes(tool, TEXTS)) | {name: -1 for name in integers(tool)}


def integers(tool: ToolSpec) -> list[str]:
    """The required parameters that are whole numbers."""
    properties = tool.input_schema["properties"]
    return [name for name in tool.input_schema.get("required", []) if properties[name]["type"] == "integer"]
