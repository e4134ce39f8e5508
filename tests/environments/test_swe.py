"""Swe: its tasks and repositories, that every fault shows, how it grades, its tools, and what does not fool it."""

from __future__ import annotations

import asyncio
import importlib
import re
import subprocess
import sys
import types
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandboxing import NEEDS_BUBBLEWRAP
from suite_selection import whole_or_few

from ludus.environments.swe.blueprint import EXTRAS, blueprint, fill, names, parse, words_of
from ludus.environments.swe.catalog import catalog, fault_named, reserve
from ludus.environments.swe.environment import LINES_SHOWN, Swe
from ludus.environments.swe.exploits import training_edits
from ludus.environments.swe.grading import changes, expected_of, package_of, reward_of
from ludus.environments.swe.imports import IsolatedImports
from ludus.environments.swe.inside import MemoryFinder
from ludus.environments.swe.mutations import derived_faults
from ludus.environments.swe.problem import Problem, assemble, make_problem
from ludus.environments.swe.reference import outcomes_of
from ludus.environments.swe.searching import search_repair
from ludus.environments.swe.selection import are_apart, pass_in_time, trial_of
from ludus.environments.swe.sessions import run_lines, shortest_session
from ludus.environments.swe.tasks import HELD_OUT, Recipe, SweTask, kinds, templates
from ludus.protocol import Answer, Call, EndReason, text_of
from ludus.protocol.errors import AuthoringError
from ludus.server import DIFFICULTIES, Difficulty
from ludus.server.authoring.procedural import SECRET_VARIABLE
from ludus.server.authoring.workspace import Repository, Tree, directory, file, fingerprint, link
from ludus.server.rewards.isolated import hide_package
from ludus.validation import validate

each_difficulty = pytest.mark.parametrize("difficulty", DIFFICULTIES)
each_blueprint = pytest.mark.parametrize("template", names())
WAITS = ("never", "sleep", "stop the runner", "fork", "flood", "memory", "daemon", "search the machine", "later")
"""Words in the names of exploits that take seconds, which only the suite tries."""


def problem_with(template: str, *faults: str, difficulty: Difficulty = "medium", seed: str = "0") -> Problem:
    return assemble(blueprint(template), difficulty, "otter", int(seed) % 4, faults, seed)


def tree_of(problem: Problem, modules: Mapping[str, str] | None = None) -> Tree:
    """The workspace, with other modules of the package."""
    files = {**problem.files, **{f"{problem.top}{path}": text for path, text in (modules or {}).items()}}
    return {path: file(text) for path, text in files.items()}


def repaired(problem: Problem, *places: int) -> dict[str, str]:
    """The given modules after some of the repairs."""
    modules = dict(problem.faulty)
    for place in places or range(len(problem.repairs)):
        path, faulty, right = problem.repairs[place]
        module = path.removeprefix(problem.top)
        assert modules[module].count(faulty) == 1, "the oracle's edit would be refused"
        modules[module] = modules[module].replace(faulty, right)
    return modules


# Tasks


def test_there_are_enough_blueprints_and_kinds_of_tasks() -> None:
    sets = [
        (template, faults) for template in names() for level in DIFFICULTIES for _, faults in kinds(template, level)
    ]
    assert len(names()) >= 8
    assert len({kind for kind in sets if len(kind[1]) == 1}) >= 220
    assert len({kind for kind in sets if len(kind[1]) == 2}) >= 500
    assert all(len(blueprint(template).domains) >= 4 for template in names())
    assert EXTRAS not in names()


def test_each_blueprint_is_for_one_split() -> None:
    parts = [set(templates(split)) for split in ("train", "validation", "test")]
    assert set.union(*parts) == set(names())
    assert all(one.isdisjoint(other) for one, other in combinations(parts, 2))
    assert sum(map(len, HELD_OUT.values())) == 3


@each_difficulty
@given(index=st.integers(0, 2**50))
def test_a_training_task_is_of_a_kind_for_training(difficulty: Difficulty, index: int) -> None:
    task = Swe.load_task("train", index, [difficulty])
    domain, faults, _ = Recipe.parse(task.recipe)
    assert len(faults) == (2 if difficulty == "hard" else 1)
    assert task.template in templates("train")
    assert (domain, faults) in kinds(task.template, difficulty)
    assert task.package not in sys.stdlib_module_names
    assert str(Recipe.parse(task.recipe)) == task.recipe


