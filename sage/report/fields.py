"""Images of measured exposures, each with a high-value and a low-value patient."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sage.core.errors import InputError
from sage.core.files import read_json, write_json

if TYPE_CHECKING:
    from mcp_servers.measures.language import Measurement
    from mcp_servers.measures.maps import SlideMaps
    from validation.cohort.cohort import Cohort

FOLDER, ABOUT = "fields", "fields.json"
FORMULA = re.compile(r"Formula: (.+)$")
HIGH, LOW = 0.9, 0.1


def measurement_of(note: str) -> Measurement | None:
    """Parse the measurement from the formula in a variable's note; return None if absent."""
    from mcp_servers.measures.formula import parse

    found = FORMULA.search(note)
    if found is None:
        return None
    try:
        return parse(found[1])
    except InputError:
        return None


def pictures(home: Path) -> list[dict[str, str]]:
    """List the files and captions of the images drawn for a hypothesis."""
    about = home / FOLDER / ABOUT
    return read_json(about) if about.is_file() else []


def draw_measured(cohort: Cohort, keys: list[str], folder: Path) -> list[dict[str, str]]:
    """Draw each measured variable in the patients at its 90th and 10th percentiles.

    The images do not identify patients. No image is drawn for variables without a formula,
    cohorts without maps, or maps that do not reproduce the cohort's value. Returns the file
    and caption of each image, as written to `fields.json` in the folder.
    """
    notes = {variable.key: variable.note for variable in cohort.dictionary().variables}
    drawn = []
    for number, key in enumerate(dict.fromkeys(keys), 1):
        measurement = measurement_of(notes.get(key, ""))
        if measurement is None or cohort.maps is None:
            continue
        path = folder / f"measured_{number}.png"
        if _draw(cohort, cohort.maps, key, measurement, path):
            caption = (
                f"A patient at the 90th and one at the 10th percentile. {measurement.sentence}"
                f" Formula: {measurement.formula}; in {measurement.unit}."
            )
            drawn.append({"file": path.name, "caption": caption})
    if drawn:
        write_json(folder / ABOUT, drawn)
    return drawn


def _draw(cohort: Cohort, maps: Path, key: str, measurement: Measurement, path: Path) -> bool:
    from mcp_servers.measures.picture import draw_fields

    found = _slides(cohort, maps, key, measurement)
    slides = [
        (f"{word}: {wanted:.3g} {measurement.unit.removeprefix('1')}".strip(), own)
        for word, wanted, own in found
    ]
    if not slides:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    draw_fields(measurement, slides, path)
    return True


def field_of(
    cohort: Cohort, key: str, side: Literal["high", "low"]
) -> tuple[SlideMaps, tuple[float, float, float]]:
    """Return the slide whose field an image shows, with the field's center and side in µm.

    A run stores no patient or slide names, so the slide is looked up again in the cohort.

    Raises
    ------
    InputError
        If the image was not drawn from this cohort and its maps.
    """
    from mcp_servers.measures.picture import densest_field

    notes = {variable.key: variable.note for variable in cohort.dictionary().variables}
    measurement = measurement_of(notes.get(key, ""))
    found = (
        {word: maps for word, _, maps in _slides(cohort, cohort.maps, key, measurement)}
        if measurement is not None and cohort.maps is not None
        else {}
    )
    if measurement is None or side not in found:
        raise InputError("the maps used to draw this picture are no longer available")
    return found[side], densest_field(measurement, found[side])


def _slides(
    cohort: Cohort, maps: Path, key: str, measurement: Measurement
) -> list[tuple[str, float, SlideMaps]]:
    """Find the slides at the 90th and 10th percentiles with their values; empty if maps differ."""
    from mcp_servers.measures.compute import compute, of_patient
    from mcp_servers.measures.maps import MapsOnDisk

    values = cohort.column(key).dropna().sort_values(kind="stable")
    if len(values) < 2:
        return []
    slides = []
    for share, word in ((HIGH, "high"), (LOW, "low")):
        place = round(share * (len(values) - 1))
        wanted = float(values.iloc[place])
        try:
            own = list(MapsOnDisk(maps, {str(values.index[place])}))
        except InputError:
            return []
        measured = [compute(measurement, slide) for slide in own]
        patient = of_patient(measurement, measured).value
        if patient is None or not math.isclose(patient, wanted, rel_tol=1e-6, abs_tol=1e-12):
            return []  # not the maps that were measured
        far = [abs((math.inf if v.value is None else v.value) - wanted) for v in measured]
        slides.append((word, wanted, own[far.index(min(far))]))
    return slides
