"""The surroundings on which an environment's results may depend by mistake, and how to give a process other ones."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOOKS: Final = Path(__file__).with_name("changed_surroundings.py")
"""The file that changes surroundings inside of a process."""

READS: Final = "reads"
"""The file of a process, in its folder, with the places in the environment's code that read surroundings."""

MIRRORED: Final = 2_000
"""The most entries of the working folder that are mirrored in another one; with more, the process works there."""

COPIED_BYTES: Final = 1_000_000
"""Files up to this size are copied into a mirrored folder, as the environment may write them; others are linked."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that an environment's results must not depend on."""

    name: str
    what: str
    """As in "an observation follows …"."""
    advice: str


CAUSES: Final[Mapping[str, Cause]] = {
    cause.name: cause
    for cause in (
        Cause("wall-clock", "the wall clock", "take the date from the task, or draw it from `self.rng`"),
        Cause("monotonic-clock", "the time that has passed", "count steps instead of seconds; `limits` bounds time"),
        Cause("random", "a generator of `random` that is not the episode's", "draw from `self.rng`"),
        Cause("numpy", "numpy's global generator", "make one with `numpy.random.default_rng(self.seed)`"),
        Cause("urandom", "`os.urandom`, from which `secrets`, `uuid4` and `default_rng()` draw",
              "draw from `self.rng`, such as `uuid.UUID(int=self.rng.getrandbits(128))`"),
        Cause("hash-seed", "the hash seed, which orders sets of strings and makes `hash()`",
              "sort sets before you show or walk through them, and use `hashlib` instead of `hash()`"),
        Cause("zone", "the time zone", "use `datetime.UTC`"),
        Cause("listing", "the order in which a folder lists its files",
              "sort what `listdir`, `iterdir` or `glob` give"),
        Cause("host", "the name of the machine", "leave it out"),
        Cause("folder", "the working folder, or the one for temporary files",
              "show paths relative to a folder of the episode, and find data with `Path(__file__)`"),
        Cause("variables", "environment variables of the user or the session", "leave them out"),
        Cause("threads", "the order in which threads finish", "collect results in the order of the requests"),
        Cause("process", "the number of the process or of a thread", "count in `self` instead"),
        Cause("addresses", "memory addresses, as in `id()`, default `repr` or `hash()` of an object",
              "give the class a `__repr__`, and number objects in `self`"),
        Cause("network", "the network", "record its replies with a cassette, or bring the data along"),
        Cause("earlier-episodes", "earlier episodes of the same process",
              "keep an episode's state in `self`, not in the class or the module"),
        Cause("files", "files that earlier episodes left", "give each episode a folder of its own, made in `setup`"),
    )
}  # fmt: skip
"""By name."""

CHANGEABLE: Final = (
    "wall-clock", "monotonic-clock", "random", "numpy", "urandom", "listing", "host", "threads", "hash-seed", "zone",
    "folder", "variables",
)  # fmt: skip
"""The causes that a process can be given one at a time."""

UNSEEN: Final = frozenset({"hash-seed", "zone", "folder", "variables", "host"})
"""Those of them that an environment can read without a trace."""

OTHER_VARIABLES: Final = {
    "USER": "other", "LOGNAME": "other", "USERNAME": "other", "SHLVL": "7", "TERM": "dumb", "COLUMNS": "133",
    "LINES": "31", "PWD": "/", "OLDPWD": "/", "EDITOR": "other", "DISPLAY": ":7", "SSH_TTY": "/dev/pts/7",
    "LUDUS_OTHER_SURROUNDINGS": "1",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Read:
    """A place in the environment's code that reads something of its surroundings."""

    what: str
    """The name of the cause."""
    place: str
    """File and line."""
    function: str
    owner: str = ""
    """The class of the instance that read it, for the network; empty if it was not seen."""

    def __str__(self) -> str:
        return f"{self.place} calls {self.function}"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """How the surroundings of a process differ from those of others."""

    changed: frozenset[str] = frozenset()
    """The names of the causes that differ."""
    pinned: bool = False
    """Whether all others are held still, so that two processes with the same surroundings give the same."""
    folder: Path | None = None
    """The folder of the process, so that several processes in a row have the same; None for a new one."""
    keeps: bool = False
    """Whether the folder is kept at the end."""
    inherited: bool = False
    """Whether the hash seed and the time zone are those of this process, for servers that nothing is compared with."""

    @property
    def affects_code(self) -> bool:
        """Whether something changes inside of the process."""
        return self.pinned or bool(self.changed)

    def program(self, folder: Path) -> str:
        """Return Python statements that change the surroundings inside of a process.

        Args:
            folder: the folder of the process.
        """
        with suppress(FileNotFoundError):
            (folder / READS).unlink()
        return (
            "from importlib.util import module_from_spec, spec_from_file_location\n"
            f"spec = spec_from_file_location('ludus_changed_surroundings', {str(HOOKS)!r})\n"
            "module = module_from_spec(spec)\n"
            "spec.loader.exec_module(module)\n"
            f"module.Surroundings({sorted(self.changed)!r}, pinned={self.pinned}, "
            f"reads={str(folder / READS)!r}).install()\n"
        )

    def variables(self) -> dict[str, str]:
        """Return environment variables of the process."""
        if self.inherited:
            return {}
        variables = {
            "PYTHONHASHSEED": "2" if "hash-seed" in self.changed else "1",
            "TZ": "Pacific/Auckland" if "zone" in self.changed else "UTC",
        }
        if "host" in self.changed:
            variables["HOSTNAME"] = "other"
        return variables | (OTHER_VARIABLES if "variables" in self.changed else {})

    def working_folder(self, folder: Path) -> Path | None:
        """Make a mirror of the working folder in another place and return it; None if the process works in this one.

        Args:
            folder: the folder of the process.
        """
        if not self.pinned and "folder" not in self.changed:
            return None
        current, mirror = Path.cwd(), folder / "work"
        entries = list(current.iterdir())
        if len(entries) > MIRRORED:
            return None
        if mirror.is_dir():
            return mirror
        mirror.mkdir(parents=True)
        for entry in entries:
            with suppress(OSError):  # a socket, or a file that may not be read
                if entry.is_file() and entry.suffix != ".py" and entry.stat().st_size <= COPIED_BYTES:
                    shutil.copy2(entry, mirror / entry.name)
                else:
                    (mirror / entry.name).symlink_to(entry)
        return mirror

    @staticmethod
    def reads_in(folder: Path) -> list[Read]:
        """Return the places that a process has written into its folder."""
        try:
            lines = [line for line in (folder / READS).read_text("utf-8").split("\n") if line]
        except FileNotFoundError:
            return []
        reads = []
        for line in lines:
            with suppress(ValueError):  # it is being written
                reads.append(Read(**{**json.loads(line), "place": _here(json.loads(line)["place"], folder)}))
        return reads


def _here(location: str, folder: Path) -> str:
    """Return a place as the user knows it: below the working folder if it is there, and not in its mirror."""
    for start in (f"{folder / 'work'}{os.sep}", f"{Path.cwd()}{os.sep}"):
        location = location.removeprefix(start)
    return location
