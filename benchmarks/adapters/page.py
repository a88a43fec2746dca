"""One page of results on public benchmarks, from the files that `--json` wrote.

Each benchmark has a row with its floor, the best published figure, SAGE's own without a model and
with one. Published figures stand here with where they were read; SAGE's come from the files alone,
and a file that is absent leaves a row that says so.
"""

from __future__ import annotations

import json
import re
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
            title = GIVEN_BY_FILES.get(name)
            on = "not measured: its files are not at hand" if title else f"not run: {command}"
            rows.append(Row(benchmark=title or name, on=on))
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
    twins, covered = held["twins"]["twins"], held["twins"]["covered"]
    played = held["played"]
    held = held["truth"]
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
    short = sorted({one["capability"] for one in twins if one["score"] < 1})
    total = {
        key: sum(row[key] for row in covered) for key in ("questions", "covered", "without_weights")
    }
    yield Row(
        benchmark="SlideQuest's capabilities",
        on=f"{len(twins)} twins with a planted truth, programs by hand; questions covered",
        rules=f"{total['covered']} of {total['questions']} with the user's weights,"
        f" {total['without_weights']} without",
        model="no model",
        cost=f"{sum(one['seconds'] for one in twins):.0f} s",
        notes=(
            f"{sum(one['score'] == 1 for one in twins)} of {len(twins)} twins are solved"
            f"{'; not: ' * bool(short)}{', '.join(short)}. Those of zero-shot interpretation and"
            " of nuclear types bring weights that were trained on painted tissue: the tools carry"
            " such questions where the user has weights (a pathology CLIP, HoVer-Net), which says"
            " nothing about these.",
        ),
    )
    yield _played(played)


