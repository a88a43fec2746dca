"""Claim audit: statements of reports, drawn for two readers and scored.

What is drawn is what a reader of the report sees: every statement is found again in `report.md`.
It comes with what is needed to check it (tables, contract, passages), never with SAGE's own check.
docs/claim-audit.md is the protocol.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal, TypeVar, get_args

import typer
from pydantic import Field, ValidationError

from agents.core.types import Citation
from agents.prose.reading import sentences
from agents.prose.wording import free_numbers
from benchmarks.runner import NONE, Report, Row, share, wilson
from kg.literature.local import read_note
from sage.core.data import data_root
from sage.core.errors import InputError, explain_validation
from sage.core.files import write_text
from sage.core.models import Strict
from sage.core.seeds import generator
from sage.report.build import write_report
from sage.report.collect import HypothesisPage, collect_page
from sage.report.facts import Pen, ReportError, to_markdown
from sage.report.inert import markdown_text
from sage.run.folder import Manifest, RunFolder

Kind = Literal["data", "literature", "interpretive"]
Verdict = Literal["supported", "refuted", "not_checkable"]
SHARES: dict[Kind, int] = {"data": 4, "literature": 3, "interpretive": 3}
PURPOSE = 66
NO_RESULT = re.compile(r"\d+% (?:confidence|CI)|by \d+ months")
BETWEEN_QUOTATIONS = re.compile(r"(?<=”)\s+(?=“)")
SAYS_NOTHING = re.compile(r"^(?:not stated|rests on)\.?$", re.IGNORECASE)


class Source(Strict):
    """A record that the statement cites, or that stood beside it.

    `label` is how the debate calls it (R1 …); `passages` are all findings of its note, not only the
    one quoted; `quoted` is what the report quotes.
    """

    title: str
    year: int | None = None
    doi: str | None = None
    pmid: str | None = None
    retracted: bool = False
    label: str = ""
    cited: bool = True
    quoted: str = ""
    note: str = ""
    passages: tuple[str, ...] = ()


class Statement(Strict):
    """One statement of a report, where it stands, and what its reader opens.

    `says` holds the report's other words on the same result: verdict, reasons, findings, limits.
    """

    id: str = ""
    run: str
    reasoner: str
    simulated: bool
    cohort: str
    report: str
    hypothesis: str
    claim: str
    section: str
    line: int
    kind: Kind
    statement: str
    files: tuple[str, ...]
    says: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()


class Reading(Strict):
    """One reader's verdict on one statement, with the reason."""

    id: str
    verdict: Verdict
    reason: str = Field(pattern=r"\S")


class Share(Strict):
    """How many statements of a group were supported, with Wilson's 95% interval."""

    group: str
    statements: int
    supported: int
    refuted: int
    not_checkable: int
    open: int
    rate: float
    low: float
    high: float


class Disagreement(Strict):
    """A statement on which the readers differ; `decided` is empty where nobody decided."""

    id: str
    kind: Kind
    first: Verdict
    second: Verdict
    decided: Verdict | Literal[""] = ""
    statement: str


class Scored(Strict):
    """What two readings say of the sample."""

    shares: list[Share]
    agreement: float
    kappa: float | None
    kappas: dict[str, float | None]
    disagreements: list[Disagreement]


M = TypeVar("M", bound=Strict)
Said = tuple[str, Kind | None, str, Sequence[Citation]]
"""Section, kind (None: by whether it states a number), text, what it cites."""


