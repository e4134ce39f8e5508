"""Playing one episode by hand: choose a task, act with forms, see the reward at the end, save the demonstration."""

from __future__ import annotations

import inspect
import io
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from pydantic_core import to_json as dump_json
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ludus.client.policies.base import Conversation
from ludus.hub.core.peers import NAME_LENGTH, PlayedElsewhere
from ludus.hub.registry.catalog import VersionRecord
from ludus.hub.site.conversations import PAGE_BYTES, pages, turns
from ludus.hub.site.forms import MOST_FIELDS, read_arguments, tool_form
from ludus.hub.site.plays import Play, Plays, PlayTarget
from ludus.hub.site.rendering import HEADERS
from ludus.hub.site.rollout_pages import image_response
from ludus.hub.site.rollouts import Rollouts
from ludus.hub.site.site import Site, see, short_text, whole_number
from ludus.hub.site.visitors import Visitor
from ludus.protocol.actions import Answer, Call
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.errors import InfrastructureFailed, InvalidParams, NotFound, Unsupported
from ludus.protocol.items import OutputItem, to_json
from ludus.protocol.text import replace_surrogates
from ludus.protocol.trajectory import Trajectory, TurnRecord
from ludus.registry.types.packages import EnvironmentEntry
from ludus.registry.types.people import HubScope
from ludus.viewing.conversation import components, reward_text

SHOWN_TOOLS: Final = 12
"""The most tools whose forms are on one page; of more tools, one at a time is chosen."""

FORMS_BUDGET: Final = 40
"""The most fields of all forms on one page."""

_PROCESS: Final = re.compile(f"[0-9a-f]{{{NAME_LENGTH}}}")


