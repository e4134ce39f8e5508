"""Training runs in exports, deletions of accounts, backups, checks and metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hub_people import PASSWORD, PeopleHub, people_hub
from postgres_server import PostgresServer
from sqlalchemy import select, update
from training_hub import TrainingRun, opened, trajectory

from ludus.hub.database.engine import open_engine
from ludus.hub.database.training_tables import TrainingBatch, TrainingSample
from ludus.hub.database.training_tables import TrainingRun as Row
from ludus.hub.operation.backup import write_backup
from ludus.hub.operation.check import check_hub
from ludus.hub.operation.parts import open_parts
from ludus.hub.operation.restore import restore_backup


def filled(people: PeopleHub, name: str) -> TrainingRun:
    """A run with points and a rollout."""
    run = opened(people.of(name), config={"lr": 1.0})
    run.steps(1, 5)
    run.steps(6, 9)
    body = {"attempt": run.attempt, "step": 1, "trajectory": trajectory()}
    assert run.client.post(f"{run.path}/rollouts", json=body).status_code == 200
    return run


@pytest.mark.suite("hub", first=1)
def test_an_export_has_all_points_and_a_deleted_account_leaves_no_row(people: PeopleHub) -> None:
    people.hub.people.accounts.create("dora", PASSWORD)
    run, other = filled(people, "dora"), filled(people, "alice")
    exported = people.hub.people.data.export(people.account("dora"), "dora")["training"]
    assert json.loads(json.dumps(exported)) == exported
    (found,) = exported
    assert (found["run"], found["config"]) == (run.key, {"lr": 1.0})
    assert [step for line in found["points"] for step in json.loads(line)["step"]] == list(range(1, 10))
    assert "heads or tails?" in found["rollouts"][0]["line"]
    people.hub.people.data.delete("dora", PASSWORD)
    assert people.of("root").get(run.path).status_code == 404
    with people.hub.database.reading() as session:
        ids = set(session.scalars(select(Row.id)))
        for table in (TrainingBatch, TrainingSample):
            assert set(session.scalars(select(table.run_id))) <= ids
    assert other.info()["points"] == 9


def test_the_export_of_the_api_holds_them_too(people: PeopleHub) -> None:
    run = filled(people, "bob")
    assert run.key in run.client.get("/api/v1/account/export").text


def test_metrics_count_runs_and_batches(people: PeopleHub) -> None:
    filled(people, "alice")
    text = people.of("root").get("/metrics").text
    for name in ("training:opened", "training:batches"):
        assert f'ludus_hub_events_total{{event="{name}"}}' in text


@pytest.mark.suite("hub")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"], scope="function")
def test_a_backup_has_the_runs_and_a_check_finds_changed_points(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path
) -> None:
    url = None
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.new_url()
    with people_hub(tmp_path / "one", url) as people:
        run = filled(people, "alice")
        with open_parts(tmp_path / "one" / "data", url) as parts:
            backup, _ = write_backup(parts, tmp_path / "backup.tar")
        before, points = run.curves(), run.client.get(f"{run.path}/points").json()
        with open_parts(tmp_path / "two" / "data", new=True) as parts:
            restore_backup(parts, backup)
            assert check_hub(parts).problems == []
            with parts.engine.execution_options(ludus_writes=True).begin() as connection:
                connection.execute(update(TrainingBatch).where(TrainingBatch.number == 1).values(data=b"x"))
            assert [(one.kind, one.subject) for one in check_hub(parts).problems] == [("training", run.key)]
    with open_parts(tmp_path / "three" / "data", new=True) as parts:
        restore_backup(parts, backup)
    engine = open_engine(f"sqlite:///{tmp_path}/three/data/hub.sqlite")
    with engine.connect() as connection:
        assert connection.execute(select(Row.key)).scalars().all() == [run.key]
    engine.dispose()
    assert before["reward/mean"]["steps"] == list(range(1, 10))
    assert len(points["batches"]) == 2
