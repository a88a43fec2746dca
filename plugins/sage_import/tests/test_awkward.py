"""Inputs that people really have: each kind rebuilt small, with the reading that is right.

`REPORTS` are public bug reports and questions about neighboring tools; `KINDS` are inputs of our
own. Every row goes through the whole import.
"""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from sage_import.intake import propose, publish
from validation import cohort

N = 60
DRAW = random.Random(11)
DAYS = [DRAW.randrange(400, 2400) if n % 2 else DRAW.randrange(30, 900) for n in range(N)]
DEAD = [n % 2 == 0 for n in range(N)]
"""Patients of even number die, and are followed shorter."""
Files = dict[str, "str | bytes"]


@dataclass
class Want:
    """What an import should find; `open` names the questions without whose answer it ends."""

    n: int = N
    events: int | None = N // 2
    open: tuple[str, ...] = ()
    kinds: dict[str, str] = field(default_factory=dict)
    levels: dict[str, dict[str, int]] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    months: dict[str, float] = field(default_factory=dict)
    lost: int = 0
    genes: tuple[str, ...] = ()
    baseline: tuple[str, ...] = ()


def sheet(
    columns: dict[str, list[Any]], delimiter: str = ",", head: str = "", tail: str = ""
) -> str:
    """A table of N patients P00… with the columns, each one value per patient."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return head + out.getvalue() + tail


def people(**more: list[Any]) -> dict[str, list[Any]]:
    return {"patient_id": [f"P{n:02d}" for n in range(N)]} | more


def outcome(**more: list[Any]) -> dict[str, list[Any]]:
    """Patients with a plain outcome, and more columns."""
    return people(os_days=list(DAYS), os_event=[int(dead) for dead in DEAD], **more)


def each(*values: Any) -> list[Any]:
    return [values[n % len(values)] for n in range(N)]


def start_of(n: int) -> date:
    return date(2012, 3, 1) + timedelta(days=17 * n)


def end_of(n: int) -> date:
    return start_of(n) + timedelta(days=DAYS[n])


def book(
    sheets: dict[str, list[list[Any]]], hidden: tuple[str, ...] = (), merged: tuple[str, ...] = ()
) -> bytes:
    from openpyxl import Workbook

    made = Workbook()
    made.remove(made.active)
    for name, rows in sheets.items():
        page = made.create_sheet(name)
        for row in rows:
            page.append(row)
        for span in merged:
            page.merge_cells(span)
        if name in hidden:
            page.sheet_state = "hidden"
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def frame(write: str, suffix: str) -> bytes:
    """A table with labels, missing numbers and a truth value, as another program's file."""
    import tempfile

    import pandas as pd

    columns = outcome(age=[float(40 + n % 40) if n % 9 else None for n in range(N)],
                      responder=[n % 3 == 0 for n in range(N)])  # fmt: skip
    data = pd.DataFrame(columns)
    data["grade"] = pd.Categorical(each("low", "high", "low"), ["low", "high"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t{suffix}"
        if write == "to_stata":
            data["responder"] = data["responder"].astype(int)
            data.to_stata(path, write_index=False, variable_labels={"age": "Age at surgery"})
        elif suffix == ".xpt":
            sas = pytest.importorskip("pyreadstat")
            numbers = data[["patient_id", "os_days", "os_event", "age"]]
            numbers = numbers.rename(columns={"patient_id": "patient"})
            sas.write_xport(numbers, path, file_format_version=5)
        elif suffix == ".sav":
            spss = pytest.importorskip("pyreadstat")
            data["grade"] = data["grade"].cat.codes
            labels = {"grade": {0: "low", 1: "high"}}
            spss.write_sav(data, path, variable_value_labels=labels)
        elif suffix == ".arrow":
            arrow = pytest.importorskip("pyarrow")
            table = arrow.Table.from_pandas(data)
            with (
                arrow.OSFile(str(path), "wb") as sink,
                arrow.ipc.new_file(sink, table.schema) as to,
            ):
                to.write_table(table)
        else:
            getattr(data, write)(path)
        return path.read_bytes()


OF_A_FRAME = Want(kinds={"age": "continuous", "grade": "binary"}, missing={"age": 7})
SIGNS = each("-", "+", "++", "-", "+++", "+")

NORMALS = {
    "patient_id": [f"P{n:02d}" for n in [*range(N), *range(0, N, 2)]],
    "SAMPLE_TYPE": ["Primary"] * N + ["Solid Tissue Normal"] * (N // 2),
    "ki67": [20 + n / 10 for n in range(N)] + [n / 100 for n in range(N // 2)],
}
"""Samples of N tumors, and of the normal tissue of every second patient."""
KINDS: dict[str, Callable[[], tuple[Files, tuple[str, ...], Want]]] = {
    # -- rows: a sample of normal tissue is no patient, and no measurement of a tumor ----------
    "normal samples beside tumors of the same patients": lambda: (
        {"t.csv": sheet(outcome()), "samples.csv": sheet(NORMALS)}, (),
        Want(lost=N // 2, values={"ki67": {"P00": 20, "P02": 20.2}}),
    ),
    "normal samples as rows of their own": lambda: (
        {"t.csv": sheet(outcome(sample_type=each(*["Primary Tumor"] * 3, "Blood Derived Normal")))},
        (), Want(n=3 * N // 4, lost=N // 4),
    ),
    "normal samples that were asked for": lambda: (
        {"t.csv": sheet(outcome(tissue_type=each("Tumor", "Normal")))},
        ("where=tissue_type:Tumor|Normal",), Want(kinds={"tissue_type": "binary"}),
    ),
    "a type that is normal and of no sample": lambda: (
        {"t.csv": sheet(outcome(ecg_type=each("normal", "abnormal")))}, (),
        Want(kinds={"ecg_type": "binary"}),
    ),
    # -- levels: a set of levels is never split ------------------------------------------------
    "a dash beside signs or grades of staining is negative, and else missing": lambda: (
        {"t.csv": sheet(outcome(HER2=SIGNS, PR=each("+", "-"), AR=each("1+", "-", "2+", "3+"),
                                PGR=each("0", "1+", "2+", "3+", "-"), ER=each("pos", "neg", "-"),
                                ki67=each("5", "-", "20.5", "8", "12", "-"),
                                CD8=each("−", "(+)", "+", "++")))}, (),
        Want(kinds={"her2": "ordinal", "pr": "binary", "ar": "ordinal", "pgr": "ordinal",
                    "er": "binary", "ki67": "continuous", "cd8": "ordinal"},
             missing={"her2": 0, "pr": 0, "ar": 0, "pgr": 12, "er": 20, "ki67": 20, "cd8": 0},
             levels={"pr": {"positive": 30, "negative": 30}},
             values={"her2": {"P00": 0, "P04": 3}, "ar": {"P01": 0, "P03": 3}, "pgr": {"P00": 0},
                     "cd8": {"P00": 0, "P01": 0.5}}),
    ),
    "words of yes and no": lambda: (
        {"t.csv": sheet(outcome(TP53=each("mut", "wt"), FGFR3=each("Mutant", "WT", "wild-type"),
                                LVI=each("nachweisbar", "nicht vorhanden"),
                                HPV=each("D", "ND", "ND")))}, (),
        Want(kinds={"tp53": "binary", "fgfr3": "binary", "lvi": "binary", "hpv": "binary"},
             missing={"hpv": 0},
             levels={"fgfr3": {"mutated": 20, "wildtype": 40},
                     "lvi": {"present": 30, "absent": 30}}),
    ),
    "9 among few codes is missing, counts stay, pT, pN, cT and Grading are covariates": lambda: (
        {"t.csv": sheet(outcome(ecog=each(0, 1, 2, 9), nodes=each(0, 1, 2, 9),
                                pT=each("2", "3a", "4b", "2a"), pN=each("0", "1", "2"),
                                cT=each("T1", "T2"), Grading=each("G2", "G3", "G1")))}, (),
        Want(kinds={"pt": "ordinal", "pn": "ordinal", "grading": "ordinal"},
             missing={"ecog": 15, "nodes": 0},
             baseline=("pt", "pn", "ct", "grading"), values={"pt": {"P01": 3}}),
    ),
    # -- numbers ---------------------------------------------------------------------------------
    "top-coded ages, limits of detection, units, a word among numbers; groups are none": lambda: (
        {"t.csv": sheet(outcome(age=["90+" if n == 3 else ">89" if n == 4 else 50 + n % 30
                                     for n in range(N)],
                                age_group=each("<50", "50-60", ">60"),
                                psa=[f"{n / 7:.2f}" if n % 10 else "<0.1" for n in range(N)],
                                size=[f"{10 + n} mm" for n in range(N)],
                                ki67=[f"{n + 1} %" for n in range(N)],
                                crp=["hemolytic" if n == 7 else n / 4 + 1 for n in range(N)]))}, (),
        Want(kinds={"age": "continuous", "age_group": "categorical", "psa": "continuous",
                    "size": "continuous", "ki67": "continuous", "crp": "continuous"},
             missing={"age": 0, "psa": 0, "crp": 1},
             values={"age": {"P03": 90, "P04": 90}, "psa": {"P00": 0.1}, "size": {"P05": 15}}),
    ),
    "German numbers, header and levels": lambda: (
        {"t.csv": sheet({
            "Pat.-Nr.": [f"K{n:03d}" for n in range(N)],
            "Alter": [f"{50 + n % 30},5" for n in range(N)], "Geschlecht": each("m", "w"),
            "Thrombozyten": [f"{1 + n % 3}.{100 + n},25" for n in range(N)],
            "Überlebenszeit (Monate)": [f"{day / 30.4375:.2f}".replace(".", ",") for day in DAYS],
            "Status": ["verstorben" if dead else "lebt" for dead in DEAD]}, ";")}, (),
        Want(kinds={"alter": "continuous", "geschlecht": "binary", "thrombozyten": "continuous"},
             values={"thrombozyten": {"K000": 1100.25}}, baseline=("alter", "geschlecht"),
             months={"K001": DAYS[1] / 30.4375}),
    ),
    # -- dates -----------------------------------------------------------------------------------
    "serial dates among written ones": lambda: (
        {"t.csv": sheet(people(
            diagnosis=[(start_of(n) - date(1899, 12, 30)).days if n % 7 == 0 else start_of(n)
                       for n in range(N)],
            last_follow_up=[end_of(n) for n in range(N)],
            status=["dead" if dead else "alive" for dead in DEAD]))}, (),
        Want(months={"P00": DAYS[0] / 30.4375}),
    ),
    "two-digit years, births in the earlier century, age computed": lambda: (
        {"t.csv": sheet(people(
            birth_date=[f"{date(1930 + n % 40, 5, 17):%d.%m.%y}" for n in range(N)],
            surgery_date=[f"{start_of(n):%d.%m.%y}" for n in range(N)],
            last_contact=[f"{end_of(n):%d.%m.%y}" for n in range(N)],
            status=["dead" if dead else "alive" for dead in DEAD]))}, (),
        Want(months={"P01": DAYS[1] / 30.4375}, kinds={"age": "continuous"}, baseline=("age",),
             values={"age": {"P00": round((start_of(0) - date(1930, 5, 17)).days / 365.25, 2)}}),
    ),
    "American two-digit years and a date of death": lambda: (
        {"t.csv": sheet(people(
            dx_date=[f"{start_of(n):%m/%d/%y}" for n in range(N)],
            last_seen=[f"{end_of(n):%m/%d/%y}" for n in range(N)],
            date_of_death=[f"{end_of(n):%m/%d/%y}" if DEAD[n] else "" for n in range(N)]))}, (),
        Want(months={"P00": DAYS[0] / 30.4375}),
    ),
    "dates of SAS and a partial date": lambda: (
        {"t.csv": sheet(people(
            randomization_date=["2015" if n == 5 else f"{start_of(n):%d%b%Y}".upper()
                                for n in range(N)],
            last_contact_date=[f"{end_of(n):%d%b%Y}".upper() for n in range(N)],
            status=["dead" if dead else "alive" for dead in DEAD]))}, (),
        Want(events=30, months={"P01": DAYS[1] / 30.4375}),
    ),
    # -- outcomes --------------------------------------------------------------------------------
    "a column of censoring is asked": lambda: (
        {"t.csv": sheet(people(os_months=[day / 30 for day in DAYS],
                               zensiert=[int(not dead) for dead in DEAD]))}, (),
        Want(open=("OS.event",)),
    ),
    "an event whose times speak against its name is asked": lambda: (
        {"t.csv": sheet(people(os_months=[day / 30 for day in DAYS],
                               os_status=[int(not dead) for dead in DEAD]))}, (),
        Want(open=("OS.event",)),
    ),
    "1 in a vital status is asked": lambda: (
        {"t.csv": sheet(people(os_months=[day / 30 for day in DAYS],
                               vital_status=[int(dead) for dead in DEAD]))}, (),
        Want(open=("OS.event",)),
    ),
    "three codes of a status are answered": lambda: (
        {"t.csv": sheet(people(time_days=DAYS, status=[(2 if dead else n % 4 == 1) * 1
                                                       for n, dead in enumerate(DEAD)]))},
        ("time=time_days", "event=status:2"), Want(),
    ),
    # -- rows ------------------------------------------------------------------------------------
    "title, totals, notes and repeated headers": lambda: (
        {"t.csv": sheet(outcome(age=[50 + n % 30 for n in range(N)], stage=each("I", "II", "III")),
                        head="Table S1. Patients,,,,\n,,,,\n",
                        tail="patient_id,os_days,os_event,age,stage\nTotal,60,30,,\n"
                             "Median (IQR),800,,64,\n* OS: overall survival,,,,\n"
                             "† staged by AJCC 8,,,,\n")}, (),
        Want(lost=5, kinds={"age": "continuous"}),
    ),
    "headings between the rows": lambda: (
        {"t.csv": sheet(outcome(age=[50 + n % 30 for n in range(N)])).replace(
            "P30,", "Arm B (placebo),,,\nP30,")}, (),
        Want(lost=1),
    ),
    "several slides per patient and an index": lambda: (
        {"t.csv": sheet({key: [value for value in values for _ in range(2)]
                         for key, values in people(
                             survival_months=[day / 30 for day in DAYS],
                             event=[int(dead) for dead in DEAD]).items()}
                        | {"slide_id": [f"P{n // 2:02d}-{n % 2}.svs" for n in range(2 * N)]})}, (),
        Want(),
    ),
    # -- workbooks -------------------------------------------------------------------------------
    "two header rows, a unit row, a hidden sheet": lambda: (
        {"t.xlsx": book({
            "data": [["Patient", "Demographics", None, "Follow-up", None],
                     [None, "Age", "Sex", "Time", "Status"],
                     [None, "years", None, "months", None],
                     *([f"P{n:02d}", 50 + n % 30, "mf"[n % 2], DAYS[n] / 30,
                        "dead" if DEAD[n] else "alive"] for n in range(N))],
            "old": [["patient", "age"], ["P00", 1], ["P01", 1]]}, ("old",))}, (),
        Want(lost=1, months={"P01": DAYS[1] / 30}),
    ),
    "two outcomes under merged names": lambda: (
        {"t.xlsx": book({"data": [
            ["ID", "Overall survival", None, "Recurrence", None],
            [None, "Months", "Event", "Months", "Event"],
            *([f"P{n:02d}", DAYS[n] / 30, int(DEAD[n]), DAYS[n] / 40, int(n % 4 == 0)]
              for n in range(N))]})}, (),
        Want(),
    ),
    "rows of a patient under a merged cell": lambda: (
        {"t.xlsx": book({"s": [
            ["patient", "sample", "TIL", "os_days", "os_event"],
            *([f"P{n // 2:02d}" if n % 2 == 0 else None, f"S{n}", float(n % 9),
               DAYS[n // 2], int(DEAD[n // 2])] for n in range(2 * N))]},
            merged=tuple(f"A{2 * n + 2}:A{2 * n + 3}" for n in range(N)))}, (),
        Want(kinds={"til": "continuous"}),
    ),
    "a sheet of explanations before the patients": lambda: (
        {"t.xlsx": book({
            "Codebook": [["Variable", "Meaning"], ["CRP", "mg/l"], ["OS event", "1 = dead"]],
            "Patients": [["ID", "CRP", "OS months", "OS event"],
                         *([f"P{n:02d}", n / 3, DAYS[n] / 30, int(DEAD[n])] for n in range(N))]})},
        (), Want(lost=2, kinds={"crp": "continuous"}),
    ),
    "a sheet per year": lambda: (
        {"t.xlsx": book({str(2019 + part): [
            ["ID", "OS months", "OS event"],
            *([f"P{n:02d}", DAYS[n] / 30, int(DEAD[n])] for n in range(part, N, 3))]
            for part in range(3)})}, (), Want(),
    ),
    "a hospital's sheet in German": lambda: (
        {"t.csv": ("Tumorzentrum\n\n" + sheet({
            "Fallnummer": [2000 + n for n in range(N)], "Name": [f"Muster {n}" for n in range(N)],
            "Geburtsdatum": [f"{date(1940 + n % 30, 2, 3):%d.%m.%Y}" for n in range(N)],
            "OP-Datum": [f"{start_of(n):%d.%m.%Y}" for n in range(N)],
            "pT": each("1", "2a", "3b", "4"), "pN": each("0", "1", "X"),
            "Grading": each("G2", "G3"),
            "Ki-67": [f"{n % 40},5 %" for n in range(N)],
            "Letzter Kontakt": [f"{end_of(n):%d.%m.%Y}" for n in range(N)],
            "Vitalstatus": ["verstorben" if dead else "lebt" for dead in DEAD]}, ";",
            tail="Mittelwert;;;;;;;20,1;;\nLegende: pT nach TNM;;;;;;;;;\n")).encode("cp1252")}, (),
        Want(lost=2, kinds={"pt": "ordinal", "ki-67": "continuous", "age": "continuous"},
             baseline=("pt", "pn", "grading", "age"), months={"2001": DAYS[1] / 30.4375}),
    ),
    # -- names written by programs ---------------------------------------------------------------
    "names by R over a matrix": lambda: (
        {"a.csv": sheet({"patient": [f"BC-{n}" for n in range(N)], "os_days": DAYS,
                         "os_event": [int(dead) for dead in DEAD]}),
         "m.csv": ",".join(["gene", *(f"BC.{n}" for n in range(N))]) + "\n" + "\n".join(
             ",".join([gene, *(f"{(n * 7 + at) % 13 + 0.5}" for n in range(N))])
             for at, gene in enumerate(("TP53", "CD8A", "FGFR3", "CXCL13"))) + "\n"}, (),
        Want(genes=("CD8A", "CXCL13", "FGFR3", "TP53")),
    ),
    "a matrix of samples that begin with their patient, and a gene that became a date": lambda: (
        {"a.csv": sheet(outcome()),
         "m.gct": "#1.2\n5\t60\n" + "\n".join("\t".join(row) for row in (
             ["Name", "Description", *(f"P{n:02d}_T1" for n in range(N))],
             *([gene, "na", *(f"{(n * 7 + at) % 13 + 0.5}" for n in range(N))]
               for at, gene in enumerate(("TP53", "CD8A", "1-Mar", "CXCL13", "EGFR"))))) + "\n"},
        (), Want(genes=("1-Mar", "CD8A", "CXCL13", "EGFR", "TP53"), lost=1),
    ),
    "numbers with and without zeros in front": lambda: (
        {"a.csv": sheet({"patient": [f"{n:04d}" for n in range(N)], "os_days": DAYS,
                         "os_event": [int(dead) for dead in DEAD]}),
         "b.csv": sheet({"patient": [f"{n}.0" for n in range(N)], "til": each(1, 2, 3.5)})},
        (), Want(kinds={"til": "continuous"}),
    ),
    "a turned table of TCGA patients": lambda: (
        {"clin.txt": "\n".join("\t".join(map(str, row)) for row in (
            ["Hybridization REF", *(f"tcga-aa-{n:04d}" for n in range(N))],
            ["years_to_birth", *(50 + n % 30 for n in range(N))],
            ["vital_status", *(int(dead) for dead in DEAD)],
            ["days_to_death", *(DAYS[n] if DEAD[n] else "NA" for n in range(N))],
            ["days_to_last_followup", *("NA" if DEAD[n] else DAYS[n] for n in range(N))])) + "\n"},
        (), Want(months={"TCGA-AA-0001": DAYS[1] / 30.4375}),
    ),
    "Firehose's counts of several kinds": lambda: (
        {"clin.csv": sheet({"patient": [f"TCGA-AA-{n:04d}" for n in range(N)], "os_days": DAYS,
                            "os_event": [int(dead) for dead in DEAD]}),
         "rsem.txt": "\n".join("\t".join(row) for row in (
             ["Hybridization REF", *(f"TCGA-AA-{n // 2:04d}-01A" for n in range(2 * N))],
             ["gene_id", *(("raw_count", "scaled_estimate")[n % 2] for n in range(2 * N))],
             *([gene, *(f"{100 + n}" if n % 2 == 0 else "1e-06" for n in range(2 * N))]
               for gene in ("TP53|7157", "CD8A|925", "?|100", "SLC35E2|9906")))) + "\n"}, (),
        Want(genes=("CD8A", "SLC35E2", "TP53"), lost=1),
    ),
    "a GEO series matrix": lambda: (
        {"GSE1_series_matrix.txt": "\n".join((
            '!Series_title\t"A series"', '!Series_geo_accession\t"GSE1"', "",
            "\t".join(["!Sample_title", *(f'"tumor {n}"' for n in range(N))]),
            "\t".join(["!Sample_geo_accession", *(f'"GSM{n + 100}"' for n in range(N))]),
            "\t".join(["!Sample_characteristics_ch1",
                       *(f'"age: {50 + n % 30}"' for n in range(N))]),
            "\t".join(["!Sample_characteristics_ch1",
                       *(f'"overall survival (months): {DAYS[n] / 30:.2f}"' for n in range(N))]),
            "\t".join(["!Sample_characteristics_ch1",
                       *(f'"vital status: {"dead" if DEAD[n] else "alive"}"' for n in range(N))]),
            "!series_matrix_table_begin",
            "\t".join(['"ID_REF"', *(f'"GSM{n + 100}"' for n in range(N))]),
            *("\t".join([f'"{gene}"', *(f"{(n * 5 + at) % 11 + 2.5}" for n in range(N))])
              for at, gene in enumerate(("TP53", "CD8A", "FGFR3", "CXCL13"))),
            "!series_matrix_table_end", ""))}, (),
        Want(kinds={"age": "continuous"}, genes=("CD8A", "CXCL13", "FGFR3", "TP53")),
    ),
    # -- other programs' files -------------------------------------------------------------------
    "Parquet": lambda: ({"t.parquet": frame("to_parquet", ".parquet")}, (), OF_A_FRAME),
    "Stata": lambda: ({"t.dta": frame("to_stata", ".dta")}, (), OF_A_FRAME),
    "Arrow": lambda: ({"t.arrow": frame("", ".arrow")}, (), OF_A_FRAME),
    "SAS": lambda: (
        {"t.xpt": frame("", ".xpt")}, (),
        Want(kinds={"age": "continuous"}, missing={"age": 7}),
    ),
    "SPSS": lambda: ({"t.sav": frame("", ".sav")}, (), OF_A_FRAME),
}  # fmt: skip


def gdc(follow: list[list[Any]], **columns: list[Any]) -> Files:
    """A GDC export of N cases: clinical.tsv with the columns and follow_up.tsv with the rows."""
    ids = [f"TCGA-AA-{n:04d}" for n in range(N)]
    table = {"cases.submitter_id": ids} | columns
    rows = [["cases.submitter_id", "follow_ups.days_to_follow_up"], *follow]
    lines = "\n".join("\t".join(map(str, row)) for row in rows) + "\n"
    return {"g/clinical.tsv": sheet(table, "\t"), "g/follow_up.tsv": lines}


EVENT = [int(dead) for dead in DEAD]
VITAL = ["Dead" if dead else "Alive" for dead in DEAD]
TO_DEATH = [DAYS[n] if DEAD[n] else "'--" for n in range(N)]
VISITS = [[f"TCGA-AA-{n:04d}", DAYS[n] // part] for n in range(N) for part in (3, 1, 2)]

REPORTS: dict[str, Callable[[], tuple[Files, tuple[str, ...], Want]]] = {
    "TCGAbiolinks #594: the patient's own table holds an earlier follow-up": lambda: (
        gdc(VISITS, **{"demographic.vital_status": VITAL, "demographic.days_to_death": TO_DEATH,
                       "diagnoses.days_to_last_follow_up": [day // 2 for day in DAYS]}), (),
        Want(months={"TCGA-AA-0001": DAYS[1] / 30.4375}),
    ),
    "TCGAbiolinks #324: negative follow-up, deaths without a day, living with one": lambda: (
        {"t.csv": sheet(people(
            vital_status=VITAL,
            days_to_death=["NA" if n == 0 else DAYS[n] if DEAD[n] or n == 1 else "NA"
                           for n in range(N)],
            days_to_last_follow_up=["-7" if n == 3 else DAYS[n] + 5 for n in range(N)]))}, (),
        Want(events=29, months={"P01": (DAYS[1] + 5) / 30.4375}),
    ),
    "Patch-GCN #23: censorship 1 is not observed, as answered": lambda: (
        {"t.csv": sheet({"case_id": [f"TCGA-AA-{n:04d}" for n in range(N)],
                         "survival_months": [day / 30 for day in DAYS],
                         "censorship": [float(not dead) for dead in DEAD]})},
        ("event=Censorship:0.0",), Want(),
    ),
    "lifelines #422: durations and events in tables of their own": lambda: (
        {"a.csv": sheet({"id": [1001 + n for n in range(N)], "duration_days": DAYS}),
         "b.csv": sheet({"id": [1001 + n for n in reversed(range(N))],
                         "event": [int(dead) for dead in reversed(DEAD)]})}, (),
        Want(months={"1002": DAYS[1] / 30.4375}),
    ),
    "cBioPortal #1852: [Not Available] and an age of >89": lambda: (
        {"data_clinical_patient.txt": sheet(
            {"PATIENT_ID": [f"P{n:02d}" for n in range(N)],
             "AGE": [">89" if n == 8 else "<18" if n == 9 else 40 + n % 40 for n in range(N)],
             "OS_STATUS": ["DECEASED" if dead else "LIVING" for dead in DEAD],
             "OS_MONTHS": ["[Not Available]" if n == 1 else DAYS[n] / 30 for n in range(N)]}, "\t",
            head="#Patient\tAge\tStatus\tMonths\n#Patient\tAge\tStatus\tMonths\n"
                 "#STRING\tSTRING\tSTRING\tNUMBER\n#1\t1\t1\t1\n")}, (),
        Want(missing={"age": 0}, values={"age": {"P08": 90, "P09": 17}}),
    ),
    "TCGAbiolinks #45: most died, and the few living have a last contact": lambda: (
        {"t.csv": sheet(people(
            vital_status=["Alive" if n % 12 == 1 else "Dead" for n in range(N)],
            days_to_death=["NA" if n % 12 == 1 else DAYS[n] for n in range(N)],
            days_to_last_followup=[DAYS[n] if n % 12 == 1 else "NA" for n in range(N)],
            complete_response_observed=each("YES", "NO")))}, (),
        Want(events=55, months={"P01": DAYS[1] / 30.4375, "P03": DAYS[3] / 30.4375}),
    ),
    "lifelines README: columns named T and E": lambda: (
        {"t.csv": sheet(people(T=[day / 30 for day in DAYS], E=[int(dead) for dead in DEAD],
                               group=each("miR-137", "control")))},
        ("unit=months",), Want(kinds={"group": "binary"}),
    ),
    "lifelines #516: an infinite covariate beside LivingDays and Status": lambda: (
        {"t.csv": sheet(people(LivingDays=DAYS, Status=EVENT, ratio=[
            "inf" if n == 3 else n / 7 for n in range(N)]))}, (),
        Want(missing={"ratio": 1}),
    ),
    "lifelines #334: a truth value as event, a term of two lengths": lambda: (
        {"t.csv": sheet(people(observed_duration_days=DAYS, event=list(DEAD),
                               Term=each(36, 60), Market=each("north", "south", "east")))}, (),
        Want(kinds={"term": "binary", "market": "categorical"}),
    ),
    "lifelines #815: several rows of an individual": lambda: (
        {"t.csv": sheet({"individual": [f"P{n:02d}" for n in range(N) for _ in "ab"],
                         "duration_days": [day for day in DAYS for _ in "ab"],
                         "event": [dead for dead in EVENT for _ in "ab"],
                         "marker": [n / 7 for n in range(2 * N)]})}, (), Want(open=("id",)),
    ),
    "scikit-survival #26: status and time as R writes them": lambda: (
        {"t.csv": sheet({"": list(range(1, N + 1))} | people(time=DAYS, status=EVENT))},
        ("unit=days",), Want(),
    ),
    "cnsplots #205: an event of code 2": lambda: (
        {"t.csv": sheet(people(os_days=DAYS, os_event=[
            2 if n < 4 else int(DEAD[n]) for n in range(N)]))}, (), Want(open=("time", "event")),
    ),
    "synthcity #282: follow-up of zero days": lambda: (
        {"t.csv": sheet(people(os_days=[0 if n == 5 else DAYS[n] for n in range(N)],
                               os_event=EVENT))}, (), Want(months={"P05": 0.0}),
    ),
    "TCGAbiolinks #532: a last contact of 0 days beside a day of death": lambda: (
        {"t.csv": sheet(people(
            vital_status=VITAL,
            days_to_death=[DAYS[n] if DEAD[n] else "[Not Available]" for n in range(N)],
            days_to_last_follow_up=[0 if DEAD[n] else DAYS[n] for n in range(N)]))}, (),
        Want(months={"P00": DAYS[0] / 30.4375, "P01": DAYS[1] / 30.4375}),
    ),
}  # fmt: skip


def put(folder: Path, files: Files) -> list[Path]:
    """Write the files, and return what a person would give to the command."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return sorted({folder / name.split("/")[0] for name in files})


def verify(paths: list[Path], settings: tuple[str, ...], want: Want, out: Path) -> Any:
    """Import the files, compare with what is wanted, and return the cohort."""
    proposal = propose(paths, settings)
    assert tuple(guess.key for guess in proposal.open) == want.open
    assert len(proposal.questions) <= 5
    if want.open:
        assert all(not guess.value for guess in proposal.open if guess.key.endswith("event"))
        return None
    lost = sum(loss.count for loss in proposal.losses)
    assert lost == want.lost, proposal.losses
    assert all(loss.reason and loss.remedy for loss in proposal.losses)
    publish(proposal, out)
    loaded = cohort.load(out)
    found = loaded.dictionary()
    known = {item.key.partition(":")[2]: item for item in found.variables}
    assert found.n_patients == want.n
    if want.events is not None:
        assert found.endpoint("OS").events == want.events
    assert {key: known[key].kind for key in want.kinds} == want.kinds
    assert {key: known[key].levels for key in want.levels} == want.levels
    assert {key: want.n - known[key].n for key in want.missing} == want.missing
    assert {key: known[key].known_at for key in want.baseline} == dict.fromkeys(
        want.baseline, "baseline"
    )
    for key, values in want.values.items():
        column = loaded.column(known[key].key)
        assert {who: column[who] for who in values} == pytest.approx(values)
    for who, months in want.months.items():
        assert loaded.outcome("OS")["time"][who] == pytest.approx(months, rel=2e-3)
    assert found.expression == want.genes
    return loaded


@pytest.mark.parametrize("name", [*KINDS, *REPORTS])
def test_an_awkward_input_is_read_as_it_is_meant(tmp_path: Path, name: str) -> None:
    files, settings, want = (KINDS | REPORTS)[name]()
    verify(put(tmp_path / "in", files), settings, want, tmp_path / "out")
