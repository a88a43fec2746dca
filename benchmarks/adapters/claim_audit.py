"""Claim audit: statements sampled from reports for two readers, and their scores.

Every statement is located in `report.md`, as a reader sees it, and comes with the files
needed to check it (tables, contract, passages), but never with SAGE's own check. The
protocol is in docs/claim-audit.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import typer
from pydantic import Field

from agents.core.types import Citation
from agents.core.words import ModelText
from benchmarks.runner import NONE, Report, Row, load_lines, share
from sage.core.errors import InputError
from sage.core.files import write_text
from sage.core.models import Strict
from sage.core.seeds import generator
from sage.report.build import write_report
from sage.report.collect import HypothesisPage, collect_page
from sage.report.facts import Pen, free_numbers, to_markdown
from sage.report.inert import markdown_text
from sage.run.folder import RunFolder

Kind = Literal["data", "literature", "interpretive"]
Verdict = Literal["supported", "refuted", "not_checkable"]
SHARES: dict[Kind, int] = {"data": 4, "literature": 3, "interpretive": 3}
PURPOSE = 66
NO_RESULT = re.compile(r"\d+% (?:confidence|CI)|by \d+ months")
BETWEEN_QUOTATIONS = re.compile(r"(?<=\")\s+(?=\")")
EMPTY = re.compile(r"^(?:not stated|rests on)\.?$", re.IGNORECASE)


class Statement(Strict):
    """A report statement, its location, and the files and cited sources given to its reader."""

    id: str = ""
    run: str
    reasoner: str
    report: str
    hypothesis: str
    section: str
    line: int
    kind: Kind
    statement: str
    files: tuple[str, ...]
    sources: tuple[str, ...] = ()


class Reading(Strict):
    """A reader's verdict on a statement, with the reason."""

    id: str
    verdict: Verdict
    reason: str = Field(pattern=r"\S")


Text = tuple[str, Kind | None, str, Sequence[Citation]]
"""Section, kind (None to decide by whether it states a number), text, and citations."""


def list_texts(page: HypothesisPage) -> Iterator[Text]:
    """Yield every assertion about a hypothesis in report order.

    The claim itself, the registration, SAGE's own scores, tables, advice on next steps, and
    the appendix, on which no verdict is based, are left out.
    """
    yield "Answer", "data", page.answer.sentence, ()
    if page.answer.objection:
        yield "Objection", None, f"\0{page.answer.objection}", ()
    for section, texts in (
        ("What was found", page.front.also),
        ("What speaks against it", page.front.against),
        ("What was done", page.front.done),
        ("In the literature", (page.papers,)),
    ):
        for text in texts:
            yield section, None, text, ()
    for text in page.results.changes:
        yield "What would settle it", "interpretive", f"\0{text}", ()
    evidence = _collect_evidence(page)
    yield "Background", "literature", _words(page.expanded.background), evidence
    yield "Mechanism proposed", "interpretive", _words(page.expanded.mechanism), evidence
    yield (
        "Clinical meaning",
        "interpretive",
        _words(page.expanded.clinical_interpretation),
        evidence,
    )
    for chain in page.chains:
        for step in chain.steps:
            both = (*step.evidence, *step.contradicting)
            yield "Mechanism path and evidence", "literature", f"\0{step.process}", both
            for cited in both:
                yield "Mechanism path and evidence", "literature", f"\0{cited.quote}", (cited,)
    for source in page.sources:
        cited = source.citation
        quoted = f"\0{cited.quote or cited.title}"
        yield "Mechanism path and evidence", "literature", quoted, (cited,)
    for turn in page.turns:
        cited_there = [cited for point in turn.points for cited in point.citations]
        yield "Novelty debate", "literature", f"\0{_words(turn.summary)}", cited_there
        for point in turn.points:
            yield "Novelty debate", "literature", f"\0{point.text}", point.citations
    for stage in page.feasibility.steps if page.feasibility else ():
        for check in stage.checks:
            statement = " ".join(page.facts.get(name, "") for name in check.evidence)
            if stage.name == "data" or (stage.name == "logic" and free_numbers(statement)):
                yield "Feasibility", "data", f"\0{statement}", ()
    for text in page.contract.statements if page.contract else ():
        if text.startswith("Power:"):
            yield "Validation contract", "data", f"\0{text}", ()
    for figure in page.results.figures:
        if free_numbers(NO_RESULT.sub("", figure.caption)):
            yield "Figures", "data", f"\0{figure.caption}", ()


