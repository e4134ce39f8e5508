"""`ludus eval`: the whole matrix, what interrupts it, and what it says about contamination."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from peer_clients import ROOT
from terminal import LUDUS, clean_variables, running_episodes
from waiting import block_until

from ludus.cli import ExitCode
from ludus.client import read_trajectories
from ludus.evaluation.folder import cell_file, locked
from ludus.protocol.evaluation import EvaluationResults, parse_evaluation

Ludus = Callable[..., subprocess.CompletedProcess[str]]

SUMS = ROOT / "tests" / "support" / "adapter_world.py"

POLICIES = '''
import os
import re
import signal

from ludus.client import Answer, Call, text_of

played = 0


def numbers(conversation):
    return re.findall(r"-?\\d+", text_of(conversation.items[0].content))


async def reader(conversation):
    """Adds what the prompt says, by the tool if it has one."""
    found = numbers(conversation)
    if len(found) < 2:
        return Answer("unknown")
    if conversation.tools:
        return Call("submit", {"number": int(found[0]) + int(found[1])})
    return Answer(str(int(found[0]) + int(found[1])))


async def knower(conversation):
    """Knows the answers by heart."""
    fields = conversation.task.fields
    return Answer(str(fields["a"] + fields["b"]))


async def caller(conversation):
    """Calls the tool even when it is offered none."""
    return Call("submit", {"number": conversation.task.fields["a"] + conversation.task.fields["b"]})


async def killer(conversation):
    """Kills the server of the environment in its tenth episode."""
    global played
    played += 1
    if played == 10 and "VICTIM" in os.environ:
        os.kill(int(os.environ["VICTIM"]), signal.SIGKILL)
    return await reader(conversation)
'''


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    path = tmp_path / "policies.py"
    path.write_text(POLICIES)
    return path


def results_of(folder: Path) -> EvaluationResults:
    return parse_evaluation((folder / "results.json").read_bytes(), "results.json")


def timeless(folder: Path) -> dict[str, Any]:
    """The results without what differs between two runs that play the same."""
    value: dict[str, Any] = json.loads((folder / "results.json").read_bytes())
    for name in ("started_at", "updated_at"):
        del value[name]
    for cell in value["cells"]:
        del cell["seconds"]
    return value


def lines_of(folder: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in folder.glob("*.jsonl"))


def test_a_matrix_is_played_whole_and_its_figures_are_those_of_its_trajectories(
    ludus: Ludus, url: str, policies: Path, tmp_path: Path
) -> None:
    (tmp_path / "eval.toml").write_text(f"""