def _played(held: dict[str, Any]) -> Row:
    """Conversations with the agent that were played by hand: no model's score."""
    rows = held["twins"]

    def right(variant: int) -> str:
        part = [row["score"] == 1 for row in rows if row["variant"] == variant]
        return f"{sum(part)} of {len(part)}"

    failed = sum(row["failed_steps"] for row in rows)
    return Row(
        benchmark="SlideQuest's capabilities, asked of the agent",
        on=f"{len(rows)} twins of {len({row['capability'] for row in rows})} capabilities, in"
        " conversations that were played by hand",
        rules="answers need a model",
        model="played, no figure of a model",
        cost=f"{sum(row['steps'] for row in rows)} steps,"
        f" {sum(row['tokens'] for row in rows):,} tokens by a fourth of the characters",
        notes=(
            f"{right(0)} of the twins on which a conversation was played are right, and"
            f" {right(1)} on which the same programs were repeated; {failed} steps failed,"
            f" {sum(row['outcome'] != 'answered' for row in rows)} conversations ended without an"
            " answer. Whoever played the model had read the twins' programs, so this says what"
            " the agent can carry, not how a model does. Not asked:"
            f" {', '.join(held['not_asked'])}.",
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


def _biodsa(held: dict[str, Any]) -> Iterable[Row]:
    scored = held["verdicts"]
    yield Row(
        benchmark="BioDSA-1K, verdicts",
        on=f"{scored['accuracy']['runs']} statements of {len(held['studies_given'])} studies"
        if scored
        else f"not measured: tables of none of its {held['studies']} studies are at hand",
        floor=f"{scored['constant']:.1%} (most frequent label)" if scored else NONE,
        rules=f"{_rate(scored['accuracy'])}; Type I {_rate(scored['type_one'])}, Type II"
        f" {_rate(scored['type_two'])}, abstained {_rate(scored['abstained'])}"
        if scored
        else NONE,
    )

    def said(rows: list[dict[str, Any]], method: str) -> str:
        row = next(row for row in rows if row["method"] == method)
        return f"{row['auc']:.3f} ({row['lower']:.3f} to {row['upper']:.3f})"

    fitted = "words, fitted on other papers"
    yield Row(
        benchmark="BioDSA-1K, verifiable or not",
        on=f"{held['statements']:,} statements, {held['labels']['non-verifiable']} of them"
        " non-verifiable; AUC",
        floor=f"{said(held['feasibility'], 'length of text')} (length of text)",
        rules=said(held["feasibility"], "rules"),
        cost=_cpu(held),
        notes=(
            "the rules' words were written after some of these statements were read, so the"
            " figure is too good (benchmarks/results/biodsa.md has that of the others); a model of"
            f" words fitted on other papers reaches {said(held['feasibility'], fitted)}.",
            "true and false statements are told apart without any data by their wording alone:"
            f" AUC {said(held['wording'], fitted)}; accuracy on them is to be read beside that.",
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


def _runs(held: dict[str, Any]) -> dict[str, Any]:
    """The runs of one benchmark by agent, `rules` and `chat`; one run alone stands for itself."""
    runs: dict[str, Any] = {held["agent"]: held} if "agent" in held else held
    if not runs or not runs.keys() <= {"rules", "chat"}:
        raise ValueError("one object of `rules` and `chat`")
    asked = [[(row["group"], row["questions"]) for row in run["scores"]] for run in runs.values()]
    if asked[0] != asked[-1]:
        raise ValueError("`rules` and `chat` were asked other questions")
    return runs


def _agents(runs: dict[str, Any], read: Callable[[dict[str, Any]], str]) -> dict[str, str]:
    """The columns of rules, model and cost; an absent run was not measured."""
    out = dict.fromkeys(("rules", "model"), "not measured")
    if "rules" in runs:
        out["rules"] = read(runs["rules"])
    if "chat" in runs:
        paid = runs["chat"]["spent"]
        out["model"] = f"{read(runs['chat'])} ({', '.join(paid['models'])})"
        out["cost"] = f"{paid['usd']:.2f} USD"
    return out


def _share(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return NONE
    return f"{figure['value']:.1%} ({figure['low']:.1%} to {figure['high']:.1%})"


def _group(title: str, row: dict[str, Any]) -> str:
    """A benchmark with a group of its questions, whose name stands in the benchmark's files."""
    if row["group"] == "all":
        return title
    return f"{title}, {' '.join(re.sub('[^0-9A-Za-z &.,_-]', ' ', row['group']).split())}"


def _choices(title: str, runs: dict[str, Any]) -> Iterable[Row]:
    for place, group in enumerate(next(iter(runs.values()))["scores"]):

        def said(run: dict[str, Any], place: int = place) -> str:
            row = run["scores"][place]
            return (
                f"{_share(row['accuracy'])}; {_share(row['precision'])}; {_share(row['coverage'])}"
            )

        yield Row(
            benchmark=_group(title, group),
            on=f"{group['questions']:,} questions; right, right of the answered, answered",
            floor=f"{group['chance']:.1%} (at random)",
            **_agents(runs, said),
        )


def _labbench(held: dict[str, Any]) -> Iterable[Row]:
    runs = _runs(held)
    parts = {answer["group"] for answer in next(iter(runs.values()))["answers"]}
    part = parts.pop() if len(parts) == 1 else "all"
    yield from _choices(_group("LAB-Bench", {"group": part}), runs)


def _blade(held: dict[str, Any]) -> Iterable[Row]:
    runs = _runs(held)
    yield from _choices("BLADE, multiple choice", runs)
    variables = next(iter(runs.values()))["variables"]
    for part, what in (("columns", "columns"), ("roles", "columns in their roles")):
        if not variables:
            continue

        def said(run: dict[str, Any], part: str = part) -> str:
            row = run["variables"][part]
            return f"{row['f1']:.3f}; {_share(row['precision'])}; {_share(row['recall'])}"

        floors = ", ".join(
            f"{run['variables'][part]['floor_f1']:.3f} ({agent}: as many at random)"
            for agent, run in runs.items()
        )
        yield Row(
            benchmark=f"BLADE, {what}",
            on=f"{variables['datasets']} data sets; F1, precision, recall",
            floor=floors,
            notes=("columns are compared where BLADE asks a language model, so published scores"
                   " are not set beside it.",) if part == "columns" else (),
            **_agents(runs, said),
        )  # fmt: skip


def _truthhypo(held: dict[str, Any]) -> Iterable[Row]:
    runs = _runs(held)
    for place, group in enumerate(next(iter(runs.values()))["scores"]):

        def said(run: dict[str, Any], place: int = place) -> str:
            row = run["scores"][place]
            return f"{row['f1']:.3f}; {_share(row['accuracy'])}; {_share(row['answered'])}"

        yield Row(
            benchmark=_group("TruthHypo", group),
            on=f"{group['questions']:,} questions, {group['linked']:,} of a link; F1 of links,"
            " relation right, answered",
            floor=f"{group['floor_f1']:.3f} (all linked), {group['floor_accuracy']:.1%}"
            " (most frequent)",
            **_agents(runs, said),
        )


BOTH = " and `--agent chat`, as `rules` and `chat` of one object"
GIVEN_BY_FILES = {"blade": "BLADE", "labbench": "LAB-Bench", "truthhypo": "TruthHypo"}
"""Benchmarks whose files a user brings, by their results' names."""
PARTS: tuple[tuple[str, str, Callable[[Any], Iterable[Row]]], ...] = (
    ("biodsa", "`sage bench biodsa FILE --study ID=COHORT… --json`", _biodsa),
    ("blade", f"`sage bench blade FOLDER --json`{BOTH}", _blade),
    ("calibration", "`sage bench calibration COHORT… --json`", _calibration),
    ("claim_audit", "`sage bench claims-score SAMPLE FIRST SECOND --json`", _claim_audit),
    ("discoverybench", "`sage bench discoverybench FOLDER --deals 20 --json`", _discoverybench),
    ("hypobench", "`sage bench hypobench FOLDER --permuted 50 --json`", _hypobench),
    ("labbench", f"`sage bench labbench FILE… --json`{BOTH}", _labbench),
    (
        "mtb",
        "`sage bench mtb FOLDER --agent replay --json` and `--agent rules`, as `replay` and `rules`"
        " of one object",
        _mtb,
    ),
    (
        "slidequest",
        "`sage bench slidequest FOLDER --json`, `--twins --json` and, on `python -m"
        " tests.played_twins`, `--twins --agent chat --repeats 1 --json`, as `truth`, `twins` and"
        " `played` of one object",
        _slidequest,
    ),
    ("truthhypo", f"`sage bench truthhypo FILE… --graph GRAPH --json`{BOTH}", _truthhypo),
)
"""File's name, the command that writes it, and how a row is read from it."""
