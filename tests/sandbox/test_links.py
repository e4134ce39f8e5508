"""`links` give directories of the work directory absolute paths, in bubblewrap; other backends refuse them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from sandboxing import opened, settings_of

from ludus.sandbox import SandboxProvider, SandboxSettings, SandboxUnsupported

Backend = tuple[str, SandboxProvider]
HONORED = ("bubblewrap", "bubblewrap-rlimits", "sandboxd")
"""The backends whose sandboxes are made by bubblewrap; sandboxd's are on its host."""


@pytest.mark.suite("sandbox", first=3)
async def test_links_are_honored_or_refused_with_what_to_do(any_backend: Backend) -> None:
    kind, provider = any_backend
    settings = settings_of(kind).model_copy(update={"links": (("/app", "app"), ("/data", "deep/data"))})
    if kind not in HONORED:
        with pytest.raises(SandboxUnsupported, match=r"cannot honor `?links`?; "):
            await provider.create(settings)
        return
    box = await provider.create(settings)
    await box.write("app/a.txt", b"from the server\n")
    assert (await box.run(["cat", "/app/a.txt"])).text == "from the server\n"
    script = "mkdir -p deep/data && cd /data && echo 'from a command' > b.txt && pwd -P; rm -f /app; ls -d /app"
    assert (await box.run(["sh", "-c", script])).text == "/box/deep/data\n/app\n"
    assert await box.read("deep/data/b.txt") == b"from a command\n"
    other = await box.fork()
    assert (await other.run(["cat", "/data/b.txt"])).text == "from a command\n"
    await other.aclose()
    await box.aclose()


async def test_a_link_in_the_place_of_what_a_sandbox_shows_is_refused(tmp_path: Path) -> None:
    kind = "bubblewrap-rlimits"
    provider = await opened(kind)
    shown = {"readonly": ((str(tmp_path), "/data/set"),), "links": (("/data", "app"),)}
    with pytest.raises(SandboxUnsupported, match="`links` names /data, where the sandbox shows a directory"):
        await provider.create(settings_of(kind).model_copy(update=shown))
    await provider.aclose()


@pytest.mark.parametrize(
    ("link", "why"),
    [(("/etc", "etc"), "belongs to the system"), (("/a/b", "b"), "not the path of a directory such as /app"),
     (("/a", "../b"), "not a path in the work directory"), (("/a", ""), "not a path in the work directory")],
)  # fmt: skip
def test_links_to_other_places_are_refused_by_the_settings(link: tuple[str, str], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        SandboxSettings(links=(link,))
