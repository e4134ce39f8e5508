"""Verified runs: the hub plays them itself, with a harness in a sandbox.

How this works:

* Registration checks the harness, the host and the key, draws the tasks as for a played run, and writes everything
  before the first episode. The key of the account is encrypted; see `sealing`.
* A task for each open run takes its turn among those that may run at one time. It takes one episode after the other
  from `PlayedRuns`, as a player does, and runs the harness for each in a sandbox of its own, with a `Door` as its only
  way out. What the harness does there is its own affair: the reward is read through the control plane when it has
  ended, and an episode that it leaves counts as closed.
* An episode is started again only if its sandbox was lost, or if the model's endpoint could not answer and had not
  answered in this episode at all; both within the bounds of played runs. So neither a harness nor an endpoint can throw
  away an episode that goes badly.
* Each call is written before it is sent, so the receipt has all calls, those of starts that were cut off included.
  After a restart of the hub the open episodes start again, and rows that had ended stay.
* One process of the hub plays a run. When that has ended, another one goes on with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from ludus.hub.peers import PlayedElsewhere
from ludus.hub.results.verified_store import MostOpen, Setup, VerifiedStore
from ludus.hub.verified.boxes import Ended
from ludus.hub.verified.door import Door
from ludus.hub.verified.harnesses import Harness, Harnesses, HarnessGone
from ludus.hub.verified.model_hosts import ModelHosts
from ludus.hub.verified.model_proxy import EpisodeCalls, ModelProxy
from ludus.hub.verified.requests import check_options
from ludus.protocol import errors as e
from ludus.registry.types.receipts import tokens_of
from ludus.registry.types.results import Declared, EndEpisodeParams, EpisodeTicket, RunInfo, RunParams, VerifiedInfo
from ludus.registry.types.verified import CallRecord, HarnessOutput, VerifiedParams
from ludus.server.auth.principal import Principal

if TYPE_CHECKING:
    from ludus.hub.hub import Hub
    from ludus.hub.people.viewers import Viewer
    from ludus.hub.registry.catalog import Registry, VersionRecord
    from ludus.hub.results.played import PlayedRuns
    from ludus.hub.results.store import ResultStore
    from ludus.hub.verified.boxes import Boxes
    from ludus.hub.verified.harnesses import Program
    from ludus.hub.verified.sealing import Sealer
    from ludus.hub.verified.settings import VerifiedSettings

LEVEL: Final = "verified"

END_SECONDS: Final = 0.1
"""How long to wait for the end of a run that has no more episodes."""

ROOM_SECONDS: Final = 5.0
"""How long to wait before asking again for an episode while the endpoint has no room."""

log = logging.getLogger("ludus.hub.verified")


class VerifiedRuns:
    """All verified runs of a hub.

    Args:
        hub: the hub.
        settings: the limits.
        results: the runs in the database.
        store: what verified runs have in addition.
        played: the runs of the level `verified`, as a player plays them.
        harnesses: finds harnesses.
        boxes: makes sandboxes.
        sealer: encrypts the keys of accounts.
        everything: the whole registry.
    """

    def __init__(
        self, hub: Hub, settings: VerifiedSettings, results: ResultStore, store: VerifiedStore, played: PlayedRuns,
        harnesses: Harnesses, boxes: Boxes, sealer: Sealer, everything: Registry,
    ) -> None:  # fmt: skip
        self._hub = hub
        self._settings = settings
        self._results = results
        self._store = store
        self._played = played
        self._harnesses = harnesses
        self._boxes = boxes
        self._sealer = sealer
        self._everything = everything
        self._hosts = ModelHosts(settings, hub.settings.public_url)
        self._places = asyncio.Semaphore(settings.runs)
        self._driving: dict[str, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._address = ""
        self._closed = False

    async def register(
        self, viewer: Viewer, catalog: Registry, record: VersionRecord, params: VerifiedParams, *, by_publisher: bool
    ) -> RunInfo:
        """Register a run, and begin it when it is its turn.

        Args:
            viewer: the account.
            catalog: the registry as it sees it.
            record: the version.
            params: what is fixed before the first episode.
            by_publisher: whether the account may publish versions of the package.

        Raises:
            Unsupported: this hub has no verified runs.
            SandboxUnavailable: this machine has no sandbox for harnesses.
            InvalidParams: the endpoint does not answer, or a value is not possible.
            CapacityError: the account has too many open runs, or the hub has.
            LudusError: see `PlayedRuns.register` and `Harnesses.find`.
        """
        limits = self._settings
        if not limits.enabled:
            raise e.Unsupported("this hub has no verified runs; its operator turns them on with `ludus hub --verified`")
        record.check_offered()
        if params.tasks * params.samples > limits.run_episodes:
            raise e.InvalidParams(f"a verified run has at most {limits.run_episodes} episodes; ask for fewer")
        most = min(params.most_tokens or limits.run_tokens, limits.run_tokens)
        check_options(params.options)
        host = self._hosts.check_url(params.base_url)
        open_runs = MostOpen(limits.open_runs, limits.open_runs_of_hub)
        await asyncio.to_thread(self._store.may_open, viewer.name, open_runs)
        await self._boxes.open()
        harness = await asyncio.to_thread(self._harnesses.find, catalog, params.harness)
        proxy = self._proxy(params.base_url, params.model, params.api_key, params.options, most)
        try:
            await proxy.try_out()
        finally:
            await proxy.aclose()
        info = VerifiedInfo(harness=harness.name, harness_sha256=harness.sha256, host=host, model=params.model)
        setup = Setup(info, params.base_url, self._sealer.seal(params.api_key), most)
        request = RunParams(
            environment=params.environment, split=params.split, tasks=params.tasks, samples=params.samples,
            declared=Declared(
                model=f"{params.model} at {host}"[:200], harness=f"{harness.name} sha256:{harness.sha256[:12]}"[:200],
                options=params.options, price_in=params.price_in, price_out=params.price_out,
            ),
        )  # fmt: skip
        run = await self._played.register(
            viewer, record, request, self._endpoint(record.id, record.version), by_publisher=by_publisher,
            attach=self._store.attaching(setup, viewer.name, open_runs),
        )  # fmt: skip
        self._drive_soon(run.key)
        return run

    def check_here(self, key: str) -> None:
        """Check that no other process of the hub plays a run. This blocks.

        Raises:
            NotFound: there is no such run.
            RunElsewhere: one does.
        """
        other = self._store.driver(key, self._played.process)
        if other is not None:
            raise PlayedElsewhere(f"the verified run {key} is played", other)

    async def end_run(self, principal: Principal, key: str) -> RunInfo:
        """Stop a run. What is missing counts with the lowest reward.

        Raises:
            NotFound, Forbidden: there is no such run, or it is another account's.
        """
        run = await asyncio.to_thread(self._results.run, key)
        if run.by != principal.name:
            raise e.Forbidden(f"the run {key} is of {run.by!r}, not of {principal.name!r}")
        await self._stop(key)
        ended = await self._played.end_run(principal, key)
        await asyncio.to_thread(self._store.forget_keys)
        return ended

    async def begin(self, address: str) -> None:
        """Go on with all open runs, now that the hub answers at an address."""
        self._address = address
        await asyncio.to_thread(self._store.forget_keys)
        if self._settings.enabled:
            await self.look()
            self._looking = asyncio.create_task(self._look_forever(), name="verified-runs")

    async def look(self) -> None:
        """Play the open runs that no process plays, such as those of a process that has ended."""
        for key in await asyncio.to_thread(self._results.open_runs, LEVEL):
            other = await asyncio.to_thread(self._store.driver, key, self._played.process)
            if other is None:
                self._drive_soon(key)
            elif key in self._driving:  # this process was away for too long, and another one plays it now
                await self._stop(key)

    async def apply_blocks(self) -> None:
        """Stop the harnesses of runs that were ended because a wheel is blocked."""
        for key in list(self._driving):
            if (await asyncio.to_thread(self._results.run, key)).state == "ended":
                await self._stop(key)
        await asyncio.to_thread(self._store.forget_keys)

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(self._hub.settings.results.lease_seconds / 2)
            try:
                await self.look()
            except e.LudusError as error:
                log.warning("looking after verified runs failed: %s", error.message)
            except Exception:
                log.exception("looking after verified runs failed")

    async def close(self) -> None:
        """Stop, and leave all runs as they are."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        for key in list(self._driving):
            await self._stop(key)
        await self._boxes.aclose()

    async def wait(self, key: str) -> None:
        """Wait until a run is not driven any more."""
        task = self._driving.get(key)
        if task is not None:
            await asyncio.wait([task])

    # ── driving one run ────────────────────────────────────────────────────────────────────────────────────────────

    def _drive_soon(self, key: str) -> None:
        if self._closed or key in self._driving:
            return
        task = asyncio.get_running_loop().create_task(self._drive(key), name=f"verified-run-{key}")
        self._driving[key] = task
        task.add_done_callback(lambda _: self._driving.pop(key, None))

    async def _stop(self, key: str) -> None:
        task = self._driving.get(key)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _drive(self, key: str) -> None:
        """Play a run to its end. What goes wrong is retried after a pause, until the run's deadline."""
        async with self._places:
            while True:
                try:
                    run = await asyncio.to_thread(self._results.run, key)
                    if await asyncio.to_thread(self._store.driver, key, self._played.process, take=True) is not None:
                        return  # another process of the hub plays it
                    setup = await asyncio.to_thread(self._store.setup, key)
                    if run.state == "ended" or setup is None:
                        break
                    await self._play(run, setup)
                    await asyncio.sleep(END_SECONDS)  # if it is still open, its deadline has passed
                except e.NotFound:
                    return  # its account was deleted
                except e.LudusError as error:
                    log.warning("the verified run %s is paused: %s", key, error.message)
                    await asyncio.sleep(self._settings.pause_seconds)
                except Exception:
                    log.exception("the verified run %s is paused", key)
                    await asyncio.sleep(self._settings.pause_seconds)
            await asyncio.to_thread(self._store.forget_keys)

    async def _play(self, run: RunInfo, setup: Setup) -> None:
        who, one = Principal(run.by, frozenset()), setup.verified
        key = self._sealer.open(setup.sealed)
        if key is None:
            log.warning("the verified run %s ends, because the key of its endpoint cannot be decrypted", run.key)
            await self._played.end_run(who, run.key)
            return
        environments = await self._boxes.open()
        proxy = self._proxy(setup.base_url, one.model, key, run.declared.options, setup.most_tokens, setup.spent)
        harness = Harness(one.harness, one.harness_sha256)
        try:
            async with self._harnesses.using(harness, environments, self._everything) as program:
                await self._put_back_left(run, who)
                try:
                    async with asyncio.TaskGroup() as group:
                        for _ in range(min(self._settings.episodes, run.tasks * run.samples)):
                            group.create_task(self._work(run, who, program, proxy))
                except BaseExceptionGroup as failed:
                    raise failed.exceptions[0] from None
        except HarnessGone as error:
            log.warning("the verified run %s ends: %s", run.key, error.message)
            await self._played.end_run(who, run.key)
        finally:
            await proxy.aclose()

    async def _put_back_left(self, run: RunInfo, who: Principal) -> None:
        """Put back the episodes that are open although no harness plays them, because the hub has failed before."""
        left = await self._played.tickets(who, run.key, self._endpoint(run.package, run.version))
        for ticket in left.tickets:
            await self._played.put_back(who, run.key, ticket.place)

    async def _work(self, run: RunInfo, who: Principal, program: Program, proxy: ModelProxy) -> None:
        address = self._endpoint(run.package, run.version)
        while True:
            try:
                found = await self._played.next_episode(who, run.key, address, address)
            except e.CapacityError as error:
                await asyncio.sleep(min(error.retry_after or ROOM_SECONDS, ROOM_SECONDS))
                continue
            except e.NotFound:
                raise
            except e.LudusError as error:  # the other episodes of the run go on
                log.warning("the verified run %s waits: %s", run.key, error.message)
                await asyncio.sleep(self._settings.pause_seconds)
                continue
            if found.ticket is None:
                return
            place = found.ticket.place
            try:
                was_played = await self._play_episode(run, who, found.ticket, program, proxy)
            except (e.NotFound, e.Conflict):
                raise
            except Exception:  # a fault of this hub, so the episode is started again
                log.exception("episode %d of the verified run %s failed", place, run.key)
                await self._played.put_back(who, run.key, place)
                was_played = False
            if not was_played:
                await asyncio.sleep(self._settings.pause_seconds)

    async def _play_episode(
        self, run: RunInfo, who: Principal, ticket: EpisodeTicket, program: Program, proxy: ModelProxy
    ) -> bool:
        """Run the harness for one episode, and return whether it was played; it is perhaps started again if not."""
        place = ticket.place

        async def keep(record: CallRecord) -> bool:
            return await asyncio.to_thread(self._store.keep_call, run.key, record)

        calls = EpisodeCalls(place, self._played.attempt(run.key, place), keep)
        assert run.verified is not None
        async with Door(ticket.play_url, proxy, calls, self._settings.request_bytes) as door:
            ended = await self._boxes.run(program, door, run.verified.model)
        records = sorted(calls.records, key=lambda record: record.number)
        output = HarnessOutput(
            place=place, attempt=calls.attempt, ending=ended.ending, output=_with_refused(ended, door.refused)
        )
        if calls.attempt == 0 or not await asyncio.to_thread(self._store.add_attempt, run.key, output, records):
            return True  # the run has ended meanwhile
        broke = ended.lost or (calls.outage and not calls.answered)
        with contextlib.suppress(e.Conflict):  # the sweeper has written it
            if broke:
                await self._played.put_back(who, run.key, place)
            else:
                given, taken = tokens_of(records)
                params = EndEpisodeParams(input_tokens=given, output_tokens=taken)
                await self._played.end_episode(who, run.key, place, params)
        return not broke

    # ── small parts ────────────────────────────────────────────────────────────────────────────────────────────────

    def _proxy(
        self, base_url: str, model: str, key: str, options: dict[str, Any], most: int, spent: int = 0
    ) -> ModelProxy:
        return ModelProxy(base_url, model, key, options, self._hosts, self._settings, most, spent)

    def _endpoint(self, package: str, version: str) -> str:
        return f"{self._address}/e/{package}@{version}"


def _with_refused(ended: Ended, refused: list[str]) -> str:
    asked = "".join(f"[the hub refused: {one}]\n" for one in refused)
    return f"{ended.output}\n{asked}" if asked else ended.output