def _collect_evidence(page: HypothesisPage) -> tuple[Citation, ...]:
    steps = [step for chain in page.chains for step in chain.steps]
    found = [cited for step in steps for cited in (*step.evidence, *step.contradicting)]
    beside = (source.citation for source in (*page.sources, *page.contrary))
    return tuple(dict.fromkeys((*found, *beside)))


def collect_statements(root: Path) -> list[Statement]:
    """Collect the distinct statements in a finished run's report.

    Raises
    ------
    InputError
        If the run has no report, or one of its files was changed.
    """
    folder = RunFolder(root.resolve())
    report = folder.root / "report.md"
    if not report.is_file():
        raise InputError(f"{root}: no report.md; give the folder of a finished run")
    page = collect_page(folder)
    manifest = folder.manifest()
    text = report.read_text(encoding="utf-8")
    with TemporaryDirectory() as again:  # a removed sentence could not be drawn
        if write_report(folder, Path(again)).markdown.read_text(encoding="utf-8") != text:
            raise InputError(
                f"{report}: does not match the run's outputs; the file was changed or written by "
                f"another SAGE version; rebuild it with `sage admin replay {root} --out "
                f"{root}`"
            )
    lines = text.splitlines()
    pen = Pen(page.facts, page.sources, markdown_text)
    found: dict[str, Statement] = {}
    for name, hypothesis in ((item.id, item) for item in page.hypotheses):
        within = _find_lines(name, _render(hypothesis.answer.sentence, False, pen, name), lines)
        files = tuple(_list_files(folder, name))
        for section, kind, raw, cited in list_texts(hypothesis):
            # Texts that begin with a null are verbatim; the rest is prose with numbers by key.
            verbatim = raw.startswith("\0")
            for part in [raw[1:]] if verbatim else _split(raw):
                shown = _render(part, verbatim, pen, name)
                # The summary may repeat a text of the debate, where it comes last.
                places = within[::-1] if section == "Novelty debate" else within
                line = next((at for at in places if shown and shown in lines[at]), None)
                words = _strip_escapes(shown).strip('" ')
                if line is None or not words or EMPTY.match(words) or words in found:
                    continue
                numbered = "[[" in part or free_numbers(words)
                chosen: Kind = kind or ("data" if numbered else "interpretive")
                found[words] = Statement(
                    run=manifest.id, reasoner=manifest.reasoner, report=str(report),
                    hypothesis=name, section=section, line=line + 1, kind=chosen, statement=words,
                    files=files,
                    sources=tuple(f"{item.title} {item.doi or item.pmid or ''}" for item in cited),
                )  # fmt: skip
    return list(found.values())


def _words(text: str | ModelText) -> str:
    """Return the plain text, including a model's remark, which is audited in place."""
    return text.text if isinstance(text, ModelText) else text


BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")


def _split(text: str) -> list[str]:
    """Split a text into sentences, without splitting quotations."""
    parts = BETWEEN_QUOTATIONS.split(text)
    return [
        item
        for part in parts
        for item in ([part] if part[:1] == '"' else BETWEEN_SENTENCES.split(part))
    ]


def _find_lines(name: str, answer: str, lines: Sequence[str]) -> list[int]:
    """Find the lines in the parts of the report on a hypothesis: its front and its appendix."""
    found: list[int] = []
    for start, until in ((answer, "## "), (f"### {name}. ", "### ")):
        first = next((at for at, line in enumerate(lines) if start and start in line), 0)
        rest = range(first + 1, len(lines))
        found += range(first, next((at for at in rest if lines[at].startswith(until)), len(lines)))
    return found


