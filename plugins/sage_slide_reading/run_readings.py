"""Slides of the patients highest and lowest in an exposure, read for its review and report.

Patients are chosen by the exposure alone, within the hypothesis' population and outside what a
split holds back; no outcome is opened. What stays in the run names neither patient nor slide.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal

from sage.core.errors import FaultError, InputError, SageError
from sage.core.files import write_json
from sage.core.models import Strict, read_model
from sage.core.printable import one_line
from sage_slide_reading.reader.concepts import Concept, concepts_of

if TYPE_CHECKING:
    from mcp_servers.slides.slide import Slide
    from sage.run.services import Services
    from sage_slide_reading.reader.types import Reading
    from validation.cohort.cohort import Cohort
    from validation.core.hypothesis import Exposure, Hypothesis

FOLDER, ABOUT = "fields", "readings.json"
MOST_PER_END = 3
MOST_SLIDES = 24
"""Of a run."""
SECONDS = 240.0
"""Of one reading."""
SHOWN = 3
"""Regions of a reading that are shown."""
SIDE_PX = 480
QUESTIONS: dict[Concept, str] = {
    Concept.TLS: "Are there TLS-like lymphoid aggregates, and where?",
    Concept.LYMPHOID: "Where is the tissue rich in lymphocytes?",
    Concept.NECROSIS: "Where is necrosis?",
    Concept.MITOSIS: "Where are mitosis-like figures?",
    Concept.STROMA: "Where is stroma?",
    Concept.GLAND: "Where are glands?",
    Concept.TUMOR: "Where is the tumor?",
    Concept.PLEOMORPHISM: "How pleomorphic are the nuclei?",
    Concept.CELLULARITY: "How cellular is the tissue?",
}
CELLS = re.compile(r"\b[bt][ _-]cells?\b|\bcd(?:3|4|8|19|20)\b|plasma cell", re.IGNORECASE)

End = Literal["highest", "lowest"]


class RegionSeen(Strict):
    """A region of a reading: place and sides in µm from the slide's corner."""

    x_um: float
    y_um: float
    width_um: float
    height_um: float
    magnification: float
    seen: str
    answer_rests_on_it: bool


class SlideRead(Strict):
    """What was read of one patient's slide; `why_not` where it could not be."""

    end: End
    rank: int
    answer: str | None = None
    reasoning: str = ""
    regions: tuple[RegionSeen, ...] = ()
    picture: str = ""
    why_not: str = ""


class ExposureRead(Strict):
    """The readings of one exposure; without a question, the reason stands in `note`.

    `among` counts the patients that have the exposure and a slide, which may be absent.
    """

    variable: str
    label: str
    question: str = ""
    statement: str = ""
    reads: tuple[SlideRead, ...] = ()
    among: int | None = None
    note: str = ""


class Readings(Strict):
    """`readings.json` of a hypothesis."""

    population: str
    exposures: tuple[ExposureRead, ...]


def readings_of(home: Path) -> Readings | None:
    """What was read for a hypothesis; None where nothing was asked for."""
    about = home / FOLDER / ABOUT
    return read_model(about, Readings) if about.is_file() else None


def told(found: Readings) -> Iterator[str]:
    """The readings in lines, for a terminal."""
    for exposure in found.exposures:
        yield f"slides by {exposure.label}: {exposure.question or exposure.note}"
        for read in exposure.reads:
            yield f"  {caption(exposure, read)}"


def caption(exposure: ExposureRead, read: SlideRead) -> str:
    """What stands under the picture of a reading."""
    rank = "" if read.rank == 1 else f"number {read.rank} from the end, "
    among = "" if exposure.among is None else f", of {exposure.among} patients whose slide is named"
    who = f"A patient with the {read.end} {exposure.label} ({rank}chosen by it alone{among})."
    if read.why_not:
        return f"{who} Not read: {read.why_not.rstrip('.')}."
    regions = "; ".join(
        f"{number} at {region.x_um / 1000:.2f}, {region.y_um / 1000:.2f} mm,"
        f" {region.magnification:.3g}x: {'; '.join(region.seen.split('; ')[:3])}"
        for number, region in enumerate(read.regions, 1)
    )
    answer = "none, it abstains" if read.answer is None else read.answer
    return (
        f"{who} Asked: {exposure.question} Answer: {answer}. {read.reasoning} Regions: "
        f"{regions or 'none'}."
    )


