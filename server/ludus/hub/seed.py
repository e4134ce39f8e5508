"""The built-in library as packages of the hub, such as `ludus/wordle`.

Their wheels are made here, without a network: a module that names the class, and a dependency on exactly this version
of Ludus, which has the code. They are signed with the hub's own key, which is made when the hub first starts. Files of
the archives have a fixed time, so one version of Ludus always makes the same wheels.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import logging
import math
import textwrap
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ludus.common.distribution import DISTRIBUTION, installed_version
from ludus.hub.access.viewers import BUILT_IN, Viewer
from ludus.hub.core.hub_key import KEY_FILE, hub_key
from ludus.hub.endpoints.sandboxes import SHARE
from ludus.hub.parts.hub import Hub
from ludus.hub.registry.publishing import Upload
from ludus.hub.settings.endpoints import MEGABYTE, EndpointLimits
from ludus.protocol.errors import LudusError
from ludus.registry.types.errors import PackageNotFound
from ludus.registry.types.packages import DESCRIPTION_LENGTH, EnvironmentEntry, Manifest, Resources, Statement
from ludus.registry.types.signing import digest_of, sign, text_digest
from ludus.sandbox import Limits
from ludus.server.tasks.catalog import Catalog
from ludus.server.tasks.loading import load_environment

if TYPE_CHECKING:
    from ludus.server import Environment

OWNER: Final = BUILT_IN
"""The owner of the built-in packages."""

OPERATOR: Final = Viewer.of_administrator(OWNER)
"""Who publishes them."""

LIBRARY: Final = {
    "algebra": ("math", "symbolic", "single-turn"),
    "arithmetic": ("math", "single-turn"),
    "browser": ("web", "browser", "sandbox", "tools"),
    "code": ("programming", "python", "sandbox"),
    "guess_number": ("game", "search", "single-player"),
    "countdown": ("arithmetic", "math", "single-player"),
    "connect_four": ("game", "two-players"),
    "negotiation": ("game", "two-players", "negotiation", "dialogue"),
    "wordle": ("game", "words", "single-player"),
    "research": ("reports", "citations", "tools"),
    "search": ("question-answering", "multi-hop", "citations"),
    "spreadsheet": ("office", "tools", "multi-turn"),
    "support_desk": ("dialogue", "tools", "multi-turn"),
    "swe": ("programming", "python", "sandbox", "tools"),
    "word_problems": ("math", "reasoning", "single-turn"),
    "workplace": ("office", "tools", "multi-turn"),
    "company": ("office", "tools", "persistent"),
}
"""The tags of each environment of the built-in library that the hub publishes."""

SANDBOXES: Final = 2
"""How many sandboxes at one time the endpoint of a built-in environment has room for everywhere."""

_log = logging.getLogger("ludus.hub")
_TIME: Final = (2020, 1, 1, 0, 0, 0)


def seed(hub: Hub) -> list[str]:
    """Publish the built-in library as far as this version of it is not there, and return the ids of what was added.

    What cannot be published is logged, and the hub starts without it: for example, if the data folder with the hub's
    key was lost, and the database still has the packages that were signed with it.
    """
    added = []
    version = installed_version()
    key = hub_key(hub.settings.data / KEY_FILE)
    for name, tags in LIBRARY.items():
        package = f"{OWNER}/{name.replace('_', '-')}"
        try:
            with contextlib.suppress(PackageNotFound):
                hub.catalog_of(OPERATOR).version(OWNER, name.replace("_", "-"), version)
                continue
            publish_built_in(hub, name, tags, version, key)
        except LudusError as error:
            _log.warning("the built-in package %s was not published: %s", package, error.message)
        else:
            added.append(package)
    return added


def publish_built_in(hub: Hub, name: str, tags: tuple[str, ...], version: str, key: Ed25519PrivateKey) -> None:
    """Publish one environment of the built-in library."""
    cls = load_environment(name)
    info = next(iter(Catalog([cls]).values())).info
    module = f"ludus_{name}"
    entry = EnvironmentEntry(
        name=name, source=f"{module}:{cls.__name__}", version=info.version, description=info.description,
        splits=info.splits, tools=info.tools, reward_range=info.reward_range, seedable=info.seedable,
        gradable=info.gradable, forkable=info.forkable, group_scoring=info.group_scoring, durability=cls.durable,
    )  # fmt: skip
    lines = info.description.strip().splitlines() or [name]
    manifest = Manifest(
        id=f"{OWNER}/{name.replace('_', '-')}", version=version,
        description=textwrap.shorten(lines[0], DESCRIPTION_LENGTH, placeholder=" …"),
        license="Apache-2.0", tags=tags, environments=(entry,), resources=resources_of(cls),
        network=cls.sandbox_settings.network if cls.sandbox_settings is not None else (),
    )  # fmt: skip
    card = f"# {name.replace('_', ' ').capitalize()}\n\n{info.description}\n\nThis environment is part of Ludus.\n"
    filename, wheel = built_in_wheel(name, f"{cls.__module__}:{cls.__name__}", manifest)
    with hub.blobs.receiving(len(wheel)) as incoming:
        incoming.write(wheel)
        statement = Statement(
            id=manifest.id, version=version, filename=filename, sha256=incoming.sha256, size=len(wheel),
            manifest_sha256=digest_of(manifest), card_sha256=text_digest(card),
        )  # fmt: skip
        upload = Upload(incoming, filename, manifest, card, sign(statement, key))
        hub.publisher.publish(OPERATOR, upload)


def resources_of(cls: type[Environment[Any]]) -> Resources:
    """Return what the endpoint of an environment needs for its sandboxes, beyond what every endpoint has.

    There is room for `SANDBOXES` sandboxes of the settings of the class, of which the hub gives an endpoint's sandboxes
    a share only; on machines with control groups, which count what is really used, there is room for many more.
    """
    if cls.sandbox_settings is None and not cls.chooses_sandboxes():
        return Resources()
    limits = cls.sandbox_settings.limits if cls.sandbox_settings is not None else Limits()
    given = EndpointLimits()
    needed = SANDBOXES * (limits.memory + limits.disk) / SHARE - given.disk
    if needed <= given.memory:
        return Resources()
    return Resources(memory_mb=min(math.ceil(needed / MEGABYTE), given.most_memory // MEGABYTE))


def built_in_wheel(name: str, source: str, manifest: Manifest) -> tuple[str, bytes]:
    """Return the file name and the bytes of the wheel of one environment of the built-in library.

    Args:
        name: the environment's name.
        source: its class, as `module:Class`.
        manifest: the package's manifest.
    """
    module, _, cls = source.partition(":")
    stem = f"{OWNER}_{name}-{manifest.version}"
    metadata = (
        f"Metadata-Version: 2.4\nName: {OWNER}-{name.replace('_', '-')}\nVersion: {manifest.version}\n"
        f"Summary: {manifest.description}\nLicense-Expression: {manifest.license}\nRequires-Python: >=3.11\n"
        f"Requires-Dist: {DISTRIBUTION}[environments]=={manifest.version}\n"
    )
    files = {
        f"{OWNER}_{name}.py": f'"""{manifest.description}"""\n\nfrom {module} import {cls}\n\n__all__ = ["{cls}"]\n',
        f"{stem}.dist-info/METADATA": metadata,
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: ludus\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/entry_points.txt": f"[ludus.environments]\n{name} = {OWNER}_{name}:{cls}\n",
    }
    return f"{stem}-py3-none-any.whl", pack_wheel(stem, files)


def pack_wheel(stem: str, files: Mapping[str, str]) -> bytes:
    """Return a wheel with some files, and their RECORD.

    Args:
        stem: the distribution and the version, as in the file's name.
        files: the texts of the files, by path.
    """
    rows = [f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in files.items()]
    record = f"{stem}.dist-info/RECORD"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in {**files, record: "\n".join([*rows, f"{record},,", ""])}.items():
            member = zipfile.ZipInfo(path, _TIME)
            member.external_attr = 0o644 << 16
            archive.writestr(member, text)
    return buffer.getvalue()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