n = 6
samples = 3
seed = 5
[[models]]
model = "random"
[[models]]
model = "{policies}:reader"
name = "reader"
[[environments]]
target = "{url}"
environment = "sums"
splits = ["train", "test"]
[[environments]]
target = "{url}"
environment = "every_third_breaks"
n = 4
""")
    done = ludus("eval", "eval.toml", "--out", "out")
    assert done.returncode == ExitCode.UNSUCCESSFUL, done.stderr
    found = results_of(tmp_path / "out")
    assert [cell.key for cell in found.cells] == [
        (model, environment, split)
        for environment, split in (("sums", "train"), ("sums", "test"), ("every_third_breaks", "train"))
        for model in ("random", "reader")
    ]
    assert found.finished
    for cell in found.cells:
        recorded = list(read_trajectories(tmp_path / "out" / cell.trajectories))
        assert len(recorded) == cell.episodes == cell.planned == (12 if "breaks" in cell.environment else 18)
        assert {one.value for one in recorded if one.policy == "reader"} <= {1.0, None}
        by_task: dict[str, list[float]] = {}
        for one in recorded:
            if one.value is not None:
                by_task.setdefault(one.task.id, []).append(one.value)
        assert cell.mean is not None
        assert cell.mean.value == pytest.approx(statistics.fmean(map(statistics.fmean, by_task.values())))
        assert cell.scored == sum(map(len, by_task.values()))
    healthy, breaking = found.cells[1], found.cells[5]
    assert breaking.failed.get("environment", 0) > 0
    assert breaking.scored < breaking.episodes
    assert healthy.mean is not None
    assert breaking.mean is not None
    assert breaking.mean.value == healthy.mean.value == 1.0
    assert "episodes have no reward and count in no mean" in done.stderr
    assert running_episodes(url) == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "every_third_breaks" in page
    shown = ludus("view", "out")
    assert shown.returncode == 0
    assert "reader" in shown.stdout


def test_only_unscored_episodes_are_played_again(ludus: Ludus, url: str, policies: Path, tmp_path: Path) -> None:
    options = ("eval", "--model", f"{policies}:reader", "--env", f"every_third_breaks@{url}", "-n", 9, "--out", "out")
    ludus(*options, "--concurrency", 1)
    folder = tmp_path / "out"
    before = results_of(folder).cells[0]
    missing = before.episodes - before.scored
    assert (before.episodes, lines_of(folder)) == (9, 9)
    assert missing == 3
    kept = (folder / before.trajectories).read_bytes()
    ludus(*options, "--concurrency", 1, "--resume")
    after = results_of(folder).cells[0]
    assert lines_of(folder) == 9 + missing
    assert (folder / before.trajectories).read_bytes().startswith(kept)
    assert (after.episodes, after.planned) == (9, 9)
    assert after.scored > before.scored


def test_a_finished_evaluation_is_not_played_again(ludus: Ludus, url: str, tmp_path: Path) -> None:
    options = ("eval", "--model", "random", "--env", f"sums@{url}", "-n", 5, "--probe", "no-tools", "--out", "out")
    assert ludus(*options).returncode == 0
    folder = tmp_path / "out"
    played, before = lines_of(folder), timeless(folder)
    kept = {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}
    assert played == 10
    again = ludus(*options)
    assert again.returncode == ExitCode.REFUSED
    assert "say --resume or another --out" in again.stderr
    assert ludus(*options, "--resume").returncode == 0
    assert {path.name: path.read_bytes() for path in folder.glob("*.jsonl")} == kept
    assert timeless(folder) == before
    grown = ludus(*options, "--resume", "--samples", 2, "--json")
    assert grown.returncode == 0, grown.stderr
    assert json.loads(grown.stdout)["cells"][0]["episodes"] == 10
    assert lines_of(folder) == 2 * played


def test_an_incomplete_last_line_is_played_again_and_counts_once(ludus: Ludus, url: str, tmp_path: Path) -> None:
    options = ("eval", "--model", "random", "--env", f"sums@{url}", "-n", 8, "--samples", 2, "--seed", 3)
    assert ludus(*options, "--out", "whole").returncode == 0
    assert ludus(*options, "--out", "torn").returncode == 0
    (file,) = (tmp_path / "torn").glob("*.jsonl")
    data = file.read_bytes()
    file.write_bytes(data[: -len(data.splitlines()[-1]) // 2])
    assert ludus(*options, "--out", "torn", "--resume").returncode == 0
    assert timeless(tmp_path / "torn") == timeless(tmp_path / "whole")
    assert lines_of(tmp_path / "torn") == 16


def test_a_broken_line_in_the_middle_is_named(ludus: Ludus, url: str, tmp_path: Path) -> None:
    options = ("eval", "--model", "random", "--env", f"sums@{url}", "-n", 2, "--out", "out")
    assert ludus(*options).returncode == 0
    (file,) = (tmp_path / "out").glob("*.jsonl")
    file.write_bytes(b"{}\n" + file.read_bytes())
    done = ludus(*options, "--resume")
    assert done.returncode != 0
    assert "line 1: not a trajectory" in done.stderr


@pytest.mark.suite("breadth")
def test_a_run_killed_at_any_time_ends_with_the_results_of_one_that_was_not(
    ludus_process: Ludus, url: str, tmp_path: Path
) -> None:
    options = (
        "eval", "--model", "random", "--env", f"sums@{url}", "--split", "train", "--split", "test", "-n", 60,
        "--samples", 4, "--seed", 11, "--probe", "truncated-prompt", "-c", 4, "--json",
    )  # fmt: skip
    assert ludus_process(*options, "--out", "whole").returncode == 0
    cut = tmp_path / "cut"
    kills = 0
    for least in (20, 150, 400):
        command = [str(LUDUS), *map(str, options), "--out", "cut", *(["--resume"] if kills else [])]
        with subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_variables()
        ) as process:
            block_until(partial(has_written, process, cut, least), 40)
            kills += process.poll() is None
            process.kill()
        assert parse_evaluation((cut / "results.json").read_bytes(), "cut") is not None
    assert kills == 3
    resumed = ludus_process(*options, "--out", "cut", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert timeless(cut) == timeless(tmp_path / "whole")
    keys = [one.key for path in cut.glob("*.jsonl") for one in read_trajectories(path)]
    assert len(keys) == 2 * (60 + 16) * 4, "no finished episode was played twice"


def has_written(process: subprocess.Popen[bytes], folder: Path, lines: int) -> bool:
    """Return whether a run has written so many lines, or has ended."""
    written = sum(path.read_bytes().count(b"\n") for path in folder.glob("*.jsonl"))
    return written >= lines or process.poll() is not None


@contextmanager
def server(port: int = 0) -> Iterator[tuple[str, int]]:
    """A `ludus serve` process that a test may kill: its address and process id."""
    command = [str(LUDUS), "serve", f"{SUMS}:Sums", "--port", str(port)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=clean_variables()
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if found := re.search(r"http://[\d.]+:\d+", line):
                    yield found[0], process.pid
                    return
            pytest.fail("the server did not start")
        finally:
            process.terminate()


@pytest.mark.suite("breadth")
@pytest.mark.timeout(150)  # a lost server is given up after several attempts to reach it again
def test_a_server_lost_in_mid_run_leaves_its_episodes_unscored_and_the_other_cells_whole(
    ludus_process: Ludus, url: str, policies: Path, tmp_path: Path
) -> None:
    with server() as (address, process):
        port = int(address.rpartition(":")[2])
        (tmp_path / "eval.toml").write_text(f"""