def require_slides(cohort: Cohort) -> None:
    """Refuse to read slides of a cohort that has none.

    Raises
    ------
    InputError
        With what to add to cohort.toml.
    """
    if not any(path.is_file() for paths in slides_of(cohort).values() for path in paths):
        raise InputError(
            f"--read-slides: {cohort.id} has no slide of its patients here; say where they lie in"
            ' cohort.toml, as [slides] with folder = "slides" and pattern = "*.svs"'
        )


def slides_of(cohort: Cohort) -> dict[str, list[Path]]:
    """The slide files of each patient, below the cohort's root, in order of name.

    A file that a table names is among them also where it is absent: its reading then says so.
    """
    from mcp_servers.workers.cohort import patient_of as named
    from validation.cohort.ids import patient_of

    spec = cohort.spec.slides
    if spec is None:
        return {}
    root = cohort.root.resolve()
    folder = (root / spec.folder).resolve()
    if spec.table is not None and spec.file_column is not None:
        table = cohort.tables[spec.table]
        files = table.column(spec.file_column, "slides.file_column")
        pairs = [(who, folder / str(file)) for who, file in zip(table.patient, files, strict=True)]
    elif folder.is_relative_to(root) and folder.is_dir():
        ids = cohort.spec.patient.ids
        pairs = [(patient_of(named(path), ids), path) for path in sorted(folder.glob(spec.pattern))]
    else:
        return {}
    found: dict[str, list[Path]] = {}
    known = set(cohort.patients)
    for who, path in pairs:
        if who in known and path.resolve().is_relative_to(root):
            found.setdefault(str(who), []).append(path)
    return {who: sorted(paths) for who, paths in found.items()}


def question_about(exposure: Exposure) -> str:
    """What a reader is asked about an exposure; empty where no finding of its eyes bears on it."""
    words = f"{exposure.label} {'lymphocytes' if CELLS.search(exposure.label) else ''}"
    return next((QUESTIONS[c] for c in concepts_of(words) if c in QUESTIONS), "")


def read_for(services: Services, hypothesis: Hypothesis) -> None:
    """Read the slides that a hypothesis asks for, once; a changed exposure is read anew."""
    per_end = services.manifest.read_slides
    if not per_end:
        return
    home = services.folder.hypothesis(hypothesis.id)
    population = repr(hypothesis.population.filters)
    before = readings_of(home)
    kept = {}
    if before is not None and before.population == population:
        kept = {own.variable: own for own in before.exposures}
    wanted = {exposure.variable: exposure for exposure in hypothesis.exposures}
    if before is not None and set(wanted) == set(kept):
        return
    found = []
    for number, exposure in enumerate(wanted.values(), 1):
        own = kept.get(exposure.variable)
        found.append(own or _read_exposure(services, hypothesis, exposure, number, per_end))
    named = {read.picture for own in found for read in own.reads if read.picture}
    for picture in (home / FOLDER).glob("read_*.png"):
        if picture.name not in named:
            picture.unlink()
    write_json(home / FOLDER / ABOUT, Readings(population=population, exposures=tuple(found)))