class PlayPages:
    """The pages of a play."""

    def __init__(self, site: Site, plays: Plays, rollouts: Rollouts) -> None:
        self._site = site
        self._plays = plays
        self._rollouts = rollouts

    def choose(self, request: Request) -> Response:
        """Return the page to choose an environment of the package, a split and a task."""
        visitor = self._site.visitors.visitor(request)
        record, _ = self._target(request, visitor, short_text(request, "version", 60))
        return self._site.page(
            request, "play_start.html", visitor=visitor, record=record, environments=record.environments[:50],
        )  # fmt: skip

    async def start(self, request: Request) -> Response:
        """Start an episode, and go to its page."""
        visitor, fields = await self._site.form(request)
        record, url = await run_in_threadpool(self._target, request, visitor, str(fields.get("version", ""))[:60])
        name, _, split = str(fields.get("what", "")).rpartition("/")
        entry = next((environment for environment in record.environments if environment.name == name), None)
        if entry is None or split not in {one.name for one in entry.splits}:
            raise InvalidParams("choose an environment and a split of this version")
        index = _index(str(fields.get("index", "")), entry, split)
        target = PlayTarget(url, self._token(visitor), record.id, record.version, name, split, index)
        play = await self._plays.start(visitor.key, target)
        return see(f"/{record.id}/play/{play.id}#now")

    def here(self, page: Callable[[Request], Any]) -> Callable[[Request], Awaitable[Response]]:
        """Return the page of a play so that the process of the hub that has the play answers, whichever is asked."""

        async def answer(request: Request) -> Response:
            process, peers = request.path_params["play"][:NAME_LENGTH], self._site.hub.peers
            if process != peers.own and _PROCESS.fullmatch(process):
                found = await peers.find(process)
                if found is None:
                    raise InfrastructureFailed(
                        "the process of the hub that had this episode has ended, and the episode with it: start "
                        "another one", endReason="infrastructure_error",
                    )  # fmt: skip
                raise PlayedElsewhere("this episode is played", found.process)
            if inspect.iscoroutinefunction(page):
                response: Response = await page(request)
                return response
            shown: Response = await run_in_threadpool(page, request)
            return shown

        return answer

    def _token(self, visitor: Visitor) -> str:
        """Return a token with which the hub plays for a person, by which it knows its own requests."""
        limits = self._plays.limits
        return self._site.hub.authenticator.lend(visitor.viewer, limits.start_seconds + limits.play_seconds)

    def play(self, request: Request) -> Response:
        """Return the page of a play: the conversation, and the forms or the reward."""
        visitor, play = self._play(request)
        return self._page(request, visitor, play, {})

    async def act(self, request: Request) -> Response:
        """Take an action, and go to the page of the play; show the form again if an entry is wrong."""
        visitor, fields = await self._site.form(request)
        _, play = self._play(request)
        entries = {str(name): value for name, value in fields.items() if isinstance(value, str)}
        action: Call | Answer | None = None
        if "give_up" not in entries:
            conversation = play.conversation
            if conversation is None or not play.is_waiting or entries.get("turn") != str(conversation.turn):
                return see(f"{request.url.path}#now")
            if "answer" in entries:
                action = Answer(entries["answer"].replace("\r\n", "\n"))
            else:
                tool = _tool(conversation, entries.get("tool", ""))
                arguments, problems = read_arguments(tool, entries)
                if problems:
                    return await run_in_threadpool(self._page, request, visitor, play, entries, 422)
                action = Call(tool.name, arguments)
        await play.act(action)
        return see(f"{request.url.path}#now")

    def image(self, request: Request) -> Response:
        """Return an image of a play."""
        _, play = self._play(request)
        return image_response(_record(play), int(request.path_params["image"]))

    def demonstration(self, request: Request) -> Response:
        """Return the record of an ended play as a file, for `ludus view` and `ludus train`."""
        _, play = self._play(request)
        headers = {**HEADERS, "content-disposition": f'attachment; filename="{_file_name(play)}"'}
        return Response(_line(_ended(play)), headers=headers, media_type="application/x-ndjson")

    async def keep(self, request: Request) -> Response:
        """Keep the record of an ended play in the viewer."""
        visitor, _ = await self._site.form(request)
        _, play = self._play(request)
        data = io.BytesIO(_line(_ended(play)))
        kept = await run_in_threadpool(self._rollouts.keep, visitor.require_owner(), _file_name(play), data)
        return see(f"/rollouts/{kept.id}/1")

    def _target(self, request: Request, visitor: Visitor, version: str) -> tuple[VersionRecord, str]:
        """Return a version and where it runs.

        Raises:
            PackageNotFound: there is no such version.
            Unauthenticated: the person has not signed in.
            Unsupported: the hub runs no environments.
        """
        owner, name = request.path_params["owner"], request.path_params["name"]
        record = self._site.hub.catalog_of(visitor.viewer, HubScope.RUN).version(owner, name, version or None)
        visitor.require_owner()
        url = self._site.play_address(request, owner, name, record.version)
        if url is None:
            raise Unsupported("this hub does not run environments; install it and play it with your own client")
        return record, url

    def _play(self, request: Request) -> tuple[Visitor, Play]:
        visitor = self._site.visitors.visitor(request)
        play = self._plays.get(visitor.key, request.path_params["play"])
        if play.target.package != f"{request.path_params['owner']}/{request.path_params['name']}":
            raise NotFound("this browser plays no such episode")
        return visitor, play

    def _page(
        self, request: Request, visitor: Visitor, play: Play, entries: Mapping[str, str], status: int = 200
    ) -> Response:
        record = _record(play)
        all_pages = pages(turns(record), PAGE_BYTES * 3 // 4)
        number = min(whole_number(request, "page", len(all_pages)), len(all_pages))
        address = f"/{play.target.package}/play/{quote(play.id)}"
        conversation = play.conversation
        wanted = short_text(request, "tool") or entries.get("tool", "")
        forms: list[Any] = []
        names: list[str] = []
        if play.is_waiting and conversation is not None and number == len(all_pages):
            shown, names = _choose_tools(conversation, wanted)
            forms = [tool_form(one, entries if one.name == entries.get("tool") else None) for one in shown]
        ended = play.trajectory
        return self._site.page(
            request, "play.html", visitor=visitor, status=status, play=play, address=address, conversation=conversation,
            turns=all_pages[number - 1], page=number, pages=len(all_pages), images=f"{address}/images", forms=forms,
            other_tools=names, ended=ended, reward=reward_text(ended)[:500] if ended is not None else "",
            rows=[tuple(cell[:300] for cell in row) for row in components(ended.reward)[:40]] if ended else [],
        )  # fmt: skip


def _choose_tools(conversation: Conversation, wanted: str) -> tuple[list[ToolSpec], list[str]]:
    """Return the tools whose forms a page shows, and the names of the others."""
    tools, fields = list(conversation.tools), 0
    for tool in tools:
        properties = tool.input_schema.get("properties")
        fields += min(MOST_FIELDS, len(properties)) if isinstance(properties, dict) else 0
    if len(tools) <= SHOWN_TOOLS and fields <= FORMS_BUDGET:
        return tools, []
    chosen = next((one for one in tools if one.name == wanted), tools[0])
    return [chosen], [one.name for one in tools if one is not chosen][:200]


def _tool(conversation: Conversation, name: str) -> ToolSpec:
    found = next((tool for tool in conversation.tools if tool.name == name), None)
    if found is None:
        raise InvalidParams("the episode has no such tool")
    return found


def _record(play: Play) -> Trajectory:
    """Return what a person may see of a play: without rewards while it runs."""
    if play.trajectory is not None:
        return play.trajectory
    conversation, target = play.conversation, play.target
    if conversation is None:
        raise NotFound("the episode has not started yet")
    return Trajectory(
        environment=target.environment, split=target.split, task=conversation.task, policy="person", started_at=0.0,
        seconds=0.0, items=tuple(to_json(conversation.items)), turns=tuple(_turns(conversation)),
    )  # fmt: skip


def _turns(conversation: Conversation) -> Iterator[TurnRecord]:
    """Yield the turns so far; a person makes one call in each."""
    for index, item in enumerate(conversation.items, 1):
        if isinstance(item, OutputItem):
            yield TurnRecord(items=index, policy_seconds=0.0, environment_seconds=0.0)


def _ended(play: Play) -> Trajectory:
    if play.trajectory is None:
        raise InvalidParams("the episode has not ended: end it first")
    return play.trajectory


def _line(trajectory: Trajectory) -> bytes:
    """Return a trajectory as a line of a file."""
    try:
        return trajectory.model_dump_json().encode() + b"\n"
    except ValueError:  # a text holds lone surrogates
        return dump_json(replace_surrogates(trajectory.model_dump())) + b"\n"


def _file_name(play: Play) -> str:
    return f"{play.target.package.replace('/', '-')}-{play.id[:8].strip('-_').lower()}.jsonl"


def _index(text: str, entry: EnvironmentEntry, split: str) -> int | None:
    """Return the number of a task, counted from 0; None for any."""
    if not text.strip():
        return None
    count = next(one.count for one in entry.splits if one.name == split)
    if not (text.strip().isascii() and text.strip().isdigit() and len(text.strip()) < 12):
        raise InvalidParams("a task is chosen by its number, counted from 0")
    if count is not None and int(text) >= count:
        raise InvalidParams(f"the split {split!r} has the tasks 0 to {count - 1:,}")
    return int(text)
