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
from sage_import.intake.declared import SUSPECT, ColumnGuess, Variables
from sage_import.intake.guesses import (
    NO_OUTCOME,
    Corrections,
    Guess,
    Loss,
    make_guess,
    read_corrections,
)
from sage_import.intake.identifiers import match_people, names_patients, people_twice
from sage_import.intake.matrix import RawMatrix, rewrite_matrix
from sage_import.intake.names import BIRTH, DEATH, LAST, START, label_from, slug, tokens, words
from sage_import.intake.outcomes import Outcome, ask_outcome, find_outcomes, locate_outcome
from sage_import.intake.sources import Sources, read_sources
from sage_import.intake.text import RawTable
from sage_import.intake.values import Column, decimal_votes, format_number
from validation.cohort.ids import BARCODE, patient_of, sample_type_of
from validation.cohort.model import CohortSpec, describe

if TYPE_CHECKING:
    import pandas as pd

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")
JOINED = 0.5
"""Minimum fraction of a table's identifiers that must be patients for it to be joined."""
ROWS = "rows"
"""Value of `id` for files in which each row is a separate patient."""
SAMPLED = frozenset({"sample", "samples", "tissue", "specimen"})
"""Words in the name of a column that gives sample types."""
MOST_CHOICES = 12
MOST_COMPARED = 4_000_000
"""Maximum number of identifier pairs to compare."""
PATIENT = "patient of the sample"
"""Name of the patient column added to a sample table."""
QUESTIONS = {
    "id": "Who is a patient?",
    "time": "When did the clock start, and when was each patient last seen?",
    "event": "What says that the event happened?",
}
MOST_EXAMPLES = 200
Columns = dict[tuple[str, str], Column]


@dataclass
class Proposal:
    """A cohort proposed from the files, ready to be written."""

    name: str
    guesses: list[Guess] = field(default_factory=list)
    columns: list[ColumnGuess] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    spec: CohortSpec | None = None
    files: dict[str, str] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    """First distinct values of each column."""

    @property
    def open(self) -> list[Guess]:
        """List the guesses that a person must confirm."""
        return [guess for guess in self.guesses if guess.open]

    @property
    def questions(self) -> list[Guess]:
        """List the questions for the user: patients, times, event, open guesses, and timing."""
        first: dict[str, Guess] = {}
        for guess in self.guesses:
            kind = guess.key.partition(".")[0] if guess.key.startswith("id") else guess.key
            kind = {"start": "time"}.get(kind.rpartition(".")[2], kind.rpartition(".")[2])
            if kind in ("id", "time", "event", "known_at") and not guess.fixed:
                first.setdefault(kind, guess)
        rest = [guess for guess in self.open if guess not in first.values()]
        return [
            *(first[kind].model_copy(update={"what": f"{QUESTIONS[kind]} ({first[kind].what})"})
              for kind in ("id", "time", "event") if kind in first),
            *rest,
            *([first["known_at"]] if "known_at" in first else []),
        ]  # fmt: skip

    def require_answers(self) -> None:
        """Refuse to continue if guesses are open.

        Raises `InputError`, which names the setting for each open guess.
        """
        asked = [
            f"{guess.what}: {guess.evidence}. Set {guess.key}="
            + (" or ".join(guess.choices) if guess.choices else guess.value or "VALUE")
            for guess in self.open
        ]
        if asked:
            raise InputError(
                "the files are ambiguous about "
                + ("this" if len(asked) == 1 else f"{len(asked)} things")
                + ", and a wrong guess could reverse the results; answer with --set KEY=VALUE:\n  "
                + "\n  ".join(asked)
            )


def propose(paths: Iterable[Path], settings: Iterable[str] = ()) -> Proposal:
    """Read files and propose a cohort without writing anything.

    Raises `InputError` with file, line, and remedy if something cannot be read or a setting
    is invalid.
    """
    said = read_corrections(settings)
    with tempfile.TemporaryDirectory(prefix="sage-import-") as unpacked:
        sources = read_sources(paths, said, Path(unpacked))
    return _Draft(sources, said).proposal()


