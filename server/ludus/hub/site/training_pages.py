"""The pages of training runs: the list, a run with its curves, several runs in one chart, and sample rollouts.

The part of a run's page that changes is asked for again every few seconds while the run goes on. It carries the version
that it shows, and the answer is empty (204) as long as there is no newer one. Without JavaScript, a link does the same.
"""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ludus.hub.people.viewers import Viewer
from ludus.hub.site.conversations import PAGE_BYTES, find_page, pages, turns
from ludus.hub.site.rendering import HEADERS
from ludus.hub.site.rollout_pages import image_response
from ludus.hub.site.site import Site, see, short_text, whole_number
from ludus.hub.site.training_charts import (
    CHARTS,
    ROWS,
    comparison,
    large_chart,
    latest,
    page_of_charts,
    plans,
)
from ludus.hub.training.curves import Curves
from ludus.hub.training.rollouts import SampleStore
from ludus.hub.training.store import PAGE_RUNS, TrainingStore
from ludus.protocol.errors import InvalidParams, NotFound
from ludus.registry.types.errors import PackageNotFound
from ludus.registry.types.training import METRIC_NAME_LETTERS, TrainingEnvironment, TrainingInfo, Visibility
from ludus.viewing.conversation import components, reward_text

COMPARED: Final = 8
"""The most runs of one comparison, for which there are dash patterns."""

COMPARED_CHARTS: Final = 8
"""The most charts of one comparison."""

CONFIG_LETTERS: Final = 5_000
"""The most characters of a configuration on a page; the API has all of it."""

SAMPLES: Final = 50
"""The most sample rollouts on one page."""

POLL_SECONDS: Final = 5
"""How often a browser asks whether there are new points."""


