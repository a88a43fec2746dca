"""Whether behaviors that scripted readers show can be learned, and whether they guide an agent.

Slides are simulated lymph nodes with planted deposits (`benchmarks.simulate.node`), read by
scripted readers of four strategies (`benchmarks.adapters.scripted_readers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.adapters.scripted_readers import (
    STRATEGIES,
    Look,
    Strategy,
    header_of,
    plan,
    scenery_of,
    stream,
)
from benchmarks.simulate.node import Node, plant_node, render_node
from mcp_servers.slides.arrays import F64
from mcp_servers.slides.slide import Slide
from sage.core.models import Strict
from sage.core.seeds import generator
from sage_slide_reading.behavior.baselines import cellularity, tissue_density
from sage_slide_reading.behavior.scores import efficiency, recall_at
from sage_slide_reading.reader.computed import Sight
from sage_slide_reading.reader.guides import BehaviorBank, HeatGuide, RecordedVisits, UnguidedPlaces
from sage_slide_reading.reader.o3 import Guide, WordRouter, o3_scope, read_guided
from sage_slide_reading.reader.open_eyes import computed_eyes
from sage_slide_reading.reader.types import O3Options, Question, Visit
from sage_slide_reading.sessions.actions import actions_of
from sage_slide_reading.sessions.format import SUFFIX, Session, write_session
from validation.statistics.base import FloatArray

QUESTION = Question(text="Is there metastatic tumor in this lymph node?", options=("yes", "no"))
PURPOSE = 27
LEARNED_FROM, LEARNED_MPP = range(100, 115), 1.3
"""Patients whose nodes are read by scripted readers, and µm per pixel: an overview is enough."""
JUDGED_ON, JUDGED_MPP = range(6), 0.65
"""Patients whose nodes Pathologist-o3 is judged on: nuclei can be measured."""


def nodes(patients: Iterable[int], each: int = 2) -> list[Node]:
    """The nodes of patients, `each` of every one; what is planted goes by the seed."""
    return [
        plant_node(patient * each + place, patient)
        for patient in patients
        for place in range(each)
    ]  # fmt: skip


def painted(node: Node, folder: Path, mpp: float) -> Path:
    """The slide of a node, painted once per folder."""
    path = folder / f"{node.name}.tiff"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        render_node(path, node, mpp)
    return path


def patient_of_node(name: str) -> str:
    """The patient that a simulated node's file name tells; other slides are their own."""
    return name[: len("node-p000")] if name.startswith("node-p") else name


def looks_of(slide: Slide, node: Node | None, strategy: Strategy, reader: int) -> list[Look]:
    """What reader number `reader` of a strategy does on a slide.

    Parameters
    ----------
    slide : open
    node : what is planted on it, None for a real slide
    strategy : the reader's
    reader : readers of one strategy differ in hand and chance
    """
    own = node.seed if node is not None else sum(slide.path.name.encode())
    return plan(scenery_of(slide, node), strategy, 1000 * reader + own)


def session_name(slide: Path, strategy: Strategy, reader: int) -> str:
    """File name of a scripted session."""
    return f"{slide.stem}.{strategy}-{reader}{SUFFIX}"


def write_streams(slides: Sequence[tuple[Path, Node | None]], readers: int, folder: Path) -> int:
    """Sessions as an ideal viewer would record them, one file per slide, strategy and reader."""
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    for path, node in slides:
        with Slide.open(path, threads=1) as slide:
            for strategy in STRATEGIES:
                for reader in range(readers):
                    place = folder / session_name(path, strategy, reader)
                    if not place.is_file():
                        looks = looks_of(slide, node, strategy, reader)
                        header = header_of(slide, strategy, f"{strategy}-{reader}")
                        write_session(place, stream(looks, header))
                    written += 1
    return written


# -- Pathologist-o3 on nodes --------------------------------------------------------------------


class NodeRead(Strict):
    """One reading of one node by one guide."""

    guide: str
    cap: int | None
    order: str
    slide: str
    patient: str
    burden: str
    truth: str
    answer: str | None
    regions: int
    high_power: float
    completeness: float | None
    efficiency: float | None


CAPS = (1, 2, 4)


