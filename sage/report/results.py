"""Contract, results and ledger of a hypothesis, as shown in the report."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agents.findings.answer import capitalize
from sage.core.printable import as_cell
from sage.report.curve import Curve, curve_of
from sage.report.facts import Facts
from sage.report.fields import FOLDER, pictures
from sage.report.inert import data_uri
from sage.report.reading import Reached, would_change
from validation.controls.keys import Key, random_key
from validation.core.dictionary import JoinReport
from validation.results.results import Results, TestOutcome

if TYPE_CHECKING:
    from validation.ledger.lines import Entry

MOST_OF_A_NUMBER = 28
"""Longest text of a value with its interval, in characters; anything longer is a sentence."""


@dataclass
class Cell:
    """A table cell that contains a number by key or text from the results file."""

    text: str
    key: str | None = None


@dataclass
class Table:
    """A table of results. `core` tables appear in every form of the report, including Markdown."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]
    note: str | None = None
    core: bool = False

    @property
    def classes(self) -> list[str]:
        """CSS class of each column: "n" aligns short values to the right, "w" wraps longer text."""
        return [
            "n" if at and all(len(row[at].text) <= MOST_OF_A_NUMBER for row in self.rows) else "w"
            for at in range(len(self.columns))
        ]


@dataclass
class FigurePage:
    """A figure in the report.

    Parameters
    ----------
    source : the image as a `data:` URI, inert inside an `<img>`; empty if there is only text
    name : the name under which the figure is saved
    file : path to the figure's file, relative to the report's folder
    data : the figure's numbers as CSV in a `data:` URI; empty if no table contains them
    places : the slide regions shown in the figure, and their links to `sage serve` pages
    """

    source: str
    caption: str
    name: str = ""
    file: str = ""
    data: str = ""
    places: tuple[tuple[str, str], ...] = ()


@dataclass
class ResultsPage:
    """The content of a hypothesis's `results.json`; empty if that file does not exist."""

    verdict: str = ""
    changes: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    curve: Curve | None = None
    figures: list[FigurePage] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


@dataclass
class ContractPage:
    """The contract, both as sentences and in full.

    `predicts` is true if the claim is about a model's predictions.
    """

    sha256: str
    statements: tuple[str, ...]
    endpoint_kind: str
    covariates: tuple[str, ...]
    two_valued: frozenset[str]
    names: tuple[str, ...]
    text: str
    notes: tuple[str, ...] = ()
    alpha: float = 0.05
    predicts: bool = False


def read_results(home: Path, name: str, facts: Facts) -> ResultsPage | None:
    """Read `results/results.json`, adding its numbers to the facts under the hypothesis's name."""
    path = home / "results" / "results.json"
    if not path.exists():
        return None
    results = Results.load(path)
    for key, number in results.numbers.items():
        facts.add(f"{name}.{key}", number.value, number.text)
    return ResultsPage(
        verdict=results.verdict.verdict,
        changes=would_change(
            Reached(results.verdict, results.simulated, _lost_to_covariates(results.tests))
        ),
        limits=results.verdict.limits,
        curve=curve_of(results.tables.get("specification", ()), _scale(results.tests)),
        figures=[
            *_figures(home, results, name, facts),
            *_fields(home, name),
        ],
        tables=[
            *_flow(results),
            *_basis(results),
            _effects(results, name, facts),
            *(
                _table(key, list(rows), name, facts)
                for key, rows in sorted(results.tables.items(), key=lambda item: _place(item[0]))
                if not _is_elsewhere(key, results)
            ),
            *_single_numbers(name, facts),
            *_controls(name, facts),
        ],
    )


COMPARED = ("primary", "secondary", "adjusted", "specification")


def _is_elsewhere(key: str, results: Results) -> bool:
    """Check whether a table is shown as part of another, or in a figure's downloadable numbers."""
    endpoint, _, plain = key.rpartition(".")
    if plain in COMPARED:
        return plain != "adjusted" or bool(endpoint) or "univariable" in results.tables
    return plain == "kaplan_meier" and bool(endpoint)


