"""A folder of wheels made of what this environment has installed: for pip without any index."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from email import message_from_string
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def closure(*requirements: str) -> dict[str, Distribution]:
    """The installed distributions that `requirements` need, themselves included, by canonical name."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    queue = [Requirement(text) for text in requirements]
    while queue:
        wanted = queue.pop()
        name = canonicalize_name(wanted.name)
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # for another platform or Python: pip would say so if it were needed
        for extra in ("", *wanted.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                queue += _needed(found[name], extra)
    return found


def _needed(installed: Distribution, extra: str) -> Iterator[Requirement]:
    for text in installed.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def repack(installed: Distribution, folder: Path) -> Path:
    """Write the wheel that an installed distribution came from, without compiled Python and scripts."""
    name = re.sub(r"[-_.]+", "_", installed.metadata["Name"])
    tags = [tag.split("-") for tag in message_from_string(installed.read_text("WHEEL") or "").get_all("Tag", [])]
    compressed = "-".join(".".join(dict.fromkeys(tag[part] for tag in tags)) for part in range(3))
    path = folder / f"{name}-{installed.version}-{compressed}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for file in installed.files or ():
            if ".." not in file.parts and file.suffix != ".pyc" and file.name not in {"INSTALLER", "direct_url.json"}:
                archive.write(str(installed.locate_file(file)), str(file))
    return path
