"""Terminal: its tasks, workspaces and repositories, what the tool shows, how it grades, and what does not fool it."""

from __future__ import annotations

import hashlib
import inspect
import os
import random
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandboxing import NEEDS_BUBBLEWRAP

from ludus.protocol import Answer, Call, EndReason, text_of
from ludus.protocol import episodes as e
from ludus.protocol.errors import AuthoringError, Unsupported
from ludus.server import DIFFICULTIES, Difficulty
from ludus.server.authoring.procedural import SECRET_VARIABLE
from ludus.server.authoring.workspace import (
    LONGEST_OUTPUT,
    Person,
    Repository,
    RepositoryWriter,
    Tree,
    directory,
    file,
    fingerprint,
    gzipped,
    inflated,
    link,
    pack,
    unpack,
    zlibbed,
)
from ludus.validation.shortcuts.memory import Similarity
from ludus_terminal.environment import Terminal, TerminalTask, make_problem
from ludus_terminal.exploits import outputs
from ludus_terminal.grading import judge, matches
from ludus_terminal.problem import Case, CaseResult, State
from ludus_terminal.templates import TEMPLATES, by_level

GOLDEN: dict[Difficulty, tuple[str, ...]] = {
    "easy": (
        "verify-checksums dawn-saddle 46662a4a 3c0d51f74793dbd6 d7986e7d 1.0",
        "duration-script keen-lichen 0112414c bcc54d3bd820ff3f d7986e7d 1.0",
        "process-list deep-arrow 1d599a6b aa9248a6523988fa d7986e7d 1.0",
    ),
    "medium": (
        "merge-logs eastern-ladder 52960029 984aabb5f3a80842 d7986e7d 1.0",
        "compare-lists narrow-dolphin f282afb1 8bf56d3587e98de5 d7986e7d 1.0",
        "time-window keen-ember fa9d0bc8 d2284ca29048d0ce d7986e7d 1.0",
    ),
    "hard": (
        "build-order dapper-radish fa6b5bd1 c5243f1c861cd4c6 d7986e7d 1.0",
        "clean-text arctic-drum 3db81957 f01c65b42d674c53 d7986e7d 1.0",
        "git-squash snowy-sparrow c30c5a12 bbdf8ad7f064fc95 8779607c 1.0",
    ),
}
"""The first test tasks of each level: prompt, files, and what the oracle sees and earns."""

EVERY_KIND = "47fc0222"
"""A hash of one task of each template at each level.

A change of any of these raises the environment's version.
"""

each_difficulty = pytest.mark.parametrize("difficulty", DIFFICULTIES)
ALL: list[tuple[str, Difficulty]] = [(one.name, level) for one in TEMPLATES.values() for level in one.levels]
each_kind = pytest.mark.parametrize(("template", "difficulty"), ALL)


def index_of(template: str, difficulty: Difficulty, turn: int = 0) -> int:
    """The index of a task of one template in the template's split."""
    kinds = by_level(difficulty, TEMPLATES[template].split)
    return turn * len(kinds) + [one.name for one in kinds].index(template)


def task_of(template: str, difficulty: Difficulty, turn: int = 0) -> TerminalTask:
    split, index = TEMPLATES[template].split, index_of(template, difficulty, turn)
    return (
        Terminal.load_task("train", index, [difficulty])
        if split == "train"
        else Terminal.load_task(split, index, [difficulty])
    )


def golden(task: TerminalTask) -> str:
    problem = make_problem(task)
    return f"{task.template} {task.project} {short_hash(problem.text)} {fingerprint(problem.tree)}"


def short_hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


def test_there_are_enough_templates_in_all_areas_and_levels() -> None:
    assert len(TEMPLATES) >= 75
    assert {one.area for one in TEMPLATES.values()} == {
        "files", "text", "logs", "git", "build", "data", "config", "archives", "scripts",
    }  # fmt: skip
    for difficulty in DIFFICULTIES:
        assert len(by_level(difficulty, "train")) >= 25
        for split in ("validation", "test"):
            kinds = by_level(difficulty, split)
            assert len(kinds) >= 8
            assert len({kind.area for kind in kinds}) >= 7