def read_node(
    path: Path,
    node: Node,
    bank: BehaviorBank,
    recorded: Sequence[Session],
    behavior: str,
) -> list[NodeRead]:
    """A node read under every guide; the learned one under every cap and order as well.

    Baselines get as many regions, of the size and bin, that are usual for the behavior.

    Parameters
    ----------
    path : the slide
    node : what was planted
    bank : a model that has not seen the patient
    recorded : sessions of the behavior on this slide, which guide and are compared with
    behavior : the task whose readers are compared with
    """
    card = bank.model.card
    usual = card.behaviors[card.behavior(behavior)]
    share = usual.sides[card.bins.index(usual.usual_bin)]
    count = max(1, round(usual.regions))
    visits = [
        tuple(Visit(x=a.x, y=a.y, w=a.w, h=a.h, score=1.0, bin=a.bin) for a in actions_of(session))
        for session in recorded
    ]
    truth_boxes = [_boxes(own) for own in visits]
    guides: list[Guide] = [
        bank,
        HeatGuide("tissue density", tissue_density, share, usual.usual_bin, count),
        HeatGuide("cellularity", cellularity, share, usual.usual_bin, count),
        UnguidedPlaces(node.seed, share, usual.usual_bin, count),
    ]
    if visits:
        guides.append(RecordedVisits(visits[0]))
    out: list[NodeRead] = []
    with Slide.open(path, threads=1) as slide:
        for guide in guides:
            runs = [O3Options(seed=node.seed)]
            if guide is bank:
                runs += [O3Options(most=cap) for cap in CAPS]
                runs += [O3Options(order="reverse"), O3Options(order="random", seed=node.seed)]
            cells: dict[str, FloatArray] = {}
            tables: dict[tuple[str, float], FloatArray] = {}
            for options in runs:
                reading = read_guided(
                    o3_scope(slide), computed_eyes(Sight(cells, tables)), guide, WordRouter(),
                    QUESTION, options,
                )  # fmt: skip
                assert reading.guidance is not None
                boxes = _boxes(reading.guidance.visits)
                others = truth_boxes[1:] if isinstance(guide, RecordedVisits) else truth_boxes
                shown = [own for own in others if len(own)]
                out.append(
                    NodeRead(
                        guide=_guide_name(guide, bank),
                        cap=options.most,
                        order=options.order,
                        slide=path.name,
                        patient=patient_of_node(path.name),
                        burden=node.burden,
                        truth="no" if node.burden == "none" else "yes",
                        answer=reading.answer,
                        regions=len(reading.guidance.visits),
                        high_power=reading.read.high_power_share,
                        completeness=_mean([recall_at(boxes, own, len(boxes)) for own in shown]),
                        efficiency=_mean([efficiency(boxes, own) for own in shown]),
                    )
                )
    return out


def _guide_name(guide: Guide, bank: BehaviorBank) -> str:
    return "learned behavior" if guide is bank else guide.name


def _boxes(visits: Sequence[Visit]) -> F64:
    return np.array([(v.x, v.y, v.w, v.h) for v in visits], dtype=np.float64).reshape(-1, 4)


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


class NodeRow(Strict):
    """One guide over all nodes, with 95% intervals over patients; an abstention is not right."""

    guide: str
    cap: int | None
    order: str
    nodes: int
    values: dict[str, tuple[float, float, float]]


def diagnostic(rows: Sequence[NodeRead]) -> dict[str, float]:
    """Precision, recall and accuracy as the paper's table, recall by burden, and navigation."""
    said = [row for row in rows if row.answer == "yes"]
    sick = [row for row in rows if row.truth == "yes"]
    right = [row for row in rows if row.answer == row.truth]
    nan = float("nan")

    def share(part: int, of: int) -> float:
        return part / of if of else nan

    found = {
        "precision": share(sum(row.truth == "yes" for row in said), len(said)),
        "recall": share(sum(row.answer == "yes" for row in sick), len(sick)),
        "accuracy": share(len(right), len(rows)),
        "abstained": share(sum(row.answer is None for row in rows), len(rows)),
    }
    for burden in sorted({row.burden for row in sick}):
        own = [row for row in sick if row.burden == burden]
        found[f"recall, {burden}"] = share(sum(row.answer == "yes" for row in own), len(own))
    for name in ("completeness", "efficiency", "regions", "high_power"):
        values = [value for row in rows if (value := getattr(row, name)) is not None]
        found[name] = float(np.mean(values)) if values else nan
    return found


def node_table(rows: Sequence[NodeRead], *, seed: int = 1, draws: int = 1000) -> list[NodeRow]:
    """`diagnostic` by guide, cap and order."""
    groups: dict[tuple[str, int | None, str], list[NodeRead]] = {}
    for row in rows:
        groups.setdefault((row.guide, row.cap, row.order), []).append(row)
    out = []
    for (guide, cap, order), own in groups.items():
        values = diagnostic(own)
        patients = sorted({row.patient for row in own})
        by_patient = {patient: [r for r in own if r.patient == patient] for patient in patients}
        picks = generator(seed, PURPOSE).integers(len(patients), size=(draws, len(patients)))
        drawn = [
            diagnostic([row for place in pick for row in by_patient[patients[place]]])
            for pick in picks
        ]
        bounds = {
            name: np.nanpercentile([one.get(name, np.nan) for one in drawn], (2.5, 97.5)).tolist()
            for name in values
        }
        out.append(
            NodeRow(
                guide=guide, cap=cap, order=order, nodes=len(own),
                values={name: (value, *bounds[name]) for name, value in values.items()},
            )
        )  # fmt: skip
    return out
