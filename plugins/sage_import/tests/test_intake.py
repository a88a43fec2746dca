"""Importing files as a cohort: what is guessed, that mangling a file changes nothing, refusals."""

from __future__ import annotations

import csv
import io
import random
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sage.core.errors import InputError
from sage_import.intake import Proposal, propose, publish
from sage_import.intake.coding import side_of
from sage_import.intake.levels import ordered_levels
from sage_import.intake.values import Column, parse_date, parse_number
from validation import cohort
from validation.core.dictionary import DataDictionary, Variable

STAGES = ("Stage I", "Stage II", "Stage III", "Stage IV")


def patients(n: int = 60, seed: int = 3) -> list[dict[str, Any]]:
    """A cohort whose truth is known: numbers, stages, dates, and a German umlaut."""
    draw = random.Random(seed)
    rows = []
    for number in range(n):
        start = date(2012, 1, 1) + timedelta(days=draw.randrange(900))
        days = draw.randrange(30, 2500)
        dead = draw.random() < 0.45
        rows.append(
            {
                "patient": f"MÜ-{number:03d}",
                "age": round(draw.uniform(40, 88), 1),
                "sex": draw.choice(["male", "female"]),
                "stage": draw.choice(STAGES),
                "marker": round(draw.uniform(0.1, 9000), 3) if number % 11 else None,
                "surgery_date": start,
                "last_contact_date": start + timedelta(days=days),
                "vital_status": "Dead" if dead else "Alive",
            }
        )
    return rows


def cell(value: Any, decimal: str, dates: str, missing: str, thousands: str = "") -> str:
    if value is None:
        return missing
    if isinstance(value, date):
        return value.strftime(dates)
    if isinstance(value, float):
        text = f"{value:,.3f}" if thousands else f"{value:.3f}"
        return text.replace(",", "~").replace(".", decimal).replace("~", thousands)
    return str(value)


def written(
    folder: Path,
    delimiter: str = ",",
    encoding: str = "utf-8",
    decimal: str = ".",
    dates: str = "%Y-%m-%d",
    missing: str = "NA",
    thousands: str = "",
    preamble: str = "",
    newline: str = "\n",
) -> Path:
    out = io.StringIO(newline="")
    rows = patients()
    writer = csv.writer(out, delimiter=delimiter, lineterminator=newline)
    writer.writerow(rows[0])
    for row in rows:
        writer.writerow([cell(item, decimal, dates, missing, thousands) for item in row.values()])
    path = folder / "series.csv"
    path.write_bytes((preamble + out.getvalue()).encode(encoding))
    return path


def seen(proposal: Proposal, folder: Path) -> pd.DataFrame:
    """The values that an analysis gets, by the patient's own identifier."""
    publish(proposal, folder)
    loaded = cohort.load(folder)
    keys = ["clinical:age", "clinical:sex", "clinical:stage", "clinical:marker"]
    frame = pd.DataFrame({key: loaded.column(key) for key in keys})
    outcome = loaded.outcome("OS")
    frame["time"], frame["event"] = outcome["time"], outcome["event"]
    return frame.sort_index()


