"""Training of a behavior model, and its scores on held-out patients."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from mcp_servers.slides.arrays import F64, U8
from sage.core.errors import InputError
from sage.core.models import Strict
from sage.core.printable import count_noun
from sage.core.seeds import generator
from sage_slide_reading.behavior import baselines
from sage_slide_reading.behavior.examples import Example, Visits
from sage_slide_reading.behavior.model import (
    Behavior,
    BehaviorCard,
    Score,
    prepare_thumbnail,
    propose,
)
from sage_slide_reading.behavior.scores import (
    MAP_IOUS,
    hits,
    pooled_precision,
    share_found,
)
from sage_slide_reading.sessions.actions import boxes_of

PURPOSE = 24
MODEL = "model"
EXTRA = 3
"""Number of proposals per expected region for computing average precision."""


class TrainSettings(Strict):
    """Training settings; the paper uses a larger network, learning rate 1e-4, and batch size 32."""

    thumbnail_px: int = Field(
        default=192, ge=64, le=2048, description="Longer side of the thumbnail, in pixels"
    )
    epochs: int = Field(default=100, ge=1, le=10_000)
    batch: int = Field(default=2, ge=1, le=256)
    learning_rate: float = Field(default=2e-3, gt=0, le=1)
    folds: int = Field(
        default=5,
        ge=0,
        le=50,
        description="Number of folds, split by patient; 0 skips the measurement",
    )
    seed: int = Field(default=0, ge=0, lt=2**32)
    widths: tuple[int, int, int, int] = (16, 32, 48, 64)


@dataclass(frozen=True)
class Measured:
    """A guide's scores against a recorded session on a slide.

    `ranked` has the score of each proposal, and whether it is correct at each mAP threshold.
    """

    guide: str
    behavior: str
    patient: str
    slide: str
    completeness: float
    efficiency: float
    ranked: tuple[tuple[float, tuple[bool, ...]], ...]
    regions: int


@dataclass(frozen=True)
class Trained:
    """A network with its card and its scores on each slide."""

    net: Any
    card: BehaviorCard
    measured: tuple[Measured, ...] = ()


def bank_of(examples: Sequence[Example], bins: tuple[float, ...]) -> tuple[Behavior, ...]:
    """Return the behaviors in the sessions, with their usual number and size of regions."""
    tasks = sorted({task for example in examples for task in example.visits})
    every = [
        action.h / example.size[1]
        for example in examples
        for sessions in example.visits.values()
        for visits in sessions
        for action in visits
    ]
    bank = []
    for task in tasks:
        own = [(e, visits) for e in examples for visits in e.visits.get(task, ())]
        sides = []
        for bin_ in bins:
            heights = [a.h / e.size[1] for e, visits in own for a in visits if a.bin == bin_]
            sides.append(round(float(np.median(heights or every)), 5))
        bank.append(
            Behavior(
                task=task,
                sessions=len(own),
                slides=len({example.slide for example, _ in own}),
                regions=round(float(np.mean([len(visits) for _, visits in own])), 3),
                sides=tuple(sides),
                usual_bin=Counter(a.bin for _, visits in own for a in visits).most_common(1)[0][0],
            )
        )
    return tuple(bank)


def card_of(examples: Sequence[Example], settings: TrainSettings, source: str) -> BehaviorCard:
    """Build the card for a model to be trained on these examples.

    Raises `InputError` if the recordings contain nothing that a model could learn.
    """
    if not examples:
        raise InputError("the sessions contain no regions with stays, pans or peeks")
    every = [a for e in examples for s in e.visits.values() for visits in s for a in visits]
    bins = tuple(sorted(bin_ for bin_, _ in Counter(a.bin for a in every).most_common(8)))
    digest = hashlib.sha256()
    for example in examples:
        digest.update(example.slide.encode() + example.thumbnail.tobytes())
        for task in sorted(example.visits):
            for visits in example.visits[task]:
                digest.update("".join(a.model_dump_json() for a in visits).encode())
    return BehaviorCard(
        behaviors=bank_of(examples, bins),
        bins=bins,
        widths=settings.widths,
        thumbnail_px=settings.thumbnail_px,
        seed=settings.seed,
        epochs=settings.epochs,
        slides=len(examples),
        patients=len({example.patient for example in examples}),
        data_sha256=digest.hexdigest(),
        parameters=1,
        folds=0,
        training_data=source,
    )


def goal_of(example: Example, visits: Visits, bins: tuple[float, ...]) -> F64:
    """Build (n, 6) targets: box in thumbnail pixels, bin index, and order from 0 to 1."""
    scale = example.thumbnail.shape[1] / example.size[0]
    known = [action for action in visits if action.bin in bins]
    last = max(1, len(known) - 1)
    return np.array(
        [
            (a.x * scale, a.y * scale, a.w * scale, a.h * scale, bins.index(a.bin), place / last)
            for place, a in enumerate(known)
        ],
        dtype=np.float64,
    ).reshape(-1, 6)


def fit(
    examples: Sequence[Example],
    card: BehaviorCard,
    settings: TrainSettings,
    report: Callable[[str], None],
) -> tuple[Any, int]:
    """Train a network; return it in evaluation mode with its number of parameters.

    Some images are replaced with mirrored and recolored copies. If a slide has several
    sessions with a behavior, each draw picks a session at random.
    """
    import torch

    from sage_slide_reading.behavior.network import INPUTS, RegionNet, loss

    rng = generator(settings.seed, PURPOSE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        net = RegionNet(len(card.behaviors), len(card.bins), settings.widths)
    steps = settings.epochs * -(-len(examples) // settings.batch)
    optimizer = torch.optim.Adam(net.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, settings.learning_rate, total_steps=max(2, steps), pct_start=0.15
    )
    net.train()
    inputs = {e.slide: torch.from_numpy(prepare_thumbnail(e.thumbnail)) for e in examples}
    # the network is fully convolutional, but images in a batch have the same size
    tall = max(image.shape[1] for image in inputs.values())
    wide = max(image.shape[2] for image in inputs.values())
    for epoch in range(settings.epochs):
        order = rng.permutation(len(examples)).tolist()
        lost = 0.0
        for first in range(0, len(order), settings.batch):
            chosen = [examples[place] for place in order[first : first + settings.batch]]
            images = torch.ones(len(chosen), INPUTS, tall, wide)
            goals, ordered = [], []
            for number, example in enumerate(chosen):
                shown, own, mirrored = _draw_copy(example, inputs[example.slide], card, rng)
                images[number, :, : shown.shape[1], : shown.shape[2]] = shown
                goals.append(own)
                ordered.append(not mirrored)
            height = float(np.mean([example.thumbnail.shape[0] for example in chosen]))
            usual = torch.tensor([b.sides for b in card.behaviors]) * height
            total = loss(net(images), usual, goals, ordered)
            optimizer.zero_grad()
            total.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            lost += float(total.detach()) * len(chosen)
        if epoch == 0 or epoch % 10 == 9 or epoch + 1 == settings.epochs:
            report(f"epoch {epoch + 1} of {settings.epochs}: loss {lost / len(examples):.3f}")
    return net.eval(), sum(parameter.numel() for parameter in net.parameters())


def _draw_copy(
    example: Example, image: Any, card: BehaviorCard, rng: np.random.Generator
) -> tuple[Any, list[Any], bool]:
    """Return a copy of an input (7, H, W), its targets by behavior, and whether it is mirrored."""
    import torch

    mirror = rng.uniform(size=2) < 0.5
    goals: list[torch.Tensor | None] = []
    for behavior in card.behaviors:
        sessions = example.visits.get(behavior.task)
        if not sessions:
            goals.append(None)
            continue
        goal = goal_of(example, sessions[int(rng.integers(len(sessions)))], card.bins)
        for axis in np.flatnonzero(mirror):
            goal[:, axis] = image.shape[2 - axis] - goal[:, axis] - goal[:, axis + 2]
        goals.append(torch.from_numpy(goal.astype(np.float32)))
    shown = image.clone()
    gain = torch.from_numpy(rng.lognormal(0.0, 0.15, 3).astype(np.float32))
    shown[:3] = shown[:3].clamp(min=0.02) ** gain[:, None, None]
    for axis in np.flatnonzero(mirror):
        shown = shown.flip(2 - int(axis))
        shown[3 + axis] = 1.0 - shown[3 + axis]
    return shown, goals, bool(mirror.any())


def train(
    examples: Sequence[Example],
    settings: TrainSettings,
    source: str,
    report: Callable[[str], None] = lambda _: None,
) -> Trained:
    """Evaluate with patient-grouped folds, then train on everything; `source` is for the card.

    Raises `InputError` if there are fewer patients than folds, or there is nothing to learn from.
    """
    card = card_of(examples, settings, source)
    measured: list[Measured] = []
    groups = split_patients(examples, settings.folds, settings.seed) if settings.folds else []
    for fold, held in enumerate(groups):
        rest = [example for example in examples if example.patient not in held]
        unseen = [example for example in examples if example.patient in held]
        own = card.model_copy(update={"behaviors": bank_of(rest, card.bins)})
        report(f"fold {fold + 1} of {settings.folds}: {len(rest)} slides, {len(unseen)} unseen")
        net, _ = fit(rest, own, settings, report)
        measured += measure(net, own, unseen)
    report(f"all: {count_noun(len(examples), 'slide')}")
    net, parameters = fit(examples, card, settings, report)
    scores = tuple(table(measured, settings.seed))
    card = card.model_copy(
        update={"parameters": parameters, "folds": settings.folds, "scores": scores}
    )
    return Trained(net, card, tuple(measured))


def split_patients(examples: Sequence[Example], folds: int, seed: int) -> list[set[str]]:
    """Assign patients to folds so that every behavior has sessions outside each fold.

    Raises `InputError` if there are too few patients.
    """
    patients = sorted({example.patient for example in examples})
    if not 2 <= folds <= len(patients):
        raise InputError(
            f"{folds} folds require at least {max(2, folds)} patients, but there are only "
            f"{len(patients)}; use fewer --folds, or 0 to skip the evaluation"
        )
    order = generator(seed, PURPOSE, 1).permutation(len(patients))
    groups = [{patients[place] for place in order[fold::folds]} for fold in range(folds)]
    for task in sorted({task for example in examples for task in example.visits}):
        shown = {example.patient for example in examples if example.visits.get(task)}
        if any(shown <= group for group in groups):
            raise InputError(
                f'"{task}" was recorded on slides from too few patients ({len(shown)}) for the '
                "folds; record more sessions, or use --folds 0"
            )
    return groups


# -- measuring --------------------------------------------------------------------------------


def measure(net: Any, card: BehaviorCard, examples: Sequence[Example]) -> list[Measured]:
    """Score the network and both baselines on slides unseen in training, session by session.

    Each baseline proposes the behavior's usual number of boxes, with the usual size and bin,
    at its map's peaks, highest first.
    """
    out: list[Measured] = []
    for example in examples:
        heats = {name: heat(example.thumbnail) for name, heat in GUIDES.items()}
        for place, behavior in enumerate(card.behaviors):
            count = max(1, round(behavior.regions))
            most = EXTRA * count
            own = propose(net, card, example.thumbnail, example.size, place, most)
            guides = {MODEL: (boxes_of(own), np.array([region.score for region in own]))}
            side = behavior.sides[card.bins.index(behavior.usual_bin)] * example.thumbnail.shape[0]
            scale = example.size[0] / example.thumbnail.shape[1]
            for name, heat in heats.items():
                boxes, values = baselines.peaks(heat, (side, side), most)
                guides[name] = boxes * scale, values
            out += [
                _measure_guide(name, behavior.task, example, boxes, scores, visits, count)
                for visits in example.visits.get(behavior.task, [])
                for name, (boxes, scores) in guides.items()
            ]
    return out


GUIDES: dict[str, Callable[[U8], F64]] = {
    "cellularity": baselines.cellularity,
    "center bias": baselines.center_bias,
}


def _measure_guide(
    guide: str, behavior: str, example: Example, boxes: F64, scores: F64, visits: Visits, count: int
) -> Measured:
    truth, first = boxes_of(visits), boxes[:count]
    right = [hits(boxes, scores, truth, iou) for iou in MAP_IOUS]
    return Measured(
        guide=guide,
        behavior=behavior,
        patient=example.patient,
        slide=example.slide,
        completeness=share_found(truth, first),
        efficiency=share_found(first, truth) if len(first) else 0.0,
        ranked=tuple(
            (entry[0], tuple(at[place][1] for at in right)) for place, entry in enumerate(right[0])
        ),
        regions=len(truth),
    )


def mean_precision(rows: Sequence[Measured]) -> float:
    """Compute mAP: average precision pooled over sessions, averaged over `MAP_IOUS`."""
    total = sum(row.regions for row in rows)
    return float(
        np.mean([
            pooled_precision([(s, right[k]) for r in rows for s, right in r.ranked], total)
            for k in range(len(MAP_IOUS))
        ])
    )  # fmt: skip


METRICS: dict[str, Callable[[Sequence[Measured]], float]] = {
    "mAP": mean_precision,
    "completeness": lambda rows: float(np.mean([row.completeness for row in rows])),
    "efficiency": lambda rows: float(np.mean([row.efficiency for row in rows])),
}


def table(measured: Sequence[Measured], seed: int, draws: int = 200) -> list[Score]:
    """Compute every metric by behavior and guide, with 95% intervals by resampling patients."""
    groups: dict[tuple[str, str], dict[str, list[Measured]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in measured:
        groups[row.behavior, row.guide][row.patient].append(row)
    out = []
    for (behavior, guide), patients in groups.items():
        every = [patients[name] for name in sorted(patients)]
        picks = generator(seed, PURPOSE, 2).integers(len(every), size=(draws, len(every)))
        samples = [[row for place in pick for row in every[place]] for pick in picks]
        for metric, value_of in METRICS.items():
            low, high = np.percentile([value_of(rows) for rows in samples], (2.5, 97.5)).tolist()
            value = value_of([row for rows in every for row in rows])
            out.append(
                Score(behavior=behavior, guide=guide, metric=metric, value=round(value, 4),
                      low=round(low, 4), high=round(high, 4))
            )  # fmt: skip
    return out


def describe_sessions(sessions: Path, examples: Sequence[Example]) -> str:
    """Describe the training data in one sentence for the card."""
    count = sum(len(visits) for e in examples for visits in e.visits.values())
    return f"{count} recorded sessions of {sessions.name} on {len(examples)} slides"
