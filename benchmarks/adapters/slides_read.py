"""Slide reading: questions about painted slides with planted truth, and about real images.

A slide is painted with a tumor focus, up to two lymphoid aggregates, possibly a necrosis,
and mitoses in the tumor; eight questions are asked about it. Readers are scored on slides
from seeds not used to set their thresholds (`DEVELOPED_ON`). Answers on real images were
judged by eye (`slide_reading_real.json`, seen while thresholds were chosen;
`slide_reading_held_out.json`).
"""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.runner import Report, Row, bootstrap, percent, run_missing, share
from benchmarks.simulate.scenes import Scene, render_scene
from mcp_servers.slides.slide import Slide
from sage.core.models import Strict
from sage.core.seeds import generator
from sage_slide_reading.reader.algorithm import read_slide
from sage_slide_reading.reader.eyes import Eyes, computed_eyes
from sage_slide_reading.reader.rules import RulesExecutor
from sage_slide_reading.reader.scope import Scope
from sage_slide_reading.reader.types import Options, Prediction, Question, Reflection, Region, State

DEVELOPED_ON = range(8)
"""Seeds used to choose thresholds."""
REPORTED_ON = range(100, 126)
"""Seeds first used for the report."""
SIZE_PX = (4096, 3072)
MPP = 0.5
OPTIONS = Options(patch_px=128)
"""Patches of 256 µm: the painted slides are small, 2.0 x 1.5 mm."""
FIELD_UM = 250.0
QUADRANTS = ("upper left", "upper right", "lower left", "lower right")
FIVE = (*QUADRANTS, "center")
SIDES = ("left", "right", "upper", "lower")
HERE = Path(__file__).resolve().parent
COUNTS = ("0", "1 to 3", "4 to 7", "8 or more")


class Asked(Strict):
    """A question with its truth."""

    kind: str
    question: Question
    truth: str


@dataclass(frozen=True)
class Planted:
    """A painted scene with its questions."""

    seed: int
    scene: Scene
    scattered_per_mm2: float
    aggregates: list[tuple[float, float, float]]
    questions: tuple[Asked, ...]


def plant(seed: int) -> Planted:
    """Paint a scene with eight questions from its seed.

    The tissue is a centered ellipse with semi-axes of about 0.95 x 0.71 mm.
    """
    rng = generator(seed, 20)
    width, height = SIZE_PX[0] * MPP, SIZE_PX[1] * MPP
    middle = np.array([width / 2, height / 2])
    half = 0.93 * middle
    ways = {"upper left": (-1, -1), "upper right": (1, -1), "lower left": (-1, 1),
            "lower right": (1, 1), "center": (0, 0)}  # fmt: skip
    tumor_at = str(rng.choice(FIVE))
    at_margin = tumor_at != "center" and bool(rng.random() < 0.5)
    radius = float(rng.uniform(150, 210))
    way = np.array(ways[tumor_at], dtype=float)
    reach = 0.80 if at_margin else 0.50
    tumor = middle + way / max(float(np.hypot(*way)), 1.0) * half * reach
    if tumor_at == "center":
        tumor = middle + rng.uniform(-40, 40, 2)
    taken = [(tumor, radius)]

    def free(where: str, size: float) -> Any:
        """Find a free position in a quadrant or half, or return None after 300 attempts."""
        for _ in range(300):
            point = middle + rng.uniform(-0.7, 0.7, 2) * half
            offset = (point - middle) / half
            if float(np.hypot(*offset)) > 0.70:
                continue
            if where in ways:
                inside = bool((offset * np.array(ways[where]) > 0.22).all())
            else:
                axis, sign = {"left": (0, -1), "right": (0, 1), "upper": (1, -1),
                              "lower": (1, 1)}[where]  # fmt: skip
                inside = offset[axis] * sign > 0.3 and abs(offset[axis]) > 1.3 * abs(
                    offset[1 - axis]
                )
            clear = all(float(np.hypot(*(point - p))) > size + r + 60 for p, r in taken)
            if inside and clear:
                taken.append((point, size))
                return point
        return None

    necrosis_at: str = str(rng.choice((*SIDES, "none")))
    necrosis = []
    if necrosis_at != "none":
        size = float(rng.uniform(110, 160))
        point = free(necrosis_at, size)
        if point is None:
            necrosis_at = "none"
        else:
            necrosis.append((float(point[0]), float(point[1]), size))
    tls_at = str(rng.choice((*QUADRANTS, "none")))
    aggregates = []
    if tls_at != "none":
        for _ in range(int(rng.integers(1, 3))):
            size = float(rng.uniform(70, 120))
            point = free(tls_at, size)
            if point is not None:
                aggregates.append((float(point[0]), float(point[1]), size))
        if not aggregates:
            tls_at = "none"
    count = int(
        rng.choice([0, int(rng.integers(1, 4)), int(rng.integers(4, 8)), int(rng.integers(8, 14))])
    )
    mitoses = _mitoses(tumor, middle, radius, count, rng)
    bin_ = COUNTS[0 if count == 0 else 1 if count <= 3 else 2 if count <= 7 else 3]
    yes, no = "yes", "no"
    margin_at = tumor_at if at_margin else "none"
    questions = (
        _ask("tumor: which of five", "Which of the five regions holds the tumor?", FIVE,
               tumor_at),
        _ask("TLS: where", "Are there tertiary lymphoid structures (TLS), and where?",
               (*QUADRANTS, "none"), tls_at),
        _ask("TLS: present", "Is there any TLS-like lymphoid aggregate on this slide?", (yes, no),
               yes if aggregates else no),
        _ask("mitoses: count", "How many mitosis-like figures are there in the hottest field of "
               f"{FIELD_UM:.0f} µm?", COUNTS, bin_),
        _ask("necrosis: side", "Which side is necrotic?", (*SIDES, "none"), necrosis_at),
        _ask("necrosis: present", "Does the tissue show necrosis?", (yes, no),
               yes if necrosis else no),
        _ask("margin: where", "Where does tumor reach the tissue margin, if anywhere?",
               (*QUADRANTS, "none"), margin_at),
        _ask("margin: involved", "Is the margin involved by tumor?", (yes, no),
               yes if at_margin else no),
    )  # fmt: skip
    spots = ((float(tumor[0]), float(tumor[1]), radius),)
    scattered = float(rng.uniform(60.0, 450.0))
    return Planted(seed, Scene(spots, tuple(necrosis), mitoses), scattered, aggregates, questions)


