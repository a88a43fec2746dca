"""A patient's data goes from runs, caches and outputs, and the runs still verify and replay."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from sage.core.errors import InputError
from sage.run.folder import Manifest, RunFolder
from sage.run.spec import RunSpec
from sage.settings import Settings
from sage_hospital.database import open_database
from sage_hospital.forget import forget
from sage_hospital.notebook import TABLES as CAMPAIGNS
from sage_hospital.reviews import TABLES as REVIEWS
from sage_hospital.runs import TABLES as RUNS
from sage_hospital.runs import open_runs
from tests.end_to_end.harness import sage
from tests.postgres import NEEDED, server

PATIENT, OTHER = "TCGA-AB-1234", "TCGA-AB-12345"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Runs and caches of this test."""
    return Settings(runs_dir=tmp_path / "runs", cache_dir=tmp_path / "cache")


def write_run(home: Path, name: str, cohort: Path) -> RunFolder:
    """A run whose analysis and texts hold both patients."""
    run = RunFolder(home / name)
    inputs = run.root / "hypotheses/h1/results/inputs/all"
    inputs.mkdir(parents=True)
    run.save(Manifest(id=name, run_id=name, thread=name, place=str(run.root), created="",
                      spec=RunSpec(prompt="q", cohort=str(cohort)), reasoner="rules"))  # fmt: skip
    before = run.record.begin("coding")
    pd.DataFrame({"age": [60, 70]}, index=pd.Index(["P0001", "P0002"], name="patient")).to_parquet(
        inputs / "table.parquet"
    )
    (run.root / "outputs").mkdir()
    (run.root / "outputs/note.json").write_text(json.dumps({"slides": [PATIENT, OTHER]}))
    run.event("looked", slide=f"{PATIENT}-01Z.svs")
    run.record.end("coding", before)
    run.update(sealed=run.record.head())
    return run


def test_rows_names_caches_and_outputs_go_and_the_run_still_verifies(
    tmp_path: Path, settings: Settings
) -> None:
    cohort, outputs = tmp_path / "cohort", tmp_path / "out"
    cohort.mkdir()
    (cohort / "clinical.csv").write_text(f"patient\n{PATIENT}\n{OTHER}\n")
    of_it = write_run(settings.runs_dir, "of-it", cohort)
    of_another = write_run(settings.runs_dir, "of-another", tmp_path / "another")
    parsed = settings.cache_dir / "cohorts/expression-1"
    spared = settings.cache_dir / "cohorts/expression-2"
    for folder, name in ((parsed, PATIENT), (spared, OTHER)):
        folder.mkdir(parents=True)
        (folder / "index.json").write_text(json.dumps([name]))
    call = outputs / "nuclei" / "0123456789ab"
    call.mkdir(parents=True)
    (call / f"{PATIENT}-01Z.geojson").write_text("{}")
    would = forget(PATIENT, cohort, settings, outputs, dry=True)
    assert call.is_dir()
    assert parsed.is_dir()
    found = forget(PATIENT, cohort, settings, outputs)
    assert found == would
    tables = [run.root / "hypotheses/h1/results/inputs/all/table.parquet"
              for run in (of_it, of_another)]  # fmt: skip
    assert [len(pd.read_parquet(path)) for path in tables] == [0, 2]
    for run in (of_it, of_another):
        run.verify()
        text = "".join(path.read_text(errors="replace") for path in run.root.rglob("*.json*"))
        assert f'"{PATIENT}"' not in text
        assert f"{PATIENT}-01Z" not in text
        assert OTHER in text
    assert not parsed.exists()
    assert spared.exists()
    assert not call.exists()
    assert [line for line in found.left if "clinical.csv" in line]
    assert found.cannot