def test_held_out_tasks_are_of_their_own_blueprints_which_take_turns() -> None:
    for split in ("validation", "test"):
        tasks = Swe.load_tasks(split)
        for task in tasks:
            domain, faults, _ = Recipe.parse(task.recipe)
            assert (domain, faults) in kinds(task.template, task.difficulty)
        assert {task.template for task in tasks} == set(HELD_OUT[split])
        assert len({task.recipe for task in tasks}) == len(tasks)


def faults_of(tasks: Sequence[SweTask]) -> set[tuple[str, str]]:
    return {(task.template, name) for task in tasks for name in Recipe.parse(task.recipe).faults}


def test_a_secret_draws_other_faults_for_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    public = Swe.load_tasks("test")
    monkeypatch.setenv(SECRET_VARIABLE, "a secret of twenty characters")
    fresh = Swe.load_tasks("test")
    monkeypatch.setenv(SECRET_VARIABLE, "another secret of such a length")
    others = Swe.load_tasks("test")
    assert faults_of(fresh).isdisjoint(faults_of(public))
    assert len(faults_of(fresh)) >= 16
    assert [Recipe.parse(task.recipe).faults for task in fresh] != [Recipe.parse(task.recipe).faults for task in others]


def test_equal_faults_get_other_names_constants_and_inputs() -> None:
    one, other = (problem_with("inventory", "report-total", seed=seed) for seed in ("4", "8"))
    assert one.sound != other.sound, "of one domain"
    assert {check.seed for check in one.checks}.isdisjoint(check.seed for check in other.checks)


@pytest.mark.suite("swe", first=1)
@each_difficulty
def test_a_repository_is_always_the_same_and_of_the_size_that_the_readme_says(difficulty: Difficulty) -> None:
    least, most = {"easy": (12, 15), "medium": (16, 19), "hard": (24, 27)}[difficulty]
    for index in range(16):
        task = Swe.load_task("train", index, [difficulty])
        problem = make_problem(task)
        assert least <= len(problem.files) <= most
        again = assemble(blueprint(task.template), difficulty, task.package, *recipe_of(task))
        assert fingerprint(again.tree()) == fingerprint(problem.tree())
        assert task.recipe not in problem.issue


def recipe_of(task: SweTask) -> Recipe:
    return Recipe.parse(task.recipe)


@each_blueprint
def test_the_history_holds_the_given_files_and_no_repaired_version(template: str) -> None:
    faults = kinds(template, "hard")[0][1]
    problem = problem_with(template, *faults)
    tree = problem.tree()
    repository = Repository(tree)
    head = repository.target("refs/heads/main")
    assert repository.files(head) == {path: text.encode() for path, text in problem.files.items()}
    differing = {problem.sound[path].encode() for path in problem.sound if problem.sound[path] != problem.faulty[path]}
    for commit in repository.history(head):
        found = repository.files(commit.name)
        assert found is not None
        assert differing.isdisjoint(found.values())
    assert len(repository.history(head)) >= 3


# Faults


def failing(problem: Problem, modules: Mapping[str, str], expected: Sequence[Any]) -> set[int]:
    """The places of the hidden tests that fail."""
    found = outcomes_of(modules, problem.checks)
    return {place for place, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other}


@pytest.mark.suite("swe", first=1)
@pytest.mark.timeout(300)
@each_blueprint
def test_every_fault_shows_in_its_hidden_tests_and_its_repair_passes_all(template: str) -> None:
    for number, name in enumerate(catalog(template).trials):
        problem = problem_with(template, name, seed=str(number))
        right = outcomes_of(problem.sound, problem.checks)
        assert all(("raised" not in kind) for noted in right for kind, _ in noted), f"{name}: a hidden test breaks off"
        own = {place for place, check in enumerate(problem.checks) if check.fault == name}
        failed = own & failing(problem, problem.faulty, right)
        assert failed == own if name in blueprint(template).faults else failed, f"{name} does not always show"
        assert repaired(problem) == dict(problem.sound)
        assert problem.repairs