def test_the_tasks_of_this_version_are_fixed() -> None:
    assert short_hash(*(golden(task_of(*kind)) for kind in ALL)) == EVERY_KIND


@pytest.mark.suite("breadth", first=1)
@NEEDS_BUBBLEWRAP
@each_difficulty
async def test_the_episodes_of_this_version_are_fixed(player: Any, difficulty: Difficulty) -> None:
    assert await golden_episodes(player, difficulty) == GOLDEN[difficulty]


async def golden_episodes(player: Any, difficulty: Difficulty) -> tuple[str, ...]:
    found = []
    for index, task in enumerate(Terminal.load_tasks("test", [difficulty])[:3]):
        commands = make_problem(task).commands
        shown, reward = await played(player, f"terminal-{difficulty}", index, *commands, split="test")
        found.append(f"{golden(task)} {short_hash(*shown)} {reward.value}")
    return tuple(found)


@each_difficulty
@given(index=st.integers(0, 2**50))
def test_a_training_task_at_any_index_is_made_from_a_training_template(difficulty: Difficulty, index: int) -> None:
    task = Terminal.load_task("train", index, [difficulty])
    assert TEMPLATES[task.template].split == "train"
    assert difficulty in TEMPLATES[task.template].levels


def test_no_template_is_in_two_splits_with_or_without_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    templates: dict[str, set[str]] = {}
    for levels in (DIFFICULTIES, *([difficulty] for difficulty in DIFFICULTIES)):
        tasks = {split: Terminal.load_tasks(split, levels) for split in ("validation", "test")}
        monkeypatch.setenv(SECRET_VARIABLE, f"a secret of twenty characters {len(levels)}")
        tasks["fresh test"] = Terminal.load_tasks("test", levels)
        monkeypatch.delenv(SECRET_VARIABLE)
        tasks["train"] = [Terminal.load_task("train", index, levels) for index in range(400)]
        for split, members in tasks.items():
            templates.setdefault(split, set()).update(task.template for task in members)
    assert templates["fresh test"] == templates["test"]
    assert templates["train"].isdisjoint(templates["validation"] | templates["test"])
    assert templates["validation"].isdisjoint(templates["test"])
    assert templates["train"] | templates["validation"] | templates["test"] == {*TEMPLATES}, "each is used"


def test_the_page_names_the_templates_of_each_split() -> None:
    page = (Path(inspect.getfile(Terminal)).parents[1] / "README.md").read_text("utf-8")
    rows = [line.split("|") for line in page.splitlines() if re.match(r"\| `\w+` \| `[a-z-]+` \(", line)]
    for column, split in ((2, "train"), (3, "validation"), (4, "test")):
        named = {
            (row[1].strip(" `"), name, levels)
            for row in rows
            for name, levels in re.findall(r"`([a-z-]+)` \((e?m?h?)\)", row[column])
        }
        assert named == {
            (kind.area, kind.name, "".join(level[0] for level in kind.levels))
            for kind in TEMPLATES.values()
            if kind.split == split
        }


def nearest_policy(difficulty: Difficulty) -> Callable[[TerminalTask], list[str]]:
    """Return a policy that repeats what solves the training task with the most similar prompt, in its own folder."""
    training = [Terminal.load_task("train", index, [difficulty]) for index in range(400)]
    similarity = Similarity([make_problem(task).text for task in training])

    def commands(task: TerminalTask) -> list[str]:
        nearest = similarity.nearest(make_problem(task).text)
        assert nearest is not None
        known = training[nearest]
        return [command.replace(known.project, task.project) for command in make_problem(known).commands]

    return commands


