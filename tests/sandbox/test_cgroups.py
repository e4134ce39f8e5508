"""Control groups, in a directory that stands for their file system: what is written, and what is read.

What the kernel makes of it is proved by the attacks, on machines whose groups are of that version.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ludus.sandbox import cgroups
from ludus.sandbox.cgroups import Group, Groups, Usage
from ludus.sandbox.core.stale import owner_of
from ludus.sandbox.inside.processes import Account


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hierarchy in which this process is in `app/server`, and `app` hands its controllers down."""
    inner = tmp_path / "app" / "server"
    inner.mkdir(parents=True)
    for place, handed_down in ((tmp_path, "cpu"), (inner.parent, "cpu memory pids"), (inner, "")):
        (place / "cgroup.subtree_control").write_text(f"{handed_down}\n", encoding="ascii")
    monkeypatch.setattr(cgroups, "_ROOT", tmp_path)
    memberships = {"self": [("", "app/server")], "7": [("", "app/box-7"), ("memory", "elsewhere/box-7")]}
    monkeypatch.setattr(cgroups, "_memberships", lambda process: iter(memberships.get(process, [])))
    return tmp_path


def test_groups_are_made_where_controllers_are_handed_down(root: Path) -> None:
    groups = Groups.find()
    assert groups is not None
    group = groups.new()
    group.make(96 << 20, 26)
    (place,) = {group._memory, group._pids}
    assert place.parent == root / "app"
    written = {file.name: file.read_text(encoding="ascii") for file in place.iterdir()}
    assert written == {"memory.max": str(96 << 20), "memory.swap.max": "0", "pids.max": "26"}
    group.add(1234)
    assert (place / "cgroup.procs").read_text(encoding="ascii") == "1234"


def test_no_group_is_made_where_nothing_is_handed_down(root: Path) -> None:
    (root / "app" / "cgroup.subtree_control").write_text("cpu memory\n", encoding="ascii")
    assert Groups.find() is None


def test_broken_limits_are_read_from_the_events(root: Path) -> None:
    groups = Groups.find()
    assert groups is not None
    group = groups.new()
    group.make(96 << 20, 26)
    assert group.broken() == (0, 0)
    (group._memory / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\n", encoding="ascii")
    (group._pids / "pids.events").write_text("max 5\n", encoding="ascii")
    assert group.broken() == (2, 5)


def test_groups_of_the_living_stay_when_those_of_the_dead_are_removed(root: Path) -> None:
    groups = Groups.find()
    assert groups is not None
    dead, own = root / "app" / f"{owner_of(999_999_999)}-abc", groups.new()
    dead.mkdir()
    own._memory.mkdir()
    assert groups.sweep() == 1
    assert (dead.exists(), own._memory.exists()) == (False, True)


async def test_a_group_around_others_has_its_own_limits_and_goes_with_what_a_killed_process_left_in_it(
    root: Path,
) -> None:
    groups = Groups.find()
    assert groups is not None
    around, within = groups.nest(96 << 20, 26)
    place = around._memory
    assert (place / "memory.max").read_text(encoding="ascii") == str(96 << 20)
    assert (place / "cgroup.subtree_control").read_text(encoding="ascii") == "+memory +pids"
    passed_on = Groups.at(within.describe())
    assert passed_on.new()._memory.parent == place
    for file in place.iterdir():
        file.unlink()  # the kernel removes these itself
    left = passed_on.new()._memory
    left.mkdir()
    await around.remove(inner=True)
    assert not place.exists()


def test_groups_of_the_dead_are_removed_with_those_within_them(root: Path) -> None:
    groups = Groups.find()
    assert groups is not None
    dead = root / "app" / f"{owner_of(999_999_999)}-abc"
    (dead / f"{owner_of(999_999_998)}-def").mkdir(parents=True)
    assert groups.sweep() == 2
    assert not dead.exists()


def test_groups_of_version_1_are_made_where_memory_tasks_and_time_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controllers = ["memory", "pids", "cpuacct"]
    for name in controllers:
        (tmp_path / name / "app").mkdir(parents=True)
    monkeypatch.setattr(cgroups, "_ROOT", tmp_path)
    monkeypatch.setattr(cgroups, "_memberships", lambda process: ((name, "app") for name in controllers))
    groups = Groups.find()
    assert groups is not None
    group = groups.new()
    group.make(96 << 20, 26)
    group.add(1234)
    places = [place for name in controllers for place in (tmp_path / name / "app").glob(group._memory.name)]
    assert [(place / "cgroup.procs").read_text(encoding="ascii") for place in places] == ["1234"] * 3
    assert (places[0] / "memory.limit_in_bytes").read_text(encoding="ascii") == str(96 << 20)
    controllers.remove("cpuacct")
    assert Groups.find() is None


@pytest.mark.parametrize(("version", "name", "text"), [(2, "cpu.stat", "usage_usec {0}\nuser_usec 1\n"),
                                                       (1, "cpuacct.usage", "{0}000\n")])  # fmt: skip
def test_the_time_of_a_command_is_what_its_group_counted_meanwhile(
    tmp_path: Path, version: int, name: str, text: str
) -> None:
    group = Group({"memory": tmp_path, "pids": tmp_path, "cpuacct": tmp_path}, version)
    (tmp_path / name).write_text(text.format(1_000_000), encoding="ascii")
    meter = group.open_meter()
    account = Account(meter, counts_sockets=False)
    (tmp_path / name).write_text(text.format(9_000_000), encoding="ascii")
    used = account.cpu()
    os.close(meter)
    assert 7.0 < used <= 8.0  # less what this process used in between


def test_what_a_container_uses_is_read_where_its_own_group_is(root: Path) -> None:
    box = root / "app" / "box-7"
    box.mkdir()
    assert Group.of(7, "box-7") is None
    for name, text in (
        ("memory.current", "70000000\n"), ("memory.stat", "anon 100\nfile 20000000\n"), ("pids.current", "4\n"),
        ("cpu.stat", "usage_usec 1500000\nuser_usec 1\n"), ("memory.events", "oom_kill 1\n"),
    ):  # fmt: skip
        (box / name).write_text(text, encoding="ascii")
    group = Group.of(7, "box-7")
    assert group is not None
    assert group.usage() == Usage(1.5, 50_000_000, 4)
    assert group.broken() == (1, 0)
    assert Group.of(7, "another-container") is None
    assert Group.of(os.getpid(), "box-7") is None