def _render(text: str, verbatim: bool, pen: Pen, name: str) -> str:
    """Render a text as it appears in `report.md`."""
    if verbatim:
        return markdown_text(text).strip()
    return to_markdown(pen.sentence(text, name)).strip()


def _strip_escapes(shown: str) -> str:
    text = re.sub(r"\\([\\`*\[\]|~$_<&>+\-=#.)])", r"\1", shown)
    return text.replace("&#58;", ":").replace("&#46;", ".").replace("&#64;", "@")


def _list_files(folder: RunFolder, name: str) -> Iterator[str]:
    """Yield the files for a reader: contract, result, tables, ledger, debate and brief."""
    home = folder.hypothesis(name)
    given = [home / "contract.json", home / "results" / "results.json"]
    given += sorted((home / "results" / "inputs").glob("*/table.parquet"))
    given += [folder.root / "ledger.jsonl", folder.output(f"novelty-{name}"),
              folder.output("brief")]  # fmt: skip
    yield from (str(path) for path in given if path.is_file())


def draw(pool: Sequence[Statement], count: int, seed: int = 0) -> list[Statement]:
    """Draw `count` statements in a 4 : 3 : 3 ratio of kinds, spread evenly over the runs.

    Statements with the same words are drawn once, so that sentences common to all reports do
    not fill the sample. The same pool and seed give the same sample, regardless of the order
    of the runs.

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
        pool_of_kind = [item for item in ordered if item.kind == kind]
        place = generator(seed, PURPOSE, number).permutation(len(pool_of_kind))
        runs: dict[str, list[Statement]] = {}
        for at in place:
            runs.setdefault(pool_of_kind[at].report, []).append(pool_of_kind[at])
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
                f"the reports contain {taken} different {kind} statements, but {wanted[kind]} are "
                "required; give more runs, or set a lower --count"
            )
    mixed = generator(seed, PURPOSE, len(SHARES)).permutation(len(chosen))
    return [
        chosen[at].model_copy(update={"id": f"s{number:03d}"}) for number, at in enumerate(mixed, 1)
    ]


def load_readings(path: Path, sample: Sequence[Statement]) -> dict[str, Reading]:
    """Load a reader's verdicts by statement from JSON lines with id, verdict and reason.

    Raises
    ------
    InputError
        If a line is invalid, repeated, or not about a statement in the sample.
    """
    known = {item.id for item in sample}
    found: dict[str, Reading] = {}
    for number, reading in enumerate(load_lines(path, Reading, given=True), 1):
        if reading.id not in known or reading.id in found:
            problem = "repeated" if reading.id in found else "not in the sample"
            raise InputError(f'{path}, line {number}: "{reading.id}" is {problem}')
        found[reading.id] = reading
    return found


def kappa(first: Sequence[object], second: Sequence[object]) -> float | None:
    """Compute Cohen's kappa for two readings; None if both gave a single, identical verdict.

    Source: Cohen 1960, A coefficient of agreement for nominal scales.
    """
    n = len(first)
    agreed = sum(a == b for a, b in zip(first, second, strict=True)) / n
    left, right = Counter(first), Counter(second)
    chance = sum(left[value] * right[value] for value in left) / n**2
    return None if chance == 1 else (agreed - chance) / (1 - chance)


PUBLISHED = {"all": "79.4% (Kosmos)", "interpretive": "57.9% (Kosmos, synthesis)"}


def score(
    sample: Sequence[Statement],
    first: dict[str, Reading],
    second: dict[str, Reading],
    adjudicated: dict[str, Reading] | None = None,
) -> Report:
    """Score two complete readings; a statement counts if both readers, or an arbiter, support it.

    Raises
    ------
    InputError
        If a reading is incomplete or a copy of the other, or a third reader decided on a
        statement that is not in dispute.
    """
    decided = adjudicated or {}
    for name, given in (("first", first), ("second", second)):
        missing = [item.id for item in sample if item.id not in given]
        if missing:
            raise InputError(f"the {name} reading lacks {len(missing)} of {len(sample)} statements,"
                             f" including {missing[0]}")  # fmt: skip
    if first == second:
        raise InputError("the two readings are identical; each reader must read independently")
    verdicts = [[given[item.id].verdict for item in sample] for given in (first, second)]
    disputed = {item.id for item, one, other in zip(sample, *verdicts, strict=True) if one != other}
    if undisputed := sorted(decided.keys() - disputed):
        raise InputError(f"{undisputed[0]} was adjudicated, but both readers agree on it")
    final: dict[str, str] = {item.id: first[item.id].verdict for item in sample}
    final |= {name: decided[name].verdict if name in decided else "open" for name in disputed}

    def count(group: Sequence[Statement]) -> tuple[int, int]:
        return sum(final[item.id] == "supported" for item in group), len(group)

    reasoners = {item.reasoner: [it for it in sample if it.reasoner == item.reasoner]
                 for item in sorted(sample, key=lambda item: item.reasoner)}  # fmt: skip
    by = "; ".join("{} {} of {}".format(name, *count(own)) for name, own in reasoners.items())
    undecided = sum(final[item.id] in ("open", "not_checkable") for item in sample)
    agreed = kappa(*verdicts)
    note = (
        f"by reasoner: {by}; agreement {1 - len(disputed) / len(sample):.0%}, kappa"
        f" {'undefined' if agreed is None else f'{agreed:.2f}'}; open or not checkable"
        f" ({undecided} here) counts as not supported. Kosmos' figures are its authors', on other"
        " reports and by other readers."
    )
    reports = len({item.report for item in sample})
    rows = []
    for group in ("all", *SHARES):
        own = [item for item in sample if group in ("all", item.kind)]
        if own:
            rows.append(Row(
                benchmark=f"Claim audit, {group}",
                measured=f"{len(own)} statements of {reports} reports, read by two; supported",
                published=PUBLISHED.get(group, NONE),
                sage=share(*count(own)),
                notes=(note,) if group == "all" else (),
            ))  # fmt: skip
    return Report(command="claim_audit --sample SAMPLE --first FIRST --second SECOND --json",
                  rows=tuple(rows), data=final)  # fmt: skip


def run(
    sample: Annotated[Path, typer.Option(help="Drawn statements, JSON lines.")],
    runs: Annotated[list[Path] | None, typer.Argument(help="Runs to draw statements from.")] = None,
    count: Annotated[int, typer.Option(min=10, help="Statements to draw.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw.")] = 0,
    first: Annotated[Path | None, typer.Option(help="First reading, JSON lines.")] = None,
    second: Annotated[Path | None, typer.Option(help="Second reading.")] = None,
    adjudicated: Annotated[Path | None, typer.Option(help="Decisions on disagreements.")] = None,
) -> Report:
    """Draw statements from runs for two readers, or score two readings."""
    if runs:
        if sample.exists():
            raise InputError(
                f"{sample} already exists and may have been read; choose another file name"
            )
        pool = [statement for root in runs for statement in collect_statements(root)]
        drawn = draw(pool, count, seed)
        write_text(sample, "".join(f"{item.model_dump_json()}\n" for item in drawn))
        kinds = Counter(item.kind for item in drawn)
        available = Counter(item.kind for item in pool)
        return Report(rows=tuple(
            Row(benchmark=f"Claim audit, {kind}", measured=f"{kinds[kind]} of {available[kind]}")
            for kind in SHARES
        ))  # fmt: skip
    if first is None or second is None:
        raise InputError("give runs to sample from, or --first and --second readings to score")
    drawn = load_lines(sample, Statement, given=True)
    decided = load_readings(adjudicated, drawn) if adjudicated else None
    return score(drawn, load_readings(first, drawn), load_readings(second, drawn), decided)
