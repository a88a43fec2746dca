"""How often `sage cohort init` guesses what a person wrote of the same files.

    python -m benchmarks.cohort_init --data DATA

The descriptions of `data/cohorts` were written by hand, before the import existed and not for it.
The rules of the import were looked at on these files while they were written, so that other files
will do worse. Nothing is set but the rows to keep. "asked": the import said that the files do not
settle it; what it suggested is in brackets. Levels are right where the same patients share one.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from validation.cohort.endpoints import coding_text
from validation.cohort.intake import Proposal, propose
from validation.cohort.model import BinarySpec, CohortSpec, SurvivalSpec, read_spec
from validation.cohort.tables import MISSING, codes, load_table

ROOT = Path(__file__).parents[1]
CASES = (
    ("tcga-blca", "cdr", "tcga_blca", ("where=type:BLCA",)),
    ("tcga-blca", "biotab", "tcga_blca", ()),
    ("tcga-blca", "tls", "tcga_blca", ("where=Tumor_type:BLCA",)),
    ("tcga-blca", "mutations", "tcga_blca", ("where=Cohort:BLCA",)),
    ("gse13507-invasive", "clinical", "cohorts/GSE13507",
     ("where=PrimaryBladderCancerType:Primary_BC_Invasive",)),
    ("imvigor210", "samples", "cohorts/IMvigor210", ()),
)  # fmt: skip
"""Description, table, folder of its files, and the rows to keep as they are written there."""


@dataclass
class Row:
    """One thing that a description says, and what was guessed of it."""

    cohort: str
    what: str
    expected: str
    guessed: str
    result: str


def compare(data: Path) -> list[Row]:
    """Everything that the descriptions say of these tables, beside the guess."""
    rows: list[Row] = []
    for name, table, folder, settings in CASES:
        spec = read_spec(ROOT / "data" / "cohorts" / f"{name}.toml")
        path = data / folder / spec.tables[table].file
        proposal = propose([path], settings)
        rows += _of_table(f"{name} ({table})", spec, table, data / folder, proposal)
    return rows


def _of_table(
    label: str, spec: CohortSpec, table: str, root: Path, proposal: Proposal
) -> list[Row]:
    guessed = proposal.spec
    assert guessed is not None
    own = guessed.tables[next(iter(guessed.tables))]
    rows = [_row(label, "patient", spec.tables[table].key, own.key)]
    is_open = {guess.key: guess for guess in proposal.open}
    for name, endpoint in spec.endpoints.items():
        if endpoint.table != table:
            continue
        found = guessed.endpoints.get(name)
        if isinstance(endpoint, SurvivalSpec):
            parts = [("time", endpoint.time, getattr(found, "time", "none")),
                     ("unit", endpoint.time_unit, getattr(found, "time_unit", "none"))]  # fmt: skip
            for field, expected, got in parts:
                asked = f"{name}.{field}" in is_open
                rows.append(_row(label, f"{name} {field}", expected, got, asked))
        what = "event" if isinstance(endpoint, SurvivalSpec) else "codes"
        got = "none" if found is None else coding_text(found)
        asked = f"{name}.event" in is_open
        rows.append(_row(label, f"{name} {what}", coding_text(endpoint), got, asked))
        if isinstance(endpoint, BinarySpec) and found is None:
            rows[-1].result = "not offered"
    loaded = load_table(table, spec.tables[table], root, spec.patient.ids)
    by_column = {item.column: item for item in guessed.variables.values()}
    for name, variable in spec.variables.items():
        if variable.table != table:
            continue
        found_as = by_column.get(variable.column)
        if found_as is None:
            rows.append(Row(label, f"{name} kind", variable.kind, "left out", "left out"))
            continue
        kinds = {variable.kind, found_as.kind}
        same = len(kinds) == 1 or kinds == {"binary", "categorical"}
        rows.append(Row(label, f"{name} kind", variable.kind, found_as.kind,
                        "right" if same else "other"))  # fmt: skip
        if variable.kind != "continuous" and found_as.kind != "continuous":
            seen = sorted(set(codes(loaded.rows[variable.column])) - MISSING)
            expected = {level: variable.values.get(level, level) for level in seen
                        if level in variable.values or not variable.values}  # fmt: skip
            got_as = {level: found_as.values.get(level, level) for level in seen
                      if level in found_as.values or not found_as.values}  # fmt: skip
            result = "right" if _classes(expected) == _classes(got_as) else "other"
            shown = ", ".join(expected), ", ".join(got_as)
            rows.append(Row(label, f"{name} levels", *shown, result))
        said = variable.known_at or spec.tables[table].known_at or spec.known_at
        known = found_as.known_at or guessed.known_at
        result = "right" if known == said else "not declared" if known == "unknown" else "wrong"
        rows.append(Row(label, f"{name} known at", str(said), str(known), result))
    return rows


def _classes(levels: dict[str, object]) -> set[frozenset[str]]:
    """Which levels are one; those of one class have one value."""
    values = {value: frozenset(level for level in levels if levels[level] == value)
              for value in levels.values()}  # fmt: skip
    return set(values.values())


def _row(label: str, what: str, expected: str, got: str, asked: bool = False) -> Row:
    same = expected == got
    if asked:
        return Row(label, what, expected, got, f"asked ({'right' if same else 'other'})")
    return Row(label, what, expected, got, "right" if same else "other")


def main() -> None:
    """Print the table of guesses and what was right of each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--all", action="store_true", help="every guess, not only the sums")
    given = parser.parse_args()
    rows = compare(given.data)
    kinds: dict[str, Counter[str]] = {}
    for row in rows:
        kind = row.what if row.what in ("patient",) else row.what.split(" ", 1)[1]
        kinds.setdefault(kind, Counter())[row.result] += 1
        if given.all or row.result not in ("right", "not declared"):
            pair = f"{row.expected[:60]} | {row.guessed[:60]}"
            print(f"{row.cohort:26} {row.what:26} {row.result:14} {pair}")
    print("\n| guess | of | right | asked, suggested right | asked | left out, not said | other |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for kind, counts in kinds.items():
        quiet = counts["left out"] + counts["not offered"] + counts["not declared"]
        sums = (sum(counts.values()), counts["right"], counts["asked (right)"],
                counts["asked (other)"], quiet, counts["other"] + counts["wrong"])  # fmt: skip
        print(f"| {kind} | {' | '.join(map(str, sums))} |")


if __name__ == "__main__":
    main()
