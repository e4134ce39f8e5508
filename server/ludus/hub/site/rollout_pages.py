"""The rollout viewer: kept files, their episodes turn by turn, and two episodes side by side."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from ludus.hub.site.conversations import PAGE_BYTES, find_page, image, pages, turns
from ludus.hub.site.rendering import HEADERS
from ludus.hub.site.rollouts import FILE_BYTES, EpisodeLine, RolloutFile, Rollouts
from ludus.hub.site.site import Site, see, short_text, whole_number
from ludus.protocol.errors import InvalidParams
from ludus.protocol.trajectory import Trajectory
from ludus.viewing.conversation import components, reward_text

LINES_OF_PAGE: Final = 50
"""The most episodes in the list of one page."""

_EPISODE: Final = re.compile(r"([a-z0-9]{16}):([0-9]{1,6})")


class RolloutPages:
    """The pages of the viewer."""

    def __init__(self, site: Site, rollouts: Rollouts) -> None:
        self._site = site
        self._rollouts = rollouts

    def overview(self, request: Request) -> Response:
        """Return the list of an owner's files, with the form for another one."""
        visitor = self._site.visitors.visitor(request)
        files = self._rollouts.files(visitor.owner) if visitor.owner is not None else []
        rows = [(one, datetime.fromtimestamp(one.kept_at, UTC)) for one in files]
        return self._site.page(request, "rollouts.html", visitor=visitor, files=rows, most=FILE_BYTES)

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
        owner, file = self._file(request)
        number = whole_number(request, "page", 1)
        start = (number - 1) * LINES_OF_PAGE
        return self._site.page(
            request, "rollout_file.html", visitor=self._site.visitors.visitor(request), file=file,
            lines=file.lines[start : start + LINES_OF_PAGE], page=number,
            pages=max(1, -(-len(file.lines) // LINES_OF_PAGE)),
        )  # fmt: skip

    def episode(self, request: Request) -> Response:
        """Return one episode, at a page of its turns or at the turn that the address names."""
        owner, file = self._file(request)
        line, trajectory = self._episode(request, owner, file)
        view = self._view(request, file, line, trajectory, PAGE_BYTES)
        return self._site.page(request, "rollout.html", **view)

    def compare(self, request: Request) -> Response:
        """Return two episodes side by side, at the same page of their turns."""
        owner = self._site.visitors.visitor(request).require_owner()
        sides = []
        for name in ("a", "b"):
            match = _EPISODE.fullmatch(short_text(request, name, 40))
            if match is None:
                raise InvalidParams(f"{name!r} in the address must be an episode, as FILE:LINE")
            file = self._rollouts.file(owner, match[1])
            trajectory = self._rollouts.episode(owner, file, int(match[2]))
            sides.append(self._view(request, file, file.line(int(match[2])), trajectory, PAGE_BYTES // 2))
        number = max(side["page"] for side in sides)
        return self._site.page(
            request, "rollout_compare.html", sides=sides, page=number, pages=max(side["pages"] for side in sides),
            a=request.query_params["a"], b=request.query_params["b"],
        )  # fmt: skip

    def image(self, request: Request) -> Response:
        """Return an image of an episode."""
        owner, file = self._file(request)
        _, trajectory = self._episode(request, owner, file)
        return image_response(trajectory, int(request.path_params["image"]))

    def download(self, request: Request) -> Response:
        """Return a file as it was uploaded."""
        owner, file = self._file(request)
        return FileResponse(
            self._rollouts.path(owner, file), headers={**HEADERS}, media_type="application/x-ndjson",
            filename=f"{file.id}.jsonl",
        )  # fmt: skip

    def _file(self, request: Request) -> tuple[str, RolloutFile]:
        owner = self._site.visitors.visitor(request).require_owner()
        return owner, self._rollouts.file(owner, request.path_params["file"])

    def _episode(self, request: Request, owner: str, file: RolloutFile) -> tuple[EpisodeLine, Trajectory]:
        number = int(request.path_params["line"])
        return file.line(number), self._rollouts.episode(owner, file, number)

    def _view(
        self, request: Request, file: RolloutFile, line: EpisodeLine, trajectory: Trajectory, most: int
    ) -> dict[str, Any]:
        """Return what a template shows of an episode."""
        all_pages = pages(turns(trajectory), most)
        turn = whole_number(request, "turn", 0) if request.query_params.get("turn") else 0
        number = whole_number(request, "page", find_page(all_pages, turn) if turn else 1)
        number = min(number, len(all_pages))
        forks = [one for one in file.lines if one.parent and one.parent == line.episode]
        parent = next((one for one in file.lines if line.parent and one.episode == line.parent), None)
        here = file.lines.index(line)
        others = [one for one in file.lines if not one.problem and one.number != line.number]
        same = [one for one in others if one.task == line.task] or others
        return {
            "file": file, "line": line, "trajectory": trajectory, "turns": all_pages[number - 1], "page": number,
            "pages": len(all_pages), "reward": reward_text(trajectory)[:500],
            "rows": [tuple(cell[:300] for cell in row) for row in components(trajectory.reward)[:40]],
            "forks": forks[:40], "parent": parent, "others": same[:30],
            "images": f"/rollouts/{file.id}/{line.number}/images",
            "before": next((one for one in reversed(file.lines[:here]) if not one.problem), None),
            "after": next((one for one in file.lines[here + 1 :] if not one.problem), None),
        }  # fmt: skip


def image_response(trajectory: Trajectory, number: int) -> Response:
    """Return an image of a conversation, which a browser shows as nothing but an image."""
    data, media_type = image(trajectory, number)
    headers = {
        **HEADERS,
        "content-security-policy": "default-src 'none'; sandbox",
        "cache-control": "private, max-age=600",
    }
    return Response(data, headers=headers, media_type=media_type)
