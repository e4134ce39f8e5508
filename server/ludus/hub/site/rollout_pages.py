"""The rollout viewer: kept files and those of runs, their episodes turn by turn, and two episodes side by side."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ludus.hub.results.access import Access
from ludus.hub.results.rollout_index import RolloutFile
from ludus.hub.results.rollouts import RunRollouts
from ludus.hub.site.conversations import PAGE_BYTES, find_page, image, pages, turns
from ludus.hub.site.rendering import HEADERS
from ludus.hub.site.rollouts import FILE_BYTES, Rollouts
from ludus.hub.site.site import Site, see, short_text, whole_number
from ludus.protocol.errors import InvalidParams
from ludus.protocol.trajectory import Trajectory
from ludus.registry.types.results import RunInfo
from ludus.viewing.conversation import components, reward_text

LINES_OF_PAGE: Final = 50
"""The most episodes in the list of one page."""

RUN_KEY: Final = 22
"""The length of the key of a run; the id of a kept file is shorter."""

_EPISODE: Final = re.compile(r"([a-z0-9]{16}|[A-Za-z0-9_-]{22}):([0-9]{1,6})")
_KEPT_ADDRESS: Final = re.compile(r"(?:[^?#\s]*/)?rollouts/([a-z0-9]{16})/([0-9]{1,6})(?:[?#]\S*)?")
_RUN_ADDRESS: Final = re.compile(r"(?:[^?#\s]*/)?runs/([A-Za-z0-9_-]{22})/rollouts/([0-9]{1,6})(?:[?#]\S*)?")


@dataclass(frozen=True)
class OpenedFile:
    """A file of trajectories that its reader may see."""

    file: RolloutFile
    address: str
    """The path of its page."""
    download: str
    """The path of the file itself."""
    above: str
    """The path of the page that leads here."""
    above_title: str
    read: Callable[[int], Trajectory]
    """Returns the episode of a line."""
    run: RunInfo | None = None
    """The run that the file was uploaded with; None for a kept file."""


class RolloutPages:
    """The pages of the viewer.

    Args:
        site: the site.
        rollouts: the files that people keep.
        results: the files that were uploaded with runs.
    """

    def __init__(self, site: Site, rollouts: Rollouts, results: RunRollouts) -> None:
        self._site = site
        self._rollouts = rollouts
        self._results = results
        self._access = Access(site.hub)

    def overview(self, request: Request) -> Response:
        """Return the list of an owner's files, with the form for another one."""
        visitor = self._site.visitors.visitor(request)
        files = self._rollouts.files(visitor.owner) if visitor.owner is not None else []
        return self._site.page(request, "rollouts.html", visitor=visitor, files=files, most=FILE_BYTES)

    async def upload(self, request: Request) -> Response:
        """Keep a file."""
        visitor, fields = await self._site.form(request, FILE_BYTES + 64 * 1024)
        owner, file = visitor.require_owner(), fields.get("file")
        if not isinstance(file, UploadFile) or not file.filename:
            raise InvalidParams("choose a file of trajectories first")
        try:
            kept = await run_in_threadpool(self._rollouts.keep, owner, file.filename, file.file)
        finally:
            await file.close()
        return see(f"/rollouts/{kept.id}")

    async def remove(self, request: Request) -> Response:
        """Remove a file."""
        visitor, _ = await self._site.form(request)
        await run_in_threadpool(self._rollouts.remove, visitor.require_owner(), request.path_params["file"])
        return see("/rollouts")

    def file(self, request: Request) -> Response:
        """Return the episodes of a file."""
        opened = self._opened(request)
        lines = opened.file.lines
        number = whole_number(request, "page", 1)
        start = (number - 1) * LINES_OF_PAGE
        visitor = self._site.visitors.visitor(request) if opened.run is None else None
        return self._site.page(
            request, "rollout_file.html", visitor=visitor, opened=opened, file=opened.file, page=number,
            lines=lines[start : start + LINES_OF_PAGE], pages=max(1, -(-len(lines) // LINES_OF_PAGE)),
        )  # fmt: skip

    def episode(self, request: Request) -> Response:
        """Return one episode, at a page of its turns or at the turn that the address names."""
        opened = self._opened(request)
        view = self._view(request, opened, int(request.path_params["line"]), PAGE_BYTES)
        return self._site.page(request, "rollout.html", **view)

    def compare(self, request: Request) -> Response:
        """Return two episodes side by side, at the same page of their turns."""
        sides, named = [], []
        for name in ("a", "b"):
            key, line = _episode_of(name, short_text(request, name, 500))
            opened = self._of_run(request, key) if len(key) == RUN_KEY else self._own(request, key)
            sides.append(self._view(request, opened, line, PAGE_BYTES // 2))
            named.append(f"{key}:{line}")
        number = max(side["page"] for side in sides)
        return self._site.page(
            request, "rollout_compare.html", sides=sides, page=number, pages=max(side["pages"] for side in sides),
            a=named[0], b=named[1],
        )  # fmt: skip

    def image(self, request: Request) -> Response:
        """Return an image of an episode."""
        trajectory = self._opened(request).read(int(request.path_params["line"]))
        return image_response(trajectory, int(request.path_params["image"]))

    def download(self, request: Request) -> Response:
        """Return a file as it was uploaded."""
        owner = self._site.visitors.visitor(request).require_owner()
        file = self._rollouts.file(owner, request.path_params["file"])
        shown = {"content-length": str(file.size), "content-disposition": f'attachment; filename="{file.id}.jsonl"'}
        return StreamingResponse(
            self._rollouts.content(file), headers={**HEADERS, **shown}, media_type="application/x-ndjson"
        )

    def _opened(self, request: Request) -> OpenedFile:
        """Return the file that the address names: the uploaded one of a run, or a kept one of the visitor."""
        parts = request.path_params
        return self._of_run(request, parts["run"]) if "run" in parts else self._own(request, parts["file"])

    def _own(self, request: Request, file_id: str) -> OpenedFile:
        owner = self._site.visitors.visitor(request).require_owner()
        file = self._rollouts.file(owner, file_id)
        where = f"/rollouts/{file.id}"
        return OpenedFile(
            file, where, f"{where}/download", "/rollouts", "Rollouts",
            lambda number: self._rollouts.episode(file, number),
        )  # fmt: skip

    def _of_run(self, request: Request, key: str) -> OpenedFile:
        run = self._access.check_run(request, self._results.store.run(key))
        file = self._results.file(run)
        return OpenedFile(
            file, f"/runs/{run.key}/rollouts", f"/api/v1/runs/{run.key}/rollouts", f"/runs/{run.key}",
            f"Run of {run.declared.model}", lambda number: self._results.episode(run, file, number), run,
        )  # fmt: skip

    def _view(self, request: Request, opened: OpenedFile, number: int, most: int) -> dict[str, Any]:
        """Return what a template shows of an episode."""
        file, line, trajectory = opened.file, opened.file.line(number), opened.read(number)
        all_pages = pages(turns(trajectory), most)
        turn = whole_number(request, "turn", 0) if request.query_params.get("turn") else 0
        page = whole_number(request, "page", find_page(all_pages, turn) if turn else 1)
        page = min(page, len(all_pages))
        forks = [one for one in file.lines if one.parent and one.parent == line.episode]
        parent = next((one for one in file.lines if line.parent and one.episode == line.parent), None)
        here = file.lines.index(line)
        others = [one for one in file.lines if not one.problem and one.number != line.number]
        same = [one for one in others if one.task == line.task] or others
        return {
            "opened": opened, "file": file, "line": line, "trajectory": trajectory, "turns": all_pages[page - 1],
            "page": page, "pages": len(all_pages), "reward": reward_text(trajectory)[:500],
            "rows": [tuple(cell[:300] for cell in row) for row in components(trajectory.reward)[:40]],
            "forks": forks[:40], "parent": parent, "others": same[:30],
            "images": f"{opened.address}/{line.number}/images",
            "before": next((one for one in reversed(file.lines[:here]) if not one.problem), None),
            "after": next((one for one in file.lines[here + 1 :] if not one.problem), None),
        }  # fmt: skip


def _episode_of(name: str, text: str) -> tuple[str, int]:
    """Return the file or the run, and the line, of an episode: FILE:LINE, RUN:LINE, or the address of its page.

    Raises:
        InvalidParams: the text is none of these.
    """
    patterns = (_EPISODE, _KEPT_ADDRESS, _RUN_ADDRESS)
    match = next((found for one in patterns if (found := one.fullmatch(text.strip()))), None)
    if match is None:
        raise InvalidParams(
            f"{name!r} must be an episode: the address of its page on this hub, or FILE:LINE or RUN:LINE"
        )
    return match[1], int(match[2])


def image_response(trajectory: Trajectory, number: int) -> Response:
    """Return an image of a conversation, which a browser shows as nothing but an image."""
    data, media_type = image(trajectory, number)
    headers = {
        **HEADERS,
        "content-security-policy": "default-src 'none'; sandbox",
        "cache-control": "private, max-age=600",
    }
    return Response(data, headers=headers, media_type=media_type)
