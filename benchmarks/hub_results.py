"""The boards of a hub at 1,000 runs on one board, over SQLite and PostgreSQL, through a real `ludus hub`.

    python benchmarks/hub_results.py [--runs 1000] [--tasks 50] [--requests 100]

A client asks a hub process for one page after the other: a board, a later page of it, a run, the environment's page
with its charts, the log, and the board in the JSON API. What counts is the 95th percentile of the time at the client,
so it includes HTTP on both sides; the best of three rounds. The size of a page is that of its HTML with all files that
it loads. Besides, it measures how long it takes to count one more run on the board.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import sys
import time
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from hub import filled_hubs, p95
from hubs import HubProcess
from sqlalchemy import insert, select

from ludus.hub.database.engine import Database, open_engine
from ludus.hub.database.result_tables import ResultBoard, ResultEpisode, ResultRun
from ludus.hub.database.tables import Package
from ludus.hub.results.boards import add_ended
from ludus.hub.results.figures import run_figures, sums_of
from ludus.registry.types.results import Declared, RunEpisode

MOST = 30.0
"""Milliseconds within which 95 of 100 requests of each page must be served."""

LARGEST = 60_000
"""Bytes of a page with all files that it loads."""


class Filler:
    """Puts runs on one board of the first package.

    Args:
        runs: how many.
        tasks: the tasks of each.
    """

    def __init__(self, runs: int, tasks: int) -> None:
        self.runs = runs
        self.tasks = tasks
        self.added: list[float] = []
        """Milliseconds for counting each run on the board."""
        self.package = ""
        self.key = ""

    def __call__(self, url: str) -> None:
        """Fill a database."""
        chance = random.Random(0)
        self.added.clear()
        now = datetime.now(UTC)
        engine = open_engine(url)
        with Database(engine).writing() as session:
            package = session.scalars(select(Package).order_by(Package.updated_at.desc())).first()
            assert package is not None
            self.package = f"{package.owner}/{package.name}"
            board = ResultBoard(
                package=self.package, version="1.0.0", sha256="0" * 64, environment="env", split="test", level="played",
                lowest=0.0, highest=1.0, tasks="[]", difficulty="[]",
            )  # fmt: skip
            session.add(board)
            session.flush()
            for number in range(self.runs):
                run, rows = self._run(chance, number, now)
                run.board_id = board.id
                session.add(run)
                session.flush()
                session.execute(insert(ResultEpisode), [
                    {"run_id": run.id, "place": row.place, "task": row.task, "task_index": row.index, "sample": 0,
                     "seed": 1, "state": "ended", "attempts": 1, "reward": row.reward, "value": row.value,
                     "end": row.end, "steps": 3, "ended_at": now}
                    for row in rows
                ])  # fmt: skip
                self.key = run.key
                began = time.perf_counter()
                add_ended(session, board, run)
                self.added.append(1000 * (time.perf_counter() - began))
        with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.exec_driver_sql("VACUUM ANALYZE" if engine.dialect.name == "postgresql" else "ANALYZE")
        engine.dispose()

    def _run(self, chance: random.Random, number: int, now: datetime) -> tuple[ResultRun, list[RunEpisode]]:
        skill = chance.random()
        rewards = [float(chance.random() < skill) for _ in range(self.tasks)]
        rows = [
            RunEpisode(place=place, task=f"task-{place}", index=place, sample=0, seed=1, reward=reward, value=reward,
                       end="completed", steps=3, attempts=1, input_tokens=1000, output_tokens=100)
            for place, reward in enumerate(rewards)
        ]  # fmt: skip
        sums, declared = sums_of(rows, 1.0), Declared(model=f"model-{number}", price_in=1.0, price_out=5.0)
        run = ResultRun(
            key=secrets.token_urlsafe(16), principal=f"account{number // 3}", by_publisher=False, number=number % 3 + 1,
            model=declared.model, harness=declared.harness, declared=declared.model_dump_json(by_alias=True),
            tasks=self.tasks, samples=1, success_at=1.0, lowest=0.0, highest=1.0, state="ended", created_at=now,
            ended_at=now, reruns=0, per_task=json.dumps(sums),
            figures=run_figures(rows, sums, declared, (0.0, 1.0)).model_dump_json(by_alias=True),
        )  # fmt: skip
        return run, rows


class _Files(HTMLParser):
    """The addresses of the files that a page loads."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        fields = dict(attrs)
        address = fields.get("href") if tag == "link" else fields.get("src") if tag == "script" else None
        if address:
            self.addresses.append(address)


def pages(filler: Filler) -> dict[str, str]:
    """Return the addresses, by what they show."""
    version = f"{filler.package}/versions/1.0.0"
    query = "environment=env&split=test&level=played"
    return {
        "board": f"/{version}/board?{query}", "later page": f"/{version}/board?{query}&page=20",
        "run": f"/runs/{filler.key}", "environment": f"/{filler.package}", "log": "/results/log",
        "board (API)": f"/api/v1/environments/{version}/board?{query}",
    }  # fmt: skip


def measure(hub: HubProcess, filler: Filler, requests: int) -> tuple[dict[str, float], dict[str, int]]:
    """Return the 95th percentile of each page in milliseconds, and its size in bytes."""
    found: dict[str, float] = {}
    sizes: dict[str, int] = {}
    with hub.client() as client:
        for what, address in pages(filler).items():
            times = []
            answer = client.get(address, headers={"accept": "text/html"})
            for _ in range(requests):
                began = time.perf_counter()
                answer = client.get(address, headers={"accept": "text/html"})
                times.append(1000 * (time.perf_counter() - began))
                assert answer.status_code == 200, answer.text
            found[what] = p95(times)
            files = _Files(answer.text).addresses if "(API)" not in what else []
            sizes[what] = len(answer.content) + sum(int(client.get(one).headers["content-length"]) for one in files)
    return found, sizes


def main() -> int:
    """Measure and print; the exit code is 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=50)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {"runs": options.runs, "tasks": options.tasks}
    met = True
    filler = Filler(options.runs, options.tasks)
    for kind, hub in filled_hubs(100, filler):
        measure(hub, filler, 5)
        rounds = [measure(hub, filler, options.requests) for _ in range(3)]
        sizes = rounds[0][1]
        best = {what: min(one[what] for one, _ in rounds) for what in sizes}
        found[kind] = {"p95": best, "bytes": sizes}
        for what, value in best.items():
            good = value <= MOST and (sizes[what] <= LARGEST or "(API)" in what)
            met = met and good
            print(f"{kind:10} {what:14} p95 {value:5.1f} ms {sizes[what]:9,} bytes{'' if good else ' MISSED'}")
        last = p95(filler.added[-100:])
        found[kind]["counted"] = last
        print(f"{kind:10} counting one of the last 100 runs on the board: p95 {last:.1f} ms")
    if options.json is not None:
        options.json.write_text(json.dumps(found), encoding="utf-8")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