def _said(page: HypothesisPage) -> Iterator[Said]:
    """Everything that the report asserts of one hypothesis, in its order.

    Left out are the claim itself, what was registered, SAGE's own scores, tables, advice on next
    steps, and the appendix that no verdict rests on.
    """
    yield "Verdict", "interpretive", f"Verdict: {page.verdict_words}", ()
    statement = page.expanded.hypothesis.statement
    for paragraph in page.summary.paragraphs if page.summary else ():
        for quoted in page.verdict_texts:
            paragraph = paragraph.replace(f"“{quoted}”", "").replace(quoted, "")
        if paragraph.strip() != statement:
            yield "Summary", None, paragraph, ()
    for text in page.results.reasons:
        yield "Reasons", None, f"\0{text}", ()
    for text in page.changes:
        yield "What would change this", "interpretive", f"\0{text}", ()
    for text in page.interpretation.findings if page.interpretation else ():
        yield "Interpretation", None, text, ()
    for text in page.limits if page.interpretation else ():
        yield "Limits", None, f"\0{text}" if text in page.results.limits else text, ()
    evidence = _evidence(page)
    yield "Background", "literature", page.expanded.background, evidence
    yield "Mechanism proposed", "interpretive", page.expanded.mechanism, evidence
    yield "Clinical meaning", "interpretive", page.expanded.clinical_interpretation, evidence
    for chain in page.chains:
        for step in chain.steps:
            both = (*step.evidence, *step.contradicting)
            yield "Mechanism path and evidence", "literature", f"\0{step.process}", both
            for cited in both:
                yield "Mechanism path and evidence", "literature", f"\0{cited.quote}", (cited,)
    for cited in page.sources:
        said = f"\0{cited.quote or cited.title}"
        yield "Mechanism path and evidence", "literature", said, (cited,)
    for turn in page.turns:
        cited_there = [cited for point in turn.points for cited in point.citations]
        yield "Novelty debate", "literature", f"\0{turn.summary}", cited_there
        for point in turn.points:
            yield "Novelty debate", "literature", f"\0{point.text}", point.citations
    for stage in page.feasibility.steps if page.feasibility else ():
        for check in stage.checks:
            numbered = stage.name == "logic" and free_numbers(check.statement, *page.names)
            if stage.name == "data" or numbered:
                yield "Feasibility", "data", f"\0{check.statement}", ()
    for text in page.contract.statements if page.contract else ():
        if text.startswith("Power:"):
            yield "Validation contract", "data", f"\0{text}", ()
    for figure in page.results.figures:
        if free_numbers(NO_RESULT.sub("", figure.caption), *page.names):
            yield "Figures", "data", f"\0{figure.caption}", ()


def _evidence(page: HypothesisPage) -> tuple[Citation, ...]:
    steps = [step for chain in page.chains for step in chain.steps]
    found = [cited for step in steps for cited in (*step.evidence, *step.contradicting)]
    return tuple(dict.fromkeys((*found, *page.sources)))


def statements(root: Path) -> list[Statement]:
    """All statements of a finished run's report, each once, with where it stands.

    Raises
    ------
    InputError
        If the run has no report, or a file of it was changed.
    """
    folder = RunFolder(root.resolve())
    report = folder.root / "report.md"
    if not report.is_file():
        raise InputError(f"{root}: holds no report.md; give the folder of a run that ended")
    page = collect_page(folder)
    manifest = folder.manifest()
    text = report.read_text(encoding="utf-8")
    with TemporaryDirectory() as again:  # a sentence that was taken out could not be drawn
        if write_report(folder, Path(again)).markdown.read_text(encoding="utf-8") != text:
            raise InputError(
                f"{report}: is not what the run's outputs give: it was changed, or written by"
                f" another version of SAGE; `sage admin replay {root} --out {root}` writes it anew"
            )
    lines = text.splitlines()
    notes = _notes(Path(manifest.spec.corpus) if manifest.spec.corpus else data_root() / "corpus")
    pen = Pen(page.facts, page.sources, markdown_text)
    found: dict[str, Statement] = {}
    for name, hypothesis in ((item.id, item) for item in page.hypotheses):
        within = _lines_of(name, lines)
        says = _says(name, hypothesis, pen, lines, within)
        for section, kind, raw, cited in _said(hypothesis):
            # What begins with a null stands verbatim; the rest is prose with numbers by key.
            verbatim = raw.startswith("\0")
            for part in [raw[1:]] if verbatim else _split(raw):
                shown = _shown(part, verbatim, pen, name, hypothesis.names)
                # The summary may repeat what the debate said; it stands there last.
                places = within[::-1] if section == "Novelty debate" else within
                line = next((at for at in places if shown and shown in lines[at]), None)
                words = _plain(shown).strip("“” ")
                if line is None or not words or SAYS_NOTHING.match(words) or words in found:
                    continue
                numbered = "[[" in part or free_numbers(words, *hypothesis.names)
                chosen: Kind = kind or ("data" if numbered else "interpretive")
                found[words] = Statement(
                    run=manifest.id, reasoner=manifest.reasoner, simulated=manifest.simulated,
                    cohort=manifest.cohort_title, report=str(report), hypothesis=name,
                    claim=hypothesis.expanded.hypothesis.statement, section=section,
                    line=line + 1, kind=chosen, statement=words,
                    files=tuple(_files(folder, manifest, name, chosen)),
                    says=() if chosen == "literature" else says,
                    sources=() if chosen == "data"
                    else tuple(_sources(hypothesis, section, cited, notes)),
                )  # fmt: skip
    return list(found.values())


