"""The twins as questions: put to the code-acting agent, its answer.json held to the planted truth.

Twins that cannot be solved without the user's weights, or whose columns tell what was planted, have
no question here and are not asked.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.adapters.slidequest import Row, read_answer
from benchmarks.adapters.slidequest_run import ANSWER, Prepared, record_of
from benchmarks.adapters.slidequest_twins.programs import TWINS
from benchmarks.adapters.slidequest_twins.scoring import VARIANTS, Solved, data_of, held_to
from benchmarks.adapters.slidequest_twins.twin import Twin
from sage.core.errors import InputError

OUTPUT = "Write answer.json into /output: a list with one object that has {names}."
"""As SlideQuest's questions end. The names are those of the truth."""

_FIELD = (
    "images/field.png is a field of an H&E slide at 0.5 µm per pixel. How many nuclei are in it?"
)

QUESTIONS: dict[str, str] = {
    "WSI metadata retrieval": "How wide and how high is slide.tiff in level-0 pixels, how many µm"
    " wide is such a pixel, and how many levels does the file hold?",
    "WSI reading": "where.json gives a square of slide.tiff in level-0 pixels: its upper left"
    " corner (x, y) and its side. What are the mean red, green and blue (0 to 255) within it?",
    "WSI patching": "How many tiles of 256 by 256 pixels at 0.5 µm per pixel, side by side, cover"
    " the tissue of slide.tiff, and how large is the tissue in mm²?",
    "tissue segmentation": "How large is the tissue of slide.tiff in mm²?",
    "image reading": "Which of a.png, b.png and c.png is the darkest by its mean over all pixels"
    " and channels (a, b or c), what is that mean, and how many pixels high is that image?",
    "CSV reading": "table.csv has a row per patient. How many patients of stage II are older than"
    " 60, and what is the mean of their area?",
    "summary statistics": "What are mean, standard deviation (n - 1) and median of the column area"
    " of table.csv, and which stage is the most common?",
    "embeddings reading": "slide.h5 holds the embeddings of a slide's patches. How many patches are"
    " there, and what is the mean Euclidean norm of an embedding?",
    "texture analysis": "texture.png has eight gray levels, 32 apart. Number them 0 to 7: what is"
    " the contrast of the co-occurrence matrix of horizontal neighbors, one pixel apart?",
    "image filtering": "noisy.png shows dark discs on a light ground under salt-and-pepper noise."
    " How many discs are there?",
    "stain estimation": "he.png is stained with two dyes, hematoxylin and eosin. Estimate the"
    " vector of hematoxylin from the image: its optical density in red, green and blue, of unit"
    " length.",
    "morphometry": "contour.json is a closed contour as a list of points [x, y]. What are its area"
    " and its perimeter?",
    "spatial calibration": "square.json gives the side of a square region of slide.tiff in level-0"
    " pixels (side_px). What is its area in µm², and how many level-0 pixels wide is the field that"
    " one reads to have 512 pixels at 10x (1.0 µm per pixel)?",
    "scalar calculation": "A square on slide.tiff is side_px (square.json) level-0 pixels wide."
    " Calculate its area in µm², and how many level-0 pixels are as wide as 512 pixels at 10x (1.0"
    " µm per pixel).",
    "distance computation": "cells.csv gives the place and type of cells. What is the mean distance"
    " of a tumor cell to its nearest lymphocyte?",
    "statistical analysis": "groups.csv gives area, solidity and density of two groups, wt and mut."
    " Which of the three differs between the groups?",
    "cross-validation": "features.csv has features f0 to f5 and a label. What is the mean accuracy"
    " of a classifier of the label from all six, in cross-validation with five folds?",
    "supervised learning": "features.csv has features f0 to f5, a label and a part. Train a"
    " classifier of the label on the rows of the part train: what is its accuracy on the part"
    " test?",
    "model evaluation": "scores.csv gives labels (0, 1) and a model's scores. What is the area"
    " under the ROC curve?",
    "multiple-instance learning": "features/ holds an H5 file of patch features per slide, and"
    " labels.csv the status of each. Train a multiple-instance model that predicts the status,"
    " with three folds: what is its mean AUC on the slides held out?",
    "nuclei segmentation": f"{_FIELD} Segment them.",
    "nuclei detection": f"{_FIELD} Detect them.",
    "artefact segmentation": "pen.png shows tissue with a stroke of blue pen. How many pixels are"
    " covered by the pen?",
    "patch embedding": "images/ holds 16 patches of two kinds of tissue, and known.csv names the"
    " kind of i00. Embed the patches: how many are of the kind of i00, itself included?",
    "few-shot learning": "images/ holds 16 patches of two kinds, dense and sparse, and known.csv"
    " the kind of a few. How many of the 16 are dense?",
    "WSI embedding": "Two of the slides s0, s1 and s2 show the same kind of tissue. Embed the"
    " slides: which is the odd one (s0, s1 or s2)?",
    "survival modelling": "survival.csv gives days of follow-up, whether the event came, and an"
    " exposure. What is the hazard ratio of the exposed?",
    "clustering": "points.csv holds points of three groups. How many points are in the smallest and"
    " in the largest group?",
    "problem solving": "One of i1.png to i5.png is i0.png, turned by a multiple of 90 degrees."
    " Which (i1 to i5)?",
}
"""By capability. None names a tool or a method that SlideQuest's questions would not name."""


