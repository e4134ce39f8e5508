"""The layout rules that tools cannot check: break one and imports fail only on another machine."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = ("protocol", "server", "client_sdk", "environments", "trainer")
PACKAGES = {
    "protocol", "server", "sandbox", "client", "cli", "checks", "conformance", "evaluation", "environments",
    "validation", "testing", "trainer", "rendering", "viewing", "gateway", "common", "telemetry", "forms",
    "integrations", "formats", "hub", "registry", "generation", "harnesses",
}  # fmt: skip


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def files() -> list[Path]:
    """The files of this working tree that git tracks, or would."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode:
        pytest.skip("not a git checkout, so there is no list of what belongs to the project")
    return [path for name in listing.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


def test_no_root_claims_the_namespace() -> None:
    """A single ludus/__init__.py hides every other root from editable installs (PEP 420)."""
    assert [root for root in ROOTS if (ROOT / root / "ludus" / "__init__.py").exists()] == []


def test_every_package_ships_py_typed() -> None:
    packages = [p for root in ROOTS for p in (ROOT / root / "ludus").iterdir() if (p / "__init__.py").exists()]
    assert [p.name for p in packages if not (p / "py.typed").exists()] == []
    assert {p.name for p in packages} == PACKAGES


def test_every_file_that_a_package_lists_is_in_it() -> None:
    """A package's docstring is the map of its folder."""
    missing = []
    for root in ROOTS:
        for init in sorted((ROOT / root / "ludus").rglob("__init__.py")):
            text = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
            for name in re.findall(r"(?<![\w/.])[a-z_]\w*\.py\b", text):
                if not (init.parent / name).exists():
                    missing.append(f"{init.relative_to(ROOT)}: {name}")
    assert missing == []


def test_every_root_says_what_it_is() -> None:
    assert [root for root in (*ROOTS, "spec") if not (ROOT / root / "README.md").exists()] == []


def test_config_names_every_root(config: dict[str, Any]) -> None:
    tool = config["tool"]
    assert tool["hatch"]["build"]["dev-mode-dirs"] == list(ROOTS)
    assert tool["hatch"]["build"]["targets"]["wheel"]["packages"] == [f"{root}/ludus" for root in ROOTS]
    assert set(ROOTS) <= set(tool["mypy"]["mypy_path"])
    assert set(ROOTS) <= set(tool["mypy"]["files"])
    assert set(ROOTS) <= set(tool["pyright"]["include"])
    assert set(ROOTS) <= set(tool["pyright"]["extraPaths"])
    assert set(ROOTS) <= set(tool["ruff"]["src"])
    assert set(ROOTS) <= set(tool["coverage"]["run"]["source"])


def test_every_package_of_the_library_is_whole_and_checked(config: dict[str, Any]) -> None:
    """`environments/library/NAME` is what `ludus publish` takes: the hub refuses modules within `ludus`."""
    tool = config["tool"]
    assert "environments/library" in tool["pytest"]["ini_options"]["testpaths"]
    folders = sorted((ROOT / "environments" / "library").iterdir())
    assert folders
    for folder in folders:
        module, place = f"ludus_{folder.name}", f"environments/library/{folder.name}"
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert project["name"] == f"ludus-{folder.name}"
        assert project["entry-points"].keys() == {"ludus.environments"}
        assert tomllib.loads((folder / "ludus.toml").read_text(encoding="utf-8"))["id"] == f"ludus/{folder.name}"
        files = ("README.md", f"{module}/__init__.py", f"{module}/py.typed", f"tests/test_{folder.name}.py")
        assert [name for name in files if not (folder / name).is_file()] == []
        assert place in tool["mypy"]["mypy_path"]
        assert place in tool["pyright"]["extraPaths"]
        assert place in tool["pyrefly"]["search-path"]
        assert module in tool["importlinter"]["root_packages"]
        assert place in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_every_example_is_short_tested_checked_and_listed(config: dict[str, Any]) -> None:
    tool = config["tool"]
    assert "examples" in tool["mypy"]["files"]
    assert "examples" in tool["pyright"]["include"]
    assert "examples" in tool["pytest"]["ini_options"]["testpaths"]
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    examples = [path for path in (ROOT / "examples").glob("*.py") if not path.name.startswith("test_")]
    assert len(examples) >= 3
    for path in examples:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 150, path.name
        assert path.with_name(f"test_{path.name}").exists(), path.name
        assert f"]({path.name})" in listed
        assert re.search(rf"ludus run (\S+ --policy )?examples/{path.name}:|python examples/{path.name} ", listed), (
            path.name
        )


def test_mypy_is_given_files(config: dict[str, Any]) -> None:
    """`packages = ["ludus"]` would check the first root only, and say that all is well."""
    assert "packages" not in config["tool"]["mypy"]


def test_tests_are_no_packages(files: list[Path]) -> None:
    """With importmode=importlib an __init__.py makes two modules of one file.

    Stand-ins for packages that are on no index are packages, in a folder of which pytest collects nothing.
    """
    found = [path for path in files if path.is_relative_to(ROOT / "tests") and path.name == "__init__.py"]
    assert [path for path in found if "stand_ins" not in path.parts] == []


def test_no_file_names_a_place_on_somebodys_machine(files: list[Path]) -> None:
    place = re.compile(rb"(?<![\w.])/(?:root|home/\w+|Users/\w+|work|opt/\w+|var/folders)/[\w.]")
    named = [f"{path.relative_to(ROOT)}: {found.group().decode()}" for path in files
             if path != Path(__file__) and (found := place.search(path.read_bytes()))]  # fmt: skip
    assert named == []


def test_requirements_are_floors(config: dict[str, Any]) -> None:
    """A library that pins or caps breaks its users' environments; what was tested is in constraints.txt."""
    project = config["project"]
    extras = project["optional-dependencies"].values()
    every = [*project["dependencies"], *(requirement for extra in extras for requirement in extra)]
    assert [r for r in every if not re.fullmatch(r"ludus-rl\[[\w,]+\]|[\w-]+(\[\w+\])?>=[\d.]+(; .*)?", r)] == []


def test_every_requirement_has_a_tested_version(config: dict[str, Any]) -> None:
    project = config["project"]
    wanted = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    names = {re.split(r"[\[>]", r)[0].lower() for r in wanted} - {"ludus-rl"}
    # The client of E2B and hosted packages are tested in environments of their own.
    files = ["constraints.txt", *(f"scripts/peers/{name}.txt" for name in ("e2b", "gymnasium"))]
    lines = [line for file in files for line in (ROOT / file).read_text(encoding="utf-8").splitlines()]
    tested = {line.partition("==")[0].lower() for line in lines if "==" in line}
    assert sorted(names - tested) == []


def test_every_requirement_has_a_reason(config: dict[str, Any]) -> None:
    project = config["project"]
    wanted = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    names = {re.split(r"[\[>]", r)[0].lower() for r in wanted} - {"ludus-rl"}
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8").lower()
    assert sorted(name for name in names if f"`{name}`" not in page) == []


def test_changelog_has_a_section_for_what_is_coming() -> None:
    assert re.search(r"^## Unreleased$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


UNRELATED = re.compile(
    rb"""(?<![\w.-])(?: ludus\\?\[(?!-)             # extras of a distribution called ludus
    | install[ ]["'`]?ludus(?![\w./-])           # pip install ludus
    | version\(["']ludus["']\)                   # importlib.metadata
    | pypi\.org/project/ludus(?![\w-]) )""",
    re.VERBOSE,
)


def test_no_file_names_the_unrelated_distribution_ludus(files: list[Path]) -> None:
    """What the public index has under `ludus` is another project (0.1a3, 2019): ours is `ludus-rl`."""
    named = [f"{path.relative_to(ROOT)}: {found.group().decode()}" for path in files
             if path != Path(__file__) and path.name != "CHANGELOG.md"
             and (found := UNRELATED.search(path.read_bytes()))]  # fmt: skip
    assert named == []
