"""`make hub`: run a hub with the built-in library, and publish the packages of `environments/library` on it.

    python scripts/run_hub.py [OPTION…]     options of `ludus hub`

Each package goes the way of any other: `ludus publish` builds its wheel, signs it and uploads it. It is signed with the
hub's own key, because that is the key of the owner `ludus` there. A version that the hub has is left as it is. The
suite `validation-library` validates the packages, so they are not validated again each time that a hub starts.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from types import FrameType
from typing import Final

import installer

LUDUS: Final = (str(installer.interpreter(installer.ROOT / ".venv")), "-m", "ludus.cli")
ANNOUNCED: Final = re.compile(r"Ludus hub at (\S+) .*data in (.+)\)$")


def main() -> None:
    """Run the hub until a signal ends it, and exit with its exit code."""
    options = sys.argv[1:]
    process = subprocess.Popen([*LUDUS, "hub", *options], stdout=subprocess.PIPE, text=True)

    def end(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, lambda number, frame: None)  # a terminal sends it to the hub as well
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        if "--no-seed" not in options and (announced := ANNOUNCED.match(line.strip())) is not None:
            publish_library(announced[1], Path(announced[2]))
    sys.exit(process.wait())


def publish_library(url: str, data: Path) -> None:
    """Publish the packages that a hub does not have in this version.

    Args:
        url: the hub's address.
        data: its data folder, which has its key.
    """
    config = data / "publisher"
    config.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(data / "hub-key.pem", config / "publisher-key.pem")
    for folder in installer.LIBRARY:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        package = tomllib.loads((folder / "ludus.toml").read_text(encoding="utf-8"))["id"]
        if has_version(url, package, project["version"]):
            continue
        command = [*LUDUS, "publish", str(folder), "--hub", url, "--no-isolation", "--no-validate"]
        done = subprocess.run(
            command, env={**os.environ, "LUDUS_CONFIG_DIR": str(config)}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        why = f": {done.stdout.strip()}" if done.returncode else ""
        installer.say(f"{package} {project['version']} was {'not ' if why else ''}published{why}")


def has_version(url: str, package: str, version: str) -> bool:
    """Return whether a hub shows a version of a package."""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/environments/{package}/versions/{version}"):
            return True
    except urllib.error.HTTPError:
        return False


if __name__ == "__main__":
    main()
