"""The core and its tenants: what tenants may use is written down, and the core needs none of them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def surface(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The lint, on a checkout with a module of the core and one of a tenant."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import installer
    import lint_surface

    monkeypatch.setattr(installer, "ROOT", tmp_path)
    lint_surface._file_of.cache_clear()
    lint_surface.public_names.cache_clear()
    (tmp_path / "server/ludus/server").mkdir(parents=True)
    (tmp_path / "server/ludus/server/__init__.py").write_text("")
    (tmp_path / "server/ludus/server/desk.py").write_text('__all__ = ["Desk"]\n\nclass Desk: ...\nclass Drawer: ...\n')
    (tmp_path / "server/ludus/hub").mkdir(parents=True)
    return lint_surface


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from ludus.server.desk import Desk", []),
        ("from ludus.server.desk import Desk, Drawer", ["Drawer"]),
        ("def f():\n    from ludus.server.desk import Drawer", ["Drawer"]),
        ("from ludus.server import desk\ndesk.Drawer()", ["Drawer"]),
        ("import ludus.server.desk as furniture\nfurniture.Drawer()", ["Drawer"]),
        ("from ludus.hub.other import Drawer", []),
    ],
)
def test_a_tenant_uses_public_names_of_the_core_only(
    surface: ModuleType, tmp_path: Path, source: str, names: list[str]
) -> None:
    (tmp_path / "server/ludus/hub/rooms.py").write_text(source)
    assert [use.name for use in surface.uses() if use.name not in surface.public_names(use.module)] == names


def test_the_lint_fails_for_a_private_name(
    surface: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "server/ludus/hub/rooms.py").write_text("from ludus.server.desk import Drawer\n")
    with pytest.raises(SystemExit, match="1 names"):
        surface.main()
    assert "rooms.py:1: Drawer is not in the __all__ of ludus.server.desk" in capsys.readouterr().out


def test_the_core_loses_the_entry_points_of_its_tenants_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import core_alone

    kept = '[group]\nplay = "ludus.cli.play:register"\ne2b = "ludus.sandbox.services.e2b:E2B"\n'
    tenants = 'hub = "ludus.hub.commands.hub:register"\nwordle = "ludus.environments.wordle:Wordle"\n'
    assert core_alone.without_tenants(kept + tenants) == kept
    assert {"sql", "harbor", "publish", "hub"} <= set(core_alone.provided_names())
