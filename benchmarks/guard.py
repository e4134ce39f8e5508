"""Did the last change make Ludus slower? Five CPU figures next to those of an earlier commit: `make bench-guard`.

    python benchmarks/guard.py [--base HEAD~1 | --null] [--only "ORS call,…"] [--rounds 10] [--seconds 1.0]
        [--limit 340] [--out FILE]

Compares this working tree with a commit. Both are copied into temporary folders with names of the same length, since
the size of a process's environment alone can change its speed by some percent. Both run in the same virtual environment
and are measured by the program of this tree (`guard_side.py`), so only the product differs: a change of a dependency,
or of what pyproject.toml registers, does not show.

For each figure, a process with each tree stays alive, and both take turns: base, new, new, base, new, base, base, new.
Such turns, all with the same number of operations, are a pair of rounds; the next pair begins with the other side. A
pair's ratio of CPU time (user and system) per operation depends little on what else the machine does at that time. The
interval is Student's t interval (95 %) of the logarithms of the ratios, widened by what two processes with the same
code differ by however long they are measured.

A figure is `slower` when its whole interval is above 1.10, `ok` when none of it is, and `unclear` otherwise. It is
`not comparable` when the base cannot perform it, for the reason that is printed. The exit code is 1 when a figure is
slower, 2 when this tree cannot perform a figure, there was no time for it, or nothing was compared, and 0 otherwise.

`--null` compares two copies of this tree: nearly every interval contains 1.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from guard_side import FIGURES

from ludus.client.summary import Z95, t95

HERE: Final = Path(__file__).resolve().parent
TREE: Final = HERE.parent
ROOTS: Final = ("protocol", "server", "client_sdk", "environments", "trainer")
BOUND: Final = 1.10
"""A figure may cost this many times as much as before."""
PROCESS_SPREAD: Final = 0.02
"""The standard deviation of the logarithm of the ratio of two processes with the same code, as `--null` shows it."""
TURNS: Final = ("base", "new", "new", "base", "new", "base", "base", "new")
"""The order within a pair of rounds: what changes slowly or steadily on the machine meets both sides alike."""
REPLY_SECONDS: Final = 90.0
"""The longest that a side may take to start or to perform one round."""
CLOSE_SECONDS: Final = 10.0
"""How long a side and its server may take to end before they are killed."""


# ── statistics ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Comparison(NamedTuple):
    """The geometric mean of the paired ratios, new to base, and its 95 % interval."""

    ratio: float
    low: float
    high: float


def compare(base: Sequence[float], new: Sequence[float]) -> Comparison:
    """Compare the costs of paired rounds. There must be at least two pairs."""
    logs = [math.log(after / before) for before, after in zip(base, new, strict=True)]
    mean = statistics.fmean(logs)
    rounds = t95(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    margin = math.hypot(rounds, Z95 * PROCESS_SPREAD)
    return Comparison(math.exp(mean), math.exp(mean - margin), math.exp(mean + margin))


def verdict(comparison: Comparison) -> str:
    """Say whether a figure became slower than `BOUND` allows."""
    if comparison.low > BOUND:
        return "slower"
    return "ok" if comparison.high <= BOUND else "unclear"


# ── the sides ───────────────────────────────────────────────────────────────────────────────────────────────────────


class SideError(Exception):
    """A side cannot perform the figure."""

    def __init__(self, side: str, reason: str) -> None:
        super().__init__(reason)
        self.side = side


class OutOfTime(Exception):
    """The time of the whole run has passed."""


class Side:
    """A process of `guard_side.py`, and the server that it starts. Both are in a process group of their own."""

    def __init__(self, name: str, figure: str, tree: Path, folder: Path, end: float) -> None:
        self._name, self._end, self._log = name, end, folder / f"{name}.log"
        path = os.pathsep.join(str(tree / root) for root in ROOTS)
        verb = "lead" if name == "new" else "play"
        command = [sys.executable, str(HERE / "guard_side.py"), str(tree), verb, figure, str(folder)]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # torch keeps what it compiles in the folder for temporary files
                env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "TMPDIR": str(folder)},
                start_new_session=True,
            )

    def started(self) -> str:
        """Wait until the side can perform its figure, and return where it loaded Ludus from."""
        return str(self._reply()["loaded"])

    def perform(self, count: int) -> float:
        """Perform about `count` operations, and return the microseconds of CPU that each took."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the reply says why
            self._process.stdin.write(b"%d\n" % count)
            self._process.stdin.flush()
        reply = self._reply()
        return 1e6 * float(reply["seconds"]) / int(reply["operations"])

    def hang_up(self) -> None:
        """Ask the processes to end."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def close(self) -> None:
        """Wait until the processes have ended, or end them."""
        assert self._process.stdout is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()

    def _reply(self) -> dict[str, Any]:
        out = self._process.stdout
        assert out is not None
        seconds = min(REPLY_SECONDS, self._end - time.monotonic())
        if seconds <= 0 or not select.select([out], [], [], seconds)[0]:
            if seconds < REPLY_SECONDS:
                raise OutOfTime
            raise SideError(self._name, f"no answer within {seconds:.0f} s")
        reply: dict[str, Any] = json.loads(out.readline() or '{"error": "the process ended"}')
        if "error" in reply:
            last = self._log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise SideError(self._name, " | ".join(filter(None, (reply["error"], last))))
        return reply


# ── measuring ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Row:
    """What was measured of one figure."""

    figure: str
    verdict: str = ""
    reason: str = ""
    """Why nothing was compared."""
    comparison: Comparison | None = None
    loaded: dict[str, str] = field(default_factory=dict)
    """The file of `ludus.protocol` that each side loaded."""
    costs: dict[str, list[float]] = field(default_factory=lambda: {"base": [], "new": []})
    """Microseconds of CPU per operation, by side and round."""


def measure(figure: str, trees: Mapping[str, Path], options: argparse.Namespace, share_ends: float, end: float) -> Row:
    """Measure one figure in both trees: `new` first, so that its error comes first when both fail."""
    row = Row(figure)
    with tempfile.TemporaryDirectory(prefix="figure-", dir=trees["base"].parent) as folder, ExitStack() as stack:
        try:
            sides = {}
            for name in ("new", "base"):
                sides[name] = Side(name, figure, trees[name], Path(folder), end)
                stack.callback(sides[name].close)
            for side in sides.values():
                stack.callback(side.hang_up)
            for name, side in sides.items():
                row.loaded[name] = side.started()
            print(f"{figure}: {' and '.join(row.loaded.values())}", file=sys.stderr, flush=True)
            count = calibrate(sides["base"], 2 * options.seconds / len(TURNS))
            sides["new"].perform(count)
            for number in range(options.rounds):
                if number > 1 and time.monotonic() > share_ends:
                    break
                spent = {"base": 0.0, "new": 0.0}
                for name in TURNS if number % 2 else reversed(TURNS):
                    spent[name] += 2 * sides[name].perform(count) / len(TURNS)
                for name, cost in spent.items():
                    row.costs[name].append(cost)
        except SideError as error:
            row.verdict, row.reason = "not comparable" if error.side == "base" else "failed", str(error)
            return row
        except OutOfTime:
            pass
    pairs = min(map(len, row.costs.values()))
    if pairs < 2:
        row.verdict, row.reason = "failed", "there was no time for two pairs of rounds"
        return row
    row.comparison = compare(row.costs["base"][:pairs], row.costs["new"][:pairs])
    row.verdict = verdict(row.comparison)
    return row


def calibrate(side: Side, seconds: float) -> int:
    """Return how many operations take about that many seconds of CPU. This warms the side up, too."""
    count = 1
    while (spent := count * side.perform(count) / 1e6) < seconds / 2:
        count *= 4 if spent < seconds / 8 else 2
    return max(1, round(count * seconds / spent))


def measure_all(trees: Mapping[str, Path], options: argparse.Namespace) -> list[Row]:
    """Measure the figures one after the other, and print each. What time one does not use, the next ones have."""
    end, rows = time.monotonic() + options.limit, []
    print(f"{'figure':16}{'base µs':>12}{'new µs':>12}{'ratio':>8}{'95 % interval':>17}{'pairs':>7}  verdict")
    for number, figure in enumerate(options.only):
        now = time.monotonic()
        row = measure(figure, trees, options, now + 0.9 * (end - now) / (len(options.only) - number), end)
        print(line_of(row), flush=True)
        rows.append(row)
    return rows


def exit_code(verdicts: Sequence[str]) -> int:
    """Return what the verdicts mean for the command. A run that compared nothing proves nothing."""
    compared = not verdicts or any(verdict in ("ok", "unclear") for verdict in verdicts)
    return 1 if "slower" in verdicts else 0 if compared and "failed" not in verdicts else 2


def line_of(row: Row) -> str:
    """The figure's line in the table."""
    if row.comparison is None:
        return f"{row.figure:16}{'–':>12}{'–':>12}{'–':>8}{'–':>17}{'–':>7}  {row.verdict}: {row.reason}"
    base, new = (statistics.median(row.costs[name]) for name in ("base", "new"))
    ratio, low, high = row.comparison
    interval, pairs = f"{low:.3f} – {high:.3f}", min(map(len, row.costs.values()))
    return f"{row.figure:16}{base:12,.1f}{new:12,.1f}{ratio:8.3f}{interval:>17}{pairs:7}  {row.verdict}"


