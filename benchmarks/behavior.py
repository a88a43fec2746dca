"""Whether scripted readers' behavior is learned, and whether it guides an agent to deposits.

    python -m benchmarks.behavior --work FOLDER [--recorded SESSIONS] [--real FOLDER]
        [--patients 15] [--judged 6] [--out benchmarks/results/behavior.md] [--ship MODEL]
    python -m benchmarks.behavior --work FOLDER --ship MODEL --later SESSIONS

Paints simulated lymph nodes below --work, lets scripted readers of four strategies read them
(two of each on every slide), trains with patients in five folds, and measures beside baselines.
--recorded holds sessions that `benchmarks.scripted_viewer` recorded in Chromium on these slides:
they are learned from in place of the streams of an ideal viewer, with which they are compared.
Pathologist-o3 is judged on nodes of other patients, painted finely enough to measure nuclei.
--later measures a model that is there on nodes of later patients, and trains nothing: without the
folder SESSIONS the nodes are painted and it ends, so that the viewer can record them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.adapters.behavior import (
    JUDGED_MPP,
    JUDGED_ON,
    LEARNED_FROM,
    LEARNED_MPP,
    NodeRead,
    looks_of,
    node_table,
    nodes,
    painted,
    patient_of_node,
    read_node,
    write_streams,
)
from benchmarks.adapters.scripted_readers import TASKS, header_of, stream
from mcp_servers.slides.slide import Slide
from sage_slide_reading.behavior.examples import read_examples
from sage_slide_reading.behavior.model import BehaviorModel, Score, save
from sage_slide_reading.behavior.training import (
    LOWER_IS_BETTER,
    METRICS,
    MODEL,
    READER,
    Measured,
    TrainSettings,
    differences,
    measure,
    table,
    train,
)
from sage_slide_reading.reader.guides import BehaviorBank

TASK = TASKS["target-driven"]
TOLD = (
    "{sessions} sessions of scripted readers with four stated strategies on {slides} simulated "
    "lymph nodes of {patients} patients (painted by SAGE; nobody looked), {how}"
)
STREAMED = "as an ideal viewer streams them"
RECORDED = "recorded in SAGE's viewer in Chromium"


def say(line: str) -> None:
    """Print at once."""
    print(line, flush=True)


def learn(sessions: Path, slides: Path, settings: TrainSettings, model: Path, how: str) -> str:
    """Train on sessions, save the model of all, and tell what was measured on unseen patients.

    Parameters
    ----------
    sessions : folder of them
    slides : folder of the slides that they name
    settings : of the training
    model : folder of the model of all slides
    how : the sessions came about
    """
    examples = read_examples(sessions, slides, settings.thumbnail_px, patient=patient_of_node)
    count = sum(len(visits) for e in examples for visits in e.visits.values())
    patients = len({example.patient for example in examples})
    told = TOLD.format(sessions=count, slides=len(examples), patients=patients, how=how)
    trained = train(examples, settings, told, say)
    save(model, trained.net.state_dict(), trained.card)
    card = trained.card
    head = (
        f"{card.training_data}; {card.folds} patient-grouped folds, {card.epochs} epochs, "
        f"thumbnails of {card.thumbnail_px} px, {card.parameters:,} parameters. Intervals: "
        "patients drawn with replacement."
    )
    return "\n".join(
        [head, "", *guide_table(card.scores), "", "## Against the best baseline", "",
         *difference_table(trained.measured, settings.seed), ""]
    )  # fmt: skip


def later_lines(work: Path, sessions: Path, patients: str, model: Path) -> list[str]:
    """A trained model on sessions over nodes of patients that took part in no training."""
    slides = work / "later"
    first, _, last = patients.partition("-")
    for node in nodes(range(int(first), int(last or first) + 1)):
        painted(node, slides, LEARNED_MPP)
    if not sessions.is_dir():
        return [f"record them: python -m benchmarks.scripted_viewer {slides} --out {sessions}"]
    own = BehaviorModel(model)
    examples = read_examples(sessions, slides, own.card.thumbnail_px, patient=patient_of_node)
    measured = measure(own.net, own.card, examples, 0)
    count = sum(len(visits) for e in examples for visits in e.visits.values())
    return [f"{count} sessions on {len(examples)} nodes of later patients:", "",
            *guide_table(table(measured, 0)), "", *difference_table(measured, 0)]  # fmt: skip


def real_lines(work: Path, real: Path, model: Path, settings: TrainSettings) -> list[str]:
    """The model of simulated nodes against scripted readers of real slides, by image alone.

    Without planted truth, readers go to where nuclei are densest.
    """
    write_streams([(path, None) for path in sorted(real.iterdir())], 2, work / "real-streams")
    own = BehaviorModel(model)
    examples = read_examples(work / "real-streams", real, own.card.thumbnail_px)
    measured = measure(own.net, own.card, examples, settings.seed)
    count = sum(len(visits) for e in examples for visits in e.visits.values())
    return [f"{count} sessions on {len(examples)} real images:", "",
            *guide_table(table(measured, settings.seed)), "",
            *difference_table(measured, settings.seed), ""]  # fmt: skip


def value(score: Score) -> str:
    """A value with its interval."""
    low, high = score.low, score.high
    return f"{score.value:.2f} ({low:.2f} to {high:.2f})"


def guide_table(scores: Sequence[Score]) -> list[str]:
    """Every metric of every guide, behavior by behavior."""
    guides = [MODEL, "tissue density", "cellularity", "center bias", "random", READER]
    lines = ["| behavior | metric | " + " | ".join(guides) + " |", "|---" * (2 + len(guides)) + "|"]
    for behavior in dict.fromkeys(score.behavior for score in scores):
        for metric in METRICS:
            own = {
                score.guide: score
                for score in scores
                if (score.behavior, score.metric) == (behavior, metric)
            }
            cells = [value(own[guide]) if guide in own else "" for guide in guides]
            lines.append(f"| {behavior} | {metric} | " + " | ".join(cells) + " |")
    return lines


def difference_table(measured: Sequence[Measured], seed: int) -> list[str]:
    """The model less the best baseline of each metric, paired by patient."""
    lines = ["| behavior | metric | best baseline | model less baseline (95%) | beaten |",
             "|---|---|---|---|---|"]  # fmt: skip
    for found in differences(measured, seed):
        better = found.high < 0 if found.metric in LOWER_IS_BETTER else found.low > 0
        worse = found.low > 0 if found.metric in LOWER_IS_BETTER else found.high < 0
        verdict = "yes" if better else "worse" if worse else "not shown"
        lines.append(
            f"| {found.behavior} | {found.metric} | {found.baseline} | {found.value:+.2f} "
            f"({found.low:+.2f} to {found.high:+.2f}) | {verdict} |"
        )
    return lines


def o3_table(rows: Sequence[NodeRead]) -> list[str]:
    """The paper's table, with caps, orders and navigation."""
    names = ["precision", "recall", "accuracy", "abstained", "recall, isolated tumor cells",
             "recall, micrometastasis", "recall, macrometastasis", "completeness", "efficiency",
             "regions", "high_power"]  # fmt: skip
    lines = ["| regions by | cap | order | " + " | ".join(names) + " |",
             "|---" * (3 + len(names)) + "|"]  # fmt: skip
    for row in node_table(rows):
        cells = [
            f"{row.values[name][0]:.2f} ({row.values[name][1]:.2f} to {row.values[name][2]:.2f})"
            if name in row.values and np.isfinite(row.values[name][0])
            else ""
            for name in names
        ]
        cap = "" if row.cap is None else str(row.cap)
        lines.append(f"| {row.guide} | {cap} | {row.order} | " + " | ".join(cells) + " |")
    return lines