def test_a_run_under_way_or_a_short_name_removes_nothing(
    tmp_path: Path, settings: Settings
) -> None:
    write_run(settings.runs_dir, "a", tmp_path)
    busy = write_run(settings.runs_dir, "b", tmp_path)
    busy.hold()
    with pytest.raises(InputError, match="nothing was removed"):
        forget(PATIENT, tmp_path, settings, tmp_path / "out")
    busy.release()
    assert f'"{PATIENT}"' in (settings.runs_dir / "a/outputs/note.json").read_text()
    with pytest.raises(InputError, match="too short"):
        forget("P1", tmp_path, settings, tmp_path / "out")


def test_rounds_of_campaigns_and_files_beside_the_runs_are_not_passed_over(
    tmp_path: Path, settings: Settings
) -> None:
    run = write_run(settings.runs_dir / "campaign-1", "round-1", tmp_path / "cohort")
    (settings.runs_dir / "campaign-1/campaign.json").write_text("{}")
    drawn = settings.runs_dir / ".regions" / f"{PATIENT}-01Z.0123.geojson"
    looked = settings.runs_dir / ".sessions/20260101-000000-01234567.session.jsonl"
    for path, said in ((drawn, "{}"), (looked, f'{{"slide": "{PATIENT}-01Z.svs"}}')):
        path.parent.mkdir()
        path.write_text(said)
    found = forget(PATIENT, tmp_path / "cohort", settings, tmp_path / "out")
    assert len(pd.read_parquet(run.root / "hypotheses/h1/results/inputs/all/table.parquet")) == 0
    run.verify()
    assert f'"{PATIENT}"' not in (run.root / "outputs/note.json").read_text()
    for path in (drawn, looked):
        assert any(line.startswith(str(path)) for line in found.left)


def test_an_identifier_that_is_a_number_changes_no_measurement(
    tmp_path: Path, settings: Settings
) -> None:
    run = write_run(settings.runs_dir, "a", tmp_path)
    path = run.root / "outputs/note.json"
    path.write_text('{"n": 1234, "p": 0.1234, "patients": ["1234"]}')
    call = tmp_path / "out" / "nuclei" / "0123456789ab"
    call.mkdir(parents=True)
    (call / "other.geojson").write_text('{"area": 1234}')
    found = forget("1234", tmp_path / "cohort", settings, tmp_path / "out")
    assert json.loads(path.read_text()) == {"n": 1234, "p": 0.1234, "patients": ["[forgotten]"]}
    assert call.is_dir()
    assert "number" in found.left[0]


@pytest.mark.parametrize("name", ["P(1+)*[a]", 'Zoë"b-1'])
def test_an_identifier_is_no_pattern_and_is_found_as_json_writes_it(
    name: str, tmp_path: Path, settings: Settings
) -> None:
    run = write_run(settings.runs_dir, "a", tmp_path)
    path = run.root / "outputs/note.json"
    path.write_text(json.dumps([name, "abc-1"]))
    forget(name, tmp_path / "cohort", settings, tmp_path / "out")
    assert json.loads(path.read_text()) == ["[forgotten]", "abc-1"]


def test_a_name_that_no_file_holds_empties_nothing_unless_that_is_wanted(tmp_path: Path) -> None:
    cohort = tmp_path / "cohort"
    cohort.mkdir()
    (cohort / "clinical.csv").write_text(f"patient\n{PATIENT}\n")
    run = write_run(tmp_path / "runs", "a", cohort)
    table = run.root / "hypotheses/h1/results/inputs/all/table.parquet"
    for more in ((), ("--dry-run",)):
        done = sage("hospital", "forget", "TCGA-AB-1243", "--cohort", "cohort", *more, cwd=tmp_path)
        assert done.code == 2
        assert "it is spelled" in done.err
        assert "--unnamed" in done.err
    assert len(pd.read_parquet(table)) == 2
    run.verify()
    assert (
        sage("hospital", "forget", PATIENT, "--cohort", "cohort", "--dry-run", cwd=tmp_path).code
        == 0
    )
    words = ["hospital", "forget", "TCGA-AB-1243", "--cohort", "cohort", "--unnamed"]
    assert sage(*words, cwd=tmp_path).code == 0
    assert len(pd.read_parquet(table)) == 0


