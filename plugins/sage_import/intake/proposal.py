"""A cohort as it would be written, based on all guesses and settings."""

from __future__ import annotations

import csv
import io
import re
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from sage.core.errors import InputError
from sage_import.intake.cells import interpret_columns
from sage_import.intake.declared import ColumnGuess, Variables
from sage_import.intake.guesses import Corrections, Guess, make_guess, read_corrections
from sage_import.intake.identifiers import names_patients, people_twice
from sage_import.intake.matrix import RawMatrix, rewrite_matrix
from sage_import.intake.names import label_from, slug
from sage_import.intake.outcome import Outcome
from sage_import.intake.outcomes import find_outcomes
from sage_import.intake.sources import Sources, read_sources
from sage_import.intake.text import RawTable
from sage_import.intake.values import Column, decimal_votes, format_number, parse_date
from validation.cohort.ids import BARCODE, patient_of, sample_type_of
from validation.cohort.model import CohortSpec, describe

if TYPE_CHECKING:
    import pandas as pd

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")
JOINED = 0.5
"""Minimum share of a table's identifiers that must be patients' for the table to be joined."""
ROWS = "rows"
"""Value of `id` for files in which each row is a separate patient."""
MOST_CHOICES = 12
PATIENT = "patient of the sample"
"""Name of the patient column that is added to a table of samples."""
Columns = dict[tuple[str, str], Column]


@dataclass
class Proposal:
    """Cohort proposed from the files, ready to be written."""

    name: str
    guesses: list[Guess] = field(default_factory=list)
    columns: list[ColumnGuess] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    spec: CohortSpec | None = None
    files: dict[str, str] = field(default_factory=dict)

    @property
    def open(self) -> list[Guess]:
        """List the guesses that need a person's answer."""
        return [guess for guess in self.guesses if guess.open]

    def require_answers(self) -> None:
        """Refuse to continue if guesses are open.

        Raises `InputError` that names the setting for each open guess.
        """
        asked = [
            f"{guess.what}: {guess.evidence}. Set {guess.key}="
            + (" or ".join(guess.choices) if guess.choices else guess.value or "VALUE")
            for guess in self.open
        ]
        if asked:
            raise InputError(
                "the files leave open "
                + ("this" if len(asked) == 1 else f"{len(asked)} things")
                + ", and a wrong guess could reverse the results; answer with --set KEY=VALUE:\n  "
                + "\n  ".join(asked)
            )


def propose(paths: Iterable[Path], settings: Iterable[str] = ()) -> Proposal:
    """Read files and propose a cohort without writing anything.

    Raises `InputError` with file, line, and remedy if something cannot be read or a setting is
    invalid.
    """
    said = read_corrections(settings)
    with tempfile.TemporaryDirectory(prefix="sage-import-") as unpacked:
        sources = read_sources(paths, said, Path(unpacked))
    return _Draft(sources, said).proposal()