def _split(text: str) -> list[str]:
    """Sentences; what is quoted stays whole."""
    parts = BETWEEN_QUOTATIONS.split(text)
    return [item for part in parts for item in ([part] if part[:1] == "“" else sentences(part))]


def _lines_of(name: str, lines: Sequence[str]) -> range:
    """The lines of a hypothesis' own part of the report."""
    start = next((at for at, line in enumerate(lines) if line.startswith(f"## {name}: ")), 0)
    rest = range(start + 1, len(lines))
    return range(start, next((at for at in rest if lines[at].startswith("## ")), len(lines)))


def _shown(text: str, verbatim: bool, pen: Pen, name: str, names: Iterable[str]) -> str:
    """The text as `report.md` prints it; nothing where the report withheld it."""
    if verbatim:
        return markdown_text(text).strip()
    try:
        return to_markdown(pen.prose(text, name, names)).strip()
    except ReportError:
        return ""


def _plain(shown: str) -> str:
    text = re.sub(r"\\([\\`*\[\]|~$_<&>+\-=#.)])", r"\1", shown)
    return text.replace("&#58;", ":").replace("&#46;", ".").replace("&#64;", "@")


def _says(
    name: str, page: HypothesisPage, pen: Pen, lines: Sequence[str], within: range
) -> tuple[str, ...]:
    """Verdict, reasons, findings and limits as printed: what an interpretation must follow from."""
    here = [lines[at] for at in within]
    findings = [
        _shown(item, False, pen, name, page.names)
        for item in (page.interpretation.findings if page.interpretation else ())
    ]
    printed = [_plain(item) for item in findings if any(item and item in line for line in here)]
    return (f"Verdict: {page.verdict_words}", *page.results.reasons, *printed, *page.limits)


def _notes(corpus: Path) -> dict[str, tuple[Path, tuple[str, ...]]]:
    """The notes of a corpus by the key of their record."""
    found = {}
    for path in sorted(corpus.glob("*.md")):
        note = read_note(path.read_text(encoding="utf-8"))
        if note is not None:
            cited = Citation(title=note.title, year=note.year, doi=note.doi, pmid=note.pmid)
            found[cited.key] = (path, note.snippets)
    return found


def _sources(
    page: HypothesisPage,
    section: str,
    cited: Sequence[Citation],
    notes: dict[str, tuple[Path, tuple[str, ...]]],
) -> Iterator[Source]:
    """What a statement cites; of the debate all records, as it speaks of what none of them says."""
    records = [
        (Citation(**{key: item["record"].get(key) for key in ("title", "year", "doi", "pmid")}),
         str(item["ref"]))
        for item in page.debate["records"]
    ]  # fmt: skip
    labels = {record.key: label for record, label in records}
    listed = list(cited)
    if section == "Novelty debate":
        keys = {item.key for item in cited}
        listed += [record for record, _ in records if record.key not in keys]
    for place, item in enumerate(listed):
        path, passages = notes.get(item.key, (None, ()))
        yield Source(
            title=item.title, year=item.year, doi=item.doi, pmid=item.pmid,
            retracted=item.retracted,
            label=labels.get(item.key, ""), cited=place < len(cited), quoted=item.quote,
            note=str(path) if path else "", passages=passages,
        )  # fmt: skip


