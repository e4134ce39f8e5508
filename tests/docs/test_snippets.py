"""Every snippet in the documentation is a file, and every file runs against a real server as a reader would run it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from free_ports import free_port
from waiting import accepts, block_until_up

ROOT = Path(__file__).parents[2]
SNIPPETS = ROOT / "docs" / "snippets"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LUDUS = Path(sys.executable).with_name("ludus")
WRITTEN = "http://127.0.0.1:8000"
"""The address that snippets name."""

PROGRAMS = {
    "client.py": r"7\+7 .*1\.0.* completed",
    "blocking.py": r"There is gold[\s\S]*invalid_arguments[\s\S]*Only sand here",
    "calibration.py": r"(beaches .* metres long: \d+ of \d+ found within ten holes\s*){4}in the band: \d+%",
    "own_loop.py": r"\d+ messages (1\.0|0\.\d+)",
    "evaluate.py": r"first: 0\.\d+ over 20 tasks, \(0\..*\)\s+last: 0\.\d+ over 20 .*\s+difference [+-]0\.\d+, p = 0\.",
    "branches.py": r"(after turn \d: mean return 0\.\d\d of \d+ branches\s*){2}3 copies of 1 turn",
    "rollouts.py": r"mean reward 0\.\d\d over 20 episodes",
    "joined_group.py": r"1 group \(0\.0, 0\.0, 0\.0, 0\.0\)",
    "workers.py": r"\[0\.0, 0\.0, 0\.0, 0\.0\]",
    "trainer.py": r"(beach-\d+ \[.*\]\s*){4}",
    "chain.py": r"0 \[0\.0, 0\.3333\d*\]\s+1 \[0\.0, 0\.6666\d*\]",
    "two_agents.py": r"first (1\.0|0\.0) completed\s+second (1\.0|0\.0) completed",
    "stock_mcp_client.py": r"\['dig'\][\s\S]*Only sand here[\s\S]*value=0\.0",
}
"""Programs that talk to a server, and what they print."""

LIBRARIES = {"arithmetic.py", "treasure.py", "shaky.py", "nim.py", "garden.py"}
"""Environments, which the server serves."""

OTHERS = {
    "backend_conformance.py",
    "terminal_session.py",
    "tickets.py",
    "served_page.py",
    "mcp_inside.py",
    "browser_inside.py",
    "office_inside.py",
    "recorded_search.py",
    "recorded_web.py",
    "saved.py",
    "sums.py",
    "Caddyfile",
    "Caddyfile-workers",
    "kubernetes-values.yaml",
    "skypilot.yaml",
    "coding.py",
    "dice.toml",
    "dice_adapter.py",
    "dice_format.py",
    "gymnasium_episode.py",
    "openenv_episode.py",
    "eval.toml",
    "graded.py",
    "largest.py",
    "ludus_sums.py",
    "measured.py",
    "mix_loop.py",
    "nginx-workers.conf",
    "nginx.conf",
    "packages.py",
    "task_images.py",
    "plain_trainer.py",
    "plugin.toml",
    "test_treasure.py",
    "verifiers_rl.toml",
    "trl_train.py",
    "openrlhf_agent.py",
    "openrlhf_run.sh",
    "skyrl_gym_episode.py",
    "skyrl_run.sh",
    "verl_agent.yaml",
    "verl_run.sh",
    "inspect_evaluate.py",
    "lighteval_evaluate.py",
    "endpoint_agent_lightning.py",
    "endpoint_agent_lightning.sh",
    "endpoint_areal.py",
    "endpoint_areal.yaml",
    "endpoint_art.py",
    "endpoint_rllm.py",
    "endpoint_rllm.sh",
    "endpoint_slime.py",
    "endpoint_slime.sh",
    "nemo_gym.yaml",
    "nemo_gym_app.py",
    "tinker_train.py",
}
"""Tested by tests of their own."""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder with the snippets, their address changed to that of a server which serves their environments."""
    folder = tmp_path_factory.mktemp("snippets")
    port = free_port()
    for path in SNIPPETS.iterdir():
        if path.is_file():
            text = path.read_text(encoding="utf-8").replace(WRITTEN, f"http://127.0.0.1:{port}")
            (folder / path.name).write_text(text, encoding="utf-8")
    served = [
        "arithmetic.py:Arithmetic",
        "treasure.py:TreasureHunt",
        "shaky.py:ShakyHunt",
        "shaky.py:RoughHunt",
        "nim.py:NimSeat",
        "garden.py:Garden",
        "guess_number",
    ]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [str(LUDUS), "serve", *served, "--port", str(port)],
            cwd=folder,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
        try:
            block_until_up(process, lambda: accepts(port), folder / "server.log")
            yield folder, f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)