@pytest.mark.suite("swe")
@pytest.mark.timeout(600)
@each_blueprint
def test_of_two_faults_each_shows_also_when_the_other_is_repaired(template: str) -> None:
    pairs = catalog(template).pairs
    assert len(pairs) >= 50
    for pair in pairs[::2]:
        assert are_apart(blueprint(template), [fault_named(blueprint(template), name) for name in pair])
        problem = problem_with(template, *pair, difficulty="hard", seed="2")
        right = outcomes_of(problem.sound, problem.checks)
        of = {name: {p for p, check in enumerate(problem.checks) if check.fault == name} for name in pair}
        failed = failing(problem, problem.faulty, right)
        assert all(places & failed for places in of.values()), f"{pair}: one hides the other"
        assert repaired(problem) == dict(problem.sound)
        for name in pair:
            alone = problem_with(template, name, difficulty="hard", seed="2")
            assert of[name] & failing(alone, alone.faulty, outcomes_of(alone.sound, alone.checks)), f"{name} alone"


def run_tests(problem: Problem, folder: Path, modules: Mapping[str, str]) -> bool:
    """Whether the visible tests pass."""
    for path, entry in tree_of(problem, modules).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(entry.data)
    command = problem.test_command.replace("python3", f"{sys.executable} -B")
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, timeout=60, check=False)
    assert b"Ran 0 tests" not in done.stderr
    return done.returncode == 0


@pytest.mark.suite("swe")
@pytest.mark.timeout(600)
@each_blueprint
def test_visible_tests_fail_at_easy_only_and_pass_when_repaired(template: str, tmp_path: Path) -> None:
    for number, name in enumerate([*blueprint(template).faults, *list(catalog(template).trials)[::5]]):
        easy = problem_with(template, name, difficulty="easy", seed=str(number))
        assert not run_tests(easy, tmp_path / f"{number}-easy", {}), name
        assert run_tests(easy, tmp_path / f"{number}-repaired", easy.sound), name
        medium = problem_with(template, name, seed=str(number))
        assert run_tests(medium, tmp_path / f"{number}-medium", {}), name


@pytest.mark.parametrize("template", ["query", pytest.param("router", marks=pytest.mark.suite("swe", first=1))])
def test_what_is_recorded_about_faults_is_what_trials_measure(template: str) -> None:
    every = catalog(template).trials
    assert set(blueprint(template).faults) <= set(every)
    derived = [name for name in every if name in derived_faults(template)]
    assert len(derived) >= 15
    for name in derived[::9]:
        trial = trial_of(template, derived_faults(template)[name])
        assert trial is not None
        assert (tuple(trial["always"]), tuple(trial["sometimes"]), trial["searchable"]) == every[name]


def test_a_derived_fault_is_reported_by_a_short_session_that_it_breaks() -> None:
    for task in Swe.load_tasks("test", ["medium"])[:12]:
        problem = make_problem(task)
        [name] = Recipe.parse(task.recipe).faults
        if name in blueprint(task.template).faults:
            continue
        lines = re.findall(r"^>>> (.*)$", problem.issue, re.MULTILINE)[1:]
        shown = re.search(r"^>>> .*\n(?!>>> )(.*)\n```$", problem.issue, re.MULTILINE)
        assert shown is not None
        right, wrong = (run_lines(problem.package, modules, lines)[-1] for modules in (problem.sound, problem.faulty))
        assert shown[1] == (f"Error: {wrong.text}" if wrong.raised else wrong.text)
        assert right[0::2] != wrong[0::2]
        assert right.text in problem.issue


def test_a_session_has_no_line_that_can_be_left_out() -> None:
    package = "class Box:\n    def __init__(self):\n        self.things = []\n    def put(self, one):\n"
    sound = {
        "p/__init__.py": package
        + "        self.things.append(one)\n    def count(self):\n        return len(self.things)\n"
    }
    faulty = {"p/__init__.py": sound["p/__init__.py"].replace("append(one)", "append(one) if one > 2 else None")}
    test = "from p import *\nbox, other = Box(), Box()\nfor n in range(5):\n    box.put(n)\n    other.put(7)\n"
    test += "note(box.count())\n"
    session = shortest_session("p", [sound], [faulty], test, 1)
    assert session is not None
    assert session.lines == ["box = Box()", "box.put(0)", "box.count()"]
    assert (session.shown.text, session.expected.text, session.calls) == ("0", "1", "Box.count")