[[models]]
model = "{policies}:killer"
[[environments]]
target = "{address}"
splits = ["train"]
[[environments]]
target = "{url}"
environment = "sums"
splits = ["test"]
""")
        options = ["eval", "eval.toml", "-n", 40, "-c", 2, "--retries", 0]
        lost = ludus_process(*options, "--out", "lost", variables={"VICTIM": str(process)})
    assert lost.returncode == ExitCode.UNSUCCESSFUL, lost.stderr
    broken, whole = results_of(tmp_path / "lost").cells
    assert (whole.scored, whole.planned, whole.problem) == (16, 16, None)
    assert broken.problem is not None
    assert "stopped early" in broken.problem
    assert 8 <= broken.scored < broken.episodes < broken.planned == 40
    assert broken.mean is not None
    assert broken.mean.value == 1.0, "episodes that were lost are not worth 0"
    assert set(broken.failed) == {"infrastructure"}
    assert not results_of(tmp_path / "lost").finished
    with server(port):
        again = ludus_process(*options, "--out", "lost", "--resume")
        assert again.returncode == 0, again.stderr
        assert ludus_process(*options, "--out", "whole").returncode == 0
    assert timeless(tmp_path / "lost") == timeless(tmp_path / "whole")


def test_another_evaluation_is_not_mixed_into_a_folder(ludus: Ludus, url: str, tmp_path: Path) -> None:
    base = {"--model": "random", "--env": f"sums@{url}", "-n": 4, "--samples": 2, "--seed": 1, "--split": "train"}

    def run(**changes: Any) -> subprocess.CompletedProcess[str]:
        merged = base | {f"--{name}" if len(name) > 1 else f"-{name}": value for name, value in changes.items()}
        flat = [part for name, value in merged.items() for part in (name, value)]
        return ludus("eval", *flat, "--out", "out", "--resume")

    assert run().returncode == 0
    before = timeless(tmp_path / "out")
    for changes, message in (
        ({"seed": 2}, "another seed (1, now 2)"),
        ({"samples": 1}, "2 episodes per task"),
        ({"n": 3}, "8 episodes of random on sums / train"),
        ({"split": "test"}, "which the configuration does not name"),
        ({"max-turns": 3}, "another limits"),
    ):
        done = run(**changes)
        assert done.returncode == ExitCode.REFUSED, (changes, done.stderr)
        assert message in " ".join(done.stderr.split()), changes
    assert timeless(tmp_path / "out") == before
    file = tmp_path / "out" / "results.json"
    for place, name, message in (
        (("cells", 0), "environment_version", "another version of 'sums'"),
        (("models", 0), "options", "another options of 'random'"),
        (("models", 0), "wire", "another wire of 'random'"),
    ):
        held = json.loads(file.read_bytes())
        held[place[0]][place[1]][name] = {"other": 1} if name == "options" else "other"
        file.write_text(json.dumps(held))
        done = run()
        assert done.returncode == ExitCode.REFUSED, done.stderr
        assert message in " ".join(done.stderr.split())
        held[place[0]][place[1]][name] = before[place[0]][place[1]][name]
        file.write_text(json.dumps(held))
    assert run().returncode == 0


def test_a_folder_takes_one_run_at_a_time(ludus: Ludus, url: str, tmp_path: Path) -> None:
    with locked(tmp_path / "out"):
        done = ludus("eval", "--model", "random", "--env", f"sums@{url}", "-n", 1, "--out", "out")
    assert done.returncode == ExitCode.REFUSED
    assert "another `ludus eval` plays into" in done.stderr
    assert ludus("eval", "--model", "random", "--env", f"sums@{url}", "-n", 1, "--out", "out").returncode == 0


@pytest.mark.suite("breadth", first=3)
@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--model", "random"), 2, "there are no environments: give --env"),
        (("--env", "URL"), 2, "there are no models: give --model"),
        (("--model", "random", "--env", "sums@URL", "--split", "tset"), 3, "did you mean 'test'"),
        (("--model", "random", "--env", "smus@URL"), 3, "did you mean 'sums'"),
        (("--model", "random", "--env", "URL"), 2, "has several environments"),
        (("--model", "nonsense", "--env", "sums@URL"), 2, "there is no policy 'nonsense'"),
        (("--model", "openai:m@http://127.0.0.1:1/v1", "--env", "sums@URL"), 4, "is it running there?"),
        (("--model", "anthropic:m", "--env", "sums@URL"), 3, "ANTHROPIC_API_KEY"),
        (("--model", "random", "--env", "sums@URL", "--probe", "blind"), 2, "'blind' is not one of"),
        (("missing.toml",), 2, "No such file"),
        (("--model", "random", "--env", "sums@URL", "--env", "sums@URL/"), 3, "'train' of 'sums' occurs twice"),
    ],
)
def test_wrong_names_are_found_before_the_first_episode(
    options: tuple[str, ...], code: int, message: str, ludus: Ludus, url: str, tmp_path: Path
) -> None:
    done = ludus("eval", *(part.replace("URL", url) for part in options), "--out", "out")
    said = " ".join(re.sub(r"[│╭╮╰╯─]", " ", done.stderr).split())
    assert message in said
    assert done.returncode == code
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize(
    ("policy", "values"),
    [
        ("reader", {"no-tools": 1.0, "truncated-prompt": 0.0, "no-tools-truncated-prompt": 0.0}),
        ("knower", {"no-tools": 1.0, "truncated-prompt": 1.0, "no-tools-truncated-prompt": 1.0}),
        ("caller", {"no-tools": 0.0, "truncated-prompt": 1.0, "no-tools-truncated-prompt": 0.0}),
    ],
)
def test_contamination_checks_find_what_a_policy_knows_without_seeing_it(
    policy: str, values: dict[str, float], ludus: Ludus, url: str, policies: Path, tmp_path: Path
) -> None:
    probes = [part for probe in values for part in ("--probe", probe)]
    done = ludus(
        "eval", "-m", f"{policies}:{policy}", "-e", f"sums@{url}", "-n", 6, "--samples", 2, *probes, "-o", "out"
    )
    assert done.returncode == 0, done.stderr
    (cell,) = results_of(tmp_path / "out").cells
    assert cell.mean is not None
    assert cell.mean.value == 1.0
    for probe in cell.probes:
        expected = values[probe.probe]
        assert probe.mean is not None
        assert (probe.mean.value, probe.episodes, probe.mean.tasks) == (expected, 12, 6)
        assert len(probe.solved) == 6 * expected
        assert probe.difference is not None
        assert probe.difference.value == expected - 1.0
        recorded = list(read_trajectories(tmp_path / "out" / probe.trajectories))
        assert {one.policy for one in recorded} == {f"{policy} ({probe.probe})"}
        if probe.probe.startswith("no-tools"):
            assert all(not one.steps for one in recorded)


def test_a_check_without_tools_does_not_apply_where_no_final_message_is_graded(ludus: Ludus, tmp_path: Path) -> None:
    done = ludus("eval", "-m", "random", "-e", "guess_number", "-n", 2, "--probe", "no-tools", "-o", "out")
    assert done.returncode == 0, done.stderr
    (cell,) = results_of(tmp_path / "out").cells
    (probe,) = cell.probes
    assert (probe.applies, probe.planned, probe.episodes, probe.mean) == (False, 0, 0, None)


def test_tokens_and_cost_come_from_the_provider_and_the_users_prices_only(
    ludus: Ludus, url: str, provider: str, tmp_path: Path
) -> None:
    models = "".join(
        f"""