def _files(folder: RunFolder, run: Manifest, name: str, kind: Kind) -> Iterator[str]:
    """What a reader opens: the contract and the result, patients and files for numbers."""
    home = folder.hypothesis(name)
    given = [home / "contract.json", home / "results" / "results.json"]
    if kind == "data":
        given += sorted((home / "results" / "inputs").glob("*/table.parquet"))
        given += [folder.root / "ledger.jsonl", folder.output(f"novelty-{name}")]
    elif kind == "literature":
        given = [folder.output(f"novelty-{name}"), folder.output("brief")]
    yield from (str(path) for path in given if path.is_file())
    if kind == "data" and given[0].is_file():
        place = Path(run.spec.cohort_root or run.spec.cohort)
        for file in json.loads(given[0].read_text(encoding="utf-8")).get("data_hashes", {}):
            yield str(place / file) if (place / file).is_file() else f"{run.spec.cohort}: {file}"


def draw(pool: Sequence[Statement], count: int, seed: int = 0) -> list[Statement]:
    """`count` statements, 4 : 3 : 3 over the kinds, spread evenly over the runs of each kind.

    Two statements of the same words are drawn once, so that sentences that every report has do not
    fill the sample. The same pool and seed give the same sample, whatever the order of the runs.

    Raises
    ------
    InputError
        If a kind has too few statements.
    """
    ordered = sorted(
        pool, key=lambda item: (item.report, item.hypothesis, item.line, item.statement)
    )
    exact = {kind: count * share / sum(SHARES.values()) for kind, share in SHARES.items()}
    wanted = {kind: int(value) for kind, value in exact.items()}
    for kind in sorted(exact, key=lambda item: wanted[item] - exact[item]):
        wanted[kind] += sum(wanted.values()) < count
    chosen: list[Statement] = []
    seen: set[str] = set()
    for number, kind in enumerate(SHARES):
        of_kind = [item for item in ordered if item.kind == kind]
        place = generator(seed, PURPOSE, number).permutation(len(of_kind))
        runs: dict[str, list[Statement]] = {}
        for at in place:
            runs.setdefault(of_kind[at].report, []).append(of_kind[at])
        taken = 0
        while taken < wanted[kind] and any(runs.values()):
            for left in runs.values():
                while left and left[0].statement in seen:
                    left.pop(0)
                if left and taken < wanted[kind]:
                    seen.add(left[0].statement)
                    chosen.append(left.pop(0))
                    taken += 1
        if taken < wanted[kind]:
            raise InputError(
                f"the reports hold {taken} different {kind} statements, and {wanted[kind]} are "
                "wanted: give more runs, or ask for fewer with --statements"
            )
    mixed = generator(seed, PURPOSE, len(SHARES)).permutation(len(chosen))
    return [
        chosen[at].model_copy(update={"id": f"s{number:03d}"}) for number, at in enumerate(mixed, 1)
    ]


def read_sample(path: Path) -> list[Statement]:
    """The drawn statements.

    Raises
    ------
    InputError
        Naming the line that is no statement, or one that was there before.
    """
    found: dict[str, Statement] = {}
    for place, row in _rows(path):
        item = _checked(Statement, row, place)
        if item.id in found:
            raise InputError(
                f'{place}: statement "{item.id}" was there before; draw the sample anew'
            )
        found[item.id] = item
    return list(found.values())


def read_readings(path: Path, sample: Sequence[Statement]) -> dict[str, Reading]:
    """One reader's verdicts by statement, from JSON lines or CSV with id, verdict and reason.

    Raises
    ------
    InputError
        Naming the line that is wrong, twice there, or of no statement of the sample.
    """
    known = {item.id for item in sample}
    found: dict[str, Reading] = {}
    for place, row in _rows(path):
        wanted = {key: row.get(key) for key in Reading.model_fields}
        reading = _checked(Reading, wanted, place)
        if reading.id not in known:
            raise InputError(f'{place}: the sample has no statement "{reading.id}"')
        if reading.id in found:
            raise InputError(f'{place}: "{reading.id}" was read before; keep one row for it')
        found[reading.id] = reading
    return found


