"""Checklists from files: counted item by item, and whatever is wrong in a file is pointed at by its line."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.server.rewards import Attempt, Check, ChecklistError, Verdict, check, lint_checklist, load_checklist
from ludus.server.rewards.located import SyntaxProblem, locate_json, locate_toml

TOML = """\
name = "support"
version = "3"

[[items]]
id = "greets"
check = "starts_with"
arguments = {text = "Dear"}

[[items]]
id = "short"
check = "pattern"
group = "style"
weight = 2.0

[items.arguments]
pattern = '(?s)^.{0,40}$'

[[items]]
id = "polite"
group = "style"
prompt = '''
Is it polite?
id = "not a key"
[[items]]
'''
optional = true
"""


def starts_with(attempt: Attempt, text: str) -> bool:
    return attempt.answer.startswith(text)


FUNCTIONS = {"starts_with": starts_with}


def judge(score: float | None) -> Any:
    def make(id: str, prompt: str) -> Check:
        said = Verdict.unscored("down") if score is None else Verdict(score, f"asked {prompt.split()[0]}")
        return check(lambda attempt: said, name=id)

    return make


def write(tmp_path: Path, text: str, suffix: str = "toml") -> Path:
    path = tmp_path / f"list.{suffix}"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", ["toml", "json"])
async def test_a_checklist_counts_its_items_and_shows_each_verdict(tmp_path: Path, suffix: str) -> None:
    text = TOML if suffix == "toml" else json.dumps(tomllib.loads(TOML))
    rubric = load_checklist(write(tmp_path, text, suffix), functions=FUNCTIONS, judge=judge(0.7))
    reward = await rubric.score(Attempt(answer="Hello. " * 3))
    assert (reward.value, reward.reason, reward.rubric) == (0.75, "2/3 met", "support@3")
    assert {name: (part.value, part.weight) for name, part in reward.components.items()} == {
        "greets": (0.0, 0.25),
        "style/short": (1.0, 0.5),
        "style/polite": (1.0, 0.25),
    }
    assert reward.components["style/polite"].evidence == "asked Is"


async def test_a_judged_item_without_a_verdict_leaves_the_count_only_if_it_is_optional(tmp_path: Path) -> None:
    path = write(tmp_path, TOML)
    reward = await load_checklist(path, functions=FUNCTIONS, judge=judge(None)).score(Attempt(answer="Dear"))
    assert (reward.value, reward.reason) == (1.0, "2/2 met, 1 could not be judged")
    assert reward.missing == {"style/polite": "down"}
    path = write(tmp_path, TOML.replace("optional = true", ""))
    reward = await load_checklist(path, functions=FUNCTIONS, judge=judge(None)).score(Attempt(answer="Dear"))
    assert reward.value is None
    assert (reward.reason or "").startswith("2/2 met, 1 could not be judged; style/polite: down")


async def test_partial_values_meet_an_item_from_its_threshold_on(tmp_path: Path) -> None:
    def half(attempt: Attempt) -> float:
        return 0.5

    file = {"name": "x", "version": "1", "items": [{"id": "a", "check": "half"}, {"id": "b", "check": "half"}]}
    file["items"][1]["at_least"] = 0.5  # type: ignore[index]
    reward = await load_checklist(write(tmp_path, json.dumps(file), "json"), functions={"half": half}).score(Attempt())
    assert {name: part.value for name, part in reward.components.items()} == {"a": 0.0, "b": 1.0}


async def test_functions_are_found_in_modules(tmp_path: Path) -> None:
    item = {"id": "a", "check": "operator:attrgetter", "arguments": {}}
    file = {"name": "x", "version": "1", "items": [item | {"check": "posixpath:isabs.__call__"}]}
    with pytest.raises(ChecklistError):
        load_checklist(write(tmp_path, json.dumps(file | {"items": [item | {"check": "nowhere:f"}]}), "json"))
    (problem,) = lint_checklist(write(tmp_path, json.dumps(file | {"items": [item | {"check": "json:lods"}]}), "json"))
    assert problem.message == "json has no 'lods'; did you mean 'loads'?"


HEAD = 'name = "x"\nversion = "1"\n'
GOOD = '[[items]]\nid = "a"\ncheck = "starts_with"\narguments = {text = "x"}\n'


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (HEAD + "[[items]]\nid = 'a'\ncheck = 'pattern\n", 5, "Expected"),
        (HEAD, 1, "items: it is missing"),
        (HEAD + GOOD + "color = 1\n", 7, "there is no such field"),
        (HEAD + GOOD + "wieght = 1\n", 7, "did you mean 'weight'"),
        (HEAD + GOOD + "weight = -1.0\n", 7, "must be more than 0"),
        (HEAD + GOOD + "weight = nan\n", 7, "finite"),
        (HEAD + GOOD + 'weight = "2"\n', 7, "is not a number"),
        (HEAD + GOOD + GOOD, 7, "the id 'a' was used on line 3"),
        (HEAD + GOOD + 'prompt = "?"\n', 5, "either a check"),
        (HEAD + "[[items]]\nid = 'a'\n", 4, "either a check"),
        (HEAD + "[[items]]\nid = 'a'\nprompt = ''\n", 5, "at least 1 character"),
        (HEAD + "[[items]]\nid = 'a/b'\nprompt = 'x'\n", 4, "match pattern"),
        (HEAD + "[[items]]\nid = 'a'\ncheck = 'patern'\n", 5, "did you mean 'pattern'"),
        (HEAD + "[[items]]\nid = 'a'\ncheck = 'pattern'\n", 5, "missing 1 required positional argument: 'pattern'"),
        (HEAD + "[[items]]\nid = 'a'\ncheck = 'pattern'\narguments = {pattern = '('}\n", 5, "no regular expression"),
        (HEAD + "[[items]]\nid = 'a'\ncheck = 'starts_with'\n", 5, "missing a required argument: 'text'"),
        (HEAD + "[[items]]\nid = 'a'\ncheck = 'no.such.module:f'\n", 5, "importing 'no.such.module' failed"),
        (HEAD + "[[items]]\nid = 'a'\ncheck = 'json:__name__'\n", 5, "is no function but str"),
    ],
)
def test_each_mistake_is_found_on_its_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = write(tmp_path, text)
    errors = [problem for problem in lint_checklist(path, functions=FUNCTIONS) if problem.severity == "error"]
    assert [problem.line for problem in errors] == [line]
    assert words in errors[0].message
    with pytest.raises(ChecklistError, match=f"{path}:{line}: "):
        load_checklist(path, functions=FUNCTIONS, judge=judge(1.0))


def test_a_repeated_id_is_found_also_where_the_whole_file_is_one_line(tmp_path: Path) -> None:
    item = {"id": "a", "check": "no_errors"}
    path = write(tmp_path, json.dumps({"name": "x", "version": "1", "items": [item, item]}), "json")
    (problem,) = lint_checklist(path)
    assert (problem.line, problem.message) == (1, "the id 'a' was used on line 1")
    with pytest.raises(ChecklistError, match="the id 'a' was used"):
        load_checklist(path)


def test_lines_of_json_are_found_too(tmp_path: Path) -> None:
    text = '{\n "name": "x",\n "version": "1",\n "items": [\n  {"id": "a",\n   "check": "nope"},\n  {"id": 3}\n ]\n}'
    problems = lint_checklist(write(tmp_path, text, "json"))
    assert [problem.line for problem in problems] == [6, 7]
    assert [p.line for p in lint_checklist(write(tmp_path, text.replace("3}", '"b", "prompt": "?"}'), "json"))] == [6]
    twice = '{"name": "x",\n "name": "y"}'
    (problem,) = lint_checklist(write(tmp_path, twice, "json"))
    assert (problem.line, problem.message) == (2, "the key 'name' stands here a second time")


def test_doubtful_items_are_warned_of(tmp_path: Path) -> None:
    prompts = "".join(f"[[items]]\nid = '{n}'\nprompt = 'Is the answer polite, all in all?{n}'\n" for n in "pq")
    problems = lint_checklist(write(tmp_path, HEAD + GOOD + "optional = true\n" + prompts), functions=FUNCTIONS)
    assert [(problem.line, problem.severity) for problem in problems] == [(3, "warning"), (11, "warning")]
    assert "nearly that of 'p'" in problems[1].message


def test_judged_items_need_a_judge(tmp_path: Path) -> None:
    with pytest.raises(ChecklistError, match="1 items need a judge"):
        load_checklist(write(tmp_path, TOML), functions=FUNCTIONS)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("list.yaml", b"", "not '.yaml'"),
        ("list.json", b"\xff\xfe", "not UTF-8"),
        ("list.json", b"[" * 100, "nested too deeply"),
        ("list.toml", b"a = " + b"[" * 5000, ""),
        ("list.json", b" " * (4 * 1024 * 1024 + 1), "larger than"),
        ("list.json", b"", "breaks off"),
    ],
)
def test_files_that_are_no_checklist_are_refused(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    (problem,) = lint_checklist(path)
    assert words in problem.message
    (missing,) = lint_checklist(tmp_path / "missing.json")
    assert "cannot be read" in missing.message


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(VALUES, st.sampled_from([None, 1, "\t"]))
def test_json_is_read_as_the_standard_library_reads_it_and_every_part_has_its_line(value: Any, indent: Any) -> None:
    text = json.dumps(value, indent=indent)
    located = locate_json(text)
    assert located.value == value
    if indent is not None and isinstance(value, list):
        for position in range(len(value)):
            line = text.split("\n")[located.line((position,)) - 1]
            assert line.strip().startswith(json.dumps(value[position], indent=indent).split("\n")[0].strip()[:1])


@given(st.text(alphabet='{}[]":,\\ \n\t0123456789.eEtrufalsn-/ab', max_size=40))
def test_text_is_read_as_json_exactly_when_the_standard_library_reads_it(text: str) -> None:
    def no_constant(name: str) -> Any:
        raise ValueError(name)

    def no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("repeated")
        return dict(pairs)

    try:
        wanted = json.loads(text, parse_constant=no_constant, object_pairs_hook=no_repeats)
    except ValueError:
        with pytest.raises(SyntaxProblem):
            locate_json(text)
    else:
        assert locate_json(text).value == wanted


@given(st.text() | st.text(alphabet="[]='\"#\n ab.{}\\", max_size=60))
def test_any_text_is_read_as_toml_or_refused_with_a_line(text: str) -> None:
    try:
        lines = list(locate_toml(text).lines.values())
    except SyntaxProblem as problem:
        lines = [problem.line]
    assert all(1 <= line <= text.count("\n") + 1 for line in lines)


FIELD = st.sampled_from(["id", "check", "prompt", "weight", "group", "optional", "at_least", "arguments", "x"])
SMALL = st.booleans() | st.integers(-3, 3) | st.floats()
ODD: st.SearchStrategy[Any] = st.none() | SMALL | st.text(max_size=5) | st.just({}) | st.just([])


@given(items=st.lists(st.dictionaries(FIELD, ODD, max_size=5) | ODD, max_size=4) | ODD)
def test_any_items_are_linted_without_an_exception_and_load_only_without_errors(
    tmp_path_factory: pytest.TempPathFactory, items: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps({"name": "x", "version": "1", "items": items}))
    problems = lint_checklist(path)
    if any(problem.severity == "error" for problem in problems):
        with pytest.raises(ChecklistError):
            load_checklist(path, judge=judge(1.0))
    else:
        load_checklist(path, judge=judge(1.0))