class TrainingPages:
    """The pages of training runs.

    Args:
        site: the site.
        store: the training runs.
        samples: their sample rollouts.
    """

    def __init__(self, site: Site, store: TrainingStore, samples: SampleStore) -> None:
        self._site = site
        self._store = store
        self._samples = samples

    # ── runs ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def overview(self, request: Request) -> Response:
        """Return one page of the list of runs."""
        number, own = whole_number(request, "page", 1), short_text(request, "own", 3) == "yes"
        runs, total = self._store.runs(self._viewer(request), number, own=own)
        return self._site.page(
            request, "training_list.html", runs=runs, total=total, page=number, own=own,
            pages=max(1, -(-total // PAGE_RUNS)), compared=COMPARED,
        )  # fmt: skip

    def run(self, request: Request) -> Response:
        """Return the page of a run, or that of one of its charts."""
        viewer = self._viewer(request)
        info, curves = self._store.curves(viewer, request.path_params["run"])
        name = request.query_params.get("chart")
        if name is not None:
            return self._chart(request, info, curves, name)
        config = json.dumps(info.config, indent=2, ensure_ascii=False)
        is_own = viewer.name == info.by
        return self._site.page(
            request, "training_run.html", visitor=self._site.visitors.visitor(request) if is_own else None,
            is_own=is_own, config=config[:CONFIG_LETTERS], is_cut=len(config) > CONFIG_LETTERS,
            environments=[(one, self._package(request, one)) for one in info.environments],
            **self._part(request, info, curves),
        )  # fmt: skip

    def part(self, request: Request) -> Response:
        """Return the part of a run's page that changes; an empty answer if nothing has changed."""
        viewer, key = self._viewer(request), request.path_params["run"]
        info = self._store.info(viewer, key)
        etag = f'"{version(info)}"'
        if short_text(request, "since", 80) == version(info):
            return Response(status_code=204, headers={**HEADERS})
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers={**HEADERS, "etag": etag})
        info, curves = self._store.curves(viewer, key)
        return self._site.renderer.page(
            "training_part.html", headers={"etag": f'"{version(info)}"'}, **self._part(request, info, curves)
        )

    def _part(self, request: Request, info: TrainingInfo, curves: Curves) -> dict[str, Any]:
        drawn, rows = plans(curves), latest(curves)
        count = max(1, -(-len(drawn) // CHARTS), -(-len(rows) // ROWS))
        number = min(whole_number(request, "page", 1), count)
        address = f"/training/{info.key}"
        shown = drawn[(number - 1) * CHARTS : number * CHARTS]
        marks = [one.step for one in info.restarts][-20:]
        return {
            "run": info, "page": number, "pages": count, "address": address, "version": version(info),
            "charts": page_of_charts(shown, curves, marks, f"{address}?chart="),
            "rows": rows[(number - 1) * ROWS : number * ROWS], "poll": POLL_SECONDS, "has_marks": bool(marks),
        }  # fmt: skip

    def _chart(self, request: Request, info: TrainingInfo, curves: Curves, name: str) -> Response:
        plan = next((one for one in plans(curves) if name in one.metrics), None)
        if plan is None:
            raise NotFound("the run has no such chart")
        marks = [one.step for one in info.restarts][-20:]
        rows = [row for row in latest(curves) if row.name in plan.metrics]
        return self._site.page(
            request, "training_chart.html", run=info, title=plan.title, chart=large_chart(plan, curves, marks),
            rows=rows, address=f"/training/{info.key}",
        )  # fmt: skip

    def compare(self, request: Request) -> Response:
        """Return several runs, metric by metric in one chart each."""
        keys = list(dict.fromkeys(request.query_params.getlist("run")))
        if not 2 <= len(keys) <= COMPARED:
            raise InvalidParams(f"choose from 2 to {COMPARED} runs to compare, not {len(keys)}")
        viewer = self._viewer(request)
        found = [self._store.curves(viewer, key[:40]) for key in keys]
        runs = [(_label(info, place), curves) for place, (info, curves) in enumerate(found, start=1)]
        names = _names_of_all(runs)
        wanted = short_text(request, "metric", METRIC_NAME_LETTERS)
        chosen = [wanted] if wanted else names
        most = max(16, min(128, 2_400 // (len(runs) * min(COMPARED_CHARTS, max(1, len(chosen))))))
        charts = []
        for name in chosen:
            drawn = comparison(name, runs, most)
            if drawn is not None:
                charts.append(drawn)
            if len(charts) == COMPARED_CHARTS:
                break
        labels = zip((label for label, _ in runs), (info for info, _ in found), strict=True)
        return self._site.page(
            request, "training_compare.html", runs=list(labels), charts=charts, names=names[:200], wanted=wanted,
        )  # fmt: skip

    # ── forms ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def change(self, request: Request) -> Response:
        """Make a run private or public."""
        visitor, fields = await self._site.form(request)
        visitor.require_owner()
        key, wanted = request.path_params["run"], str(fields.get("visibility", ""))
        if wanted not in ("private", "public"):
            raise InvalidParams("choose whether the run is private or public")
        address = self._site.hub.authenticator.address(request)
        visibility: Visibility = "public" if wanted == "public" else "private"
        await run_in_threadpool(self._store.set_visibility, visitor.viewer, key, visibility, address)
        return see(f"/training/{key}")

    async def delete(self, request: Request) -> Response:
        """Delete a run."""
        visitor, _ = await self._site.form(request)
        visitor.require_owner()
        key, address = request.path_params["run"], self._site.hub.authenticator.address(request)
        await run_in_threadpool(self._store.delete, visitor.viewer, key, address)
        self._site.hub.counts["training:deleted"] += 1
        return see("/training?own=yes")

    # ── sample rollouts ────────────────────────────────────────────────────────────────────────────────────────────

    def rollouts(self, request: Request) -> Response:
        """Return one page of the list of a run's sample rollouts."""
        viewer, key = self._viewer(request), request.path_params["run"]
        info, lines = self._store.info(viewer, key), self._samples.list(viewer, key)
        number = whole_number(request, "page", 1)
        return self._site.page(
            request, "training_rollouts.html", run=info, lines=lines[(number - 1) * SAMPLES : number * SAMPLES],
            page=number, pages=max(1, -(-len(lines) // SAMPLES)),
        )  # fmt: skip

    def rollout(self, request: Request) -> Response:
        """Return one sample rollout, at a page of its turns."""
        viewer, key = self._viewer(request), request.path_params["run"]
        info = self._store.info(viewer, key)
        line, trajectory, count = self._samples.rollout(viewer, key, int(request.path_params["number"]))
        all_pages = pages(turns(trajectory), PAGE_BYTES)
        turn = whole_number(request, "turn", 0) if request.query_params.get("turn") else 0
        number = min(whole_number(request, "page", find_page(all_pages, turn) if turn else 1), len(all_pages))
        return self._site.page(
            request, "training_rollout.html", run=info, line=line, trajectory=trajectory, count=count,
            turns=all_pages[number - 1], page=number, pages=len(all_pages), reward=reward_text(trajectory)[:500],
            rows=[tuple(cell[:300] for cell in row) for row in components(trajectory.reward)[:40]],
        )  # fmt: skip

    def image(self, request: Request) -> Response:
        """Return an image of a sample rollout."""
        parts = request.path_params
        _, trajectory, _ = self._samples.rollout(self._viewer(request), parts["run"], int(parts["number"]))
        return image_response(trajectory, int(parts["image"]))

    # ── common ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _viewer(self, request: Request) -> Viewer:
        return self._site.visitors.visitor(request).viewer

    def _package(self, request: Request, one: TrainingEnvironment) -> str:
        """Return the address of an environment's package if the person at the browser sees it; otherwise nothing."""
        if one.package is None:
            return ""
        owner, _, name = one.package.partition("/")
        try:
            record = self._site.catalog(request).version(owner, name, one.version)
        except PackageNotFound:
            return ""
        return f"/{record.id}/versions/{record.version}" if one.version else f"/{record.id}"


def version(info: TrainingInfo) -> str:
    """Return what changes when a run's page does."""
    return f"{len(info.restarts)}-{info.next_batch}-{info.rollouts}-{info.dropped}-{info.state}"


def _label(info: TrainingInfo, place: int) -> str:
    return f"{place} {info.name[:40]}"


def _names_of_all(runs: list[tuple[str, Curves]]) -> list[str]:
    """Return the metrics of all runs in the order of the charts of a run; those that most runs have come first."""
    counts: dict[str, int] = {}
    for _, curves in runs:
        for plan in plans(curves):
            for name in plan.metrics:
                counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: -counts[name])