def test_the_visible_tests_of_a_task_of_each_level(tmp_path: Path) -> None:
    for difficulty in DIFFICULTIES:
        problem = make_problem(Swe.load_task("train", 3, [difficulty]))
        assert run_tests(problem, tmp_path / difficulty, {}) == (difficulty != "easy")


# Blueprints


def test_a_blueprint_with_an_unknown_section_or_name_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown section"):
        parse("x", "=== nonsense\n")
    with pytest.raises(ValueError, match="unknown part"):
        parse("x", "=== fault a bug\ntitle\n--- nonsense\n")
    with pytest.raises(KeyError):
        fill("$nobody", {})


def test_a_fault_whose_piece_is_not_in_the_module_once_is_refused() -> None:
    made = parse("x", "=== domain\na=b\n=== file __init__.py\nx = 1\nx = 1\n=== fault f bug\nt\n--- right __init__.py\n"
                 "x = 1\n--- wrong\ny\n")  # fmt: skip
    with pytest.raises(ValueError, match="2 times"):
        assemble(made, "easy", "p", 0, ["f"], "0")


_ARTICLE = re.compile(r"\b(a|an) ([a-z]+)\b", re.IGNORECASE)


@pytest.mark.parametrize("template", names())
def test_articles_and_plurals_fit_the_words_of_every_domain(template: str) -> None:
    made = blueprint(template)
    for domain in range(len(made.domains)):
        own = {word for name, word in words_of(made.domains[domain]).items() if not name.endswith("s")}
        for name, fault in made.faults.items():
            problem = assemble(made, "easy", "otter", domain, [name], "seed")
            for text in (problem.issue, problem.files["README.md"]):
                for article, word in _ARTICLE.findall(text):
                    if word in own:
                        assert article.lower() == ("an" if word[0].lower() in "aeio" else "a"), (fault.name, word)
        assert not any(word.endswith(("lfs", "chs", "ss")) for word in words_of(made.domains[domain]).values())


def test_what_a_new_method_returns_is_graded_only_if_the_issue_says_it() -> None:
    made = blueprint("inventory")
    problem = assemble(made, "medium", "otter", 0, ["release"], "seed")
    path = "otter/warehouse.py"
    before = '        self._log("release", canonical(name), count)\n'
    assert before in problem.sound[path]
    sources = {**problem.sound, path: problem.sound[path].replace(before, f"{before}        return count\n")}
    assert outcomes_of(sources, problem.checks) == outcomes_of(problem.sound, problem.checks)


def test_words_give_plurals_and_capitals() -> None:
    found = words_of({"row": "battery", "list": "day"})
    assert found["rows"] == "batteries"
    assert found["Row"] == "Battery"
    assert found["LIST"] == "DAY"
    assert found["lists"] == "days"


# Imports


SOURCES = {
    "otter/__init__.py": "from .one import A\nfrom . import two\n",
    "otter/one.py": "import otter.inner.deep\nA = otter.inner.deep.D\n",
    "otter/two.py": "from otter.one import A as B\nimport json\n",
    "otter/inner/__init__.py": "",
    "otter/inner/deep.py": "from ..numbers import N\nfrom collections import OrderedDict\nD = N + 1\n",
    "otter/numbers.py": "N = 41\n",
}


def test_both_importers_import_a_package_from_its_sources() -> None:
    scope: dict[str, Any] = {"__builtins__": IsolatedImports(SOURCES).builtins}
    exec("from otter import A, two\nimport otter.inner.deep as deep\nfrom otter.inner import deep as same", scope)
    assert (scope["A"], scope["two"].B, scope["deep"] is scope["same"]) == (42, 42, True)
    assert not any(name.split(".")[0] == "otter" for name in sys.modules), "this process has no such modules"
    with pytest.raises(ModuleNotFoundError):
        exec("import otter.none", scope)

    finder = MemoryFinder(SOURCES)
    sys.meta_path.insert(0, finder)
    try:
        found: types.ModuleType = importlib.import_module("otter")
        assert (found.A, found.two.B) == (42, 42)
        assert finder.find_spec("otter.none") is None
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] == "otter"]:
            del sys.modules[name]


