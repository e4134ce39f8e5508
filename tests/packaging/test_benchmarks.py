"""`benchmarks/run.py` knows every benchmark that has figures, and reads what each writes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NO_BAR = {"run", "step_path"}
"""These have the option `--json` without figures of their own: a test reads the path of a step."""


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def bench() -> ModuleType:
    return loaded("run")


def test_every_benchmark_has_a_reader_and_short_options(bench: ModuleType) -> None:
    written = {file.stem for file in BENCHMARKS.glob("*.py") if '"--json"' in file.read_text("utf-8")} - NO_BAR
    assert written == set(bench.READERS) == set(bench.QUICK)


def test_the_figure_of_sandboxd_is_its_exchange(bench: ModuleType) -> None:
    found = {"bubblewrap: spawn + one exchange": 0.011, "sandboxd: spawn + one exchange": 0.024, "sandboxd: command": 9}
    (figure,) = bench.of_sandboxd(found)
    assert (figure.bar, figure.measured, figure.met) == ("≤ 25 ms", "24.0 ms (bubblewrap alone 11.0 ms)", True)
    (figure,) = bench.of_sandboxd({**found, "sandboxd: spawn + one exchange": 0.026})
    assert not figure.met


def test_environments_that_are_not_measured_keep_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # As for a script, whose folder is on the path.
    environments = loaded("environments")
    page = environments.PAGE.read_text("utf-8")
    names = environments.built_in()
    assert environments.written(page, {}, names) == page
    figures = dict.fromkeys(("oracle", "random", "cpu_ms", "start_ms", "step_ms", "listing_seconds", "open_kib"), 9.0)
    measured = environments.written(page, {"swe": figures | {"nothing": None}}, names)
    (before, solved), (after, same) = (
        [one for one in text.splitlines() if one.startswith("| `swe` |")] for text in (page, measured)
    )
    assert solved == same, "what shortcuts earn is another table"
    assert after == "| `swe` | 9.00 | 9.00 | – | 9.0 ms | 9.0 ms | 9.0 ms | 9.00 s | 9 KiB |"
    assert measured.replace(after, before) == page
    assert environments.written(page, {}, [one for one in names if one != "swe"]) == page.replace(f"{before}\n", "")
    without = page.replace(f"{before}\n", "")
    assert environments.written(without, {"swe": figures | {"nothing": None}}, names) == measured
