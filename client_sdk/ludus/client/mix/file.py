"""Mix files: the sources of a run and how they share its groups, as TOML.

url = "http://127.0.0.1:8000"       # the server of sources that name none

[policy]
kind = "progress"

[[sources]]
environment = "arithmetic-easy"

[[sources]]
environment = "guess_number"
variant = "tiny"                    # the environment guess_number-tiny
weight = 2.0
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from ludus.client.mix.mixer import Source
from ludus.client.mix.policy import MixPart, MixPolicy, Positive, Rate, TaskBand, check_stages
from ludus.protocol.errors import InvalidParams, NotFound
from ludus.protocol.messages import describe_invalid, did_you_mean

LARGEST_FILE: Final = 1024 * 1024
"""The maximum size of a mix file, in bytes."""

Text = Annotated[str, Field(min_length=1, max_length=200)]


class MixSource(MixPart):
    """One source of tasks: a split of an environment."""

    environment: Text
    """The environment's name on the server."""
    variant: Text | None = None
    """A variant of it, such as a level of difficulty: `easy` is the environment `NAME-easy`."""
    label: Text | None = None
    """Its name in logs; the environment's name when left out. Required when two sources have the same environment."""
    url: Text | None = None
    """Its server; that of the file when left out."""
    wire: Literal["auto", "channel", "mcp", "ors"] = "auto"
    """The transport to use."""
    token_variable: Text | None = None
    """The environment variable with the token of its server. Tokens do not belong in files."""
    split: Text = "train"
    """The split to draw tasks from."""
    weight: Rate = 1.0
    """Its base weight, relative to the other sources."""
    stage: Positive = 1
    """Its stage, for `policy.kind = "stages"`."""
    success_at: float | None = None
    """The lowest reward that counts as a pass; 1 when left out, or `evaluation.threshold` in `ludus train`."""
    curriculum: TaskBand | None = None
    """Prefer tasks of medium difficulty within this source (`tasks/sample` with a pass-rate band)."""
    secrets: dict[str, str] = Field(default_factory=dict)
    """The secrets of each episode: name → environment variable that holds the value."""

    @property
    def name(self) -> str:
        """The environment's name on the server, with the variant."""
        return self.environment if self.variant is None else f"{self.environment}-{self.variant}"

    @property
    def title(self) -> str:
        """The label, or the environment's name."""
        return self.label or self.name


class MixFile(MixPart):
    """A mix: sources, and how they share the groups."""

    url: Text | None = None
    """The server of sources that name none."""
    serve: tuple[Text, ...] = ()
    """Environments that `ludus train` and `ludus mix` serve while they run, for sources without an address: NAME,
    `module:Class` or `file.py:Class`."""
    policy: MixPolicy = MixPolicy()
    """How the sources share the groups."""
    sources: Annotated[tuple[MixSource, ...], Field(min_length=1)]
    """The sources."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        titles = [source.title for source in self.sources]
        if duplicate := next((title for title in titles if titles.count(title) > 1), None):
            raise ValueError(f"two sources are called {duplicate!r}; give each a `label` of its own")
        if self.url is not None and self.serve:
            raise ValueError("url and serve exclude each other: sources without an address have one server")
        if self.url is None and not self.serve and (bare := next((s for s in self.sources if s.url is None), None)):
            raise ValueError(
                f"the source {bare.title!r} has no server; give it a `url`, or the file a `url` or `serve`"
            )
        if self.policy.kind == "stages":
            check_stages([source.stage for source in self.sources])
        return self

    def mixer_sources(self) -> tuple[Source, ...]:
        """Return the sources as the mixer takes them."""
        return tuple(Source(source.title, source.weight, source.stage) for source in self.sources)

    def address(self, source: MixSource, served: str | None = None) -> str:
        """Return the address of a source's server.

        Args:
            source: the source.
            served: the address at which `serve` is served.

        Raises:
            InvalidParams: the source is to be served, and is not.
        """
        address = source.url or self.url or served
        if address is None:
            raise InvalidParams(
                f"the source {source.title!r} has no running server: the mix names it under `serve`, which only "
                "`ludus train` and `ludus mix` do; run `ludus serve` and set `url`"
            )
        return address


def read_mix(path: str | Path) -> MixFile:
    """Read a mix file.

    Raises:
        NotFound: the file cannot be read.
        InvalidParams: it is not TOML, too large, or not a mix; the message names the line and the field.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise NotFound(f"the mix {path} cannot be read: {error.strerror}") from None
    if len(data) > LARGEST_FILE:
        raise InvalidParams(f"{path} is larger than {LARGEST_FILE // 1024} KiB, so it is no mix")
    try:
        return parse_mix(data.decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise InvalidParams(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def parse_mix(text: str, where: str) -> MixFile:
    """Return the mix of a TOML text; `where` names it in messages.

    Raises:
        InvalidParams: as for `read_mix`.
    """
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidParams(f"{where} is not TOML: {error}") from None
    try:
        mix = MixFile.model_validate(table)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        location = tuple(problem["loc"])
        name = ".".join(map(str, location))
        if problem["type"] == "extra_forbidden":
            message = f"there is no field {name}{did_you_mean(str(location[-1]), _fields_at(location))}"
        else:
            reason = describe_invalid(problem)
            message = f"{name}: {reason}" if name else reason
        raise InvalidParams(f"{where}{_line(text, location)}: {message}") from None
    _refuse_unused(table, mix, where, text)
    return mix


def _refuse_unused(table: Mapping[str, Any], mix: MixFile, where: str, text: str) -> None:
    """Refuse settings that the kind of the policy does not read.

    Raises:
        InvalidParams: there is one.
    """
    kind = mix.policy.kind
    for setting in ("stages", "band", "progress"):
        if setting != kind and setting in table.get("policy", {}):
            line = _line(text, ("policy", setting))
            raise InvalidParams(f'{where}{line}: policy.{setting} is not for kind = "{kind}"; leave it out')
    for number, source in enumerate(table.get("sources", ())):
        if kind != "stages" and "stage" in source:
            line = _line(text, ("sources", number, "stage"))
            raise InvalidParams(f'{where}{line}: sources.{number}.stage is for kind = "stages"; leave it out')


def _line(text: str, location: tuple[int | str, ...]) -> str:
    """Return `, line N` for the line of a field, or of the innermost table of it that has a line of its own."""
    lines = dict(_places(text))
    while location:
        if location in lines:
            return f", line {lines[location]}"
        location = location[:-1]
    return ""


def _places(text: str) -> Iterator[tuple[tuple[int | str, ...], int]]:
    """Yield the places of headers and keys, and their lines, in the usual layout of one key per line."""
    table: tuple[int | str, ...] = ()
    counts: dict[tuple[int | str, ...], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*(\[\[?)\s*([\w.\s\"'-]+?)\s*\]", line):
            table = ()
            for part in (part.strip().strip("\"'") for part in header[2].split(".")):
                table += (part,)
                if table in counts and not (header[1] == "[[" and header[2].endswith(part)):
                    table += (counts[table],)
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table += (counts[table],)
            yield table, number
        elif key := re.match(r"\s*([\w-]+)\s*=", line):
            yield (*table, key[1]), number


def _fields_at(location: tuple[int | str, ...]) -> list[str]:
    """Return the fields of the table that a field is in."""
    model: type[BaseModel] | None = MixFile
    for part in location[:-1]:
        if isinstance(part, int) or model is None:
            continue
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        if part == "sources":
            model = MixSource
        elif part == "curriculum":
            model = TaskBand
        else:
            model = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
    return list(model.model_fields) if model is not None else []