def _effects(results: Results, name: str, facts: Facts) -> Table:
    """Build a table with every test: endpoint, model, patients, events, effect and p-value."""
    several = len({test.part for test in results.tests}) > 1
    rows, notes = [], list[str]()
    for test in results.tests:
        if test.id.startswith("control."):
            continue
        key = results.key(test)
        cells = [
            Cell("", f"{name}.{key}.{part}") if facts.contains(f"{name}.{key}.{part}") else Cell("")
            for part in ("n", "events", "summary", "p")
        ]
        if cells[2].key is None and not test.reason:
            continue
        notes += [note for note in test.notes if note not in notes]
        why = f"; {test.status}: {test.reason}" if test.reason else ""
        part = f" ({test.part})" if several else ""
        rows.append([Cell(f"{title_of(test.id)}{part}{why}"), *cells])
    columns = ["test", "patients", "events", "effect (95% CI)", "p"]
    return Table("All tests", columns, rows, "; ".join(notes) or None, core=True)


def _basis(results: Results) -> list[Table]:
    """Build the table behind the verdict: each rule, and whether it supports or opposes it."""
    words = {"for": "for", "against": "against", "prevents": "against", "limits": "limits"}
    rows = [
        [Cell(capitalize(reason.rule)), Cell(words[reason.outcome]), Cell(reason.text)]
        for reason in results.verdict.reasons
    ]
    return [Table("What the verdict rests on", ["rule", "speaks", "finding"], rows)]


def _scale(tests: Sequence[TestOutcome]) -> str:
    """Return the scale of the primary test's estimate, such as a hazard ratio; "" without one."""
    return next((test.effect.scale for test in tests if test.role == "primary" and test.effect), "")


def _lost_to_covariates(tests: Sequence[TestOutcome]) -> float:
    """Compute the share of the primary test's patients missing from the adjusted model."""
    counts = {test.part: test.n for test in tests if test.role == "primary" and test.n}
    for test in tests:
        if test.id == "adjusted" and test.n and test.part in counts:
            return 1 - test.n / counts[test.part]
    return 0.0


def _figures(home: Path, results: Results, name: str, facts: Facts) -> list[FigurePage]:
    """List the figures that were drawn, each with the tables that contain its numbers."""
    folder = home / "results"
    return [
        FigurePage(
            data_uri(folder / figure.file),
            f"{figure.title}. {figure.caption}",
            f"{name}-{key}",
            f"hypotheses/{name}/results/figures/{Path(figure.file).name}",
            _csv(key, results, name, facts),
        )
        for key, figure in sorted(results.figures.items(), key=lambda item: _place(item[0]))
    ]


def _fields(home: Path, name: str) -> list[FigurePage]:
    """List the pictures of slide measurements, whose patient-level numbers are not included."""
    found = []
    for drawn in pictures(home):
        file = Path(drawn["file"]).name
        number = Path(file).stem.removeprefix("measured_")
        found.append(
            FigurePage(
                data_uri(home / FOLDER / file),
                drawn["caption"],
                f"{name}-{Path(file).stem}",
                f"hypotheses/{name}/{FOLDER}/{file}",
                places=tuple((side, f"fields/{name}/{number}/{side}") for side in ("high", "low")),
            )
        )
    return found


EFFECTS = ("primary", "secondary", "adjusted")


