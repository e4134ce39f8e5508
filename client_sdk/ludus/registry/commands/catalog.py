"""What a hub has: `ludus search`, `info`, `versions`, `yank`, `owners` and `access`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from ludus.cli.common import Json, console, print_json, run, shown
from ludus.cli.hub_options import DEFAULT, HubAddress, HubToken, PackageName
from ludus.registry.commands.connecting import connect
from ludus.registry.installing import parse_request
from ludus.registry.types.packages import OwnerList, PackageSummary, SearchResult, VersionInfo, VersionList
from ludus.registry.types.people import Access

COMMANDS: Final = {
    "search": "Search environments on a hub.",
    "info": "Show an environment on a hub.",
    "versions": "List the versions of an environment on a hub.",
    "yank": "Yank a version on a hub, or undo that.",
    "owners": "List or change who may publish an environment.",
    "access": "Show or change who may read an environment.",
}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("search", help=COMMANDS["search"])(search)
    app.command("info", help=COMMANDS["info"])(info)
    app.command("versions", help=COMMANDS["versions"])(versions)
    app.command("yank", help=COMMANDS["yank"])(yank)
    app.command("owners", help=COMMANDS["owners"])(owners)
    app.command("access", help=COMMANDS["access"])(access)


def search(
    words: Annotated[list[str] | None, typer.Argument(help="Words; each is a prefix.", show_default=False)] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="A tag to have; repeatable.")] = None,
    page: Annotated[int, typer.Option("--page", min=1, help="Number of the page.")] = 1,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
    as_json: Json = False,
) -> None:
    """Search environments on a hub. Without words, list those that were updated last."""

    async def go() -> SearchResult:
        async with connect(hub, token) as client:
            return await client.search(" ".join(words or ()), tag or (), page)

    found = run(go())
    if as_json:
        print_json(found.model_dump(mode="json", by_alias=True))
        return
    for package in found.packages:
        _print_summary(package)
    pages = -(-found.total // found.page_size)
    more = f"; --page {page + 1} shows more" if page < pages else ""
    console.print(shown(f"{found.total} found, page {page} of {max(1, pages)}{more}", "dim"), soft_wrap=True)


def _print_summary(package: PackageSummary) -> None:
    marks = [*(("private",) if package.private else ()), *(() if package.signed else ("unsigned",))]
    marks += ["blocked"] if package.blocked else []
    marks += ["yanked"] if package.yanked else []
    console.print(shown(f"{package.id} {package.version}{''.join(f'  [{m}]' for m in marks)}", "bold"), soft_wrap=True)
    tasks = "" if package.tasks is None else f" · {package.tasks} tasks"
    tags = f" · {', '.join(package.tags)}" if package.tags else ""
    console.print(shown(f"  {package.description}{tasks}{tags}"), soft_wrap=True)


def info(
    package: Annotated[str, typer.Argument(metavar="OWNER/NAME[@VERSION]", help="Package, and perhaps its version.")],
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
    as_json: Json = False,
) -> None:
    """Show an environment on a hub: what it has, who signed it, and how to install it."""
    name, version = parse_request(package)

    async def go() -> VersionInfo:
        async with connect(hub, token) as client:
            return await client.version(name, version)

    found = run(go())
    if as_json:
        print_json(found.model_dump(mode="json", by_alias=True))
        return
    for line in _describe(found):
        console.print(shown(line), soft_wrap=True)


def _describe(found: VersionInfo) -> list[str]:
    manifest = found.manifest
    lines = [f"{found.id} {found.version}", manifest.description]
    for entry in manifest.environments:
        splits = ", ".join(
            f"{split.name} {'endless' if split.count is None else split.count}" for split in entry.splits
        )
        tools = ", ".join(tool.name for tool in entry.tools)
        bounds = "unknown" if entry.reward_range is None else "{:g} to {:g}".format(*entry.reward_range)
        lines += [f"environment {entry.name}", f"  splits: {splits or 'unknown'}", f"  tools: {tools or 'unknown'}"]
        lines.append(f"  reward: {bounds}")
    passed = "did not run" if found.validation is None else ("passed" if found.validation.passed else "failed")
    source = manifest.provenance
    commit = f"{source.commit}{' with changes' if source.dirty else ''}" if source.commit else "unknown"
    facts = {
        "tags": ", ".join(manifest.tags), "license": manifest.license, "network": ", ".join(manifest.network) or "none",
        "secrets": ", ".join(secret.name for secret in manifest.secrets) or "none", "commit": commit,
        "repository": source.repository or "", "ludus validate": f"{passed} (on the publisher's machine)",
        "published": f"{found.uploaded_at:%Y-%m-%d %H:%M} UTC by {found.uploaded_by}",
        "signed with": found.signature.key if found.signature else "nothing: this version is unsigned",
        "sha256": found.sha256, "yanked": found.yanked or "", "blocked": found.blocked or "",
        "visibility": "private" if found.private else "public",
    }  # fmt: skip
    lines += [f"{name}: {value}" for name, value in facts.items() if value]
    return [*lines, f"install: ludus install {found.id}@{found.version}"]


def versions(package: PackageName, hub: HubAddress = DEFAULT, token: HubToken = None, as_json: Json = False) -> None:
    """List the versions of an environment on a hub, the newest first."""

    async def go() -> VersionList:
        async with connect(hub, token) as client:
            return await client.versions(package)

    found = run(go())
    if as_json:
        print_json(found.model_dump(mode="json", by_alias=True))
        return
    for row in found.versions:
        marks = ["latest"] if row.version == found.latest else []
        marks += [] if row.signed else ["unsigned"]
        marks += [f"blocked: {row.blocked}"] if row.blocked is not None else []
        marks += [f"yanked: {row.yanked}"] if row.yanked is not None else []
        line = f"{row.version}  {row.uploaded_at:%Y-%m-%d}  {row.sha256[:12]}  {row.uploaded_by}"
        console.print(shown(f"{line}  {'; '.join(marks)}".rstrip()), soft_wrap=True)


def yank(
    package: Annotated[str, typer.Argument(metavar="OWNER/NAME@VERSION", help="The version.")],
    reason: Annotated[str | None, typer.Option("--reason", help="Why it should not be used; others see it.")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Undo an earlier yank.")] = False,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
) -> None:
    """Yank a version, so that only those who name it install it; its files stay. Or undo that."""
    name, version = parse_request(package)
    if version is None:
        raise typer.BadParameter(f"name the version: {name}@VERSION")
    if undo == (reason is not None):
        raise typer.BadParameter("give either --reason or --undo")

    async def go() -> VersionInfo:
        async with connect(hub, token) as client:
            return await client.yank(name, version, reason)

    found = run(go())
    state = "is not yanked any more" if found.yanked is None else f"is yanked: {found.yanked}"
    console.print(shown(f"{found.id} {found.version} {state}"), soft_wrap=True)


def owners(
    package: PackageName,
    add: Annotated[str | None, typer.Option("--add", metavar="OWNER", help="Let another one publish versions.")] = None,
    remove: Annotated[str | None, typer.Option("--remove", metavar="OWNER", help="Take that right away.")] = None,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
    as_json: Json = False,
) -> None:
    """List who may publish versions of an environment, or change that."""
    if add is not None and remove is not None:
        raise typer.BadParameter("give --add or --remove, not both")

    async def go() -> OwnerList:
        async with connect(hub, token) as client:
            if add is not None:
                return await client.add_owner(package, add)
            if remove is not None:
                return await client.remove_owner(package, remove)
            return await client.owners(package)

    found = run(go())
    if as_json:
        print_json(found.model_dump(mode="json", by_alias=True))
        return
    for name in found.owners:
        console.print(shown(name))


def access(
    package: PackageName,
    private: Annotated[
        bool | None, typer.Option("--private/--public", help="Make it private or public.", show_default=False)
    ] = None,
    add: Annotated[str | None, typer.Option("--add-reader", metavar="NAME", help="Let another one read it.")] = None,
    remove: Annotated[str | None, typer.Option("--remove-reader", metavar="NAME", help="Take that right away.")] = None,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
    as_json: Json = False,
) -> None:
    """Show whether an environment is private and who may read it then, or change that.

    [bold]ludus access alice/my-env --private --add-reader bob[/bold]
    """

    async def go() -> Access:
        async with connect(hub, token) as client:
            if private is not None:
                await client.set_private(package, private)
            if add is not None:
                await client.add_reader(package, add)
            if remove is not None:
                await client.remove_reader(package, remove)
            return await client.access(package)

    found = run(go())
    if as_json:
        print_json(found.model_dump(mode="json", by_alias=True))
        return
    console.print(shown(f"{found.id} is {'private' if found.private else 'public'}"), soft_wrap=True)
    for name in found.readers:
        console.print(shown(f"reader: {name}"))
