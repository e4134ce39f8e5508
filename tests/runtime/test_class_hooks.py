"""What an environment class does once per server process, and contexts that end with the episode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import anyio
import pytest

from ludus.protocol.episodes import ToolSpec
from ludus.protocol.errors import AuthoringError, EpisodeFailed
from ludus.server import Environment, EpisodeHost, ServerLimits, Task, tool
from ludus.server.authoring.schema_tool import SchemaTool
from ludus.testing import play

SPEC = ToolSpec(name="late", description="Found at startup.", input_schema={"type": "object", "properties": {}})


class Recording(Environment[Task]):
    """Records what its hooks do."""

    splits: ClassVar[Any] = {"train": [Task(id="a")]}
    calls: ClassVar[list[str]] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.calls = []

    def prompt(self) -> str:
        return "Go."

    @tool
    def go(self) -> str:
        """Go."""
        return "gone"


async def test_startup_runs_once_before_the_first_episode_and_shutdown_after_the_last() -> None:
    class Hooked(Recording):
        @classmethod
        def startup(cls) -> None:
            cls.calls.append("startup")

        @classmethod
        async def shutdown(cls) -> None:
            cls.calls.append("shutdown")

        def setup(self) -> None:
            self.calls.append("setup")

        def teardown(self) -> None:
            self.calls.append("teardown")

    async with play(Hooked) as world:
        for _ in range(2):
            episode = await world.start()
            await episode.close()
    assert Hooked.calls == ["startup", *2 * ["setup", "teardown"], "shutdown"]


async def test_tools_that_are_known_only_at_run_time_are_in_the_catalog_and_in_the_episode() -> None:
    class Late(Recording):
        @classmethod
        async def startup(cls) -> None:
            cls.calls.append("found")

        @classmethod
        def catalog_tools(cls) -> list[ToolSpec]:
            assert cls.calls == ["found"]
            return [SPEC]

        def task_tools(self) -> list[SchemaTool]:
            async def run(arguments: dict[str, Any], context: object) -> str:
                return "late"

            return [SchemaTool(SPEC.name, SPEC.description, SPEC.input_schema, run)]

    async with play(Late) as world:
        info = await world.remote.info()
        assert [one.name for one in info.tools] == ["go", "late"]
        episode = await world.start()
        assert episode.tools == ("go", "late")
        assert (await episode.late()).text == "late"


@pytest.mark.parametrize("found", [[SPEC, SPEC], ["late"], None])
async def test_unusable_catalog_tools_keep_the_server_from_starting(found: Any) -> None:
    class Wrong(Recording):
        @classmethod
        def catalog_tools(cls) -> Any:
            return found

    with pytest.raises(AuthoringError, match="catalog_tools"):
        async with EpisodeHost([Wrong]):
            pass


async def test_a_startup_that_fails_refuses_the_server_and_shuts_down_what_has_started() -> None:
    class First(Recording):
        @classmethod
        def shutdown(cls) -> None:
            cls.calls.append("shutdown")

    class Second(Recording):
        @classmethod
        def startup(cls) -> None:
            raise ConnectionError("the database is away")

    with pytest.raises(
        AuthoringError, match="startup of environment 'second' raised ConnectionError: the database is away"
    ):
        async with EpisodeHost([First, Second]):
            pass
    assert First.calls == ["shutdown"]


async def test_a_startup_that_hangs_is_refused_by_its_limit() -> None:
    class Hanging(Recording):
        @classmethod
        async def startup(cls) -> None:
            await asyncio.Event().wait()

    limits = ServerLimits(startup_seconds=0.05)
    with pytest.raises(AuthoringError, match=r"took longer than 0\.05 s; .*startup_seconds"):
        async with EpisodeHost([Hanging], limits=limits):
            pass


class Scoped(Recording):
    """Enters contexts that only their own task may leave."""

    async def setup(self) -> None:
        self.first = await self.enter_context(self.group("first"))

    @asynccontextmanager
    async def group(self, name: str) -> AsyncIterator[str]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep_forever)
            self.calls.append(f"enter {name}")
            try:
                yield name
            finally:
                self.calls.append(f"leave {name}")
                tasks.cancel_scope.cancel()

    @tool
    async def more(self) -> str:
        """Enter another context."""
        return await self.enter_context(self.group("second"))

    @tool
    async def broken(self) -> str:
        """Enter a context that cannot be entered."""

        @asynccontextmanager
        async def fails() -> AsyncIterator[str]:
            raise LookupError("no such server")
            yield ""

        return await self.enter_context(fails())

    async def teardown(self) -> None:
        self.calls.append("teardown")


async def test_contexts_are_left_in_reverse_after_teardown_by_the_task_that_entered_them() -> None:
    Scoped.calls.clear()
    async with play(Scoped) as world:
        episode = await world.start()
        assert (await episode.more()).text == "second"
        await episode.close()
    assert Scoped.calls == ["enter first", "enter second", "teardown", "leave second", "leave first"]


async def test_a_context_that_cannot_be_entered_raises_in_the_tool_and_the_others_are_left() -> None:
    Scoped.calls.clear()
    async with play(Scoped) as world:
        episode = await world.start()
        with pytest.raises(EpisodeFailed) as failure:
            await episode.broken()
        assert isinstance(failure.value.__cause__, LookupError)
    assert Scoped.calls == ["enter first", "teardown", "leave first"]


async def test_contexts_are_left_when_setup_fails() -> None:
    class FailsLater(Scoped):
        async def setup(self) -> None:
            await super().setup()
            raise OSError("no room")

    async with play(FailsLater) as world:
        with pytest.raises(EpisodeFailed):
            await world.start()
    assert FailsLater.calls[-1] == "leave first"


async def test_contexts_are_left_without_a_teardown_of_the_class() -> None:
    class Bare(Recording):
        @tool
        async def open(self) -> str:
            """Enter a context."""

            @asynccontextmanager
            async def noted() -> AsyncIterator[str]:
                yield "open"
                self.calls.append("left")

            return await self.enter_context(noted())

    async with play(Bare) as world:
        episode = await world.start()
        await episode.open()
        await episode.close()
        assert Bare.calls == ["left"]
