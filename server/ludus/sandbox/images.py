"""The images of one engine: found, pulled or built as the settings say, checked, and removed beyond a cap.

How this works:

- `Images.obtain` turns settings into one image, by its id, so that a tag that moves does not change what a running
  server uses. Callers that want the same image share one task, which goes on if a caller is canceled.
- Work on the engine runs in a few threads of its own, each with its own client (`_Engine`), whose connection `close`
  can shut: the engine then gives up the pull or the build.
- What was not there before is recorded (`image_record`). Beyond the cap, recorded images are removed, the least
  recently used first. The engine refuses to remove an image that a container uses.
- Layers that images share count once: their histories, which a build inherits from its base, begin alike.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import docker
import docker.errors
import docker.utils
import requests.exceptions

from ludus.sandbox.build_context import BuildContext
from ludus.sandbox.core.errors import SandboxFailed, SandboxImageError
from ludus.sandbox.core.model import SandboxSettings
from ludus.sandbox.image_record import CAP_VARIABLE, ImageRecord, cap_from_environment

log = logging.getLogger("ludus.sandbox")

LABEL: Final = "dev.ludus.image"
"""The label of images that Ludus built."""

_AT_ONCE: Final = 4
_SILENCE_SECONDS: Final = 900.0
"""How long an engine may say nothing about a pull or a build."""
_RETRY_SECONDS: Final = 10.0
"""How long a failure is remembered, so that many episodes of one task do not each ask the registry."""
_TOUCH_SECONDS: Final = 1.0
_QUOTED_LINES: Final = 10
_QUOTED_CHARACTERS: Final = 2000
_ERRORS: Final = (docker.errors.DockerException, requests.exceptions.RequestException, OSError)
_MACHINES: Final[Mapping[str, tuple[str, ...]]] = {
    "x86_64": ("amd64", "386", "x86_64"), "aarch64": ("arm64", "aarch64"), "amd64": ("amd64", "386"),
}  # fmt: skip
"""The architectures of images that an engine runs, by its own architecture."""
_UNKNOWN: Final = ("not found", "manifest unknown", "does not exist", "denied", "unauthorized", "no such image")
"""What engines say if a registry answers that it has no such image, or none that the server may read."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image that the engine has, and that can run here."""

    id: str
    """What containers are created from."""
    name: str
    """The name in the settings; for a built image, the tag with the hash of its folder."""
    digest: str
    """The digest by which a registry knows it; the id, if no registry does."""
    size: int
    """Bytes, unpacked."""
    volumes: tuple[str, ...]
    """The paths that it declares as volumes."""


_Client: Any = docker.APIClient


class _Engine(_Client):  # type: ignore[misc]
    """A client for one pull or build: its waits have a bound, and its connection can be shut."""

    response: Any = None

    def _post(self, url: str, **options: Any) -> Any:
        return super()._post(url, **{**options, "timeout": (60.0, _SILENCE_SECONDS)})

    def _stream_helper(self, response: Any, decode: bool = False) -> Iterator[Any]:
        self.response = response
        return super()._stream_helper(response, decode)  # type: ignore[no-any-return]

    def shut(self) -> None:
        """End the current answer, so that the thread that reads it goes on, and the engine gives up its work."""
        try:
            self.response.raw._fp.fp.raw._sock.shutdown(2)
        except (AttributeError, OSError):
            return