# ── the trees ───────────────────────────────────────────────────────────────────────────────────────────────────────


def git(*arguments: str) -> bytes:
    """Run git in this tree, and return what it prints."""
    done = subprocess.run(["git", "-C", str(TREE), *arguments], capture_output=True, timeout=60)
    if done.returncode:
        raise SystemExit(f"git {arguments[0]} failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def changed(commit: str) -> bool:
    """Whether the product's files differ from those of a commit."""
    return bool(git("diff", "--name-only", commit, "--", *ROOTS)) or bool(
        git("ls-files", "--others", "--exclude-standard", "--", *ROOTS)
    )


@contextmanager
def laid_out(commit: str | None) -> Iterator[dict[str, Path]]:
    """Copy this tree's product and a commit's into a temporary folder; without a commit, this tree's twice."""
    with tempfile.TemporaryDirectory(prefix="ludus-guard-") as folder:
        trees = {"base": Path(folder).resolve() / "old", "new": Path(folder).resolve() / "new"}
        for name, tree in trees.items():
            if name == "base" and commit is not None:
                with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", commit, "--", *ROOTS))) as archive:
                    archive.extractall(tree, filter="data")
                continue
            for root in ROOTS:
                shutil.copytree(TREE / root, tree / root, ignore=shutil.ignore_patterns("__pycache__"))
        yield trees


# ── the command ─────────────────────────────────────────────────────────────────────────────────────────────────────


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="HEAD~1", help="the commit to compare with")
    parser.add_argument("--null", action="store_true", help="compare this tree with a copy of itself")
    parser.add_argument("--only", default=",".join(FIGURES), help="figures, separated by commas")
    parser.add_argument("--rounds", type=int, default=10, help="pairs of rounds of each figure, at least 2")
    parser.add_argument("--seconds", type=float, default=1.0, help="of CPU in a round of a side")
    parser.add_argument("--limit", type=float, default=330.0, help="seconds of the whole run")
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    options = parser.parse_args(arguments)
    options.only = [name.strip() for name in options.only.split(",")]
    if unknown := set(options.only) - FIGURES.keys():
        parser.error(f"unknown figures {sorted(unknown)}; there are {', '.join(FIGURES)}")
    if options.rounds < 2:
        parser.error("--rounds must be at least 2")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write. Return the exit code."""
    options = options_of(arguments)
    commit = None if options.null else git("rev-parse", "--verify", f"{options.base}^{{commit}}").decode().strip()
    rows: list[Row] = []
    if commit is not None and not changed(commit):
        print(f"unchanged: {', '.join(ROOTS)} are as in {options.base} ({commit[:12]})")
    else:
        try:
            with laid_out(commit) as trees:
                print(f"new: {TREE}; base: {commit or 'the same'}")
                rows = measure_all(trees, options)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 128 + signal.SIGINT
    if options.out:
        report = {"base": commit or "null", "bound": BOUND, "rows": [asdict(row) for row in rows]}
        options.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return exit_code([row.verdict for row in rows])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a script ignores it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