def judged(work: Path, model: Path, patients: int) -> list[NodeRead]:
    """Pathologist-o3 on nodes of patients that the model has not seen."""
    rows: list[NodeRead] = []
    bank = BehaviorBank(BehaviorModel(model), "the behavior model")
    for node in nodes(JUDGED_ON[:patients]):
        path = painted(node, work / "judged", JUDGED_MPP)
        with Slide.open(path, threads=1) as slide:
            header = header_of(slide, "target-driven", "target-driven-0")
            sessions = [
                stream(looks_of(slide, node, "target-driven", reader), header)
                for reader in range(2)
            ]
        rows += read_node(path, node, bank, sessions, TASK)
        own = [row for row in rows if row.slide == path.name and row.order == "forward"]
        say(f"{path.name} {node.burden}: " + ", ".join(
            f"{row.guide}{'' if row.cap is None else f' {row.cap}'} {row.answer}" for row in own
        ))  # fmt: skip
    return rows


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--work", type=Path, required=True, help="kept between runs")
    parser.add_argument("--recorded", type=Path, help="sessions recorded in the viewer")
    parser.add_argument("--real", type=Path, help="folder of real slides, read by the image alone")
    parser.add_argument("--patients", type=int, default=len(LEARNED_FROM))
    parser.add_argument("--judged", type=int, default=len(JUDGED_ON))
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--thumbnail-px", type=int, default=192)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--ship", type=Path, help="folder of the model of all slides")
    parser.add_argument("--later", type=Path, help="sessions on nodes of later patients")
    parser.add_argument("--later-patients", default="300-304")
    given = parser.parse_args()
    if given.later is not None:
        if given.ship is None:
            parser.error("--later needs --ship, the model to measure")
        say("\n".join(later_lines(given.work, given.later, given.later_patients, given.ship)))
        return
    settings = TrainSettings(epochs=given.epochs, thumbnail_px=given.thumbnail_px)
    slides = given.work / "learned"
    every = nodes(LEARNED_FROM[: given.patients])
    paths = [(painted(node, slides, LEARNED_MPP), node) for node in every]
    sessions, how = given.recorded, RECORDED
    if sessions is None:
        sessions, how = given.work / "streams", STREAMED
        write_streams(paths, 2, sessions)
    say(f"{len(paths)} slides")
    model = given.ship or given.work / "model"
    kept = given.work / "learned.md"
    if not kept.is_file():
        kept.write_text(learn(sessions, slides, settings, model, how), encoding="utf-8")
    page = ["# Behavior of readers: learned, and as a guide", "", kept.read_text(encoding="utf-8")]
    if given.real is not None:
        page += ["## Real slides", "", *real_lines(given.work, given.real, model, settings)]
    rows = judged(given.work, model, given.judged)
    page += ["## Pathologist-o3", "", f"{len({row.slide for row in rows})} nodes of "
             f"{len({row.patient for row in rows})} other patients, computed eyes.", "",
             *o3_table(rows), ""]  # fmt: skip
    text = "\n".join(page)
    say(text)
    if given.out is not None:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