def test_the_queue_of_one_machine_loses_the_name_and_stays(
    tmp_path: Path, settings: Settings
) -> None:
    """The queue is not removed: runs wait in it."""
    run = write_run(settings.runs_dir, "waits", tmp_path / "another").manifest()
    with open_runs(settings, new=True) as runs:
        assert runs is not None
        for name, prompt in (("waits", f"Why {PATIENT}? {'x' * 300}"), ("other", f"Why {OTHER}?")):
            spec = run.spec.model_copy(update={"prompt": prompt})
            runs.add(run.model_copy(update={"run_id": name, "spec": spec}), "ann")
        found = forget(PATIENT, tmp_path / "cohort", settings, tmp_path / "out")
        assert ".control.sqlite sage_runs waits: prompt" in found.struck_out
        assert not [line for line in found.left if ".control.sqlite" in line]
        waits, other = runs.get("waits"), runs.get("other")
        assert waits is not None
        assert other is not None
        assert waits.prompt.startswith("Why [forgotten]?")
        assert other.prompt == f"Why {OTHER}?"
        content = (settings.runs_dir / ".control.sqlite").read_bytes()
    assert not re.search(rf"{PATIENT}(?![0-9])".encode(), content)


@NEEDED[0]
@NEEDED[1]
@NEEDED[2]
def test_texts_in_postgresql_lose_the_name(tmp_path: Path) -> None:
    """Comments, notebooks and prompts of all machines; another patient's name stays."""
    with server() as url:
        settings_of_server = Settings.model_validate(
            {"runs_dir": tmp_path / "runs", "cache_dir": tmp_path / "cache", "checkpoint_url": url}
        )
        tables = ";".join(schema.strip().rstrip(";") for schema in (CAMPAIGNS, REVIEWS, RUNS))
        said = json.dumps({"text": f"{PATIENT} is odd, {OTHER} is not"})
        with open_database(settings_of_server, tables, new=True) as database:
            assert database is not None
            database.run("INSERT INTO sage_reviews VALUES (?, ?, ?)", ["r", 1, said])
            database.run("INSERT INTO sage_campaigns VALUES ('n', 'i', 1, 1, ?)", [said])
            database.run("INSERT INTO sage_campaigns VALUES ('n', 'none', 2, 1, NULL)")
            database.run("INSERT INTO sage_findings VALUES ('n', 'f', 1, ?)", [said])
            database.run(
                "INSERT INTO sage_runs VALUES ('i', 'r', 'f', 'o', ?, 'done', 0, '', 0, 0, 0, ?,"
                " '', 0, 0)", [f"Why {PATIENT}?", said]
            )  # fmt: skip
        would = forget(PATIENT, tmp_path / "cohort", settings_of_server, tmp_path / "out", dry=True)
        assert forget(PATIENT, tmp_path / "cohort", settings_of_server, tmp_path / "out") == would
        assert would.struck_out == [
            "PostgreSQL sage_reviews r 1: body", "PostgreSQL sage_campaigns n i: body",
            "PostgreSQL sage_findings n f: body", "PostgreSQL sage_runs i: prompt",
            "PostgreSQL sage_runs i: answer",
        ]  # fmt: skip
        with open_database(settings_of_server, tables, new=False) as database:
            assert database is not None
            kept = [database.run("SELECT body FROM sage_reviews")[0]["body"],
                    database.run("SELECT body FROM sage_findings")[0]["body"],
                    database.run("SELECT answer FROM sage_runs")[0]["answer"]]  # fmt: skip
        assert {json.loads(body)["text"] for body in kept} == {
            f"[forgotten] is odd, {OTHER} is not"
        }
        with pytest.raises(InputError, match="no file contains"):
            forget(PATIENT, tmp_path / "cohort", settings_of_server, tmp_path / "out")
