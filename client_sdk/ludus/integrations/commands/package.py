"""`ludus export --form gymnasium` and `--form openenv`: write a whole environment as a package."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from ludus.cli.common import client_of, console, find_environment, is_local, run, shown
from ludus.integrations.packages import ExportedEnvironment, PackageForm, write_package
from ludus.protocol.errors import InvalidParams, SplitNotFound, Unsupported
from ludus.protocol.messages import did_you_mean
from ludus.validation.core.local_environments import source_of

NameOption = Annotated[
    str | None, typer.Option("--name", help="Name of the package of `gymnasium` or `openenv`; ENV by default.")
]
ActionOption = Annotated[
    str | None,
    typer.Option(
        "--action",
        help="For `gymnasium`, a finite action space of one tool, such as `guess:number=1..100`; else any call.",
        metavar="TOOL[:ARG=LOW..HIGH,…]",
    ),
]


@dataclass(frozen=True)
class PackageExport:
    """The arguments of the command, as far as these forms use them."""

    form: PackageForm
    target: str
    environment: str | None
    out: Path | None
    address: str | None
    split: str | None
    name: str | None
    action: str | None
    overwrite: bool
    token: str | None

    def run(self) -> None:
        """Write the package, and print where it is.

        Raises:
            BadParameter: it cannot be written.
            SplitNotFound: the environment has no such split.
        """
        where = self._played_at()
        exported = run(self._described(where))
        out = self.out or Path(exported.package_name)
        try:
            write_package(exported, out, overwrite=self.overwrite)
        except InvalidParams as error:
            raise typer.BadParameter(error.message) from None
        played = f"played on {where}" if "://" in where else f"which serves {where} itself"
        console.print(shown(f"{out}: {self.form} package of {exported.info.name}, {played}"), soft_wrap=True)

    def _played_at(self) -> str:
        """Return the address of the server that will play, or for Gymnasium what to serve."""
        if self.target.endswith(".jsonl"):
            raise typer.BadParameter(f"{self.target} is a file of trajectories, and no environment to export")
        if self.action is not None and self.form != "gymnasium":
            raise typer.BadParameter(f"--form {self.form} has no action space; leave out --action")
        if self.address is not None and is_local(self.address):
            raise typer.BadParameter(f"--address {self.address}: give a server's address, such as http://10.0.0.5:8000")
        if self.address is None and is_local(self.target):
            if self.form == "openenv":
                raise typer.BadParameter("say --address URL: where the environment will be served when it is played")
            return _absolute(source_of(self.target))
        where = (self.address or self.target).rstrip("/")
        if "@" in urlsplit(where).netloc:
            raise typer.BadParameter("the address holds a user or a password, which would be written into the package")
        return where

    async def _described(self, where: str) -> ExportedEnvironment:
        async with client_of(self.target, self.token, "auto") as client:
            info = find_environment(await client.environments(), self.environment, self.target)
        names = [split.name for split in info.splits]
        if self.split is not None and self.split not in names:
            raise SplitNotFound(
                f"{info.name} has no split {self.split!r}; it has: {', '.join(names)}{did_you_mean(self.split, names)}"
            )
        try:
            return ExportedEnvironment(self.form, info, where, self.split or names[0], self.name, self.action)
        except (InvalidParams, Unsupported) as error:
            raise typer.BadParameter(error.message) from None


def _absolute(source: str) -> str:
    """Return a source whose file, if it names one, is found from any folder."""
    match = re.fullmatch(r"(?P<file>[^:#]+\.py)(?P<rest>[:#].*)?", source, re.DOTALL)
    return f"{Path(match['file']).resolve()}{match['rest'] or ''}" if match is not None else source