def _mitoses(
    tumor: Any, middle: Any, radius: float, count: int, rng: np.random.Generator
) -> tuple[tuple[float, float], ...]:
    """Place mitotic figures at least 22 µm apart inside the tumor."""
    inward = middle - tumor
    length = float(np.hypot(*inward))
    center = tumor + (inward / length * 0.35 * radius if length > 1 else 0)
    found: list[tuple[float, float]] = []
    while len(found) < count:
        x, y = (center + rng.uniform(-0.45, 0.45, 2) * min(radius, 170)).tolist()
        if all(math.hypot(x - a, y - b) > 22 for a, b in found):
            found.append((x, y))
    return tuple(found)


def _ask(kind: str, text: str, options: Sequence[str], truth: str) -> Asked:
    return Asked(kind=kind, question=Question(text=text, options=tuple(options)), truth=truth)


class _Satisfied(RulesExecutor):
    """Executor for which the first look always suffices."""

    def reflect(self, scope: Scope, state: State, prediction: Prediction) -> Reflection:
        return Reflection(sufficient="Yes")


class _Random:
    """Navigator that draws patches at random, from which nothing follows about the others."""

    name, screens = "random", False

    def __init__(self, seed: int) -> None:
        self.seed, self.looks = seed, 0

    def relevance(
        self, scope: Scope, regions: Sequence[Region], question: Question, query: str
    ) -> list[float]:
        order = generator(self.seed, self.looks, len(regions)).permutation(len(regions))
        self.looks += 1
        return [float(-place) for place in np.argsort(order)]


READERS: dict[str, Callable[[Eyes, int], Eyes]] = {
    "computed": lambda eyes, seed: eyes,
    "one look": lambda eyes, seed: replace(eyes, executor=_Satisfied()),
    "random": lambda eyes, seed: replace(eyes, navigator=_Random(seed)),
}
"""The default reader, and two ablations, with a seed for each question."""


class Answered(Strict):
    """A reader's answer."""

    reader: str
    seed: int
    kind: str
    truth: str
    answer: str | None
    right: bool
    regions: int
    high_power: float


def paint(seed: int, folder: Path) -> Path:
    """Paint the slide for a seed once per folder."""
    path = folder / f"reading-{seed}.tiff"
    if not path.is_file():
        planted = plant(seed)
        render_scene(
            path, seed=seed, size_px=SIZE_PX, mpp=MPP, aggregates=planted.aggregates,
            scattered_per_mm2=planted.scattered_per_mm2, scene=planted.scene,
        )  # fmt: skip
    return path