@dataclass(frozen=True)
class Posed:
    """A variant of a twin, put as a question; the truth stays here."""

    twin: Twin
    variant: int
    truth: Row
    question: Prepared


class Answered(Solved):
    """How the agent did on one variant: `failed_steps` ended with an error or were refused."""

    repeat: int
    outcome: str
    model: str | None
    steps: int
    failed_steps: int
    tokens: int
    usd: float


def pose(folder: Path, only: Sequence[str] = (), seed: int = 0) -> list[Posed]:
    """Make the data of both variants of every twin that has a question, the same each time.

    Parameters
    ----------
    folder : gets CAPABILITY_VARIANT/ with the data
    only : capabilities; all when empty
    seed : of the data

    Raises
    ------
    InputError
        If a capability has no question.
    """
    if unknown := sorted(set(only) - set(QUESTIONS)):
        raise InputError(
            f"--only {unknown[0]}: no twin has a question for it; there are: {', '.join(QUESTIONS)}"
        )
    posed = []
    for twin in TWINS:
        if twin.capability not in QUESTIONS or (only and twin.capability not in only):
            continue
        for variant in range(VARIANTS):
            name = f"{twin.capability.replace(' ', '_')}_{variant + 1}"
            data = folder.resolve() / name
            shutil.rmtree(data, ignore_errors=True)
            truth = data_of(twin, variant, data, seed)
            text = f"{QUESTIONS[twin.capability]}\n{OUTPUT.format(names=', '.join(truth))}"
            posed.append(
                Posed(twin, variant, truth, Prepared(name=name, text=text, data={"data": data}))
            )
    return posed


def answers(posed: Sequence[Posed], folder: Path, repeat: int) -> Iterator[Answered]:
    """Hold a repeat's answers to the truth, by the names that were asked for alone.

    An answer.json that is absent or unreadable scores 0, as in SlideQuest.

    Parameters
    ----------
    posed : what was asked
    folder : of the repeat, as `answer_all` fills it
    repeat : its number
    """
    for one in posed:
        acted = record_of(folder / one.question.name)
        if acted is None:
            raise InputError(f"{folder / one.question.name}: was not asked")
        try:
            # Columns of other names would be matched to those asked for, so that a row of a
            # thousand guesses holds every answer.
            rows = [
                {name: row[name] for name in one.truth if name in row}
                for row in read_answer(folder / one.question.name / ANSWER)[:1]
            ]
            got, problem = held_to(one.twin, one.truth, rows)
        except InputError:
            said = acted.error or (acted.answer.reason if acted.answer else "")
            got, problem = 0.0, f"no answer.json that can be read; {said}".rstrip("; ")
        yield Answered(
            capability=one.twin.capability, variant=one.variant, score=got, problem=problem[:500],
            seconds=acted.seconds, repeat=repeat, outcome=acted.outcome, model=acted.model,
            steps=len(acted.steps),
            failed_steps=sum(bool(done.observation.error) for done in acted.steps),
            tokens=acted.prompt_tokens + acted.completion_tokens, usd=acted.usd,
        )  # fmt: skip