@pytest.mark.suite("terminal", first=1)
@NEEDS_BUBBLEWRAP
@each_difficulty
async def test_the_commands_of_the_nearest_training_task_earn_nothing_on_tests(
    player: Any, difficulty: Difficulty
) -> None:
    policy, tasks = nearest_policy(difficulty), Terminal.load_tasks("test", [difficulty])
    values = []
    for index in range(2 * len(by_level(difficulty, "test"))):
        outcome = await played(player, f"terminal-{difficulty}", index, *policy(tasks[index]), split="test")
        values.append(outcome[1].value)
    assert sum(values) <= 0.05 * len(values), values


def test_equal_files_with_another_project_are_in_no_two_splits() -> None:
    """Even without the project's name, no held-out workspace is one of a sample of training workspaces."""

    def contents(tasks: Sequence[TerminalTask]) -> set[str]:
        return {
            f"{problem.text} {fingerprint(problem.tree)}".replace(task.project, "PROJECT")
            for task in tasks
            for problem in [make_problem(task)]
        }

    train = contents([Terminal.load_task("train", index) for index in range(130)])
    held_out = contents([*Terminal.load_tasks("validation")[:60], *Terminal.load_tasks("test")[:60]])
    assert len(train) == 130
    assert len(held_out) == 120
    assert train.isdisjoint(held_out)


@each_kind
def test_the_initial_files_reach_no_goal_are_not_damaged_and_are_always_the_same(
    template: str, difficulty: Difficulty
) -> None:
    task = task_of(template, difficulty)
    problem = make_problem(task)
    outcome = judge(problem, State(problem.tree))
    assert problem.goals
    assert len(outcome.met) == len(problem.goals), "goals have different names"
    assert not any(outcome.met.values())
    assert outcome.damage == []
    assert pack(make_problem(task).tree, task.project) == pack(problem.tree, task.project)
    assert all(len(path) < 200 for path in problem.tree)
    assert task.draw not in problem.text


@each_kind
def test_an_empty_or_foreign_workspace_reaches_no_goal(template: str, difficulty: Difficulty) -> None:
    problem = make_problem(task_of(template, difficulty))
    other = make_problem(task_of(template, difficulty, turn=1))
    for tree in ({}, {path: file("") for path in outputs(problem)}, other.tree):
        outcome = judge(problem, State(tree))
        assert outcome.damage or not all(outcome.met.values())


# Workspaces


NAMES = st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..")
)


@given(st.dictionaries(NAMES, st.binary(max_size=300), max_size=6))
def test_a_tree_comes_back_from_an_archive_as_it_was(files: dict[str, bytes]) -> None:
    tree = {f"a/{name}": file(content, 0o640, 1_700_000_000) for name, content in files.items()}
    tree |= {"l": link("a/b"), "d": directory()}
    found = {path: entry for path, entry in unpack(pack(tree, "top"), "top").items() if entry.kind != "directory"}
    assert found == {path: entry for path, entry in tree.items() if entry.kind != "directory"}
    assert unpack(pack(tree, "top"), "other") == {}


@given(st.binary(max_size=200_000))
def test_our_compressed_formats_are_those_of_zlib(data: bytes) -> None:
    assert zlib.decompress(zlibbed(data)) == data
    assert zlib.decompress(gzipped(data), 31) == data
    assert inflated(zlibbed(data), len(data)) == data
    assert not data or inflated(zlibbed(data), len(data) - 1) is None


def test_a_stream_that_grows_without_an_end_is_cut_off() -> None:
    bomb = zlib.compress(b"\0" * 50_000_000)
    assert inflated(bomb, 1000) is None


# Repositories


def repository(count: int = 8) -> tuple[RepositoryWriter, dict[str, str], list[str]]:
    """A repository with files that differ little, as git's deltas need."""
    writer = RepositoryWriter()
    commits: list[str] = []
    files: dict[str, str] = {}
    rng = random.Random(3)
    lines = [f"line {number} {rng.random()}" for number in range(400)]
    for number in range(count):
        lines[rng.randrange(400)] = f"changed {number}"
        files = {"a.txt": "\n".join(lines), "deep/er/b.sh": f"echo {number}\n", "deep/a": "x\n", "deep.txt": "y\n"}
        parents = commits[-1:]
        commits.append(
            writer.commit(files, parents, f"Commit {number}", Person("Ada", "ada@example.com"), 1_700_000_000 + number)
        )
    writer.refs["refs/heads/main"] = commits[-1]
    return writer, files, commits


