"""`sage import` as a person uses it: refused, asked, corrected, written, checked, shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.harness import on_a_terminal, sage

ROWS = "patient;age;sex;stage;months;censor\n" + "\n".join(
    f"P{n:03d};{50 + n % 30},5;{'M' if n % 2 else 'F'};{'I' * (n % 3 + 1)};{n % 40 + 2};{n % 2}"
    for n in range(60)
)


@pytest.fixture
def series(tmp_path: Path) -> Path:
    path = tmp_path / "series.csv"
    path.write_text(ROWS, encoding="utf-16")
    return path


def test_what_files_do_not_settle_is_refused_with_the_setting_and_nothing_is_written(
    series: Path,
) -> None:
    ended = sage("import", str(series), "--yes", cwd=series.parent)
    assert ended.code == 2
    assert "OS.event=censor:0 or censor:1" in ended.err
    assert [path.name for path in series.parent.iterdir()] == ["series.csv"]


def test_a_cohort_without_an_outcome_is_written_only_if_a_person_says_so(tmp_path: Path) -> None:
    rows = "".join(f"P{n},{50 + n % 30}\n" for n in range(40)) + "Mean,64.5\n"
    (tmp_path / "a.csv").write_text("patient,age\n" + rows)
    ended = sage("import", "a.csv", "--yes", cwd=tmp_path)
    assert ended.code == 2 and "Set time=" in ended.err and "Set event=" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    written = sage("import", "a.csv", "--yes", "--json", "--set", "time=none", cwd=tmp_path)
    assert written.code == 0
    (lost,) = written.json["left_out"]
    assert lost["count"] == 1 and "Mean" in lost["reason"] and lost["remedy"]


def test_an_imported_cohort_is_checked_shown_and_listed_as_it_is(series: Path) -> None:
    home = series.parent
    settings = ["--set", "event=censor:0", "--set", "known_at=baseline"]
    ended = sage("import", str(series), *settings, "--yes", "--json", cwd=home)
    assert ended.code == 0, ended.err
    assert ended.json["folder"] == "cohorts/series"
    shown = sage("cohort", "show", "cohorts/series", "--json", cwd=home).json
    assert shown["n_patients"] == 60
    (outcome,) = shown["endpoints"]
    assert (outcome["key"], outcome["events"]) == ("OS", 30)
    assert {item["known_at"] for item in shown["variables"]} == {"baseline"}
    checked = sage("cohort", "check", "cohorts/series", "--json", cwd=home)
    assert checked.code == 0, checked.out
    listed = sage("cohort", "list", "--json", cwd=home).json
    assert "series" in [item["id"] for item in listed]
    again = sage("import", str(series), *settings, "--yes", cwd=home)
    assert again.code == 2 and "--force" in again.err
    assert sage("import", str(series), *settings, "--yes", "--force", cwd=home).code == 0


def test_on_a_terminal_the_open_is_asked_and_a_guess_corrected(series: Path) -> None:
    code, shown = on_a_terminal(
        "import", str(series), cwd=series.parent,
        answers=[("id (patient)", ""), ("OS.time (months)", ""),
                 ("OS.event (censor:0 or censor:1)", ""),
                 ("OS.event (censor:0 or censor:1)", "censor:7"),
                 ("OS.event (censor:0 or censor:1)", "censor:0"),
                 ("to correct a guess", "stage.kind=nonsense"),
                 ("to correct a guess", "title=Our series"), ("to correct a guess", "yes")],
    )  # fmt: skip
    assert code == 0, shown[-2000:]
    assert 'has no code "7"' in shown.replace("\r\n", " ") and "is not one of" in shown
    text = (series.parent / "cohorts/series/cohort.toml").read_text()
    assert 'title = "Our series"' in text and 'event_values = ["0"]' in text


def test_a_dry_run_writes_nothing(series: Path) -> None:
    ended = sage("import", str(series), "--dry-run", "--json", cwd=series.parent)
    assert ended.code == 0
    guesses = {guess["key"]: guess for guess in ended.json["guesses"]}
    assert guesses["encoding"]["value"] == "utf-16" and guesses["delimiter"]["value"] == ";"
    assert guesses["decimal"]["value"] == "," and guesses["OS.event"]["open"]
    assert [path.name for path in series.parent.iterdir()] == ["series.csv"]