def _read_exposure(
    services: Services, hypothesis: Hypothesis, exposure: Exposure, number: int, per_end: int
) -> ExposureRead:
    empty = ExposureRead(variable=exposure.variable, label=exposure.label)
    question = question_about(exposure)
    if not question:
        return empty.model_copy(update={"note": "nothing that the reader's eyes see bears on it"})
    slides = slides_of(services.cohort)
    try:
        order = [who for who in ordered(services, hypothesis, exposure) if who in slides]
    except InputError as error:
        return empty.model_copy(update={"note": str(error)})
    per_end = min(per_end, len(order) // 2)
    if not per_end:
        return empty.model_copy(update={"note": "fewer than two patients with it have a slide"})
    ends: list[tuple[End, list[str]]] = [
        ("highest", order[::-1][:per_end]), ("lowest", order[:per_end]),
    ]  # fmt: skip
    reads: list[SlideRead] = []
    statement = ""
    for end, patients in ends:
        for rank, who in enumerate(patients, 1):
            read = SlideRead(end=end, rank=rank)
            if _read_so_far(services) + len(reads) >= MOST_SLIDES:
                why = f"a run reads {MOST_SLIDES} slides at most"
                reads.append(read.model_copy(update={"why_not": why}))
                continue
            home = services.folder.hypothesis(hypothesis.id)
            picture = home / FOLDER / f"read_{exposure_name(exposure.variable)}_{end}_{rank}.png"
            path = next((path for path in slides[who] if path.is_file()), slides[who][0])
            try:
                read, statement = _read(path, question, picture, read)
            except (SageError, OSError, MemoryError) as error:
                reads.append(read.model_copy(update={"why_not": _nameless(error, path, who)}))
                continue
            reads.append(read)
    return empty.model_copy(
        update={
            "question": question,
            "statement": statement,
            "reads": tuple(reads),
            "among": len(order),
        }
    )


def exposure_name(variable: str) -> str:
    """A variable as part of a file's name, different for different variables."""
    import hashlib

    digest = hashlib.sha256(variable.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', variable)[-40:].strip('-')}-{digest}"


def ordered(services: Services, hypothesis: Hypothesis, exposure: Exposure) -> list[str]:
    """Patients of the population from the lowest value of an exposure to the highest.

    Held-back patients are not among them. Ties stand in the order of pseudonyms.

    Raises
    ------
    InputError
        If a variable became known late or is read from an outcome's column: no contract is frozen.
    """
    import numpy as np
    import pandas as pd

    from agents.scientist.blind import BlindCohort
    from sage.run.validating import drafted_contract
    from validation.inputs.population import apply_filters, held_back

    cohort = services.cohort
    contract = drafted_contract(services, hypothesis)
    keys = [exposure.variable, *(condition.variable for condition in contract.filters)]
    if contract.cluster is not None:
        keys.append(contract.cluster)
    blind = BlindCohort(cohort, services.settings.min_count)
    for key in keys:
        if reason := blind.withheld(key):
            raise InputError(f"{key} chooses no patients whose slides are read: {reason}")
    table = cohort.table(keys)
    values = pd.to_numeric(table[exposure.variable], errors="coerce")
    keep = np.asarray(apply_filters(table, contract.filters)) & values.notna().to_numpy()
    if contract.split.policy != "none":
        keep &= ~np.asarray(held_back(table, contract))
    names = {pseudonym: patient for patient, pseudonym in cohort.pseudonyms.items()}
    return [names[who] for who in values[keep].sort_values(kind="stable").index]


def _read_so_far(services: Services) -> int:
    homes = (services.folder.root / "hypotheses").glob("*")
    found = [readings_of(home) for home in homes if home.is_dir()]
    return sum(len(own.reads) for one in found if one is not None for own in one.exposures)


def _nameless(error: BaseException, path: Path, who: str) -> str:
    """Why a slide was not read, without the words that name it."""
    said = one_line(str(error)) or type(error).__name__
    names = {str(path), str(path.resolve()), path.name, path.stem, who}
    for name in sorted(map(one_line, names), key=len, reverse=True):
        # a patient called 3 is no part of "34 of 108 tiles"
        whole = rf"(?<!\w){re.escape(name)}(?!\w)" if len(name) < 4 else re.escape(name)
        said = re.sub(whole, "the slide", said)
    return shorten(said, 300, placeholder=" …")


def _read(path: Path, question: str, picture: Path, read: SlideRead) -> tuple[SlideRead, str]:
    from mcp_servers.slides.slide import Slide
    from sage.core.llm.turns import Bounds
    from sage_slide_reading.reader.algorithm import read_slide
    from sage_slide_reading.reader.open_eyes import computed_eyes
    from sage_slide_reading.reader.scope import Scope
    from sage_slide_reading.reader.types import Options, Question

    options = Options()
    end = time.monotonic() + SECONDS

    def in_time(_: object) -> None:
        if time.monotonic() > end:
            raise FaultError(f"the reading took more than {SECONDS:.0f} s")

    with Slide.open(path) as slide:
        scope = Scope(slide, options)
        scope.watch = in_time
        reading = read_slide(
            scope, computed_eyes(), Question(text=question), options,
            bounds=Bounds(turns=200, seconds=SECONDS),
        )  # fmt: skip
        regions = _regions(reading)
        _draw(slide, regions, scope.mpp, picture)
    done = read.model_copy(
        update={
            "answer": reading.answer,
            "reasoning": one_line(reading.reasoning)[:600],
            "regions": regions,
            "picture": picture.name,
        }
    )
    return done, reading.statement


def _regions(reading: Reading) -> tuple[RegionSeen, ...]:
    """The regions that the answer rests on, then the finest ones that were looked at."""
    seen = list(reading.regions().values())
    rests = set(reading.rests_on)
    seen.sort(key=lambda one: (one.region.id not in rests, -one.region.magnification))
    return tuple(
        RegionSeen(
            x_um=one.region.um[0], y_um=one.region.um[1], width_um=one.region.um[2],
            height_um=one.region.um[3], magnification=one.region.magnification,
            seen=shorten(one_line(one.text), 300, placeholder=" …"),
            answer_rests_on_it=one.region.id in rests,
        )
        for one in seen[:SHOWN]
    )  # fmt: skip


def _draw(slide: Slide, regions: tuple[RegionSeen, ...], mpp: float, path: Path) -> None:
    """An overview with the regions, numbered, and the first of them enlarged, with scale bars."""
    from PIL import Image, ImageDraw, ImageFont

    from mcp_servers.pathology.drawing import bar_length, bar_text

    def barred(picture: Image.Image, um_per_px: float, note: str) -> Image.Image:
        um, length = bar_length(um_per_px, picture.width)
        out = Image.new("RGB", (picture.width, picture.height + 30), "white")
        out.paste(picture, (0, 0))
        below = ImageDraw.Draw(out)
        below.rectangle((4, picture.height + 12, 4 + length, picture.height + 16), fill="black")
        below.text((length + 12, picture.height + 3), bar_text(um) + note, fill="black", font=font)
        return out

    scale = max(1.0, max(slide.width, slide.height) / SIDE_PX)
    view = slide.scaled(scale)
    overview = Image.fromarray(view.read(0, 0, int(slide.width / scale), int(slide.height / scale)))
    pen, font = ImageDraw.Draw(overview), ImageFont.load_default(20)
    for number, region in reversed(list(enumerate(regions, 1))):
        box: Any = [
            v / mpp / scale
            for v in (region.x_um, region.y_um, region.x_um + region.width_um,
                      region.y_um + region.height_um)
        ]  # fmt: skip
        pen.rectangle(box, outline="#d55e00", width=3)
        corner = (box[0] + 4, box[1] + 2)
        pen.rectangle(pen.textbbox(corner, str(number), font=font), fill="white")
        pen.text(corner, str(number), fill="#d55e00", font=font)
    shown = [barred(overview, mpp * scale, "")]
    if regions:
        first = regions[0]
        fine = max(1.0, max(first.width_um, first.height_um) / mpp / SIDE_PX)
        near = slide.scaled(fine)
        crop = Image.fromarray(
            near.read(
                *(round(v / mpp / fine) for v in (first.x_um, first.y_um)),
                *(max(1, round(v / mpp / fine)) for v in (first.width_um, first.height_um)),
            )
        )
        larger = SIDE_PX / max(crop.size)
        sides = (max(1, round(crop.width * larger)), max(1, round(crop.height * larger)))
        shown.append(barred(crop.resize(sides), mpp * fine / larger, ", region 1"))
    whole = Image.new("RGB", (2 * SIDE_PX + 8, max(each.height for each in shown)), "white")
    for place, each in enumerate(shown):
        whole.paste(each, (place * (SIDE_PX + 8), 0))
    path.parent.mkdir(parents=True, exist_ok=True)
    whole.save(path, format="PNG")