class _Draft:
    """Steps that turn the contents of files into a proposal."""

    def __init__(self, sources: Sources, said: Corrections) -> None:
        self.sources, self.said = sources, said
        self.guesses: list[Guess] = []
        self.notes: list[str] = [
            f"{name} was not used"
            for name in sources.left_out
            if not name.startswith("data_clinical")
        ]
        self.columns: Columns = {}
        self.variables = Variables(said)
        self.tables = self._tables_named()
        self._keep_rows()
        for table in self.tables:
            self.guesses += [
                guess.model_copy(update={"what": f"{table.origin}: {guess.what}"})
                for guess in table.guesses
            ]
            own, guesses = interpret_columns(table, self.said)
            self.guesses += guesses
            self.columns |= {(table.name, column.name): column for column in own}
        self._require_known_names()

    def _tables_named(self) -> list[RawTable]:
        taken: set[str] = set()
        for table in self.sources.tables:
            table.name = slug(table.name, taken)
        return self.sources.tables

    def proposal(self) -> Proposal:
        """Build the complete proposal."""
        name = self._name()
        ids = {table.name: self._id(table) for table in self.tables}
        outcomes = find_outcomes(
            {
                key: column
                for key, column in self.columns.items()
                if column.name != ids.get(key[0]) and column.name not in self.said.dropped_columns
            },
            self.said,
        )
        self._place_made(outcomes)
        self.guesses = [self._still_open(guess, outcomes) for guess in self.guesses]
        for outcome in outcomes:
            self.guesses += outcome.guesses
        if not outcomes:
            self.guesses.append(
                make_guess(
                    "time",
                    "outcome",
                    "",
                    (
                        "no column appears to be an outcome, so nothing could be tested; set "
                        "time=COLUMN and event=COLUMN:CODE"
                    ),
                    "unsure",
                    open=False,
                )
            )
        base = self._base(outcomes)
        kept, rule = self._join_tables(base, ids)
        spec = self._spec(name, kept, rule, ids, outcomes, base)
        files = {f"{table.name}.csv": self._file(table, spec, ids) for table in kept}
        self._expression(spec, files, kept, ids, rule)
        silent = sum(
            item.role == "variable" and item.known_at == "unknown"
            for item in self.variables.reports
        )
        if silent:
            self.notes.append(
                f"were these {silent} variables measured before follow-up began? set "
                "known_at=baseline if all were, else COLUMN.known_at=baseline for those that "
                "were; the others support no claim"
            )
        return Proposal(
            name,
            self.guesses,
            self.variables.reports,
            self.notes,
            _validate_spec(spec, name),
            files,
        )

    def _name(self) -> str:
        given = self.said.whole.get("name")
        if given is not None and not NAME.match(given):
            raise InputError(
                f'--set name: "{given[:60]}" is not a valid folder name; use letters, digits, _ . -'
            )
        return given or slug(self.sources.name or "cohort", set()).replace("_", "-")

    def _require_known_names(self) -> None:
        names = {column.name for column in self.columns.values()}
        asked = [
            *self.said.columns,
            *(name for name in self.said.dropped_columns),
            *self.said.ids.values(),
        ]
        if "id" in self.said.whole:
            asked.append(self.said.whole["id"])
        strange = [name for name in asked if name not in names and name != ROWS]
        if strange:
            raise InputError(
                f'--set: no column "{strange[0][:60]}". Columns: '
                f"{', '.join(dict.fromkeys(c.name for c in self.columns.values()))[:400]}"
            )

    # -- patients --------------------------------------------------------------------------------

    def _keep_rows(self) -> None:
        """Remove the rows that `where` excludes before anything is guessed about the rest."""
        given = self.said.whole.get("where")
        if given is None:
            return
        for table in self.tables:
            for name in map(str, table.rows.columns):
                if not given.startswith(f"{name}:"):
                    continue
                values = [value.strip() for value in given[len(name) + 1 :].split("|")]
                counts = Counter(table.rows[name])
                strange = [value for value in values if value not in counts]
                if strange:
                    raise InputError(
                        f'--set where: {name} has no value "{strange[0][:40]}"; values: '
                        f"{', '.join((value for value, _ in counts.most_common(8)))}"
                    )
                keep = table.rows[name].isin(values).to_numpy()
                self.guesses.append(
                    make_guess(
                        "where",
                        "rows",
                        given,
                        f"keeps {int(keep.sum())} of {len(keep)} rows",
                        "given",
                    )
                )
                table.rows = table.rows[keep].reset_index(drop=True)
                table.lines = [line for line, kept in zip(table.lines, keep, strict=True) if kept]
                table.origin += f" where {name} is {' or '.join(values)}"
                return
        raise InputError(
            f'--set where: "{given[:60]}" does not start with a column name; use COLUMN:VALUE'
        )

    def _id(self, table: RawTable) -> str:
        own = [column for (where, _), column in self.columns.items() if where == table.name]
        given = self.said.ids.get(table.name) or self.said.whole.get("id")
        if given is not None and given in table.rows.columns:
            self.guesses.append(
                make_guess(
                    self._id_key(table), f"{table.origin}: patient", given, "as set", "given"
                )
            )
            return given
        scored = sorted(
            (
                (names_patients(column), -column.place, column)
                for column in own
                if len(column.present)
            ),
            key=lambda item: item[:2],
            reverse=True,
        )
        best = scored[0] if scored else None
        if given == ROWS or best is None or best[0] < 5:
            return self._by_rows(table, [column.name for column in own], given)
        column = best[2]
        distinct = len(column.counts)
        others = [
            item[2].name
            for item in scored[1:4]
            if item[0] >= best[0] - 1 or (item[0] >= 6 and len(item[2].counts) >= distinct)
        ]
        example = column.present.iloc[0]
        evidence = f"{distinct} different values in {len(column.present)} rows, such as {example}"
        if others:
            evidence += f"; could also be {', '.join(others)}"
        if (twice := people_twice(own, column)) is not None:
            others.append(twice.name)
            evidence += (
                f"; {twice.name} identifies {len(twice.counts)} patients in {len(twice.present)} "
                "of the rows, so patients may be counted twice"
            )
        self.guesses.append(
            make_guess(
                self._id_key(table),
                f"{table.origin}: patient",
                column.name,
                evidence[:300],
                "unsure" if others else "likely",
            )
        )
        return column.name

    def _by_rows(self, table: RawTable, names: list[str], given: str | None) -> str:
        """Make each row a numbered patient, as set by a person or as an open guess."""
        cells = table.rows.index.to_series().map(lambda at: f"row-{at + 1}")
        self.columns[(table.name, ROWS)] = Column(table.name, ROWS, cells, -1)
        self.guesses.append(
            make_guess(
                self._id_key(table),
                f"{table.origin}: patient",
                ROWS,
                (
                    "each row is a separate patient, as set"
                    if given
                    else "no column identifies patients; rows can be numbered if each row is a "
                    f"separate patient. Columns: {', '.join(names)[:200]}"
                ),
                "given" if given else "unsure",
                open=not given,
                choices=(ROWS, *names[:MOST_CHOICES]),
            )
        )
        return ROWS

    def _id_key(self, table: RawTable) -> str:
        return "id" if len(self.tables) == 1 else f"id.{table.name}"

    def _base(self, outcomes: list[Outcome]) -> RawTable:
        """Return the table of patients: the one that contains the outcomes, or else the first."""
        named = Counter(outcome.table for outcome in outcomes)
        first = named.most_common(1)[0][0] if named else self.tables[0].name
        return next(table for table in self.tables if table.name == first)

    def _people(self, table: RawTable, column: str, rule: str) -> list[str | None]:
        return [patient_of(cell, rule) for cell in self.columns[(table.name, column)].cells]

    def _join_tables(self, base: RawTable, ids: dict[str, str]) -> tuple[list[RawTable], str]:
        """Select the tables whose patients match the base's, and the rule for identifiers."""
        cells = self.columns[(base.name, ids[base.name])].present
        barcodes = cells.map(lambda cell: bool(BARCODE.match(cell.replace(".", "-").upper())))
        rule = "tcga" if barcodes.mean() > 0.9 else "exact"
        if rule == "tcga":
            self.guesses.append(
                make_guess(
                    "id",
                    "identifiers",
                    "TCGA barcodes",
                    (
                        f"{barcodes.mean():.0%} of {len(cells)} are TCGA barcodes; their first "
                        "twelve characters identify the patient"
                    ),
                    "sure",
                    fixed=True,
                )
            )
        patients = {who for who in self._people(base, ids[base.name], rule) if who}
        kept = [base]
        for table in self.tables:
            if table is base:
                continue
            best, share = ids[table.name], 0.0
            own = [column for (where, _), column in self.columns.items() if where == table.name]
            given = table.name in self.said.ids
            for column in [c for c in own if c.name == best] if given else own:
                people = {patient_of(cell, rule) for cell in column.counts} - {None}
                part = len(people & patients) / max(len(people), 1)
                if part > share + (0.0 if column.name == ids[table.name] else 0.05):
                    best, share = column.name, part
            if share < JOINED and self._through_samples(table, best, kept, ids):
                kept.append(table)
                continue
            if share < JOINED:
                self.notes.append(
                    f"{table.origin} was omitted: {share:.0%} of its identifiers ({best}) are "
                    f"patients of {base.origin}; set {self._id_key(table)}=COLUMN"
                )
                self.variables.reports = [
                    item for item in self.variables.reports if item.table != table.name
                ]
                continue
            ids[table.name] = best
            kept.append(table)
        return kept, rule

    def _through_samples(
        self, table: RawTable, samples: str, kept: list[RawTable], ids: dict[str, str]
    ) -> bool:
        """Find the patients of a sample table in a table with both; False if there is none."""
        cells = self.columns[(table.name, samples)].cells
        for other in kept:
            people = self.columns[(other.name, ids[other.name])].cells
            for (where, name), column in list(self.columns.items()):
                if where != other.name or name == ids[other.name]:
                    continue
                pairs = dict(zip(column.cells, people, strict=True))
                if cells.isin(list(pairs)).mean() > JOINED:
                    patient = Column(table.name, PATIENT, cells.map(pairs).fillna(""), -1)
                    self.columns[(table.name, PATIENT)] = patient
                    ids[table.name] = PATIENT
                    self.guesses.append(
                        make_guess(
                            self._id_key(table),
                            f"{table.origin}: patient",
                            f"by {samples}",
                            f"{other.origin} maps {name} to patients",
                            fixed=True,
                        )
                    )
                    return True
        return False

    def _still_open(self, guess: Guess, outcomes: list[Outcome]) -> Guess:
        """Close the guess about the order of dates if no outcome is computed from dates."""
        if (
            guess.key != "dates"
            or not guess.open
            or any(
                self.columns[(item.table, name)].is_date for item in outcomes for name in item.used
            )
        ):
            return guess
        why = f"{guess.evidence}; no outcome needs it"
        return guess.model_copy(update={"open": False, "evidence": why})

    # -- the description -------------------------------------------------------------------------

    def _place_made(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            for name, cells in outcome.made.items():
                cells = cells.fillna("")
                self.columns[(outcome.table, name)] = Column(outcome.table, name, cells, -1)

    def _spec(
        self,
        name: str,
        kept: list[RawTable],
        rule: str,
        ids: dict[str, str],
        outcomes: list[Outcome],
        base: RawTable,
    ) -> dict[str, Any]:
        tables: dict[str, Any] = {}
        collapse: dict[str, bool] = {}
        for table in kept:
            tables[table.name], collapse[table.name] = self._table(table, rule, ids, outcomes)
        taken: set[str] = set()
        variables: dict[str, Any] = {}
        in_use = {
            (outcome.table, column): outcome.name for outcome in outcomes for column in outcome.used
        }
        people = {table.name: self._people(table, ids[table.name], rule) for table in kept}
        for key, column in self.columns.items():
            if key[0] not in tables or column.place < 0:
                continue
            if column.name == ids[key[0]]:
                self.variables.reports.append(
                    ColumnGuess(column=column.name, table=key[0], role="patient")
                )
            elif key in in_use:
                self.variables.reports.append(self.variables.report(column, "outcome", in_use[key]))
            else:
                made = self.variables.declare(column, taken, people[key[0]], collapse[key[0]])
                if made is not None:
                    variables[made[0]] = made[1]
        known = {"known_at": "baseline"} if self.said.whole.get("known_at") == "baseline" else {}
        return {
            "id": name,
            "title": self.said.whole.get("title") or self.sources.title or label_from(name),
            **known,
            "patient": {"table": base.name, "ids": rule},
            "tables": tables,
            "variables": variables,
            "endpoints": {item.name: item.spec for item in outcomes if item.table in tables},
        }

    def _table(
        self, table: RawTable, rule: str, ids: dict[str, str], outcomes: list[Outcome]
    ) -> tuple[dict[str, Any], bool]:
        """Build a table's section, and tell whether a patient's rows must be merged by variable."""
        import pandas as pd

        made: dict[str, Any] = {
            "file": f"{table.name}.csv",
            "key": ids[table.name],
            "source": f"{table.origin}, SHA-256 {table.sha256[:16]}",
        }
        cells = self.columns[(table.name, ids[table.name])].cells
        keep = pd.Series(True, index=cells.index)
        types = (
            Counter(sample_type_of(cell) for cell in cells[keep]) if rule == "tcga" else Counter()
        )
        if "01" in types and len(types) > 1:
            made["sample_types"] = ["01"]
            keep &= cells.map(sample_type_of) == "01"
            self.guesses.append(
                make_guess(
                    "sample_types",
                    f"{table.origin}: samples",
                    "primary tumors (01)",
                    ", ".join(f"{kind}: {n}" for kind, n in types.most_common(5)),
                )
            )
        owner = cells[keep].map(lambda cell: patient_of(cell, rule)).dropna()
        if not owner.duplicated().any():
            return made, False
        repeated = int(owner[owner.duplicated()].nunique())
        own = [
            (
                item,
                [
                    self.columns[(table.name, str(item.spec[field]))].cells[owner.index]
                    for field in ("time", "event", "column")
                    if field in item.spec
                ],
            )
            for item in outcomes
            if item.table == table.name
        ]
        differ = any(
            int((series.groupby(owner.to_numpy()).nunique() > 1).sum())
            for _, many in own
            for series in many
        )
        made["rows_per_patient"] = "last" if differ else "identical"
        how = (
            "the outcome differs between them: the latest follow-up is used"
            if differ
            else "their outcome is the same; where a variable differs, the mean or first value "
            "is used"
        )
        self.guesses.append(
            make_guess(
                "rows",
                f"{table.origin}: rows per patient",
                made["rows_per_patient"],
                f"{repeated} patients have several rows; {how}",
                "unsure" if differ else "likely",
            )
        )
        return made, True

    # -- files -----------------------------------------------------------------------------------

    def _file(self, table: RawTable, spec: dict[str, Any], ids: dict[str, str]) -> str:
        """Build the table as written: the columns in use, UTF-8, decimal points, and ISO dates."""
        used = {ids[table.name]}
        used |= {
            item["column"] for item in spec["variables"].values() if item["table"] == table.name
        }
        for item in spec["endpoints"].values():
            if item["table"] == table.name:
                used |= {
                    item[field]
                    for field in ("time", "time_censored", "event", "column")
                    if field in item
                }
        names = [name for (where_, name) in self.columns if where_ == table.name and name in used]
        written = [_cells(self.columns[(table.name, name)]) for name in names]
        out = io.StringIO(newline="")
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(zip(*written, strict=True))
        return out.getvalue()

    def _expression(
        self,
        spec: dict[str, Any],
        files: dict[str, str],
        kept: list[RawTable],
        ids: dict[str, str],
        rule: str,
    ) -> None:
        if not self.sources.matrices:
            return
        matrix = self.sources.matrices[0]
        self.notes += [
            f"{other.origin} was not used: one matrix per cohort"
            for other in self.sources.matrices[1:]
        ]
        rename = self._sample_names(matrix, kept, ids, rule)
        base = spec["patient"]["table"]
        patients = {patient_of(cell, rule) for cell in self.columns[(base, ids[base])].cells} - {
            None
        }
        named = [patient_of(rename.get(name, name) or "", rule) for name in matrix.samples]
        found = sum(name in patients for name in named if name)
        if not found:
            self.notes.append(
                f"{matrix.origin} was omitted: none of its samples "
                f"({', '.join(matrix.samples[:3])}) is a patient"
            )
            return
        self.guesses += matrix.guesses
        looked = "" if matrix.orientation == "genes_by_samples" else "the first "
        self.guesses.append(
            make_guess(
                "expression",
                "samples of the matrix",
                f"{found} of {looked}{len(matrix.samples)} are patients",
                f"as {matrix.samples[0]}",
            )
        )
        decimal = "," if matrix.delimiter != "," and _comma_decimals(matrix) else "."
        label = matrix.label or "name"
        spec["expression"] = {
            "file": "expression.csv",
            "orientation": matrix.orientation,
            ("symbol" if matrix.orientation == "genes_by_samples" else "sample"): label,
            "scale": matrix.scale,
            "transform": {"counts": "log2cpm", "log2": "none"}.get(matrix.scale, "log2"),
            "sample_types": ["01"]
            if rule == "tcga" and any(sample_type_of(name) == "01" for name in matrix.samples)
            else [],
            "source": f"{matrix.origin}, SHA-256 {matrix.sha256[:16]}",
        }
        files["expression.csv"] = rewrite_matrix(matrix, decimal, rename, rule)
        if matrix.orientation == "samples_by_genes" and rule == "tcga":
            spec["expression"]["duplicate_samples"] = "mean"

    def _sample_names(
        self, matrix: RawMatrix, kept: list[RawTable], ids: dict[str, str], rule: str
    ) -> dict[str, str | None]:
        """Map samples to patients through a table with both, using a patient's first sample."""
        if rule == "tcga":
            return {}
        base = set(self.columns[(kept[0].name, ids[kept[0].name])].cells)
        if sum(name in base for name in matrix.samples) > 0.5 * len(matrix.samples):
            return {}
        for table in kept:
            people = self.columns[(table.name, ids[table.name])].cells
            for (where, _), column in self.columns.items():
                if where != table.name:
                    continue
                pairs = dict(zip(column.cells, people, strict=True))
                if sum(name in pairs for name in matrix.samples) > 0.5 * len(matrix.samples):
                    seen: set[str] = set()
                    rename: dict[str, str | None] = {}
                    for name in matrix.samples:
                        who = pairs.get(name)
                        rename[name] = None if who is None or who in seen else who
                        seen |= {who} if who else set()
                    self.guesses.append(
                        make_guess(
                            "expression",
                            "samples of the matrix",
                            column.name,
                            f"{table.origin} maps samples to patients; a patient's first sample "
                            "counts",
                        )
                    )
                    return rename
        return {}


def _comma_decimals(matrix: RawMatrix) -> bool:
    head = matrix.text[:200_000].splitlines()[1:20]
    votes = decimal_votes(
        Counter(cell.strip() for line in head for cell in line.split(matrix.delimiter))
    )
    return votes[0] > votes[1]


def _cells(column: Column) -> pd.Series:
    """Return a column's cells unchanged."""
    cells = column.cells.where(~column.absent, "")
    if column.is_date:
        return cells.map(lambda cell: str(parse_date(cell, column.order) or "") if cell else "")
    if column.numeric:
        numbers = column.numbers.dropna()
        plain = numbers.map(format_number)
        same = column.present.reindex(numbers.index)
        if (same != plain).any():
            cells = cells.copy()
            keep = same.str.fullmatch(r"-?\d+(\.\d+)?")
            cells.loc[numbers.index] = same.where(keep, plain) if column.decimal == "." else plain
    return cells


def _validate_spec(raw: dict[str, Any], name: str) -> CohortSpec:
    try:
        return CohortSpec.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{name}: {describe(error)}") from None