# Grading


def test_only_plain_modules_in_the_folder_of_the_package_are_graded() -> None:
    problem = problem_with("inventory", "report-total")
    root = problem.root
    tree: Tree = {
        **tree_of(problem),
        f"{root}/new.py": file("x = 1"),
        f"{root}/deeper/more.py": file("x = 2"),
        f"{root}/linked.py": link("/etc/passwd"),
        f"{root}/folder.py": directory(),
        f"{root}/native.so": file(b"\x7fELF"),
        f"{root}/__pycache__/new.cpython-311.pyc": file(b"x"),
        f"{root}/evil.pth": file("import os"),
        f"{root}/bytes.py": file(b"\xff"),
        f"{root}/a\nb.py": file(""),
        f"{root}x/other.py": file(""),
        "conftest.py": file(""),
        "tests/test_new.py": file(""),
    }
    assert set(package_of(problem, tree)) == {*problem.sound, "otter/new.py", "otter/deeper/more.py"}
    assert package_of(problem, {**tree, f"{root}/new.py": file("#" * 500_000)}) == {}
    many = {f"{root}/m{number}.py": file("") for number in range(200)}
    assert package_of(problem, {**tree, **many}) == {}


def passes(problem: Problem, modules: Mapping[str, str]) -> list[bool]:
    found = outcomes_of(modules, problem.checks)
    return [one == other for one, other in zip(found, expected_of(problem).outcomes, strict=True)]


def test_tasks_with_one_seed_and_report_do_not_share_what_must_come_out() -> None:
    every = [
        assemble(blueprint("events"), "medium", "otter", domain, ["snapshot-version-off"], "5") for domain in (0, 1)
    ]
    assert every[0].issue == every[1].issue
    assert every[0].sound != every[1].sound
    for problem in every:
        assert expected_of(problem).outcomes == outcomes_of(problem.sound, problem.checks)


def test_all_or_nothing_for_one_report_and_a_part_for_one_of_two() -> None:
    one = problem_with("inventory", "report-total")
    assert reward_of(one, expected_of(one), None, tree_of(one)).value == 0.0
    assert reward_of(one, expected_of(one), passes(one, one.sound), tree_of(one, one.sound)).value == 1.0

    two = problem_with("inventory", "report-total", "inner-spaces-kept", difficulty="hard")
    half = repaired(two, 0)
    reward = reward_of(two, expected_of(two), passes(two, half), tree_of(two, half))
    assert reward.value == pytest.approx(0.15)
    assert reward.components["kept"].value == 1.0
    broken = {**half, "otter/levels.py": half["otter/levels.py"].replace("+= count", "+= count + 1")}
    reward = reward_of(two, expected_of(two), passes(two, broken), tree_of(two, broken))
    assert reward.components["kept"].value == 0.0
    assert reward.value == 0.0


def test_a_repair_that_breaks_something_else_earns_nothing() -> None:
    problem = problem_with("inventory", "report-total")
    modules = repaired(problem)
    modules["otter/report.py"] = modules["otter/report.py"].replace('"Total: {total}"', '"total: {total}"')
    assert modules != dict(problem.sound)
    assert reward_of(problem, expected_of(problem), passes(problem, modules), None).value == 0.0


def test_the_difference_is_counted_and_shown_within_bounds() -> None:
    before = {"a.py": "one\ntwo\n", "b.py": "x\n"}
    tree: dict[str, Any] = {
        "a.py": file("one\n2\n"),
        "c.py": file("new\n"),
        ".git/x": file("y"),
        "__pycache__/z": file("z"),
    }
    count, lines, text = changes(before, tree)
    assert (count, lines) == (3, 4)
    assert "-two\n+2" in text
    assert changes(before, {path: file(content) for path, content in before.items()}) == (0, 0, "")
    assert changes(before, {**tree, "b.py": link("/etc/passwd")})[0] == 3
    assert changes({"a": "x\n" * 5000}, {"a": file("y\n" * 5000)}) == (1, 10_000, "")


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.binary(max_size=60)))
def test_any_files_have_a_difference(files: dict[str, bytes]) -> None:
    count, lines, text = changes({"a": "x\n"}, {path: file(data) for path, data in files.items()})
    assert count <= 4
    assert lines >= 0
    text.encode()