def _rows(path: Path) -> list[tuple[str, dict[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if path.suffix.lower() == ".csv":
        csv.field_size_limit(131_072)  # of the whole process: others may have changed it
        table = csv.DictReader(text.splitlines(keepends=True))
        try:
            read = [(f"{path}, line {table.line_num}", row) for row in table]
        except csv.Error as error:
            raise InputError(f"{path}, after line {table.line_num}: {error}") from None
        lacking = [key for key in Reading.model_fields if key not in (table.fieldnames or ())]
        if lacking:
            raise InputError(
                f"{path}: no column {lacking[0]}; its first line is to read id,verdict,reason,"
                " parted by commas"
            )
        return read
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            place = f"{path}, line {number}"
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise InputError(f"{place}: is no JSON object; write one per line")
            rows.append((place, row))
    return rows


def _checked(model: type[M], row: dict[str, Any], place: str) -> M:
    try:
        return model.model_validate(row)
    except ValidationError as error:
        raise InputError(f"{place}: {explain_validation(error)}") from None


def kappa(first: Sequence[object], second: Sequence[object]) -> float | None:
    """Cohen's kappa of two readings; None where both gave one and the same verdict throughout.

    Source: Cohen 1960, A coefficient of agreement for nominal scales.
    """
    n = len(first)
    agreed = sum(a == b for a, b in zip(first, second, strict=True)) / n
    ones, others = Counter(first), Counter(second)
    chance = sum(ones[value] * others[value] for value in ones) / n**2
    return None if chance == 1 else (agreed - chance) / (1 - chance)


def score(
    sample: Sequence[Statement],
    first: dict[str, Reading],
    second: dict[str, Reading],
    adjudicated: dict[str, Reading] | None = None,
) -> Scored:
    """What two complete readings say; a statement counts where both, or a third, support it.

    Parameters
    ----------
    sample : the drawn statements
    first, second : the two readings, which must hold every statement
    adjudicated : decisions on statements on which the readings differ

    Raises
    ------
    InputError
        If a reading is incomplete or a copy of the other, or something was decided that is not in
        dispute.
    """
    decided = adjudicated or {}
    for which, given in (("first", first), ("second", second)):
        missing = [item.id for item in sample if item.id not in given]
        if missing:
            raise InputError(
                f"the {which} reading lacks {len(missing)} of {len(sample)} statements, "
                f"{missing[0]} to begin with: read them all"
            )
    if not sample:
        raise InputError("the sample holds no statement")
    if all((first[item.id].verdict, first[item.id].reason)
           == (second[item.id].verdict, second[item.id].reason) for item in sample):  # fmt: skip
        raise InputError(
            "the two readings have the same words for every statement: one is a copy of the other;"
            " give one that was made without it"
        )
    disputed = {item.id for item in sample if first[item.id].verdict != second[item.id].verdict}
    if undisputed := sorted(decided.keys() - disputed):
        raise InputError(
            f"{undisputed[0]} was adjudicated, but both readers agree on it; take the row out"
        )
    final = {
        item.id: first[item.id].verdict
        if item.id not in disputed
        else decided[item.id].verdict
        if item.id in decided
        else "open"
        for item in sample
    }
    groups: dict[str, list[Statement]] = {"all": list(sample)}
    for kind in get_args(Kind):
        groups[kind] = [item for item in sample if item.kind == kind]
    for reasoner in sorted({item.reasoner for item in sample}):
        groups[f"reasoner {reasoner}"] = [item for item in sample if item.reasoner == reasoner]
    groups = {name: group for name, group in groups.items() if group}

    def agreement(group: Sequence[Statement]) -> float | None:
        return kappa(
            [first[item.id].verdict for item in group], [second[item.id].verdict for item in group]
        )

    return Scored(
        shares=[_share(name, [final[item.id] for item in group]) for name, group in groups.items()]
        + [
            _share(f"{which} reader alone", [given[item.id].verdict for item in sample])
            for which, given in (("first", first), ("second", second))
        ],
        agreement=1 - len(disputed) / len(sample),
        kappa=agreement(sample),
        kappas={name: agreement(group) for name, group in groups.items()},
        disagreements=[
            Disagreement(
                id=item.id, kind=item.kind, statement=item.statement, first=first[item.id].verdict,
                second=second[item.id].verdict,
                decided=decided[item.id].verdict if item.id in decided else "",
            )
            for item in sample if item.id in disputed
        ],
    )  # fmt: skip


def _share(group: str, verdicts: Sequence[str]) -> Share:
    counted, total = Counter(verdicts), len(verdicts)
    low, high = wilson(counted["supported"], total)
    return Share(
        group=group, statements=total, rate=counted["supported"] / total, low=low, high=high,
        **{name: counted[name] for name in ("supported", "refuted", "not_checkable", "open")},
    )  # fmt: skip


def _kappa(value: float | None) -> str:
    return "undefined, as one verdict alone was given" if value is None else f"{value:.2f}"


PUBLISHED = {"all": "79.4% (Kosmos)", "interpretive": "57.9% (Kosmos, synthesis)"}


def report(scored: Scored, reports: int) -> Report:
    """Rows per kind of statement."""
    shares = {item.group: item for item in scored.shares}
    reasoners = "; ".join(
        f"{name.removeprefix('reasoner ')} {item.supported} of {item.statements}"
        for name, item in shares.items() if name.startswith("reasoner ")
    )  # fmt: skip
    whole = shares["all"]
    notes = (
        f"by reasoner: {reasoners}; agreement {scored.agreement:.0%}, kappa {_kappa(scored.kappa)};"
        f" open or not checkable ({whole.open + whole.not_checkable} here) counts as not supported."
        " Kosmos' figures are its authors', on other reports and by other readers.",
    )
    rows = tuple(
        Row(
            benchmark=f"Claim audit, {group}",
            measured=f"{item.statements} statements of {reports} reports, read by two; supported",
            published=PUBLISHED.get(group, NONE),
            sage=share(item.supported, item.statements),
            notes=notes if group == "all" else (),
        )
        for group, item in shares.items() if group in ("all", *SHARES)
    )  # fmt: skip
    return Report(command="claim_audit --sample SAMPLE --first FIRST --second SECOND --json",
                  rows=rows, data=scored.model_dump())  # fmt: skip


def run(
    sample: Annotated[Path, typer.Option(help="Drawn statements, JSON lines.")],
    runs: Annotated[list[Path] | None, typer.Argument(help="Runs to draw statements from.")] = None,
    count: Annotated[int, typer.Option(min=10, help="Statements to draw.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw.")] = 0,
    first: Annotated[Path | None, typer.Option(help="First reading, JSON lines or CSV.")] = None,
    second: Annotated[Path | None, typer.Option(help="Second reading.")] = None,
    adjudicated: Annotated[Path | None, typer.Option(help="Decisions on disagreements.")] = None,
) -> Report:
    """Draw statements of runs for two readers, or score two readings."""
    if runs:
        if sample.exists():
            raise InputError(f"{sample} exists and may have been read; name another file")
        pool = [statement for root in runs for statement in statements(root)]
        drawn = draw(pool, count, seed)
        write_text(sample, "".join(f"{item.model_dump_json()}\n" for item in drawn))
        kinds = Counter(item.kind for item in drawn)
        available = Counter(item.kind for item in pool)
        return Report(rows=tuple(
            Row(benchmark=f"Claim audit, {kind}", measured=f"{kinds[kind]} of {available[kind]}")
            for kind in SHARES
        ))  # fmt: skip
    if first is None or second is None:
        raise InputError("give runs to draw from, or --first and --second readings to score")
    drawn = read_sample(sample)
    decided = read_readings(adjudicated, drawn) if adjudicated else None
    scored = score(drawn, read_readings(first, drawn), read_readings(second, drawn), decided)
    return report(scored, len({item.report for item in drawn}))
