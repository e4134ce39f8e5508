"""The configurations of other trainers: they are those of the documentation, about the version's environment."""

from __future__ import annotations

import ast
import shlex
import tomllib
from importlib.resources import files
from pathlib import Path

import httpx
import pytest
from hub_sites import SiteHub, as_page

from ludus.hub.site import recipes as recipe_module
from ludus.hub.site.recipes import DOCUMENTED_NAMES, DOCUMENTED_URLS, Place, place_of, recipes, stored_name
from ludus.protocol.episodes import SplitInfo
from ludus.registry.types.packages import EnvironmentEntry

SNIPPETS = Path(__file__).parents[3] / "docs" / "snippets"
PLACE = Place("https://hub.example.org/e/ada/coin@1.0.0", "toss", "practice", "held-out")
HOSTILE = Place("https://h/e/a/b@1", "train\"; $(touch x) 'é😀", 'wordle "validation"', "--split train ")


def test_the_files_are_those_of_the_documentation() -> None:
    """`docs/snippets` is the source, and `scripts/generate_recipes.py` copies it."""
    kept = {one.name: one.read_bytes() for one in files("ludus.hub.site").joinpath("templates", "recipes").iterdir()}
    assert kept == {stored_name(name): (SNIPPETS / name).read_bytes() for name in recipe_module.SNIPPETS}


def test_nothing_of_the_documentation_is_left_in_them() -> None:
    for recipe in recipes(PLACE):
        text = "\n".join(part.text for part in recipe.parts)
        assert PLACE.url in text, recipe.title
        assert PLACE.name in text
        assert PLACE.kept in text or recipe.title == "verifiers and prime-rl"
        for documented in (*DOCUMENTED_URLS, *(f'"{one}"' for one in DOCUMENTED_NAMES), "--split train"):
            assert documented not in text, recipe.title


def test_a_hostile_name_stays_one_value() -> None:
    for recipe in recipes(HOSTILE):
        for part in recipe.parts:
            if part.name.endswith(".py"):
                strings = [one.value for one in ast.walk(ast.parse(part.text)) if isinstance(one, ast.Constant)]
                assert HOSTILE.name in strings or recipe.title != "tinker-cookbook"
            elif part.name.endswith(".toml"):
                (source,) = tomllib.loads(part.text)["orchestrator"]["train"]["source"]
                assert source["env"]["taskset"]["environment"] == HOSTILE.name
                assert source["env"]["taskset"]["split"] == HOSTILE.train
            elif not part.name:
                words = shlex.split(part.text.replace("\\\n", " "), comments=True)
                assert HOSTILE.name in words or f"environment={HOSTILE.name}" in words
                assert "touch" not in words


def test_evaluations_use_no_test_split() -> None:
    def entry(*splits: str) -> EnvironmentEntry:
        infos = tuple(SplitInfo.model_validate({"name": f"my-{one}", "type": one, "count": 3}) for one in splits)
        return EnvironmentEntry(name="toss", source="a:B", splits=infos)

    assert place_of(entry("test", "train", "validation"), "u")[2:] == ("my-train", "my-validation")
    assert place_of(entry("test", "train"), "u")[2:] == ("my-train", "my-train")
    assert place_of(entry(), "u")[2:] == ("train", "train")


def test_the_page_shows_them_for_each_environment(browser: httpx.Client, site: SiteHub) -> None:
    page = as_page(browser.get("/ludus/wordle/versions/0.1.0/trainers"))
    for title in ("verl", "SkyRL", "OpenRLHF", "verifiers and prime-rl", "tinker-cookbook", "NeMo Gym", "Inspect AI"):
        assert title in page.text
    assert f"ludus export {site.url}/e/ludus/wordle@0.1.0 wordle --split train --form verl" in page.text
    linked = as_page(browser.get("/ludus/wordle"))
    assert "/ludus/wordle/versions/0.1.0/trainers" in [one.get("href") for one in linked.all("a")]


@pytest.mark.parametrize("place", ["wordle/versions/0.1.0/trainers?environment=nope", "nope/versions/0.1.0/trainers",
                                   "wordle/versions/9.9.9/trainers"])  # fmt: skip
def test_an_absent_version_or_environment_has_none(browser: httpx.Client, place: str) -> None:
    assert "Nothing here" in as_page(browser.get(f"/ludus/{place}"), 404).text