def ask_slide(seed: int, folder: Path) -> list[Answered]:
    """Ask every reader every question about a painted slide."""
    out = []
    with Slide.open(paint(seed, folder), threads=1) as slide:
        for name, ablate in READERS.items():
            for place, asked in enumerate(plant(seed).questions):
                eyes = ablate(computed_eyes(), seed * 100 + place)
                reading = read_slide(Scope(slide, OPTIONS), eyes, asked.question, OPTIONS)
                out.append(Answered(
                    reader=name, seed=seed, kind=asked.kind, truth=asked.truth,
                    answer=reading.answer, right=reading.answer == asked.truth,
                    regions=reading.read.regions, high_power=reading.read.high_power_share,
                ))  # fmt: skip
    return out


def ask_images(judged: Path, folder: Path) -> list[dict[str, Any]]:
    """Answer every question in a file of judgments on real images."""
    out = []
    for item in json.loads(judged.read_text(encoding="utf-8"))["questions"]:
        with Slide.open(folder / "histology" / item["file"], mpp=item["mpp"]) as slide:
            question = Question(text=item["question"], options=tuple(item["options"]))
            reading = read_slide(Scope(slide, OPTIONS), computed_eyes(), question, OPTIONS)
        right = reading.answer == item["truth"]
        out.append(item | {"answer": reading.answer, "right": right})
    return out


def summarize(answers: Sequence[Answered]) -> list[Row]:
    """Compute accuracy by reader and kind, with intervals from resampled slides."""
    groups: dict[tuple[str, str], list[Answered]] = defaultdict(list)
    truths: dict[str, list[str]] = defaultdict(list)
    for answer in answers:
        groups[answer.reader, "all"].append(answer)
        groups[answer.reader, answer.kind].append(answer)
        truths[answer.kind].append(answer.truth)
    commonest = {kind: Counter(own).most_common(1)[0][1] / len(own) for kind, own in truths.items()}
    rows = []
    for (reader, kind), own in groups.items():
        slides = sorted({answer.seed for answer in own})
        right = np.array([sum(a.right for a in own if a.seed == s) for s in slides], dtype=float)
        asked = np.array([sum(a.seed == s for a in own) for s in slides], dtype=float)
        interval = bootstrap(slides, lambda at, r=right, n=asked: float(r[at].sum() / n[at].sum()))
        guessing = float(np.mean([commonest[answer.kind] for answer in own]))
        rows.append(Row(
            benchmark=f"Slide reading, {reader}, {kind}",
            measured=f"{len(own)} questions on {len(slides)} painted slides",
            baseline=f"{guessing:.0%} (commonest truth)",
            sage=percent(float(right.sum() / asked.sum()), interval),
            cost=f"{np.mean([a.regions for a in own]):.1f} regions,"
            f" {np.mean([a.high_power for a in own]):.1%} at high power",
            notes=(f"abstained {sum(a.answer is None for a in own) / len(own):.0%}.",)
            if kind == "all" else (),
        ))  # fmt: skip
    return rows


class _Slide(Strict):
    seed: int
    answers: tuple[Answered, ...]


def _ask_seed(seed: int) -> _Slide:
    with tempfile.TemporaryDirectory() as folder:
        return _Slide(seed=seed, answers=tuple(ask_slide(seed, Path(folder))))


def run(
    seeds: Annotated[str, typer.Option(help="First and last seed of painted slides.")] = "100-125",
    shared: Annotated[Path | None, typer.Option(help="Folder with histology/.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    keep: Annotated[Path | None, typer.Option(help="Results so far, to resume.")] = None,
) -> Report:
    """Ask the slide readers about painted slides and about real images."""
    first, _, last = seeds.partition("-")
    slides = run_missing(
        _ask_seed,
        range(int(first), int(last or first) + 1),
        _Slide,
        lambda slide: slide.seed,
        keep=keep,
        jobs=jobs,
        title="slides",
    )
    rows = summarize([answer for slide in slides for answer in slide.answers])
    for name in ("real", "held_out") if shared is not None else ():
        found = ask_images(HERE.with_name(f"slide_reading_{name}.json"), shared or HERE)
        groups: dict[str, list[str]] = defaultdict(list)
        for item in found:
            groups[item["question"]].append(item["truth"])
        guessed = sum(Counter(truths).most_common(1)[0][1] for truths in groups.values())
        rows.append(Row(
            benchmark=f"Slide reading, real images, {name}", measured=f"{len(found)} questions",
            baseline=f"{share(guessed, len(found))} (commonest truth)",
            sage=share(sum(item["right"] for item in found), len(found)),
        ))  # fmt: skip
    return Report(rows=tuple(rows))