# Policies that do not read the repository


def pasted(problem: Problem, edits: Sequence[tuple[str, str]]) -> float:
    """The reward of a policy that replaces each piece that is in a module once."""
    modules = dict(problem.faulty)
    for path, text in modules.items():
        for old, new in edits:
            if modules[path].count(old) == 1:
                modules[path] = modules[path].replace(old, new)
        assert text.isascii()
    if modules == problem.faulty:
        return 0.0
    value = reward_of(problem, expected_of(problem), passes(problem, modules), None).value
    assert value is not None
    return value


def titles(issue: str) -> list[str]:
    return re.findall(r"^## (?:Bug|Feature request)(?: \d)?: (.*)$", issue, re.MULTILINE)


@pytest.mark.suite("swe", sample=True, first=1)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("split", ["test", "validation"])
@each_difficulty
def test_pasting_the_edits_of_training_tasks_earns_nothing(difficulty: Difficulty, split: Any) -> None:
    """All edits wherever they fit, and those of the training task with the nearest title."""
    training = [make_problem(Swe.load_task("train", index)) for index in range(whole_or_few(90, 45))]
    every = dict.fromkeys((repair.faulty, repair.right) for problem in training for repair in problem.repairs)
    constant, nearest = [*every, *training_edits()], []
    known = [
        (set(re.findall(r"\w+", title.lower())), problem) for problem in training for title in titles(problem.issue)
    ]
    earned: list[tuple[float, float]] = []
    for task in Swe.load_tasks(split, [difficulty])[: whole_or_few(30, 10)]:
        problem = make_problem(task)
        nearest = [
            (repair.faulty, repair.right)
            for words in (set(re.findall(r"\w+", title.lower())) for title in titles(problem.issue))
            for repair in max(known, key=lambda pair: len(words & pair[0]) / len(words | pair[0]))[1].repairs
        ]
        earned.append((pasted(problem, constant), pasted(problem, nearest)))
    assert sum(first for first, _ in earned) <= 0.1 * len(earned)
    assert sum(second for _, second in earned) <= 0.1 * len(earned)


def test_no_edit_of_a_held_out_task_is_one_of_training() -> None:
    every = {
        (edit.wrong, edit.right)
        for template in templates("train")
        for name in catalog(template).trials
        for edit in fault_named(blueprint(template), name).edits
    }
    for template in {name for held_out in HELD_OUT.values() for name in held_out}:
        for name in catalog(template).trials:
            assert not {(edit.wrong, edit.right) for edit in fault_named(blueprint(template), name).edits} & every, name


@pytest.mark.suite("swe", sample=True, first=1)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("split", ["validation", "test"])
def test_exchanging_tokens_until_the_visible_tests_pass_earns_nothing(split: Any) -> None:
    tasks = Swe.load_tasks(split, ["easy"])[: whole_or_few(12, 3)]
    total = 0.0
    for task in tasks:
        problem = make_problem(task)
        tests = {
            path: text for path, text in problem.files.items() if path.startswith("tests/") and "def test_" in text
        }
        named = {
            f"{problem.package}/{path}" for path in re.findall(r"`(\w+\.py)`", problem.issue)
        } & problem.faulty.keys()
        repaired_modules = search_repair(problem.faulty, tests, sorted(named), pass_in_time)
        if repaired_modules is not None:
            total += reward_of(problem, expected_of(problem), passes(problem, repaired_modules), None).value or 0.0
    assert total <= 0.1 * len(tasks)


def test_half_of_the_derived_faults_of_tests_are_in_reserve() -> None:
    for template in HELD_OUT["test"]:
        derived = [name for name in catalog(template).trials if name not in blueprint(template).faults]
        assert len(derived) - 1 <= 2 * len(reserve(template)) <= len(derived) + 1


# Episodes


async def played(player: Any, name: str, index: int, *calls: tuple[str, dict[str, Any]]) -> tuple[list[str], Any]:
    """Make calls, submit, and return the observations and the reward."""
    [episode] = await player.start(name, "train", index)
    shown = []
    for tool, arguments in calls:
        result = await player.step(episode.episode, tool, **arguments)
        shown.append(text_of(result.content))
    await player.step(episode.episode, "submit", summary="done")
    assert (await player.info(episode.episode)).end_reason is EndReason.COMPLETED
    return shown, (await player.rewards(episode.episode))[0]