[[models]]
name = "{wire} {model}"
model = "{wire}:{model}@{provider}/{"v1beta" if wire == "google" else "v1"}"
api_key_env = "KEY"
{prices}
"""
        for wire, model, prices in (
            ("openai", "solver", "price_in = 1000.0\nprice_out = 4000.0"),
            ("anthropic", "solver", ""),
            ("google", "uncounted", "price_in = 1.0\nprice_out = 1.0"),
            ("openai-responses", "wrong", "price_in = 0.0\nprice_out = 0.0"),
        )
    )
    (tmp_path / "eval.toml").write_text(
        f'{models}\n[[environments]]\ntarget = "{url}"\nenvironment = "sums"\nsplits = ["test"]\nn = 3\n'
    )
    done = ludus("eval", "eval.toml", "--out", "out", variables={"KEY": "secret-key"})
    assert done.returncode == 0, done.stderr
    priced, unpriced, uncounted, free = results_of(tmp_path / "out").cells
    assert [cell.scored for cell in (priced, unpriced, uncounted, free)] == [3] * 4
    assert priced.tokens is not None
    assert (priced.tokens.input, priced.tokens.output, priced.tokens.episodes) == (120, 30, 3)
    assert priced.cost == pytest.approx(120 * 1000 / 1e6 + 30 * 4000 / 1e6)
    assert unpriced.tokens is not None
    assert (unpriced.tokens.input, unpriced.cost) == (3 * 2 * 27, None)
    assert (uncounted.tokens, uncounted.cost) == (None, None)
    assert (free.cost, free.mean and free.mean.value) == (0.0, 0.0)
    everything = "".join(path.read_text() for path in (tmp_path / "out").iterdir())
    assert "secret-key" not in everything + done.stdout + done.stderr


def test_an_interrupted_run_says_how_to_go_on(url: str, policies: Path, tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(
        "import asyncio\n"
        "async def wait(conversation):\n"
        "    print('waiting', flush=True)\n"
        "    await asyncio.Event().wait()\n"
    )
    before = running_episodes(url)  # tests that kill runs leave some, until they expire
    command = [str(LUDUS), "eval", "-m", "waiting.py:wait", "-e", f"sums@{url}", "-n", "2", "-o", "out"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_variables()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "waiting\n"
        os.kill(process.pid, signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == ExitCode.INTERRUPTED
    assert "--resume goes on from it" in said
    assert running_episodes(url) == before
    assert results_of(tmp_path / "out").cells[0].episodes == 0


def test_cells_with_similar_names_have_files_of_their_own() -> None:
    names = ["a/b", "a-b", "a b", "A-b", "a-b.", "..", "/", "é", "a" * 300]
    files = {cell_file(name, "env", "train") for name in names} | {cell_file("a-b", "env", "train", "no-tools")}
    assert len(files) == len(names) + 1
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", file) and not file.startswith(".") for file in files)
