"""Rubric-based grading of the process of a finished run, to compare two models or versions.

Fifteen items in five parts, each a share from 0 to 1, are computed only from the trace:
choice of method, assumptions, interpretation, provenance and limits. The rest is for two
readers: `--sheet` writes the agents' text in an order that reveals neither run nor model,
with an empty column for a score from 0 (wrong or empty) to 2 (right and useful), and
`--reading` reads their completed sheets.

Source: the form of the rubric, graded leaves averaged per part, follows PaperBench
(Starace et al. 2025, arXiv:2504.01848).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.runner import Report, Row, percent
from sage.core.errors import InputError
from sage.core.hashes import hash_text
from sage.core.llm.trace import TraceLine, read_trace
from sage.run.folder import RunFolder

LARGEST = 2
"""Highest score a reader can give a text."""
READ = {
    "scientist": ("candidates", "remark"),
    "expansion": ("mechanism",),
    "judge": ("summary",),
    "interpreter": ("remark",),
    "summary": ("remark",),
}
"""Texts for readers: output field paths of each agent; the first leads through a list."""


def run(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    sheet: Annotated[Path | None, typer.Option(help="Write texts for readers here (CSV).")] = None,
    reading: Annotated[list[Path] | None, typer.Option(help="A reader's sheet; twice.")] = None,
) -> Report:
    """Grade each run; with two readings, report their mean and how often both agree."""
    rows, texts, data = [], dict[str, tuple[str, str]](), []
    for path in runs:
        folder = RunFolder(path.resolve()).verify_resting()
        lines = list(read_trace(folder.trace_path))
        items = grade(lines)
        spoken = {hash_text(folder.id, text, digits=12): (folder.id, text)
                  for text in list_texts(lines)}  # fmt: skip
        texts |= spoken
        parts: dict[str, list[float]] = {}
        for name, share in items.items():
            parts.setdefault(name.partition(": ")[0], []).append(share)
        means = {part: sum(shares) / len(shares) for part, shares in parts.items()}
        rows.append(
            Row(
                benchmark=f"process of {folder.id}",
                measured=", ".join(sorted({*folder.manifest().models.values()})) or "rules",
                sage=", ".join(f"{part} {mean:.2f}" for part, mean in means.items()),
                cost=f"{sum(line.prompt_tokens or 0 for line in lines if line.kind == 'end'):,}"
                " prompt tokens",
                notes=_describe_readings(spoken, [_read_scores(file) for file in reading or ()]),
            )
        )
        data.append({"run": folder.id, "items": items})
    if sheet is not None:
        with sheet.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("id", "text", "score"),
                *((key, text, "") for key, (_, text) in sorted(texts.items()))])  # fmt: skip
    return Report(rows=tuple(rows), data=data)


def grade(lines: Iterable[TraceLine]) -> dict[str, float]:
    """Compute the rubric items from a trace, each from 0 to 1.

    Text from the rules used after a model failed is left out, so that only the failure
    counts.
    """
    lines = _drop_stand_ins(lines)
    ended = [line for line in lines if line.kind == "end" and isinstance(line.output, dict)]
    of: dict[str, list[dict[str, Any]]] = {}
    for line in ended:
        of.setdefault(line.agent, []).append(line.output)
    proposals = [item for out in of.get("scientist", ()) for item in out["candidates"]]
    arguments = [item for out in of.get("prover", ()) for item in out["claims"]]
    found = [item for name in ("interpreter", "summary") for out in of.get(name, ())
             for item in (*out["findings"], *out.get("next_steps", ()))]  # fmt: skip
    kinds = {item["kind"] for item in found}
    looks = {line.tool for line in lines if line.kind == "tool" and not line.error}
    refused = {line.agent for line in lines if line.kind == "refusal"}
    failed = {line.agent for line in lines if line.kind == "end" and line.outcome != "answered"}
    asked = {line.agent for line in lines if line.kind == "ask"}
    cited = (item["support"] or item["sources"] for item in proposals)
    return {
        "method: looked at the design before proposing": float("design_power" in looks),
        "method: proposals with covariates": _share(
            item["hypothesis"]["covariates"] for item in proposals
        ),
        "method: program counted without another attempt": _share(
            [len(of.get("validation_agent", ())) == 1]
        ),
        "assumptions: names what the model assumes": float("assumption" in kinds),
        "assumptions: names missing data": float("missing_data" in kinds),
        "assumptions: names confounding or what was not adjusted for": float(
            bool(kinds & {"alternative_explanation", "not_adjusted_for"})
        ),
        "interpretation: the comparison, alone and adjusted": _share(
            name in kinds for name in ("effect", "adjusted_effect")
        ),
        "interpretation: names controls": float("control" in kinds),
        "interpretation: nothing contradicted the results": float(
            not {"interpreter", "summary"} & (refused | failed)
        ),
        "provenance: proposals that rest on a relationship or source": _share(cited),
        "provenance: arguments that cite a record": _share(item["citations"] for item in arguments),
        "provenance: agents whose first reply was accepted": _share(
            agent not in refused | failed for agent in asked
        ),
        "limits: names replication or whom the result speaks for": float(
            bool(kinds & {"replication", "generalization"})
        ),
        "limits: names the size of the sample": float("sample" in kinds),
        "limits: proposes a next step": float("next_step" in kinds),
    }


def _share(found: Iterable[object]) -> float:
    """Return the share of true items; 0 for an empty sequence."""
    listed = [bool(item) for item in found]
    return round(sum(listed) / max(len(listed), 1), 3)


def _drop_stand_ins(lines: Iterable[TraceLine]) -> list[TraceLine]:
    """Leave out the episodes of rules, unless the whole run is by rules."""
    found = list(lines)
    asked_of = {line.episode: line.reasoner for line in found if line.kind == "ask"}
    if set(asked_of.values()) - {"rules"}:
        found = [line for line in found if asked_of.get(line.episode) != "rules"]
    return found


def list_texts(lines: Iterable[TraceLine]) -> Iterator[str]:
    """Yield the agents' own text, without that of rules used after a model failed."""
    for line in _drop_stand_ins(lines):
        if line.kind == "end" and isinstance(line.output, dict) and line.agent in READ:
            first, *rest = READ[line.agent]
            items = line.output[first] if rest else [line.output]
            for item in items:
                if text := str(item.get(rest[0] if rest else first) or "").strip():
                    yield text


def _read_scores(path: Path) -> dict[str, int]:
    """Read a reader's scores by text id, omitting texts without a score."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if (row.get("score") or "").strip()]
    for number, row in enumerate(rows, 1):
        if not row["score"].isdigit() or int(row["score"]) > LARGEST:
            raise InputError(f"{path}, score {number}: must be between 0 and {LARGEST}")
    return {row["id"]: int(row["score"]) for row in rows}


def _describe_readings(
    texts: dict[str, tuple[str, str]], readings: list[dict[str, int]]
) -> tuple[str, ...]:
    if len(readings) != 2:
        return ()
    both = [[scores[key] for scores in readings] for key in texts
            if all(key in scores for scores in readings)]  # fmt: skip
    if not both:
        return ("no text was scored by both readers",)
    mean = sum(map(sum, both)) / (2 * LARGEST * len(both))
    alike = sum(first == second for first, second in both) / len(both)
    return (f"two readers, {len(both)} texts: {mean:.2f} of 1; both agree on {percent(alike)}",)