@NEEDS_BUBBLEWRAP
async def test_an_issue_is_resolved_with_the_tools_as_an_agent_uses_them(player: Any) -> None:
    problems = ((index, make_problem(Swe.load_task("train", index, ["easy"]))) for index in range(50))
    index, problem = next((index, problem) for index, problem in problems if len(problem.repairs) == 1)
    path, faulty, right = problem.repairs[0]
    shown, reward = await played(
        player, "swe-easy", index,
        ("bash", {"command": f"{problem.test_command} 2>&1 | tail -1"}),
        ("view", {"path": path, "first": 1}),
        ("search", {"pattern": "^class ", "path": "."}),
        ("edit", {"path": path, "old": faulty, "new": right}),
        ("bash", {"command": f"{problem.test_command} 2>&1 | tail -1; git diff --stat | tail -1"}),
    )  # fmt: skip
    assert shown[0].startswith("FAILED")
    assert shown[1].startswith("   1  ")
    assert ":class " in shown[2]
    assert shown[3].startswith("Replaced")
    assert shown[4].startswith("OK\n 1 file changed")
    assert reward.value == 1.0
    assert reward.components["files_changed"].value == 1.0
    assert reward.components["lines_changed"].evidence.startswith(f"--- a/{path}")


@NEEDS_BUBBLEWRAP
async def test_tools_say_what_is_wrong_and_what_to_do(player: Any) -> None:
    problem = make_problem(Swe.load_task("train", 0, ["easy"]))
    init = f"{problem.root}/__init__.py"
    calls: list[tuple[str, dict[str, Any]]] = [
        ("view", {"path": "none.py"}), ("view", {"path": "../other"}), ("view", {"path": "/etc/passwd"}),
        ("view", {"path": init, "first": 9999}), ("edit", {"path": init, "old": "nonsense here", "new": "x"}),
        ("edit", {"path": init, "old": "e", "new": "x"}), ("edit", {"path": init, "old": "", "new": "x"}),
        ("edit", {"path": "none.py", "old": "a", "new": "x"}), ("write", {"path": "README.md/x", "content": "x"}),
        ("write", {"path": "x", "content": "x" * 300_000}), ("search", {"pattern": "(", "path": "."}),
        ("search", {"pattern": "no such text", "path": "."}), ("write", {"path": "x", "content": "\ud800"}),
    ]  # fmt: skip
    expected = [
        "no file or folder", "outside the repository", "outside the repository", "lines only", "0 times, not once",
        "Add lines around it", "`old` is empty", "no file 'none.py'", "cannot be written", "more than 200,000",
        "search failed", "No line matches", "lone surrogate",
    ]  # fmt: skip
    shown, reward = await played(player, "swe-easy", 0, *calls)
    assert [text for text, part in zip(shown, expected, strict=True) if part not in text] == []
    assert reward.value == 0.0


@NEEDS_BUBBLEWRAP
async def test_view_shows_folders_and_long_files_in_parts(player: Any) -> None:
    lines = "".join(f"line {number}\n" for number in range(1, 501))
    shown, _ = await played(
        player, "swe-easy", 0,
        ("write", {"path": "deep/er/long.txt", "content": lines}), ("view", {"path": "deep"}),
        ("view", {"path": "deep/er/long.txt"}), ("view", {"path": "./deep/../deep/er/long.txt", "first": 401}),
        ("write", {"path": "empty", "content": ""}), ("view", {"path": "empty"}), ("view", {"path": "."}),
    )  # fmt: skip
    assert shown[1] == "er/"
    assert shown[2].startswith("   1  line 1\n   2  line 2\n")
    assert shown[2].endswith(f" {LINES_SHOWN}  line {LINES_SHOWN}\n({500 - LINES_SHOWN} more lines)")
    assert shown[3].endswith(" 500  line 500")
    assert shown[5] == "(The file is empty.)"
    assert "README.md" in shown[6].splitlines()