class Images:
    """The images of one engine.

    Args:
        engine: arguments of `docker.APIClient` for further clients of the engine.
        record: the images that Ludus obtained.
        machine: the engine's architecture, as it reports it.
        cap: the maximum size of the recorded images together; by default from `LUDUS_IMAGE_CAP`.
    """

    def __init__(
        self, engine: Mapping[str, Any], record: ImageRecord, machine: str = "", cap: int | None = None
    ) -> None:
        self._arguments = dict(engine)
        self._record = record
        self._machine = machine or platform.machine()
        self._cap = cap_from_environment() if cap is None else cap
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ludus-images")
        self._tasks: dict[tuple[str | None, str | None], asyncio.Task[Image]] = {}
        self._failed: dict[tuple[str | None, str | None], tuple[float, SandboxImageError | SandboxFailed]] = {}
        self._touched: dict[str, float] = {}
        self._histories: dict[str, list[tuple[Any, ...]]] = {}
        self._clients: set[_Engine] = set()
        self._closed = False

    # ── obtaining ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def obtain(self, settings: SandboxSettings) -> Image:
        """Return the image of the settings; pull or build it if that is needed and allowed.

        Raises:
            SandboxImageError: it cannot be used.
            SandboxFailed: the engine or the registry does not answer.
        """
        key = (settings.image, settings.build)
        task = self._tasks.get(key)
        if task is None or task.done() and (task.cancelled() or task.exception() is not None):
            failed_at, error = self._failed.get(key, (0.0, None))
            if error is not None and time.monotonic() - failed_at < _RETRY_SECONDS:
                raise type(error)(error.message)
            task = self._tasks[key] = asyncio.get_running_loop().create_task(self._in_thread(key, settings))
            task.add_done_callback(lambda finished: finished.cancelled() or finished.exception())
        image = await asyncio.shield(task)
        self._check_size(image, settings)
        return image

    async def use(self, image: Image) -> None:
        """Record that a sandbox is created from the image now."""
        if time.monotonic() - self._touched.get(image.name, 0.0) > _TOUCH_SECONDS:
            self._touched[image.name] = time.monotonic()
            await asyncio.get_running_loop().run_in_executor(self._threads, self._record.touch, image.name)

    def forget(self, settings: SandboxSettings) -> None:
        """Look for the image again at the next `obtain`, since the engine does not have it any more."""
        self._tasks.pop((settings.image, settings.build), None)

    async def aclose(self) -> None:
        """Give up running pulls and builds."""
        self._closed = True
        for client in tuple(self._clients):
            client.shut()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, key: tuple[str | None, str | None], settings: SandboxSettings) -> Image:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._obtain, settings)
        except (SandboxImageError, SandboxFailed) as error:
            self._failed[key] = (time.monotonic(), error)
            raise

    def _obtain(self, settings: SandboxSettings) -> Image:
        began = time.monotonic()
        source = settings.image or f"of the folder {settings.build}"
        try:
            with self._client() as client:
                name, origin = self._pulled(client, settings) if settings.image else self._built(client, settings)
                info = client.inspect_image(name)
                image = self._checked(info, name)
                if origin != "found":
                    self._record.add(name, "build" if origin == "built" else "pull")
                    try:
                        self._check_size(image, settings)
                    except SandboxImageError:
                        self._remove(client, name)
                        raise
                    self.make_room(client, keep=name)
        except _ERRORS as error:
            raise SandboxFailed(f"obtaining the image {source} failed: {error or type(error).__name__}") from None
        took = time.monotonic() - began
        log.info("image %s is %s (%s, %d bytes, %.1f s)", name, image.digest, origin, image.size, took)
        return image

    @contextmanager
    def _client(self) -> Iterator[_Engine]:
        if self._closed:
            raise SandboxFailed("the sandboxes of this server have been closed")
        client = _Engine(**self._arguments)
        self._clients.add(client)
        try:
            yield client
        finally:
            self._clients.discard(client)
            if client.response is not None:
                client.response.close()
            client.close()

    def _checked(self, info: Mapping[str, Any], name: str) -> Image:
        architecture, system = str(info.get("Architecture", "")), str(info.get("Os", ""))
        fits = _MACHINES.get(self._machine, (self._machine,))
        if architecture and architecture not in fits or system not in ("", "linux"):
            raise SandboxImageError(
                f"the image {name!r} is for {system}/{architecture}, and this engine runs linux/{fits[0]}; "
                "name or build an image for this architecture"
            )
        config = info.get("Config") or {}
        digests = info.get("RepoDigests") or [info["Id"]]
        digest = str(digests[0]).rpartition("@")[2]
        return Image(str(info["Id"]), name, digest, int(info["Size"]), tuple(config.get("Volumes") or ()))

    def _check_size(self, image: Image, settings: SandboxSettings) -> None:
        if image.size > settings.image_bytes:
            raise SandboxImageError(_too_large(image.name, image.size, settings.image_bytes))
        if image.size > self._cap:
            raise SandboxImageError(
                f"the image {image.name!r} has {image.size} bytes, more than the cap of {self._cap} on all images "
                f"({CAP_VARIABLE}); raise the cap, or use a smaller image"
            )

    # ── pulling ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _pulled(self, client: _Engine, settings: SandboxSettings) -> tuple[str, str]:
        name = str(settings.image)
        present = _has(client, name)
        if present and settings.pull != "always":
            return name, "found"
        if settings.pull == "never":
            raise SandboxImageError(
                f'the engine has no image {name!r}, and the settings forbid pulling it (`pull="never"`); pull, load or '
                "build it first, or allow pulling"
            )
        if name.startswith("sha256:"):
            if present:
                return name, "found"
            raise SandboxImageError(f"the engine has no image {name!r}, and an id cannot be pulled; name it by its tag")
        log.info("pulling image %s", name)
        self._pull(client, name, min(settings.image_bytes, self._cap))
        return name, "found" if present else "pulled"

    def _pull(self, client: _Engine, name: str, room: int) -> None:
        layers: dict[str, int] = {}
        repository, tag = docker.utils.parse_repository_tag(name)
        try:
            for event in client.pull(repository, tag or "latest", stream=True, decode=True):
                if "error" in event:
                    raise docker.errors.APIError(str(event["error"]))
                if event.get("status") == "Downloading":
                    layers[event["id"]] = int((event.get("progressDetail") or {}).get("total") or 0)
                if (packed := sum(layers.values())) > room:
                    client.shut()
                    raise SandboxImageError(_too_large(name, packed, room, packed=True))
                if self._closed:
                    raise SandboxFailed("the sandboxes of this server have been closed")
        except docker.errors.DockerException as error:
            message = str(getattr(error, "explanation", None) or error)
            if not any(text in message.lower() for text in _UNKNOWN):
                raise SandboxFailed(f"pulling the image {name!r} failed: {message}") from None
            raise SandboxImageError(
                f"the engine has no image {name!r}, and its registry gives none: {message}; correct the name, log in "
                "to the registry (`docker login`), or build, load or import the image first"
            ) from None

    # ── building ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _built(self, client: _Engine, settings: SandboxSettings) -> tuple[str, str]:
        context = BuildContext.read(str(settings.build))
        try:
            with self._record.only_one(context.image):
                always = settings.pull == "always"
                if _has(client, context.image) and not always:
                    return context.image, "found"
                missing = [base for base in context.bases if not _has(client, base)]
                if missing and settings.pull == "never":
                    raise SandboxImageError(
                        f"the folder {settings.build} starts from {missing[0]!r}, which the engine does not have, and "
                        'the settings forbid pulling it (`pull="never"`); pull or load it first'
                    )
                for base in missing:
                    self._pull(client, base, min(settings.image_bytes, self._cap))
                    self._record.add(base, "pull")
                for base in set(context.bases) - set(missing) if always else ():
                    self._pull(client, base, min(settings.image_bytes, self._cap))
                self._build(client, context)
                return context.image, "built"
        except TimeoutError as error:
            raise SandboxFailed(f"building the folder {settings.build} did not begin: {error}") from None
        finally:
            context.close()

    def _build(self, client: _Engine, context: BuildContext) -> None:
        log.info("building image %s of the folder %s", context.image, context.folder)
        output: deque[str] = deque(maxlen=_QUOTED_LINES)
        events = client.build(
            fileobj=context.archive, custom_context=True, tag=context.image, rm=True, forcerm=True, decode=True,
            labels={LABEL: "build"},
        )  # fmt: skip
        try:
            for event in events:
                output.extend(str(event.get("stream", "")).splitlines())
                if "error" in event:
                    raise docker.errors.APIError(str(event["error"]))
                if self._closed:
                    raise SandboxFailed("the sandboxes of this server have been closed")
        except docker.errors.DockerException as error:
            lines = "\n".join([line for line in output if line.strip()] + [str(error)])[-_QUOTED_CHARACTERS:]
            raise SandboxImageError(
                f"the folder {context.folder} cannot be built to an image; the last lines:\n{lines}"
            ) from None
        if not _has(client, context.image):
            lines = "\n".join(output)[-_QUOTED_CHARACTERS:]
            raise SandboxImageError(f"building the folder {context.folder} gave no image; the last lines:\n{lines}")

    # ── the cap ────────────────────────────────────────────────────────────────────────────────────────────────────

    def make_room(self, client: Any, keep: str = "", cap: int | None = None) -> list[str]:
        """Remove recorded images, the least recently used first, until they fit into the cap; return their names.

        Images that a container uses stay, even if the cap is exceeded.
        """
        cap = self._cap if cap is None else cap
        removed = []
        with self._record.only_one("room"):
            ids = {}
            for record in self._record.all():
                if (info := _inspect(client, record.name)) is None:
                    self._record.forget(record.name)  # a person removed it
                else:
                    ids[record.name] = str(info["Id"])
            for name in [name for name in ids if name != keep]:
                if self.size_of(client, ids.values()) <= cap:
                    break
                if self._remove(client, name):
                    removed.append(name)
                    del ids[name]
        if removed:
            log.info("removed %d images beyond the cap of %d bytes: %s", len(removed), cap, ", ".join(removed))
        return removed

    def size_of(self, client: Any, images: Iterable[str]) -> int:
        """Return the size of images in bytes, with the layers that they share counted once."""
        counted: set[tuple[Any, ...]] = set()
        total = 0
        for image in set(images):
            if image not in self._histories:
                steps = client.history(image)
                layers = [(step["Created"], step["CreatedBy"], step["Size"]) for step in reversed(steps)]
                self._histories[image] = layers
            path: tuple[Any, ...] = ()
            for step in self._histories[image]:
                path = (hash(path), *step)
                if path not in counted:
                    counted.add(path)
                    total += int(step[2])
        return total

    def _remove(self, client: Any, name: str) -> bool:
        """Remove an image that no container uses; return whether it is gone."""
        try:
            client.remove_image(name)
        except docker.errors.NotFound:
            pass
        except docker.errors.APIError as error:
            if error.status_code != 409:  # 409: a container uses it
                log.warning("removing the image %s failed: %s", name, error)
            return False
        self._record.forget(name)
        return True


def _inspect(client: Any, name: str) -> Mapping[str, Any] | None:
    try:
        return client.inspect_image(name)  # type: ignore[no-any-return]
    except docker.errors.NotFound:
        return None


def _has(client: Any, name: str) -> bool:
    return _inspect(client, name) is not None


def _too_large(name: str, size: int, limit: int, *, packed: bool = False) -> str:
    return (
        f"the image {name!r} has {size} bytes{' packed' if packed else ''}, more than `image_bytes={limit}` of the "
        "settings allows; raise the limit, or use a smaller image"
    )