def _csv(key: str, results: Results, name: str, facts: Facts) -> str:
    """Render the rows behind a figure as CSV: its own table or, for a forest plot, its effects."""
    chosen = [key] if key in results.tables else []
    if key == "forest":
        chosen = [item for item in results.tables if item.rpartition(".")[2] in EFFECTS]
    rows = [(table, row) for table in sorted(chosen, key=_place) for row in results.tables[table]]
    if not rows:
        return ""
    columns = list(dict.fromkeys(column for _, row in rows for column in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", *columns])
    for table, row in rows:
        cells = [_cell(row.get(column, ""), name, facts) for column in columns]
        writer.writerow([table, *(facts.text(c.key) if c.key else as_cell(c.text) for c in cells)])
    return f"data:text/csv;base64,{base64.b64encode(text.getvalue().encode()).decode()}"


ORDER = (
    "table_one",
    "primary",
    "kaplan_meier",
    "joint_groups",
    "beside_each_other",
    "ordered_groups",
    "cumulative_incidence",
    "fine_gray",
    "adjusted",
    "univariable",
    "fine_gray_adjusted",
    "forest",
    "period_hazards",
    "rmst",
)
CURVES = ("kaplan_meier", "cumulative_incidence")
TITLES = {
    "primary": "Primary comparison",
    "adjusted": "Adjusted model",
    "kaplan_meier": "Kaplan-Meier estimates",
    "cumulative_incidence": "Cumulative incidence",
    "fine_gray": "Fine and Gray's model",
    "fine_gray_adjusted": "Fine and Gray's model, adjusted",
    "period_hazards": "Hazards by period of follow-up",
    "specification": "Specification curve",
    "joint_groups": "All groups",
    "ordered_groups": "Ordered groups",
    "calibration": "Calibration of the adjusted model",
    "slope": "Calibration slope",
    "concordance": "Discrimination without and with the exposure (apparent)",
    "secondary": "secondary comparison",
    "table_one": "Table 1: patients",
    "univariable": "Univariable and multivariable estimates",
    "missing_data": "Missing values",
    "rmst": "Restricted mean survival",
    "schoenfeld": "Test of proportional hazards",
    "gray": "Gray's test",
    "site": "What the sites explain",
    "beside_each_other": "Both exposures, alone and beside each other, in all patients",
    "decision_curve": "Net benefit of acting on the predicted risk",
    "risk_difference": "Absolute risk, standardized",
    "censoring": "Absolute risk, weighted for censoring",
    "tipping_point": "Absolute risk, by what befell the patients lost",
    "tipping_covariates": "Adjusted effect, by what the missing covariates are",
}
COLUMNS = (
    "variable",
    "all",
    "exposed",
    "reference",
    "difference (SD)",
    "missing",
    "patients",
    "treat at a risk of",
    "assumption",
    "term",
    "univariable",
    "p, univariable",
    "multivariable",
    "p, multivariable",
    "model",
    "against",
    "group",
    "covariates",
    "n",
    "events",
    "competing",
    "hazard ratio",
    "subdistribution hazard ratio",
    "odds ratio",
    "95% CI",
    "p",
)


PROPER = ("Kaplan", "Fine", "Gray", "Table")
"""Proper nouns that can begin a title."""


def _place(key: str) -> tuple[int, str, int]:
    """Return a sort key: primary results, secondary endpoints, then the specification curve."""
    endpoint, _, plain = key.rpartition(".")
    for curve in CURVES:
        if plain.endswith(f"_{curve}"):
            endpoint, plain = plain.removesuffix(f"_{curve}"), curve
    inner = ORDER.index(plain) if plain in ORDER else len(ORDER)
    return (2 if plain == "specification" else 1 if endpoint else 0, endpoint, inner)


def title_of(key: str) -> str:
    """Return the title of a test or table."""
    endpoint, _, plain = key.rpartition(".")
    words = TITLES.get(plain, plain.replace("_", " "))
    if endpoint.startswith("within."):
        which = {"1": "first", "2": "second"}[endpoint.removeprefix("within.")]
        return f"Effect of the {which} exposure where the other is on its {plain} side"
    if not endpoint:
        return words
    name = words.startswith(PROPER)
    return f"{endpoint}: {words if name else words[0].lower() + words[1:]}"


LOSSES = ("population", "exposure", "outcome", "follow-up", "stratum")
"""Patient-flow steps that each start from the patients left by the previous step."""


def _flow(results: Results) -> list[Table]:
    """Build tables of the files' contents and of the patients remaining after each step.

    If the exposure was refused, no patients were compared.
    """
    lost = [join for join in results.joins if join.step in LOSSES]
    held = [join for join in results.joins if join.step not in LOSSES]
    counted = results.numbers.get("population.in_comparison")

    def rows_of(joins: Sequence[JoinReport]) -> list[list[Cell]]:
        return [
            [Cell(join.reason), Cell(str(join.before)), Cell(str(join.after))] for join in joins
        ]

    tables = []
    if held:
        heading = ["of each file by itself", "before", "after"]
        tables.append(Table("What the files hold", heading, rows_of(held)))
    if lost:
        rows = rows_of(lost)
        rows.insert(0, [Cell("patients in the analyzed cohort or part"), Cell(""), rows[0][1]])
        if counted is not None and counted.value != lost[-1].after:
            compared = Cell(str(int(counted.value or 0)))
            rows.append([Cell("in one of the groups compared"), rows[-1][-1], compared])
        tables.append(Table("Flow of patients", ["step", "before", "after"], rows, core=True))
    return tables


SINGLE_NUMBERS = (
    *((f"{word} of the {which} exposure", f"cut.{at}.{side}")
      for at, which in enumerate(("first", "second", "third"), 1)
      for side, word in (("lower", "lower cut-point"), ("upper", "cut-point"))),
    ("cut-point found by the search", "primary.cut"),
    ("p without correction for the search", "primary.p_uncorrected"),
    ("p for a departure from a straight line", "primary.nonlinearity.p"),
    ("p against proportional hazards of the exposure", "schoenfeld.p"),
    ("p against proportional hazards, all terms", "schoenfeld.global_p"),
    ("E-value of the primary effect", "primary.e_value"),
    ("E-value of its limit nearest to no effect", "primary.e_value_limit"),
    ("E-value of the adjusted effect", "adjusted.e_value"),
    ("E-value of its limit nearest to no effect", "adjusted.e_value_limit"),
)  # fmt: skip


def _single_numbers(name: str, facts: Facts) -> list[Table]:
    """Build a table of numbers not in other tables: cut-points, mean survival, E-values, etc."""
    rows = [
        [Cell(words), Cell("", f"{name}.{key}")]
        for words, key in SINGLE_NUMBERS
        if facts.contains(f"{name}.{key}")
    ]
    note = (
        "The E-value is the smallest risk ratio that an unmeasured confounder needs with exposure"
        " and outcome to explain the effect away (VanderWeele and Ding, Annals of Internal"
        " Medicine)."
    )
    has_e_value = facts.contains(f"{name}.primary.e_value")
    return [
        Table("Cut-points, assumptions, unmeasured confounding", ["what", "value"], rows,
              note if has_e_value else None)
    ] if rows else []  # fmt: skip


CONTROLS = (
    ("outcome permuted", Key.PERMUTED_DRAWS, Key.PERMUTED_P),
    *(
        (
            f"random features in place of the {which} exposure",
            random_key(at, "draws"),
            random_key(at, "p"),
        )
        for at, which in enumerate(("first", "second", "third"))
    ),
    ("known positive", Key.KNOWN_POSITIVE_EVENTS, Key.KNOWN_POSITIVE_P),
    ("negative-control endpoint", Key.NEGATIVE_N, Key.NEGATIVE_P),
)


def _controls(name: str, facts: Facts) -> list[Table]:
    """Build a table of the controls that ran, with the effect size and p-value of each by key."""
    rows = [
        [Cell(words), Cell("", f"{name}.{size}"), Cell("", f"{name}.{p}")]
        for words, size, p in CONTROLS
        if facts.contains(f"{name}.{size}") and facts.contains(f"{name}.{p}")
    ]
    if not rows:
        return []
    note = (
        "For permutations and random features, p = (k + 1) / (n + 1), where k of n draws do at"
        " least as well as the claim. Random features ask whether the exposure does better than"
        " features of its kind, not whether it is associated. The p of a known positive should be"
        " small."
    )
    return [Table("Controls", ["control", "draws or events", "p"], rows, note)]


COMPLETE = "Both columns are of the patients with all covariates."


def _table(title: str, rows: list[dict[str, str]], name: str, facts: Facts) -> Table:
    """Build a results table with the most informative columns first and groups by name."""
    named = rows[0] if rows and rows[0].get("variable") == "group" else {}
    rows = rows[1:] if named else rows
    found = dict.fromkeys(column for row in rows for column in row if row[column] != "")
    columns = [column for column in COLUMNS if column in found]
    columns += [item for item in found if item not in columns]
    return Table(
        title=title_of(title),
        columns=[named.get(column) or column for column in columns],
        rows=[[_cell(row.get(column, ""), name, facts) for column in columns] for row in rows],
        core=title in ("table_one", "univariable", "adjusted"),
        note=COMPLETE if title == "univariable" else None,
    )


def _cell(text: str, name: str, facts: Facts) -> Cell:
    """Make a cell with the number if the text is a key, or with the text verbatim otherwise."""
    key = f"{name}.{text}"
    return Cell(text=text, key=key if facts.contains(key) else None)


def read_contract(home: Path) -> ContractPage | None:
    """Read the frozen contract."""
    from sage.run.contracts import statements
    from validation.contracts.contract import FrozenContract
    from validation.core.hypothesis import Comparison

    path = home / "contract.json"
    if not path.exists():
        return None
    frozen = FrozenContract.load(path)
    contract = frozen.contract
    kind = contract.endpoint(contract.primary_test.endpoint).kind
    return ContractPage(
        sha256=frozen.sha256,
        statements=statements(frozen),
        endpoint_kind=kind,
        covariates=contract.hypothesis.covariates,
        two_valued=frozenset(v.key for v in contract.variables if v.kind == "binary"),
        names=(
            contract.exposed,
            contract.reference,
            *(name for variable in contract.variables for name in (variable.label, variable.key)),
            *(name for endpoint in contract.endpoints for name in (endpoint.label, endpoint.key)),
        ),
        text=path.read_text(encoding="utf-8"),
        notes=tuple(note for note in contract.notes if note.startswith(contract.cohort)),
        alpha=contract.rules.alpha,
        predicts=contract.comparison
        in (Comparison.ADDED, Comparison.COMBINED, Comparison.CALIBRATED),
    )


def read_ledger(path: Path, facts: Facts, alpha: float) -> tuple[Entry, ...]:
    """Read every test attempted in the run's ledger; add its numbers to the facts (`ledger.tN`)."""
    from validation.ledger.ledger import Ledger
    from validation.results.results import p_text, percent

    if not path.exists():
        return ()
    book = Ledger(path)
    facts.add("ledger.tests", len(book.entries))
    adjusted = {(item.contract, item.test, item.part): item for item in book.adjust("primary")}
    family = [v["value"] for key, v in facts.values.items() if key.endswith(".ledger.claims")]
    facts.add("ledger.primary", max((*family, len(adjusted))))
    facts.add("ledger.alpha", alpha, percent(alpha))
    facts.add("ledger.others", len(book.entries) - len(adjusted))
    for number, test in enumerate(book.entries, 1):
        key = f"ledger.t{number}"
        if test.p is not None:
            facts.add(f"{key}.p", test.p, p_text(test.p))
        controlled = adjusted.get(test.key)
        if controlled:
            # The verdict's own q-value, which counts other runs' claims on these patients.
            judged = f"{test.hypothesis}.primary.q"
            q = facts.values.get(judged) or {"value": controlled.q, "text": p_text(controlled.q)}
            facts.add(f"{key}.q", q["value"], q["text"])
    return tuple(book.entries)