@pytest.fixture(scope="module")
def plain_values(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder = tmp_path_factory.mktemp("plain")
    return seen(propose([written(folder)]), folder / "out")


def variable(dictionary: DataDictionary, key: str) -> Variable:
    return next(item for item in dictionary.variables if item.key == key)


def test_the_values_are_those_that_were_written(plain_values: pd.DataFrame) -> None:
    frame = plain_values
    truth = patients()
    assert list(frame.index) == sorted(row["patient"] for row in truth)
    for row in truth:
        got = frame.loc[row["patient"]]
        assert got["clinical:age"] == pytest.approx(row["age"])
        assert got["clinical:stage"] == STAGES.index(row["stage"]) + 1
        assert got["clinical:sex"] == row["sex"]
        days = (row["last_contact_date"] - row["surgery_date"]).days
        assert got["time"] == pytest.approx(days / (365.25 / 12))
        assert got["event"] == (row["vital_status"] == "Dead")
        assert (row["marker"] is None) == (got["clinical:marker"] != got["clinical:marker"])


@settings(
    max_examples=12, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(
    delimiter=st.sampled_from([",", ";", "\t", "|"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252", "latin-1"]),
    decimal=st.sampled_from([".", ","]),
    dates=st.sampled_from(["%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%b-%Y", "%Y/%m/%d"]),
    missing=st.sampled_from(["NA", "", "-", "unknown", "n/a", "#N/A", "[Not Available]"]),
    grouped=st.booleans(),
    preamble=st.sampled_from(["", "Series of a hospital\n", "# exported in 2019\n\n"]),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_mangling_a_file_changes_no_value(
    tmp_path_factory: pytest.TempPathFactory, plain_values: pd.DataFrame,
    delimiter: str, encoding: str, decimal: str, dates: str, missing: str, grouped: bool,
    preamble: str, newline: str,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("mangled")
    thousands = ("." if decimal == "," else ",") if grouped else ""
    path = written(
        folder, delimiter, encoding, decimal, dates, missing, thousands, preamble, newline
    )
    proposal = propose([path])
    assert not proposal.open
    pd.testing.assert_frame_equal(seen(proposal, folder / "out"), plain_values)


def table(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def outcome_rows(
    time: str, event: str, times: list[float], events: list[str], extra: str = ""
) -> str:
    lines = [f'patient,"{time}",{event}{"," + extra.split(":")[0] if extra else ""}']
    more = extra.split(":")[1].split("|") if extra else [""]
    for number, (at, code) in enumerate(zip(times, events, strict=True)):
        last = f",{more[number % len(more)]}" if extra else ""
        lines.append(f"P{number},{at:g},{code}{last}")
    return "\n".join(lines) + "\n"


TIMES = [float(number * 37 % 1900 + 20) for number in range(40)]
HALF = ["1" if number % 2 else "0" for number in range(40)]


@pytest.mark.parametrize(
    ("time", "event", "codes", "happened", "is_open"),
    [
        ("OS.time", "OS", ("0", "1"), "1", False),
        ("os_days", "os_status", ("0:LIVING", "1:DECEASED"), "1:DECEASED", False),
        ("days", "status", ("alive", "dead"), "dead", False),
        ("time_days", "death", ("no", "yes"), "yes", False),
        ("time_days", "alive", ("yes", "no"), "no", False),
        ("OS (Tage)", "Verstorben", ("nein", "ja"), "ja", False),
        ("os", "censOS", ("0", "1"), "", True),
        ("time", "status", ("1", "2"), "", True),
        ("time", "censored", ("0", "1"), "", True),
        ("dfs_days", "dfs_event", ("DiseaseFree", "Recurred/Progressed"), "Recurred/Progressed",
         False),
    ],
)  # fmt: skip
def test_the_direction_of_an_event_is_read_or_asked(
    tmp_path: Path, time: str, event: str, codes: tuple[str, str], happened: str, is_open: bool
) -> None:
    events = [codes[int(half)] for half in HALF]
    proposal = propose([table(tmp_path, outcome_rows(time, event, TIMES, events))])
    asked = [guess for guess in proposal.guesses if guess.key.endswith(".event")]
    assert asked[0].open is is_open
    assert asked[0].value == (f"{event}:{happened}" if happened else "")
    assert str(HALF.count("1")) in asked[0].evidence


def test_words_of_another_column_settle_the_direction(tmp_path: Path) -> None:
    codes = ["2" if half == "1" else "1" for half in HALF]
    vital = "vital_status:Alive|Dead"
    text = outcome_rows("time", "status", TIMES, codes, vital)
    proposal = propose([table(tmp_path, text)])
    guess = next(item for item in proposal.guesses if item.key == "OS.event")
    assert not guess.open and guess.value in ("status:2", "vital_status:Dead")


@pytest.mark.parametrize(
    ("name", "times", "unit", "is_open"),
    [
        ("os_months", [3, 60], "months", False), ("survivalMonth", [3, 60], "months", False),
        ("OS, years", [0.2, 9], "years", False), ("days_survived", [30, 4000], "days", False),
        ("OS.time", [30, 4000], "days", False), ("os_time", [3, 90], "months", True),
        ("os_time", [0.1, 9], "years", True), ("os_months", [30, 4000], "months", True),
    ],
)  # fmt: skip
def test_the_unit_of_time_is_read_or_asked(
    tmp_path: Path, name: str, times: list[float], unit: str, is_open: bool
) -> None:
    low, high = times
    spread = [low + (high - low) * number / 39 for number in range(40)]
    text = outcome_rows(
        name, "vital_status", spread, ["dead" if h == "1" else "alive" for h in HALF]
    )
    guess = next(item for item in propose([table(tmp_path, text)]).guesses if item.key == "OS.unit")
    assert (guess.value, guess.open) == (unit, is_open)


def test_dates_that_fit_both_orders_are_asked_and_both_answers_differ(tmp_path: Path) -> None:
    lines = ["patient,diagnosis_date,last_contact_date,status"]
    for number in range(30):
        day, month = number % 12 + 1, (number * 5) % 12 + 1
        lines.append(f"P{number},{day:02d}/{month:02d}/2015,{month:02d}/{day:02d}/2019,"
                     f"{'dead' if number % 3 else 'alive'}")  # fmt: skip
    path = table(tmp_path, "\n".join(lines))
    proposal = propose([path])
    assert [guess.key for guess in proposal.open] == ["dates"]
    with pytest.raises(InputError, match="Set dates=dmy or mdy"):
        publish(proposal, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    times = []
    for order in ("dmy", "mdy"):
        publish(propose([path], [f"dates={order}"]), tmp_path / order)
        times.append(cohort.load(tmp_path / order).outcome("OS")["time"].tolist())
    assert times[0] != times[1]


def test_thousands_that_could_be_decimals_are_asked(tmp_path: Path) -> None:
    lines = ["patient;marker;os_days;status"]
    lines += [f"P{n};1,{100 + n};{40 + n};{'dead' if n % 2 else 'alive'}" for n in range(30)]
    path = table(tmp_path, "\n".join(lines))
    assert [guess.key for guess in propose([path]).open] == ["decimal"]
    for decimal, value in ((",", 1.1), (".", 1100.0)):
        publish(propose([path], [f"decimal={decimal}"]), tmp_path / f"d{value}")
        column = cohort.load(tmp_path / f"d{value}").column("clinical:marker")
        assert column.loc["P0"] == value


def test_what_came_after_baseline_is_left_out_or_flagged(tmp_path: Path) -> None:
    names = ["response", "cause_of_death", "date_of_relapse", "last_followup_status"]
    lines = ["patient,age,sex,adjuvant_chemo,tumor_size," + ",".join(names) + ",os_days,os_status"]
    for n in range(40):
        gone = ",".join(["CR" if n % 3 else "PD", "tumor" if n % 2 else "", "2015-01-31", "x"])
        lines.append(f"P{n},{50 + n % 9},{'M' if n % 2 else 'F'},{'yes' if n % 3 else 'no'},"
                     f"{n % 7 + 1.5},{gone},{40 + n},{n % 2}")  # fmt: skip
    proposal = propose([table(tmp_path, "\n".join(lines))])
    roles = {column.column: column for column in proposal.columns}
    assert all(roles[name].role in ("left out", "outcome") for name in names)
    assert roles["adjuvant_chemo"].role == "variable" and roles["adjuvant_chemo"].warning
    assert roles["adjuvant_chemo"].known_at == roles["tumor_size"].known_at == "unknown"
    assert roles["age"].known_at == roles["sex"].known_at == "baseline"


def test_a_cbioportal_study_is_read_with_its_matrix_and_mutations(tmp_path: Path) -> None:
    study = tmp_path / "study"
    (study / "case_lists").mkdir(parents=True)
    (study / "meta_study.txt").write_text("cancer_study_identifier: blca_x\nname: A study\n")
    head = (
        "#Patient Identifier\tDiagnosis Age\tOverall Survival Status\tOverall Survival (Months)\n"
    )
    head += "#STRING\tNUMBER\tSTRING\tNUMBER\n#1\t1\t1\t1\nPATIENT_ID\tAGE\tOS_STATUS\tOS_MONTHS\n"
    rows = [
        f"P{n}\t{50 + n % 20}\t{'1:DECEASED' if n % 2 else '0:LIVING'}\t{n + 1.5}"
        for n in range(40)
    ]
    (study / "data_clinical_patient.txt").write_text(head + "\n".join(rows) + "\n")
    samples = [
        f"P{n}\tP{n}-T\tHigh Grade" if n % 3 else f"P{n}\tP{n}-T\tLow Grade" for n in range(40)
    ]
    (study / "data_clinical_sample.txt").write_text(
        "#Patient\tSample\tGrade\nPATIENT_ID\tSAMPLE_ID\tGRADE\n" + "\n".join(samples) + "\n"
    )  # fmt: skip
    genes = [
        f"GENE{g}\t{g}\t" + "\t".join(str(g * 10 + n + 0.5) for n in range(40)) for g in range(9)
    ]
    (study / "data_mrna_seq_v2_rsem.txt").write_text(
        "Hugo_Symbol\tEntrez_Gene_Id\t" + "\t".join(f"P{n}-T" for n in range(40)) + "\n"
        + "\n".join(genes) + "\n")  # fmt: skip
    maf = "Hugo_Symbol\tTumor_Sample_Barcode\tVariant_Classification\n"
    maf += "\n".join(f"TP53\tP{n}-T\tMissense_Mutation" for n in range(12))
    maf += "\nTP53\tP20-T\tSilent\n"
    (study / "data_mutations.txt").write_text(maf)
    listed = "case_list_ids: " + "\t".join(f"P{n}-T" for n in range(40)) + "\n"
    (study / "case_lists" / "cases_sequenced.txt").write_text(listed)
    publish(propose([study]), tmp_path / "out")
    loaded = cohort.load(tmp_path / "out")
    found = loaded.dictionary()
    assert (found.n_patients, len(found.expression), found.expression_n) == (40, 9, 40)
    assert variable(found, "clinical:age").label == "Diagnosis Age"
    carriers = loaded.column("mutation:tp53_mutated")
    assert (carriers == "yes").sum() == 12
    assert found.endpoint("OS").events == 20  # type: ignore[union-attr]


def test_gdc_cases_and_count_files_are_joined(tmp_path: Path) -> None:
    import json

    bundle = tmp_path / "gdc"
    bundle.mkdir()
    cases, sheet = [], ["File ID\tFile Name\tSample ID"]
    for n in range(24):
        name = f"TCGA-AA-{n:04d}"
        dead = n % 2 == 0
        cases.append({
            "submitter_id": name,
            "demographic": {"gender": "male" if n % 3 else "female",
                            "vital_status": "Dead" if dead else "Alive",
                            "days_to_death": 100 + n if dead else None},
            "diagnoses": [{"age_at_diagnosis": 20000 + n, "days_to_last_follow_up": 900 + n}],
        })  # fmt: skip
        sheet.append(f"f{n}\tx{n}.rna_seq.augmented_star_gene_counts.tsv\t{name}-01A")
        (bundle / f"f{n}").mkdir()
        counts = "# gene-model\ngene_id\tgene_name\tgene_type\tunstranded\n"
        counts += "N_unmapped\t\t\t5\n"
        counts += "".join(f"ENSG{g}\tG{g}\tprotein_coding\t{g * 50 + n}\n" for g in range(5))
        (bundle / f"f{n}" / f"x{n}.rna_seq.augmented_star_gene_counts.tsv").write_text(counts)
    (bundle / "clinical.cases.json").write_text(json.dumps(cases))
    (bundle / "gdc_sample_sheet.2024.tsv").write_text("\n".join(sheet) + "\n")
    publish(propose([bundle]), tmp_path / "out")
    found = cohort.load(tmp_path / "out").dictionary()
    assert (found.n_patients, found.expression_n, len(found.expression)) == (24, 24, 5)
    assert found.endpoint("OS").events == 12  # type: ignore[union-attr]
    time = cohort.load(tmp_path / "out").outcome("OS")["time"]
    assert time.loc["TCGA-AA-0000"] == pytest.approx(100 / (365.25 / 12))
    assert time.loc["TCGA-AA-0001"] == pytest.approx(901 / (365.25 / 12))


@pytest.mark.parametrize(
    ("value", "name", "side"),
    [
        ("1:DECEASED", "OS_STATUS", 1), ("0:LIVING", "OS_STATUS", 0), ("Dead", "vital_status", 1),
        ("yes", "death", 1), ("no", "death", 0), ("yes", "alive", 0), ("no", "alive", 1),
        ("yes", "censored", None), ("alive, no evidence", "status", 0), ("tumor free", "x", None),
        ("Disease free", "dfs", 0), ("relapse", "rfs", 1), ("lost to follow-up", "status", 0),
    ],
)  # fmt: skip
def test_sides_of_codes(value: str, name: str, side: int | None) -> None:
    assert side_of(value, name) == side


@pytest.mark.parametrize(
    ("cell_", "decimal", "value"),
    [
        ("1,5", ",", 1.5), ("1.234,5", ",", 1234.5), ("1 234,5", ",", 1234.5),
        ("1,234.5", ".", 1234.5),
        ("1'234", ".", 1234.0), ("−3", ".", -3.0), (".5", ".", 0.5), ("1e3", ".", 1000.0),
        ("1,5", ".", None), ("1.5", ",", None), ("12/3", ".", None), ("", ".", None),
        ("1.2.3", ".", None),
    ],
)  # fmt: skip
def test_numbers(cell_: str, decimal: str, value: float | None) -> None:
    got = parse_number(cell_, decimal)
    assert got == value or (value is None and got != got)


@pytest.mark.parametrize(
    ("text", "order", "day"),
    [
        ("2019-02-28", "", date(2019, 2, 28)), ("28.02.2019", "dmy", date(2019, 2, 28)),
        ("02/28/2019", "mdy", date(2019, 2, 28)), ("28-Feb-2019", "", date(2019, 2, 28)),
        ("31.02.2019", "dmy", None), ("3. März 2019", "", date(2019, 3, 3)),
        ("03/04/19", "mdy", date(2019, 3, 4)),
        ("22MAR2016", "", date(2016, 3, 22)), ("42451", "", date(2016, 3, 22)),
        ("03/04/2019", "mdy", date(2019, 3, 4)),
    ],
)  # fmt: skip
def test_days(text: str, order: str, day: date | None) -> None:
    assert parse_date(text, order) == day


@pytest.mark.parametrize(
    ("levels", "name", "places"),
    [
        (["Stage IIA", "Stage IV", "Stage I"], "x", {"Stage I": 1, "Stage IIA": 2, "Stage IV": 4}),
        (["T1", "T2b", "Ta", "TX"], "pt", {"T1": 1, "T2b": 2, "Ta": 0}),
        (["pN0", "pN1", "pN2"], "n", {"pN0": 0, "pN1": 1, "pN2": 2}),
        (["low", "high", "intermediate"], "risk", {"low": 2, "intermediate": 3, "high": 4}),
        (["IC0", "IC1", "IC2+"], "IC.Level", {"IC0": 0, "IC1": 1, "IC2+": 2}),
        (["C1", "C2", "C3"], "cluster", None), (["I", "II", "III"], "subtype", None),
        (["red", "green", "blue"], "color", None),
    ],
)  # fmt: skip
def test_orders_of_levels(levels: list[str], name: str, places: dict[str, int] | None) -> None:
    found = ordered_levels(levels, name)
    assert (found.values if found else None) == places


def test_nothing_is_overwritten_without_force_and_never_another_folder(tmp_path: Path) -> None:
    proposal = propose([written(tmp_path)])
    publish(proposal, tmp_path / "out")
    before = (tmp_path / "out" / "cohort.toml").read_bytes()
    with pytest.raises(InputError, match="--force to replace it"):
        publish(proposal, tmp_path / "out")
    publish(proposal, tmp_path / "out", force=True)
    assert (tmp_path / "out" / "cohort.toml").read_bytes() == before
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "cohort.toml").write_text('id = "mine"\n')
    with pytest.raises(InputError, match="not written by"):
        publish(proposal, tmp_path / "own", force=True)
    assert (tmp_path / "own" / "cohort.toml").read_text() == 'id = "mine"\n'


def test_a_failure_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposal = propose([written(tmp_path)])
    publish(proposal, tmp_path / "out")
    before = sorted(path.name for path in tmp_path.iterdir())
    content = (tmp_path / "out" / "cohort.toml").read_bytes()

    def broken(*args: Any, **more: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("validation.cohort.findings.check_cohort", broken)
    for target in ("out", "other"):
        with pytest.raises(OSError, match="no space"):
            publish(proposal, tmp_path / target, force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "out" / "cohort.toml").read_bytes() == content


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("time", "KEY=VALUE"), ("colour=red", "COLUMN.kind"), ("decimal=;", "not one of"),
        ("time=nothing", "no column"), ("event=vital_status:Gone", "has no code"),
        ("id=who", "no column"),
        ("unit=hours", "not one of"), ("where=sex:other", "has no value"),
        ("name=../up", "not a valid folder name"),
        ("stage.order=Stage I<Stage X", "not a level"), ("sex.kind=continuous", "no numbers"),
        ("encoding=utf-99", "try another encoding"),
    ],
)  # fmt: skip
def test_a_setting_that_does_not_fit_is_refused_with_what_would(
    tmp_path: Path, setting: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        propose([written(tmp_path)], [setting])


def test_settings_win_over_guesses(tmp_path: Path) -> None:
    path = written(tmp_path)
    settings = ["vital_status.kind=skip", "OS.event=sex:male", "OS.start=surgery_date",
                "OS.end=last_contact_date", "stage.order=Stage IV<Stage III<Stage II<Stage I",
                "known_at=baseline", "drop=marker", "name=other", "title=A title"]  # fmt: skip
    publish(propose([path], settings), tmp_path / "out")
    loaded = cohort.load(tmp_path / "out")
    found = loaded.dictionary()
    assert (found.cohort, found.title) == ("other", "A title")
    assert "clinical:marker" not in {item.key for item in found.variables}
    assert {item.known_at for item in found.variables} == {"baseline"}
    truth = {row["patient"]: row for row in patients()}
    event = loaded.outcome("OS")["event"]
    assert all((event[who] == 1) == (truth[who]["sex"] == "male") for who in event.index)
    stage = loaded.column("clinical:stage")
    assert all(stage[who] == 3 - STAGES.index(truth[who]["stage"]) for who in stage.index)


def test_a_column_of_patients_that_is_half_empty_is_named_beside_the_samples(
    tmp_path: Path,
) -> None:
    lines = ["Sample_ID,Patient_ID,patient_age,os_days,os_status"]
    for n in range(40):
        who = f"Pt{n // 2}" if n < 20 else ""
        lines.append(f"s-{n},{who},{50 + n % 9},{90 + n},{n % 2}")
    proposal = propose([table(tmp_path, "\n".join(lines))])
    (chosen,) = [guess for guess in proposal.guesses if guess.key == "id"]
    assert (chosen.value, chosen.confidence) == ("Sample_ID", "unsure")
    assert "Patient_ID identifies 10 patients in 20 of the rows" in chosen.evidence


def test_rows_without_a_name_are_patients_only_where_a_person_says_so(tmp_path: Path) -> None:
    lines = ["age,horTh,time,status"]
    lines += [f"{40 + n % 30}.5,{'yes' if n % 2 else 'no'},{800 + n},{n % 2}" for n in range(40)]
    path = table(tmp_path, "\n".join(lines))
    proposal = propose([path])
    assert "id" in [guess.key for guess in proposal.open]
    with pytest.raises(InputError, match="Set id=rows or"):
        publish(proposal, tmp_path / "out")
    publish(propose([path], ["id=rows", "event=status:1"]), tmp_path / "out")
    assert cohort.load(tmp_path / "out").dictionary().n_patients == 40


def test_a_patient_whose_name_is_a_word_of_sums_elsewhere_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    body = [f"{'total' if n % 2 else 'partial'},{n},{n % 7},{100 + n},{n % 2}" for n in range(40)]
    path.write_text("\n".join(["cystectomy,patient,x,os_days,os_event", *body]) + "\n")
    assert propose([path]).files["a.csv"].count("\n") == 41


@pytest.mark.parametrize(
    ("cells", "percent"),
    [(["45%", "3 %", "100%"], True), (["45%", "30", "20%"], True), (["45%", "0.3", "0.2"], False),
     (["45", "30", "2"], False)],
)  # fmt: skip
def test_percents_are_numbers_unless_fractions_stand_among_them(
    cells: list[str], percent: bool
) -> None:
    column = Column("t", "ki67", pd.Series(cells), 0)
    assert (column.suffix == "%") is percent
    assert bool(column.numbers.iloc[0] == 45) is (percent or "%" not in cells[0])


def test_a_repeated_name_never_takes_the_name_of_another_column(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [f"P{n},{n % 39},{2 * n},{3 * n},{100 + 7 * n},{n % 2}" for n in range(40)]
    path.write_text("\n".join(["patient,m,m,m.2,os_days,os_event", *rows]) + "\n")
    written = pd.read_csv(io.StringIO(propose([path]).files["a.csv"]))
    assert [int(written[name].iloc[3]) for name in ("m", "m.3", "m.2")] == [3, 6, 9]


def series_of_patients(n: int = 300) -> pd.DataFrame:
    """Patients with entry, a marker, cycles given, and visits that grow with follow-up."""
    rng = np.random.default_rng(4)
    months, entered = np.round(rng.exponential(30, n) + 1, 1), np.round(rng.exponential(9, n), 1)
    day = pd.Timestamp("2010-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    return pd.DataFrame({
        "patient": [f"P{at:03d}" for at in range(n)],
        "os_months": np.round(entered + months, 1), "os_event": (rng.random(n) < 0.6).astype(int),
        "entered": entered, "marker": np.round(rng.normal(size=n), 3),
        "chemo_cycles": rng.integers(1, 7, n), "seen": np.round(months * 2 + rng.normal(size=n), 1),
        "diagnosed": day.strftime("%Y-%m-%d"),
        "enrolled": (day + pd.to_timedelta(np.ceil(entered), unit="D")).strftime("%Y-%m-%d"),
        "last": (day + pd.to_timedelta(np.ceil(entered + months) + 1, "D")).strftime("%Y-%m-%d"),
    })  # fmt: skip


@pytest.mark.parametrize(
    ("said", "impossible"),
    [
        (["OS.time=os_months", "OS.event=os_event:1", "OS.unit=months", "OS.entry=entered"], None),
        (["OS.time=os_months", "OS.event=os_event:1", "OS.unit=months", "OS.entry=entered"], 999.0),
    ],
)
def test_delayed_entry_is_set_like_time_and_event(
    tmp_path: Path, said: list[str], impossible: float | None
) -> None:
    table = series_of_patients()
    if impossible is not None:
        table.loc[5, "entered"], table.loc[6, "entered"] = impossible, np.nan
    table.to_csv(tmp_path / "series.csv", index=False)
    proposal = propose([tmp_path / "series.csv"], ["known_at=unknown", *said])
    publish(proposal, tmp_path / "cohort")
    outcome = cohort.load(tmp_path / "cohort").outcome("OS")
    assert (outcome["entry"] < outcome["time"]).all()
    assert len(outcome) == 300 - 2 * (impossible is not None)
    (guess,) = [item for item in proposal.guesses if item.key == "OS.entry"]
    assert ("left out" in guess.evidence) == (impossible is not None)
    with pytest.raises(InputError, match="entry"):
        propose([tmp_path / "series.csv"], [*said[:-1], "OS.entry=patient"])


def test_an_answer_for_all_variables_covers_no_suspect(tmp_path: Path) -> None:
    series_of_patients().to_csv(tmp_path / "series.csv", index=False)
    said = ["OS.time=os_months", "OS.event=os_event:1", "OS.unit=months", "known_at=baseline",
                "drop=entered,diagnosed,enrolled,last"]  # fmt: skip

    def times(*more: str) -> dict[str, str]:
        proposal = propose([tmp_path / "series.csv"], [*said, *more])
        publish(proposal, tmp_path / "cohort", force=True)
        found = cohort.load(tmp_path / "cohort").dictionary().variables
        return {item.key.partition(":")[2]: str(item.known_at) for item in found}

    assert times() == {"marker": "baseline", "chemo_cycles": "unknown", "seen": "unknown"}
    assert times("chemo_cycles.known_at=baseline", "seen.known_at=baseline") == dict.fromkeys(
        ("marker", "chemo_cycles", "seen"), "baseline"
    )
