"""Virtual environments of published versions: what is installed, and how installations fail."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import aiohttp
import pytest
from aiohttp import web

from ludus.hub.blocking.store import Blocks
from ludus.hub.blocking.watch import BlockWatch
from ludus.hub.core.peers import Peers
from ludus.hub.database.engine import Database, open_engine, sqlite_url
from ludus.hub.endpoints import environments, pool
from ludus.hub.endpoints.environments import Environments
from ludus.hub.endpoints.errors import InstallRefused
from ludus.hub.endpoints.pool import Endpoints
from ludus.hub.endpoints.releases import Release
from ludus.hub.settings.endpoints import EndpointLimits, EndpointSettings
from ludus.sandbox import find_provider

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=["sandbox", "no sandbox"])
async def make(request: pytest.FixtureRequest, tmp_path: Path, tools: Any) -> Any:
    """`await make(release, **settings)`: the folder of a virtual environment."""
    provider = find_provider("bubblewrap")
    await provider.open()

    async def run(release: Release, limits: dict[str, Any] | None = None, **settings: Any) -> Path:
        given = EndpointSettings(limits=EndpointLimits(**(limits or {})), **settings)
        create = provider.create if request.param == "sandbox" else None
        found = Environments(tmp_path / "environments", given, create)
        found.open()
        return await found.get(release)

    yield run
    await provider.aclose()
    assert not list((tmp_path / "environments").glob(".ludus-*")), "a failed installation leaves nothing"


@pytest.fixture
def release(tmp_path: Path, tools: Any) -> Any:
    """`release(requires=…)`: a release whose wheel lies on the disk."""

    def made(requires: tuple[str, ...] = (), locked: str | None = None, name: str = "counter") -> Release:
        filename, data = tools.wheel_of(name, "1.0.0", tools.counter.format(version="1.0.0"), requires=requires)
        digest = hashlib.sha256(data).hexdigest()
        (tmp_path / digest).write_bytes(data)
        return Release(
            "ada", name, "1.0.0", digest, filename, tmp_path / digest, (f"ada_{name}:Counter",), True, locked=locked
        )

    return made


@pytest.fixture
def links(tmp_path: Path, tools: Any) -> Path:
    """A folder with the wheel of a dependency in two versions."""
    folder = tmp_path / "links"
    folder.mkdir()
    for version in ("1.0", "2.0"):
        filename, data = tools.wheel_of("helper", version, f"VERSION = {version!r}\n")
        (folder / filename).write_bytes(data)
    return folder


async def test_a_dependency_is_installed_next_to_the_wheel(make: Any, release: Any, links: Path) -> None:
    folder = await make(release(requires=("ada-helper<2",)), find_links=(str(links),), index_url="")
    packages = next(folder.glob("lib/python3*/site-packages"))
    assert "1.0" in (packages / "ada_helper.py").read_text()
    assert (packages / "ada_counter.py").exists()
    assert not list(packages.glob("ludus_rl-*")), "Ludus itself is the hub's own"
    assert (packages / "ludus.pth").read_text().strip()


async def test_a_dependency_that_does_not_exist_is_refused_with_the_installers_words(
    make: Any, release: Any, links: Path
) -> None:
    with pytest.raises(InstallRefused, match=r"(?s)ada/counter@1.0.0: .*ada-missing"):
        await make(release(requires=("ada-missing",)), find_links=(str(links),), index_url="")


async def test_a_wheel_for_another_version_of_ludus_is_refused(make: Any, release: Any) -> None:
    with pytest.raises(InstallRefused, match=r"requires ludus-rl>=999, and this hub runs ludus-rl"):
        await make(release(requires=("ludus-rl>=999",)))


@pytest.mark.suite("hub-endpoints", first=1)
@pytest.mark.parametrize("program", ["uv", "pip"])
async def test_ludus_is_never_asked_of_an_index(
    make: Any, release: Any, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    asked: list[str] = []

    async def empty(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=404)

    site = web.Application()
    site.router.add_get("/{rest:.*}", empty)
    runner = web.AppRunner(site)
    await runner.setup()
    if program == "pip":
        monkeypatch.setattr(environments, "_uv", lambda: None)
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        place = f"127.0.0.1:{runner.addresses[0][1]}"
        with pytest.raises(InstallRefused, match="ada-missing"):
            await make(release(requires=("ada-missing",)), index_url=f"http://{place}/", index_hosts=(place,))
    finally:
        await runner.cleanup()
    assert asked
    assert all("ada-missing" in path for path in asked)


async def test_a_source_distribution_is_never_built(make: Any, release: Any, tmp_path: Path) -> None:
    import io
    import tarfile

    folder = tmp_path / "sources"
    folder.mkdir()
    with tarfile.open(folder / "ada_source-1.0.tar.gz", "w:gz") as archive:
        for name, text in (
            ("PKG-INFO", "Metadata-Version: 2.1\nName: ada-source\nVersion: 1.0\n"),
            ("setup.py", f"open({str(tmp_path / 'ran')!r}, 'w').write('')\nfrom setuptools import setup; setup()\n"),
        ):
            member = tarfile.TarInfo(f"ada_source-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    with pytest.raises(InstallRefused):
        await make(release(requires=("ada-source",)), find_links=(str(folder),), index_url="")
    assert not (tmp_path / "ran").exists()


@pytest.mark.suite("hub-endpoints", first=1)
@pytest.mark.parametrize("right", [True, False])
async def test_locked_dependencies_have_the_hashes_of_the_lock(
    make: Any, release: Any, links: Path, right: bool
) -> None:
    digest = hashlib.sha256((links / "ada_helper-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    line = f"ada-helper==1.0 --hash=sha256:{digest if right else digest[::-1]}\n"
    installing = make(release(requires=("ada-helper",), locked=line), find_links=(str(links),), index_url="")
    if not right:
        with pytest.raises(InstallRefused, match=r"(?i)hash"):
            await installing
        return
    folder = await installing
    assert "1.0" in next(folder.glob("lib/python3*/site-packages/ada_helper.py")).read_text()


async def test_a_wheel_that_has_changed_on_the_disk_is_refused(make: Any, release: Any) -> None:
    found = release()
    with found.wheel.open("ab") as file:
        file.write(b"x")
    with pytest.raises(InstallRefused, match="does not have the digest"):
        await make(found)


@pytest.mark.suite("hub-endpoints", first=1)
async def test_an_installation_that_takes_too_long_ends(make: Any, release: Any) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        with pytest.raises(InstallRefused, match=r"not installed within|did not end within|limit on seconds"):
            await make(
                release(requires=("ada-slow",)), {"install_seconds": 3.0}, index_url=f"http://127.0.0.1:{port}/",
                index_hosts=(f"127.0.0.1:{port}",),
            )  # fmt: skip
    finally:
        server.close()
        await server.wait_closed()


async def test_an_environment_beyond_the_size_limit_is_refused(tmp_path: Path, release: Any, tools: Any) -> None:
    import zipfile

    found = release()
    with zipfile.ZipFile(found.wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(found.wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr("ada_large.bin", bytes(64 << 20))
    digest = hashlib.sha256(found.wheel.read_bytes()).hexdigest()
    large = Release("ada", "counter", "1.0.0", digest, found.filename, found.wheel, found.specs, True)
    provider = find_provider("bubblewrap")
    await provider.open()
    try:
        settings = EndpointSettings(limits=EndpointLimits(install_bytes=16 << 20))
        made = Environments(tmp_path / "environments", settings, provider.create)
        made.open()
        with pytest.raises(InstallRefused, match=r"larger than the|limit on"):
            await made.get(large)
        assert not list((tmp_path / "environments").iterdir())
    finally:
        await provider.aclose()


@pytest.mark.suite("hub-endpoints")
async def test_pip_installs_where_there_is_no_uv(
    make: Any, release: Any, links: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "_uv", lambda: None)
    folder = await make(release(requires=("ada-helper<2",)), find_links=(str(links),), index_url="")
    assert "1.0" in next(folder.glob("lib/python3*/site-packages/ada_helper.py")).read_text()


async def test_one_installation_serves_all_that_wait_for_it(tmp_path: Path, release: Any) -> None:
    provider = find_provider("bubblewrap")
    await provider.open()
    created = 0

    async def create(settings: Any) -> Any:
        nonlocal created
        created += 1
        return await provider.create(settings)

    try:
        made = Environments(tmp_path / "environments", EndpointSettings(), create)
        made.open()
        found = release()
        folders = await asyncio.gather(*(made.get(found) for _ in range(5)))
        assert len(set(folders)) == 1
        assert created == 1
    finally:
        await provider.aclose()


@pytest.mark.suite("hub-endpoints")
async def test_a_canceled_installation_leaves_nothing_and_the_next_one_succeeds(tmp_path: Path, release: Any) -> None:
    provider = find_provider("bubblewrap")
    await provider.open()
    begun = asyncio.Event()

    async def create(settings: Any) -> Any:
        box = await provider.create(settings)
        begun.set()
        return box

    try:
        made = Environments(tmp_path / "environments", EndpointSettings(), create)
        made.open()
        found = release()
        task = asyncio.create_task(made.get(found))
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not list((tmp_path / "environments").iterdir())
        assert (await made.get(found)).is_dir()
    finally:
        await provider.aclose()


async def test_a_failed_installation_is_a_typed_answer_of_the_endpoint(start_hub: Any) -> None:
    hub = await start_hub(index_url="")
    await hub.publish(requires=("ada-missing",))
    async with aiohttp.ClientSession() as session:
        async with session.get(hub.address() + "/health") as answer:
            assert answer.status == 424
            error = (await answer.json())["error"]
    assert error["data"]["kind"] == "InstallRefused"
    assert "ada-missing" in error["message"]


async def test_a_folder_that_cannot_be_used_is_tried_again_at_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    providers = [AsyncMock(), AsyncMock()]
    left = iter(providers)
    monkeypatch.setattr(pool, "find_provider", lambda name: next(left))
    (tmp_path / "environments").write_text("not a folder")
    peers = Peers(Database(open_engine(sqlite_url(tmp_path / "hub.sqlite"))))
    blocks = BlockWatch(Blocks(peers._database))
    endpoints = Endpoints(
        lambda *_: pytest.fail("nothing is looked up"), tmp_path / "environments", EndpointSettings(), None, peers,
        blocks,
    )  # fmt: skip
    with pytest.raises(OSError, match="environments"):
        await endpoints._open()
    assert providers[0].aclose.await_count == 1
    (tmp_path / "environments").unlink()
    await endpoints._open()
    assert (tmp_path / "environments").is_dir()
    await endpoints.close()
    assert [one.aclose.await_count for one in providers] == [1, 1]