class _Draft:
    """Builder that turns file contents into a proposal, step by step."""

    def __init__(self, sources: Sources, said: Corrections) -> None:
        self.sources, self.said = sources, said
        self.guesses: list[Guess] = []
        self.losses: list[Loss] = list(sources.losses)
        self.columns: Columns = {}
        self.variables = Variables(said)
        self.tables = self._tables_named()
        self._keep_rows()
        for table in self.tables:
            self._keep_tumors(table)
        for table in self.tables:
            self.guesses += [
                guess.model_copy(update={"what": f"{table.origin}: {guess.what}"})
                for guess in table.guesses
            ]
            own, guesses = interpret_columns(table, self.said)
            self.guesses += guesses
            self.columns |= {(table.name, column.name): column for column in own}
        self._add_ages()
        self._require_known_names()

    def _guess(self, *what: Any, **more: Any) -> None:
        self.guesses.append(make_guess(*what, **more))

    def _tables_named(self) -> list[RawTable]:
        taken: set[str] = set()
        for table in self.sources.tables:
            table.name = slug(table.name, taken)
        return self.sources.tables

    def proposal(self) -> Proposal:
        """Build the complete proposal."""
        name = self._name()
        ids = {table.name: self._id(table) for table in self.tables}
        kept, rule = self._join_tables(self._base(), ids)
        base = kept[0]
        people = {table.name: self._people(table, ids[table.name], rule) for table in kept}
        candidates = {
            key: column
            for key, column in self.columns.items()
            if key[0] in people
            and column.name != ids[key[0]]
            and column.name not in self.said.dropped_columns
        }
        outcomes = find_outcomes(candidates, self.said, people)
        self._place_made(outcomes)
        self.guesses = [self._still_open(guess, outcomes) for guess in self.guesses]
        for outcome in outcomes:
            self.guesses += outcome.guesses
        if not outcomes and self.said.endpoints.get("", {}).get("time") != NO_OUTCOME:
            self.guesses += ask_outcome(candidates)
        spec = self._spec(name, kept, rule, ids, [item for item in outcomes if item.spec], base)
        files = {f"{table.name}.csv": self._file(table, spec, ids) for table in kept}
        self._expression(spec, files, kept, ids, rule)
        self.losses += [loss for table in self.tables for loss in table.losses]
        self._ask_timing()
        valid = all(item.spec for item in outcomes)
        return Proposal(
            name,
            self.guesses,
            self.variables.reports,
            self.losses,
            _validate_spec(spec, name) if valid else None,
            files,
            {
                column.name: ", ".join(cell[:24] for cell in list(column.counts)[:3])
                for column in list(self.columns.values())[:MOST_EXAMPLES]
            },
        )

    def _ask_timing(self) -> None:
        """Ask about variables whose names do not show that they were measured before follow-up."""
        unknown = [
            item
            for item in self.variables.reports
            if item.role == "variable" and item.known_at == "unknown"
        ]
        suspects = [item.column for item in unknown if item.warning.startswith(SUSPECT)]
        silent = [item.column for item in unknown if item.column not in suspects]
        given = self.said.whole.get("known_at", "")
        apart = f"; not covered, as each {SUSPECT}: {', '.join(suspects)[:160]}" if suspects else ""
        if unknown or given:
            evidence = (
                f"{len(silent)} variables do not say when they were measured, and support no claim "
                f"until that is set: {', '.join(silent)[:160]}. baseline: all before follow-up "
                "began; COLUMN.known_at=baseline: that one"
            )
            self._guess(
                "known_at",
                "variables known before follow-up began",
                given or "unknown",
                ("as set" if given else evidence) + apart,
                "given" if given else "unsure",
                choices=("baseline", "unknown"),
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

    def _keep_tumors(self, table: RawTable) -> None:
        """Omit rows for normal samples, and for other tumors that GDC lists beside the primary.

        The row's own column decides, unless `where` names that column.
        """
        for name in map(str, table.rows.columns):
            said, levels = set(tokens(name)), table.rows[name].str.casefold()
            if self.said.whole.get("where", "").startswith(f"{name}:"):
                continue
            if said == {"classification", "of", "tumor"} and (levels == "primary").any():
                keep = levels.isin({"primary", "'--", "--", ""})
                why = "not primary: another tumor of the same patient"
            elif "type" in said and said & SAMPLED:
                keep = ~levels.map({it: "normal" in tokens(it) for it in set(levels)}).astype(bool)
                why = "normal: not a sample of the tumor"
            else:
                continue
            if not keep.all() and keep.any():
                table.losses.append(Loss(
                    what=f"{table.origin}: rows", count=int((~keep).sum()),
                    reason=f"{name} is {why}",
                    remedy=f'--set "where={name}:VALUE|VALUE" keeps others'))  # fmt: skip
                table.keep_rows(keep)

    def _add_ages(self) -> None:
        """Compute the age at the start of follow-up from dates if no column contains it."""
        if any("age" in tokens(name) for _, name in self.columns):
            return
        for (table, name), birth in list(self.columns.items()):
            if not birth.is_date or not BIRTH.search(words(name)):
                continue
            starts = [
                column
                for (where, other), column in self.columns.items()
                if where == table and column.is_date and START.search(words(other))
                and not (BIRTH.search(words(other)) or DEATH.search(words(other))
                         or LAST.search(words(other)))
            ]  # fmt: skip
            if not starts:
                continue
            years = (starts[0].values() - birth.values()) / 365.25
            cells = years.map(lambda value: "" if value != value else f"{value:.2f}")
            self.columns[(table, "age")] = Column(table, "age", cells, len(self.columns),
                                                  label="Age")  # fmt: skip
            median = f"median {years.median():.1f} years"
            value = f"{name} to {starts[0].name}"
            self._guess("age", "age", value, median, fixed=True)
            return

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
                keep = table.rows[name].isin(values)
                self._guess(
                    "where", "rows", given, f"keeps {int(keep.sum())} of {len(keep)} rows", "given"
                )
                table.keep_rows(keep)
                table.origin += f" where {name} is {' or '.join(values)}"
                return
        raise InputError(
            f'--set where: "{given[:60]}" does not start with a column name; use COLUMN:VALUE'
        )

    def _id(self, table: RawTable) -> str:
        own = [column for (where, _), column in self.columns.items() if where == table.name]
        given = self.said.ids.get(table.name) or self.said.whole.get("id")
        if given is not None and given in table.rows.columns:
            self._guess(self._id_key(table), f"{table.origin}: patient", given, "as set", "given")
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
        self._guess(
            self._id_key(table),
            f"{table.origin}: patient",
            column.name,
            evidence[:300],
            "unsure" if others else "likely",
            choices=tuple(item[2].name for item in scored[:MOST_CHOICES] if item[0]),
        )
        return column.name

    def _by_rows(self, table: RawTable, names: list[str], given: str | None) -> str:
        """Make each row a numbered patient, because of a setting or as an open guess."""
        cells = table.rows.index.to_series().map(lambda at: f"row-{at + 1}")
        self.columns[(table.name, ROWS)] = Column(table.name, ROWS, cells, -1)
        self._guess(
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
        return ROWS

    def _id_key(self, table: RawTable) -> str:
        return "id" if len(self.tables) == 1 else f"id.{table.name}"

    def _base(self) -> RawTable:
        """Return the patient table: the table with the outcome, or else the first."""
        name = locate_outcome(self.columns, self.said)
        return next((table for table in self.tables if table.name == name), self.tables[0])

    def _people(self, table: RawTable, column: str, rule: str) -> list[str | None]:
        return [patient_of(cell, rule) for cell in self.columns[(table.name, column)].cells]

    def _join_tables(self, base: RawTable, ids: dict[str, str]) -> tuple[list[RawTable], str]:
        """Select the tables whose patients match the base table's, and the rule for identifiers."""
        cells = self.columns[(base.name, ids[base.name])].present
        barcodes = cells.map(lambda cell: bool(BARCODE.match(cell.replace(".", "-").upper())))
        rule = "tcga" if barcodes.mean() > 0.9 else "exact"
        if rule == "tcga":
            self._guess(
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
            if share < JOINED and (again := self._respell(table, own, base, ids)) is not None:
                best, share = again, 1.0
            if share < JOINED:
                self.losses.append(Loss(
                    what=f"table {table.origin}", count=len(table.rows),
                    reason=f"{share:.0%} of its identifiers ({best}) are patients of {base.origin}",
                    remedy=f"set {self._id_key(table)}=COLUMN"))  # fmt: skip
                self.guesses = [
                    guess
                    for guess in self.guesses
                    if not (guess.open and guess.what.startswith(table.origin))
                ]
                continue
            ids[table.name] = best
            kept.append(table)
        return kept, rule

    def _respell(
        self, table: RawTable, own: list[Column], base: RawTable, ids: dict[str, str]
    ) -> str | None:
        """Match a table's identifiers in another form, and rewrite them as in the base table."""
        ours = list(self.columns[(base.name, ids[base.name])].counts)
        for column in sorted(own, key=names_patients, reverse=True)[:3]:
            theirs = list(column.counts)
            if len(theirs) * len(ours) > MOST_COMPARED or not names_patients(column):
                continue
            found, how = match_people(theirs, ours)
            if len(found) < JOINED * len(theirs):
                continue
            cells = column.cells.map(lambda cell, found=found: found.get(cell, cell))
            self.columns[(table.name, column.name)] = Column(
                table.name, column.name, cells, column.place
            )
            first = next(iter(found))
            self._guess(
                self._id_key(table), f"{table.origin}: patient", column.name,
                f"{len(found)} of {len(theirs)} match {base.origin}: {how} ({first} is "
                f"{found[first]})")  # fmt: skip
            return column.name
        return None

    def _through_samples(
        self, table: RawTable, samples: str, kept: list[RawTable], ids: dict[str, str]
    ) -> bool:
        """Map a sample table to patients through a table with both; False if there is none."""
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
                    self._guess(
                        self._id_key(table),
                        f"{table.origin}: patient",
                        f"by {samples}",
                        f"{other.origin} maps {name} to patients",
                        fixed=True,
                    )
                    return True
        return False

    def _still_open(self, guess: Guess, outcomes: list[Outcome]) -> Guess:
        """Close the guess about date order if no outcome is computed from dates."""
        if (
            guess.key != "dates"
            or not guess.open
            or any(
                self.columns[key].is_date
                for item in outcomes
                for key in item.used
                if key in self.columns
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
        in_use = {key: outcome.name for outcome in outcomes for key in outcome.used}
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
        risks = [name.strip() for name in self.said.whole.get("risk_factors", "").split(",")]
        keys = {spec["column"]: f"clinical:{key}" for key, spec in variables.items()}
        known = {"known_at": "baseline"} if self.said.whole.get("known_at") == "baseline" else {}
        return {
            "id": name,
            "title": self.said.whole.get("title") or self.sources.title or label_from(name),
            **known,
            "risk_factors": [keys.get(name, name) for name in risks if name],
            "patient": {"table": base.name, "ids": rule},
            "tables": tables,
            "variables": variables,
            "endpoints": {item.name: item.spec for item in outcomes if item.table in tables},
        }

    def _table(
        self, table: RawTable, rule: str, ids: dict[str, str], outcomes: list[Outcome]
    ) -> tuple[dict[str, Any], bool]:
        """Build a table's section; also return whether patients' rows need merging by variable."""
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
            self._guess(
                "sample_types",
                f"{table.origin}: samples",
                "primary tumors (01)",
                ", ".join(f"{kind}: {n}" for kind, n in types.most_common(5)),
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
        self._guess(
            "rows",
            f"{table.origin}: rows per patient",
            made["rows_per_patient"],
            f"{repeated} patients have several rows; {how}",
            "unsure" if differ else "likely",
        )
        return made, True

    # -- files -----------------------------------------------------------------------------------

    def _file(self, table: RawTable, spec: dict[str, Any], ids: dict[str, str]) -> str:
        """Build the table to write: the columns in use, UTF-8, decimal points, and ISO dates."""
        used = {ids[table.name]}
        used |= {
            item["column"] for item in spec["variables"].values() if item["table"] == table.name
        }
        for item in spec["endpoints"].values():
            if item["table"] == table.name:
                used |= {
                    item[field]
                    for field in ("time", "time_censored", "event", "column", "entry")
                    if field in item
                }
        names = [name for (where_, name) in self.columns if where_ == table.name and name in used]
        written = [
            column.cells.where(~column.coded, "") if name == ids[table.name] else _cells(column)
            for name in names
            for column in [self.columns[(table.name, name)]]
        ]
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
        self.losses += [
            Loss(what=f"matrix {other.origin}", count=len(other.samples), reason="a cohort has one",
                 remedy="import the other matrix alone")
            for other in self.sources.matrices[1:]
        ]  # fmt: skip
        rename = self._sample_names(matrix, kept, ids, rule)
        base = spec["patient"]["table"]
        patients = {patient_of(cell, rule) for cell in self.columns[(base, ids[base])].cells} - {
            None
        }
        named = [patient_of(rename.get(name, name) or "", rule) for name in matrix.samples]
        found = sum(name in patients for name in named if name)
        if not found:
            self.losses.append(Loss(
                what=f"matrix {matrix.origin}", count=len(matrix.samples),
                reason=f"none of its samples ({', '.join(matrix.samples[:3])}) is a patient",
                remedy="give a table that maps samples to patients"))  # fmt: skip
            return
        self.guesses += matrix.guesses
        looked = "" if matrix.orientation == "genes_by_samples" else "the first "
        self._guess(
            "expression",
            "samples of the matrix",
            f"{found} of {looked}{len(matrix.samples)} are patients",
            f"as {matrix.samples[0]}",
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
        self.losses += matrix.losses
        if matrix.orientation == "samples_by_genes" and rule == "tcga":
            spec["expression"]["duplicate_samples"] = "mean"

    def _sample_names(
        self, matrix: RawMatrix, kept: list[RawTable], ids: dict[str, str], rule: str
    ) -> dict[str, str | None]:
        """Map samples to patients through a table with both, using each patient's first sample."""
        if rule == "tcga":
            return {}
        names = matrix.samples
        base = list(self.columns[(kept[0].name, ids[kept[0].name])].counts)
        if sum(name in set(base) for name in names) > 0.5 * len(names):
            return {}
        owners, how = {}, ""
        for table in kept:
            people = self.columns[(table.name, ids[table.name])].cells
            for (where, _), column in self.columns.items():
                if where == table.name and not how:
                    pairs = dict(zip(column.cells, people, strict=True))
                    if sum(name in pairs for name in names) > 0.5 * len(names):
                        owners, how = pairs, f"{table.origin} maps {column.name} to patients"
        if not how and len(base) * len(names) <= MOST_COMPARED:
            owners, how = match_people(names, base)
        if not owners:
            return {}
        seen: set[str] = set()
        rename: dict[str, str | None] = {}
        for name in names:
            who = owners.get(name)
            rename[name] = None if who is None or who in seen else who
            seen |= {who} if who else set()
        spare = sum(owners.get(name) is not None and rename[name] is None for name in names)
        if spare:
            self.losses.append(Loss(
                what=f"samples of {matrix.origin}", count=spare,
                reason="further samples of a patient; the first counts",
                remedy="leave the sample to use in the matrix"))  # fmt: skip
        self._guess("expression", "samples of the matrix", "as patients", how)
        return rename


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
        return cells.map(lambda cell: str(column.date_of(cell) or "") if cell else "")
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
