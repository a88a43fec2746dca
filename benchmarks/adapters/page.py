"""One page of results on public benchmarks, from the files that `--json` wrote.

Each benchmark has a row with its floor, the best published figure, SAGE's own without a model and
with one. Published figures stand here with where they were read; SAGE's come from the files alone,
and a file that is absent leaves a row that says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sage.core.errors import InputError
from sage.core.models import Strict

NONE = "–"
HEAD = """# Benchmarks

What SAGE reaches on benchmarks that others publish on, and on its own calibration. This page is
written by `sage bench page benchmarks/results/page`. "Floor" is the simplest thing that answers.
"Rules" is SAGE without a language model; "model" a figure with one, or of answers that somebody
played in its place, which is then said: no language model was measured. Rows say on which part of a
benchmark they were measured; halves of some were withheld while SAGE was made.

| benchmark | measured on | floor | best published | SAGE, rules | SAGE, model | cost |
|---|---|---|---|---|---|---|
"""


class Row(Strict):
    """One line of the page."""

    benchmark: str
    on: str
    floor: str = NONE
    published: str = NONE
    rules: str = NONE
    model: str = "not measured"
    cost: str = NONE
    notes: tuple[str, ...] = ()


def write_page(results: Path) -> str:
    """The page as Markdown.

    Raises
    ------
    InputError
        If a file of results cannot be read.
    """
    if not results.is_dir():
        raise InputError(f"{results}: is not a folder of results (--json of the benchmarks)")
    rows: list[Row] = []
    for name, command, read in PARTS:
        path = results / f"{name}.json"
        if not path.is_file():
            rows.append(Row(benchmark=name, on=f"not run: {command}"))
            continue
        try:
            rows += read(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            raise InputError(f"{path}: not what {command} writes: {error!r}") from error
    lines = [
        "| "
        + " | ".join((r.benchmark, r.on, r.floor, r.published, r.rules, r.model, r.cost))
        + " |"
        for r in rows
    ]
    notes = [f"- {r.benchmark}: {note}" for r in rows for note in r.notes]
    commands = [f"- {command}" for _, command, _ in PARTS]
    return (
        HEAD + "\n".join(lines) + "\n\n## What to know\n\n" + "\n".join(notes)
        + "\n\n## How to repeat it\n\n" + "\n".join(commands) + "\n"
    )  # fmt: skip


def _cpu(held: dict[str, Any]) -> str:
    """What a command took of a processor, its start and its workers included."""
    return f"{held['cpu_seconds']:.0f} s of a CPU" if "cpu_seconds" in held else NONE


def _rate(part: dict[str, Any]) -> str:
    """A share of runs with its exact interval; none where nothing was run."""
    if not part["runs"]:
        return NONE
    return f"{part['rate']:.1%} ({part['lower']:.1%} to {part['upper']:.1%})"


def _hypobench(held: dict[str, Any]) -> Iterable[Row]:
    def three(method: str) -> str:
        mean = held["mean"][method]
        return f"{mean['recall']:.3f}, {mean['precision']:.3f}, {mean['accuracy']:.3f}"

    count = len({row["setting"] for row in held["settings"]})
    yield Row(
        benchmark="HypoBench, admission",
        on=f"{count} of 13 settings; planted columns named, named ones right, test rows right",
        floor=f"{three('tree')} (decision tree)",
        published="38.8% of rules found (its authors' best)",
        rules=three("rules"),
        cost=_cpu(held),
        notes=(
            f"with shuffled labels a rule was claimed in {held['claimed_when_shuffled']} of"
            f" {held['shuffled']}.",
            "the published figure (Liu and others 2025, abstract) is that of language models on all"
            " synthetic tasks as they get harder: not comparable.",
        ),
    )


def _replayed(held: dict[str, Any]) -> dict[str, str]:
    best: dict[str, tuple[float, str]] = {}
    for track in held["tracks"]:
        whole = track["groups"][0]
        said = f"{whole['accuracy']:.1%} ({track['agent'].removeprefix('replay of ')})"
        best[track["track"]] = max(best.get(track["track"], (0.0, "")), (whole["accuracy"], said))
    return {track: said for track, (_, said) in best.items()}


def _mtb(held: dict[str, Any]) -> Iterable[Row]:
    published = _replayed(held["replay"])
    for track in held["rules"]["tracks"]:
        for group in track["groups"]:
            if group["group"] not in ("all", "held-out half"):
                continue
            half = group["group"] == "held-out half"
            yield Row(
                benchmark=f"MTBBench, {track['track']}",
                on=f"{group['patients']} patients, {group['questions']} questions"
                + (", held out, scored with each of four versions of the rules" if half else ""),
                floor=f"{group['floor']:.1%} (always {group['floor_letter']})",
                published=NONE if half else published[track["track"]],
                rules=f"{group['accuracy']:.1%} ({group['low']:.1%} to {group['high']:.1%})",
                cost=NONE if half else f"{track['seconds']:.0f} s",
                notes=()
                if half
                else (
                    "best published is the better of the published conversations at hand, scored"
                    " here; the rules' difference from the floor is"
                    f" {100 * group['over']:+.1f} points ({100 * group['over_low']:+.1f} to"
                    f" {100 * group['over_high']:+.1f}).",
                ),
            )


def _slidequest(held: dict[str, Any]) -> Iterable[Row]:
    whole = next(row for row in held["summary"] if row["category"] == "all")
    yield Row(
        benchmark="SlideQuest",
        on="not measured: its slides are not at hand",
        floor="0.000 (a language model alone)",
        published="0.477 (NOVA, GPT-4.1)",
        rules="answers need a model",
        notes=(
            f"the truth against itself scores {whole['original']:.3f} by the published scorer and"
            f" {whole['repaired']:.3f} by the repaired one, on {whole['questions']} of"
            f" {held['questions']} questions; floor and best are of NOVA's table I.1.",
        ),
    )


def _calibration(held: list[dict[str, Any]]) -> Iterable[Row]:
    *cohorts, whole = held
    yield Row(
        benchmark="Calibration: claims dealt anew",
        on=f"{whole['claims']:,} claims on {len(cohorts)} public cohorts; falsely supported",
        floor=f"{whole['naive']:.1%} (p below 0.05 alone)",
        rules=f"{whole['rate']:.1%} ({whole['lower']:.1%} to {whole['upper']:.1%})",
        model="the same path",
        notes=(
            "; ".join(f"{row['cohort']} {row['supported']} of {row['claims']}" for row in cohorts)
            + ".",
        ),
    )


def _discoverybench(held: dict[str, Any]) -> Iterable[Row]:
    def said(name: str) -> str:
        return _rate(held["scores"][name])

    scores, found = held["scores"], held["generated"]
    read = sum(not gold["unread"] for gold in held["gold"])
    yield Row(
        benchmark="DiscoveryBench, real/train: gold as contracts",
        on=f"{scores['power']['runs']} claims of an effect in {read} of {held['tasks']} tasks;"
        " supported",
        rules=said("power"),
        cost=_cpu(held),
        notes=(
            f"the association alone is seen in {said('associated')}; of claims of no effect"
            f" {scores['null_kept']['hits']} of {scores['null_kept']['runs']} were not supported;"
            f" {held['tasks'] - read} tasks could not be read.",
        ),
    )
    yield Row(
        benchmark="DiscoveryBench, real/train: columns dealt anew",
        on=f"{scores['type_one']['runs']} claims; falsely supported",
        floor=f"{said('naive')} (p below 0.05 alone)",
        rules=said("type_one"),
        cost="in the row above",
        notes=(f"associated, whatever else is said: {said('dealt_associated')}.",),
    )
    yield Row(
        benchmark="DiscoveryBench, real/train: found from questions",
        on=f"{found['questions']} of {held['asked']} questions; context x variables x relation",
        floor=f"{found['chance']:.3f} (two random columns)",
        published="0.25 (its authors' best)",
        rules=f"{found['score']:.3f}",
        notes=(
            "the published score (Majumder and others 2024, abstract) is of more tasks, and a"
            " language model reads there whether two texts agree; here columns are compared, so the"
            " two are not comparable.",
        ),
    )


def _claim_audit(held: dict[str, Any]) -> Iterable[Row]:
    shares = {row["group"]: row for row in held["shares"]}
    published = {
        "all": "79.4% (Kosmos)", "interpretive": "57.9% (Kosmos, synthesis)",
    }  # fmt: skip
    told = "; ".join(
        f"{name.removeprefix('reasoner ')} {row['supported']} of {row['statements']}"
        for name, row in shares.items() if name.startswith("reasoner ")
    )  # fmt: skip
    kappa = held["kappa"]
    for group in ("all", "data", "literature", "interpretive"):
        row = shares[group]
        yield Row(
            benchmark=f"Claim audit, {group}",
            on=f"{row['statements']} statements of {len(held['reports'])} reports, read by two;"
            " supported",
            published=published.get(group, NONE),
            rules=f"{row['rate']:.1%} ({row['low']:.1%} to {row['high']:.1%})",
            notes=()
            if group != "all"
            else (
                f"by reasoner: {told} (`chat` is a recorded conversation, played again); agreement"
                f" {held['agreement']:.0%}, kappa"
                f" {'undefined' if kappa is None else format(kappa, '.2f')}; open or not checkable"
                f" counts as not supported ({row['open'] + row['not_checkable']} here). Kosmos'"
                " figures are its authors', on other reports and by other readers.",
            ),
        )


PARTS: tuple[tuple[str, str, Callable[[Any], Iterable[Row]]], ...] = (
    ("calibration", "`sage bench calibration COHORT… --json`", _calibration),
    ("claim_audit", "`sage bench claims-score SAMPLE FIRST SECOND --json`", _claim_audit),
    ("discoverybench", "`sage bench discoverybench FOLDER --deals 20 --json`", _discoverybench),
    ("hypobench", "`sage bench hypobench FOLDER --permuted 50 --json`", _hypobench),
    (
        "mtb",
        "`sage bench mtb FOLDER --agent replay --json` and `--agent rules`, as `replay` and `rules`"
        " of one object",
        _mtb,
    ),
    (
        "slidequest",
        "`sage bench slidequest FOLDER --json`",
        _slidequest,
    ),
)
"""File's name, the command that writes it, and how a row is read from it."""