def placed(tree: Tree, folder: Path) -> None:
    for path, entry in tree.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(entry.data)
        target.chmod(entry.mode)


def read_back(folder: Path) -> Tree:
    found = {}
    for base, _, names in os.walk(folder):
        for name in names:
            path = Path(base, name)
            found[str(path.relative_to(folder))] = file(path.read_bytes())
    return found


@pytest.fixture
def git(tmp_path: Path) -> Any:
    """Git in a folder, without settings of a user."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}

    def run(*argv: str) -> str:
        done = subprocess.run(["git", *argv], cwd=tmp_path, env=env, capture_output=True, check=True, text=True)
        return done.stdout

    return run


def test_git_reads_what_we_write_and_we_read_what_git_packs(git: Any, tmp_path: Path) -> None:
    writer, files, commits = repository()
    placed(writer.entries("main", files, 1_700_000_000), tmp_path)
    git("fsck", "--strict", "--full")
    assert git("status", "--porcelain") == ""
    assert git("log", "--format=%H").split() == commits[::-1]

    git("tag", "-a", "v1", "-m", "one", commits[2])
    git("gc", "-q", "--aggressive", "--prune=now")
    tree = read_back(tmp_path)
    assert not any(path.startswith(".git/objects/") and len(path) == 55 for path in tree), "all objects are packed"
    found = Repository(tree)
    assert [one.name for one in found.history(found.target("refs/heads/main"))] == commits[::-1]
    assert found.target("refs/tags/v1") == commits[2]
    assert found.files(commits[-1]) == {path: content.encode() for path, content in files.items()}
    assert all(found.files(commit) is not None for commit in commits)
    assert found.ancestors(commits[3]) == set(commits[:4])


def test_an_object_that_is_not_what_its_name_says_is_missing() -> None:
    writer, files, commits = repository(2)
    tree = dict(writer.entries("main", files, 0))
    path = f".git/objects/{commits[0][:2]}/{commits[0][2:]}"
    other = f".git/objects/{commits[1][:2]}/{commits[1][2:]}"
    for data in (tree[other].data, b"", b"broken", zlib.compress(b"commit 9999\0x"), zlib.compress(b"\0" * 30_000_000)):
        tree[path] = file(data)
        assert Repository(tree).commit(commits[0]) is None
    assert len(Repository(tree).history(commits[1])) == 1


@given(st.binary(max_size=2000), st.binary(max_size=2000))
def test_broken_packs_read_as_missing_and_come_to_an_end(pack_data: bytes, index: bytes) -> None:
    name = "ab" * 20
    rows = bytes.fromhex(name) + struct.pack(">II", 0, 0)
    head = b"\xfftOc\0\0\0\2" + b"\0" * 1020 + struct.pack(">I", 1) + rows
    for data in (head + index, index, head):
        tree = {".git/objects/pack/p.idx": file(data), ".git/objects/pack/p.pack": file(pack_data)}
        assert Repository(tree).commit(name) is None


def test_a_repository_of_many_large_objects_is_read_within_bounds() -> None:
    writer = RepositoryWriter()
    head = ""
    for number in range(20):
        files = {"large": f"{number}" + "x" * 3_000_000}
        head = writer.commit(files, [head] if head else [], "x", Person("A", "a@example.com"), number)
    found = Repository(writer.entries("main", {}, 0))
    read = [found.files(commit.name) is not None for commit in found.history(head)]
    assert read == sorted(read, reverse=True)
    assert 5 < sum(read) < 15


# Hidden tests


def test_a_hidden_test_asks_for_output_exit_code_and_files() -> None:
    case = Case(("x",), stdout="a\n", after={"d/a": b"1", "d/b": None}, exactly="d")
    good = {"d/a": file("1"), "d": directory()}
    assert matches(case, CaseResult(0, b"a", good))
    assert not matches(case, CaseResult(1, b"a", good))
    assert not matches(case, CaseResult(None, b"a", good))
    assert not matches(case, CaseResult(0, b"b", good))
    assert not matches(case, CaseResult(0, b"a", {"d/a": file("2")}))
    assert not matches(case, CaseResult(0, b"a", {**good, "d/b": file("")}))
    assert not matches(case, CaseResult(0, b"a", {**good, "d/more": file("")}))
    assert not matches(case, CaseResult(0, b"a", {"d/a": link("/etc/passwd")}))
    assert matches(Case(("x",), exit_code=-1), CaseResult(3, b"", {}))
    assert not matches(Case(("x",), exit_code=-1), CaseResult(0, b"", {}))


# Episodes


async def played(player: Any, name: str, index: int, *commands: str, split: str = "train") -> tuple[list[str], Any]:
    """Run commands, submit, and return the observations and the reward."""
    [episode] = await player.start(name, split, index)

    def policy() -> Any:
        for command in commands:
            yield Call("bash", {"command": command})
        yield Answer("Done.")

    results = await player.play(episode.episode, policy())
    assert (await player.info(episode.episode)).end_reason is EndReason.SUBMITTED
    return [text_of(result.content) for result in results], (await player.rewards(episode.episode))[0]


@NEEDS_BUBBLEWRAP
async def test_the_tool_shows_output_and_exit_code_and_keeps_files_only(player: Any) -> None:
    index = index_of("skeleton", "easy")
    shown, _ = await played(
        player, "terminal-easy", index,
        "pwd; mkdir kept; cd kept; export X=1", "pwd; ls -d kept; echo [$X]", "echo out; echo err >&2; exit 3",
        "printf 'a\\033[2Jb\\r\\nc\\001'", "head -c 50000 /dev/zero | tr '\\0' x; echo END", "kill -9 $$",
        "cat <<'EOF'\ntwo\nlines\nEOF", "read x; echo \"[$x]\"", "nonsense-command", "printf '\\377'",
    )  # fmt: skip
    folder = f"/box/{task_of('skeleton', 'easy').project}"
    assert shown[0] == f"{folder}\n(exit code 0)"
    assert shown[1] == f"{folder}\nkept\n[]\n(exit code 0)"
    assert shown[2] == "out\nerr\n(exit code 3)"
    assert shown[3] == "a\\e[2Jb\nc�\n(exit code 0)"
    assert len(shown[4]) < LONGEST_OUTPUT + 100
    assert "characters left out" in shown[4]
    assert shown[4].endswith("END\n(exit code 0)")
    assert shown[5] == "(ended by signal 9)"
    assert shown[6] == "two\nlines\n(exit code 0)"
    assert shown[7] == "[]\n(exit code 0)"
    assert shown[8].endswith("(exit code 127)")
    assert shown[9] == "�\n(exit code 0)"


@NEEDS_BUBBLEWRAP
async def test_a_workspace_that_is_gone_is_said_and_earns_nothing(player: Any) -> None:
    index = index_of("skeleton", "easy")
    shown, reward = await played(player, "terminal-easy", index, 'rm -rf "$PWD"', "pwd")
    assert "is gone; this ran in /box" in shown[1]
    assert reward.value == 0.0
    assert reward.components["intact"].value == 0.0


@NEEDS_BUBBLEWRAP
async def test_some_goals_earn_some_and_damage_costs_everything(player: Any) -> None:
    index = index_of("split-out-backup", "easy")
    problem = make_problem(task_of("split-out-backup", "easy"))
    copy, checksum = problem.commands

    async def rewarded(*commands: str) -> Any:
        return (await played(player, "terminal-easy", index, *commands, split="validation"))[1]

    assert (await rewarded(copy, checksum)).value == 1.0
    part = await rewarded(copy)
    assert part.value == pytest.approx(0.4 * 2 / 3)
    assert part.components["complete"].value == 0.0
    source = next(path for path in problem.tree if not problem.may_change(path))
    damaged = await rewarded(copy, checksum, f"echo >> {source}")
    assert damaged.value == 0.0
    assert damaged.components["intact"].evidence == f"damaged: {source}"
    removed = await rewarded(copy, checksum, f"ln -sf /etc/passwd {source}")
    assert removed.value == 0.0


@NEEDS_BUBBLEWRAP
async def test_scripts_are_tested_on_inputs_that_the_policy_has_not_seen(player: Any) -> None:
    index = index_of("report-script", "easy")
    task = task_of("report-script", "easy")
    problem = make_problem(task)
    [script] = outputs(problem)
    label = problem.text.split("prints `")[1].split(":")[0]
    fixed = f"cat > {script} <<'EOF'\necho '{label}: 12'\nEOF\nbash {script} sample.csv"
    shown, reward = await played(player, "terminal-easy", index, fixed)
    assert shown == [f"{label}: 12\n(exit code 0)"], "right for the sample"
    assert reward.value == 0.0
    assert (await played(player, "terminal-easy", index, *problem.commands))[1].value == 1.0


@NEEDS_BUBBLEWRAP
async def test_files_that_cannot_be_copied_are_the_policys_fault(player: Any) -> None:
    index = index_of("skeleton", "easy")
    commands = make_problem(task_of("skeleton", "easy")).commands
    for spoil in (
        "truncate -s 15M s1 s2 s3 s4",
        'python3 -c \'import os\nfor i in range(99): os.mkdir("d" * 200); os.chdir("d" * 200)\'',
    ):
        reward = (await played(player, "terminal-easy", index, *commands, spoil))[1]
        assert reward.value == 0.0
        assert "unreadable" in reward.components["intact"].evidence


@NEEDS_BUBBLEWRAP
async def test_pipes_strange_names_and_closed_permissions_do_no_harm(player: Any) -> None:
    index = index_of("skeleton", "easy")
    commands = make_problem(task_of("skeleton", "easy")).commands
    odd = "mkfifo pipe; ln -s pipe l; ln -s / root; touch \"$(printf 'a\\nb\\377')\"; mkdir x; touch x/y"
    odd += "; chmod 000 x NOTES.txt"
    assert (await played(player, "terminal-easy", index, *commands, odd))[1].value == 1.0


@NEEDS_BUBBLEWRAP
async def test_no_process_is_left_when_files_are_graded(player: Any) -> None:
    index = index_of("largest-files", "easy")
    [command] = make_problem(task_of("largest-files", "easy")).commands
    late = "setsid sh -c 'while :; do echo late > largest.txt; done' > /dev/null 2>&1 & sleep 0.2"
    shown, reward = await played(player, "terminal-easy", index, late, command, "ls /proc | grep -c '^[0-9]'")
    assert reward.value == 1.0
    assert int(shown[2].split()[0]) <= 6


@NEEDS_BUBBLEWRAP
async def test_new_commits_have_the_same_hashes_each_time(player: Any) -> None:
    index = index_of("git-commit-changes", "easy")
    commands = make_problem(task_of("git-commit-changes", "easy")).commands
    first, reward = await played(player, "terminal-easy", index, *commands, "git log -1 --format='%H %an %ad'")
    again, _ = await played(player, "terminal-easy", index, *commands, "git log -1 --format='%H %an %ad'")
    assert first == again
    assert "Robin Hale Wed Jan 15 12:00:00 2025" in first[-1]
    assert reward.value == 1.0


@NEEDS_BUBBLEWRAP
async def test_a_fork_repeats_the_commands_and_is_refused_if_they_give_something_else(player: Any) -> None:
    for command, same in (("ls", True), ("cat /proc/sys/kernel/random/uuid", False)):
        [episode] = await player.start("terminal-easy", "train", 0)
        await player.step(episode.episode, "bash", command=command)
        params = e.ForkParams(episode=episode.episode, step=1, key=command)
        if same:
            assert (await player.host.fork(params, player.principal)).episode.episode != episode.episode
        else:
            with pytest.raises(Unsupported):
                await player.host.fork(params, player.principal)


@pytest.mark.suite("terminal")
@NEEDS_BUBBLEWRAP
async def test_an_episode_without_an_end_reaches_its_limit_and_earns_nothing(player: Any) -> None:
    index = index_of("append-entry", "easy")
    [episode] = await player.start("terminal-easy", "train", index)
    [command] = make_problem(task_of("append-entry", "easy")).commands
    for text in (command, *(["true"] * 39)):
        await player.step(episode.episode, "bash", command=text)
    info = await player.info(episode.episode)
    assert info.end_reason is EndReason.STEP_LIMIT
    assert (await player.rewards(episode.episode))[0].value == 0.0


@pytest.mark.suite("terminal")
@NEEDS_BUBBLEWRAP
async def test_a_command_that_does_not_end_is_ended_and_the_episode_goes_on(player: Any) -> None:
    index = index_of("append-entry", "easy")
    commands = make_problem(task_of("append-entry", "easy")).commands
    shown, reward = await played(player, "terminal-easy", index, "sleep 1000", "while :; do :; done", *commands)
    assert shown[0] == "(ended: the command exceeded its limit on seconds)"
    assert "exceeded its limit on" in shown[1]
    assert reward.value == 1.0


def test_a_missing_program_is_named_at_startup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "git" else f"/usr/bin/{name}")
    with pytest.raises(AuthoringError, match="`terminal` needs git on the server's machine"):
        Terminal.startup()


def test_at_least_twenty_exploits_are_listed() -> None:
    task = task_of("compare-lists", "medium")
    assert len(Terminal.exploits(task)) >= 40


PLAIN = ("an answer that is a link", "all words as an answer", "an answer that changes later", "delete everything")


@NEEDS_BUBBLEWRAP
@pytest.mark.parametrize("exploit", PLAIN)
async def test_an_exploit_earns_nothing(player: Any, exploit: str) -> None:
    await exploited(player, "compare-lists", "medium", exploit)


async def exploited(player: Any, template: str, difficulty: Difficulty, exploit: str) -> None:
    index, split = index_of(template, difficulty), TEMPLATES[template].split
    name = f"terminal-{difficulty}"
    [episode] = await player.start(name, split, index)
    await player.play(episode.episode, Terminal.exploits(player.task(name, split, index))[exploit])
    assert (await player.rewards(episode.episode))[0].value == 0.0, (template, exploit)


# All templates: the suite `terminal`


@pytest.mark.suite("terminal")
@NEEDS_BUBBLEWRAP
@each_kind
async def test_the_oracle_of_every_template_earns_everything(
    player: Any, template: str, difficulty: Difficulty
) -> None:
    for turn in range(2):
        problem = make_problem(task_of(template, difficulty, turn))
        index = index_of(template, difficulty, turn)
        split = TEMPLATES[template].split
        reward = (await played(player, f"terminal-{difficulty}", index, *problem.commands, split=split))[1]
        assert reward.value == 1.0, reward


@pytest.mark.suite("terminal")
@NEEDS_BUBBLEWRAP
@pytest.mark.parametrize(("template", "difficulty"), [one for one in ALL if one[0].startswith("git-")])
async def test_packed_objects_count_as_loose_ones_do(player: Any, template: str, difficulty: Difficulty) -> None:
    problem = make_problem(task_of(template, difficulty))
    commands = [*problem.commands, "git pack-refs --all; git gc -q --prune=now"]
    index, split = index_of(template, difficulty), TEMPLATES[template].split
    reward = (await played(player, f"terminal-{difficulty}", index, *commands, split=split))[1]
    assert reward.value == 1.0, reward


@pytest.mark.suite("terminal")
@pytest.mark.timeout(600)
@NEEDS_BUBBLEWRAP
@pytest.mark.parametrize("template", list(TEMPLATES))
async def test_no_exploit_earns_anything_on_any_template(player: Any, template: str) -> None:
    difficulty = TEMPLATES[template].levels[-1]
    for exploit in Terminal.exploits(task_of(template, difficulty)):
        await exploited(player, template, difficulty, exploit)