def run(folder: Path, *command: str | Path) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "120"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_runs_and_prints_what_it_should(workshop: tuple[Path, str], name: str) -> None:
    folder, _ = workshop
    printed = run(folder, sys.executable, "-W", "error", name)
    assert re.search(PROGRAMS[name], printed), printed


def test_the_tutorials_test_passes(workshop: tuple[Path, str]) -> None:
    folder, _ = workshop
    assert "2 passed" in run(folder, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_treasure.py")


@pytest.mark.suite("breadth")
def test_a_split_is_narrowed_by_what_was_measured(workshop: tuple[Path, str]) -> None:
    folder, _ = workshop
    run(folder, sys.executable, "-W", "error", "calibration.py")
    told = "from measured import MeasuredHunt; print(MeasuredHunt.splits['train'].count)"
    count = int(run(folder, sys.executable, "-W", "error", "-c", told))
    assert 5 <= count <= 45


def test_the_tutorials_command_lines_work(workshop: tuple[Path, str]) -> None:
    folder, url = workshop
    assert "treasure_hunt" in run(folder, LUDUS, "envs", url)
    assert "beach-3" in run(folder, LUDUS, "tasks", url, "treasure_hunt", "--split", "validation")
    options = ("--split", "validation", "-n", "10", "--policy", "random", "--out", "trajectories.jsonl")
    run(folder, LUDUS, "run", url, "treasure_hunt", *options)
    assert len((folder / "trajectories.jsonl").read_text(encoding="utf-8").splitlines()) == 10


@pytest.mark.suite("breadth")
def test_noise_befalls_the_hunts_that_have_it(workshop: tuple[Path, str]) -> None:
    folder, url = workshop
    options = ("--split", "validation", "-n", "40", "--seed", "1", "--json")
    for environment in ("shaky_hunt", "shaky_hunt-rough", "rough_hunt", "shaky_hunt-calm"):
        summary = json.loads(run(folder, LUDUS, "run", url, environment, *options))
        assert bool(summary["noise"]) == ("calm" not in environment), environment
        assert summary["failed"] == {}


def test_the_plugins_entry_point_names_its_class() -> None:
    plugin = tomllib.loads((SNIPPETS / "plugin.toml").read_text(encoding="utf-8"))
    module, _, name = plugin["project"]["entry-points"]["ludus.environments"]["treasure_hunt"].partition(":")
    assert f"class {name}(" in (SNIPPETS / f"{module}.py").read_text(encoding="utf-8")


def test_a_readers_environment_is_at_most_fifteen_lines() -> None:
    lines = (SNIPPETS / "arithmetic.py").read_text(encoding="utf-8").splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 15


def test_every_snippet_is_tested_and_shown() -> None:
    names = {path.name for path in SNIPPETS.iterdir() if path.is_file()}
    assert names == {*PROGRAMS, *LIBRARIES, *OTHERS}
    shown = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in sorted(names) if f"docs/snippets/{name}" not in shown] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_on_a_page_comes_from_a_snippet(page: Path) -> None:
    text = re.sub(r"<!-- begin: .*?<!-- end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert "```python" not in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_files_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_no_block_is_stale() -> None:
    run(ROOT, sys.executable, ROOT / "scripts" / "generate_docs.py", "--check")