@NEEDS_BUBBLEWRAP
async def test_a_message_hands_in_the_repository_and_is_not_graded(player: Any) -> None:
    problem = make_problem(Swe.load_task("train", 0, ["hard"]))
    [episode] = await player.start("swe-hard", "train", 0)

    def policy() -> Any:
        for path, faulty, right in problem.repairs:
            yield Call("edit", {"path": path, "old": faulty, "new": right})
        yield Answer("I give up.")

    await player.play(episode.episode, policy())
    assert (await player.rewards(episode.episode))[0].value == 1.0


@NEEDS_BUBBLEWRAP
async def test_the_prompt_has_the_issue_and_no_hint_above_easy(player: Any) -> None:
    levels: dict[Difficulty, bool] = {"easy": True, "medium": False}
    for difficulty, place in levels.items():
        task = Swe.load_task("train", 5, [difficulty])
        [episode] = await player.start(f"swe-{difficulty}", "train", 5)
        text = text_of(episode.prompt[0].content)
        problem = make_problem(task)
        assert problem.issue in text
        assert problem.test_command in text
        assert ("A test for it is in the repository" in text) == place


def test_a_missing_program_stops_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(AuthoringError, match="git"):
        Swe.startup()


def test_an_installed_package_is_hidden_from_sandboxes() -> None:
    folder = Path("/usr/lib/python3/site-packages/ludus/environments/swe")
    [(source, target)] = hide_package(folder, ("/usr",))
    assert (Path(source).name, target) == ("nothing", str(folder))
    assert hide_package(folder, ("/opt",)) == ()


# Exploits


async def earned(player: Any, name: str, index: int, chosen: Sequence[str]) -> dict[str, float | None]:
    """The rewards of exploits, except those that are 0."""
    found: dict[str, float | None] = {}
    limit = asyncio.Semaphore(2)

    async def one(exploit: str) -> None:
        async with limit:
            [episode] = await player.start(name, "train", index)
            await player.play(episode.episode, Swe.exploits(player.task(name, "train", index))[exploit])
            value = (await player.rewards(episode.episode))[0].value
            if value != 0.0:
                found[exploit] = value

    await asyncio.gather(*map(one, chosen))
    return found


@NEEDS_BUBBLEWRAP
async def test_quick_exploits_earn_nothing(player: Any) -> None:
    every = list(Swe.exploits(player.task("swe-hard", "train", 2)))
    assert len(every) >= 35
    quick = [name for name in every if not any(word in name for word in WAITS)]
    assert await earned(player, "swe-hard", 2, quick[::9]) == {}


@NEEDS_BUBBLEWRAP
async def test_pasting_all_edits_of_training_tasks_earns_nothing_in_an_episode(player: Any) -> None:
    exploit = "the edits of training tasks"
    for split in ("validation", "test"):
        task = player.task("swe-medium", split, 1)
        [episode] = await player.start("swe-medium", split, 1)
        await player.play(episode.episode, Swe.exploits(task)[exploit])
        assert (await player.rewards(episode.episode))[0].value == 0.0
    assert exploit not in Swe.exploits(player.task("swe-medium", "train", 1))


@pytest.mark.suite("swe", first=1)
@NEEDS_BUBBLEWRAP
@each_difficulty
async def test_other_right_ways_earn_what_the_oracle_earns(player: Any, difficulty: Difficulty) -> None:
    policies = Swe.equivalents(player.task(f"swe-{difficulty}", "test", 0))
    assert len(policies) >= 5
    for policy in policies.values():
        [episode] = await player.start(f"swe-{difficulty}", "test", 0)
        await player.play(episode.episode, policy)
        assert (await player.rewards(episode.episode))[0].value == 1.0


@pytest.mark.suite("swe")
@pytest.mark.timeout(900)
@NEEDS_BUBBLEWRAP
@pytest.mark.parametrize("index", range(len(names())))
async def test_no_exploit_earns_anything(player: Any, index: int) -> None:
    """A training task of each template."""
    name = f"swe-{DIFFICULTIES[index % 3]}"
    assert await earned(player, name, index, list(Swe.exploits(player.task(name, "train", index)))) == {}


@pytest.mark.suite("swe")
@pytest.mark.timeout(3000)
@NEEDS_BUBBLEWRAP
async def test_validation_finds_nothing() -> None:
    for report in await validate("swe"):
        assert [(one.kind, one.message) for one in report.findings] == []
