"""Measurements defined by the scientist during a run that become variables once gated.

Their tables are stored in the run folder (`outputs/defined`), where a resumed run finds
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agents.scientist.blind import BlindCohort
from agents.scientist.looks import MeasurementCheck
from sage.core.errors import InputError

if TYPE_CHECKING:
    from mcp_servers.measures.gate import Gated
    from mcp_servers.measures.language import Measurement
    from mcp_servers.measures.table import Measured
    from validation.cohort.cohort import Cohort

SECOND, STEM = "second", "defined"
MOST = 40
"""Maximum number of measurements that a run's scientist may define."""


def add_defined(cohort: Cohort, folder: Path) -> Cohort:
    """Return the cohort with a folder's tables of defined measurements added in order."""
    paths = folder.glob(f"{STEM}*.csv") if folder.is_dir() else ()
    for path in sorted(paths, key=lambda path: int(path.stem.removeprefix(STEM))):
        cohort = cohort.with_features(path)
    return cohort


def measure_suite(cohort: Cohort, second: Cohort | None, folder: Path, seed: int) -> int:
    """Gate the standard suite on a cohort's maps; store the measurements that pass in `folder`.

    Parameters
    ----------
    cohort : a cohort with maps; the suite is generated for the structures they contain
    second : a second cohort, measured in the same way if it has maps, but without a separate
        gate; None if there is no second cohort
    folder : created if missing; receives the gate's report and the patient table, with the
        second cohort's in a subfolder
    seed : seed for the gate's jitter, dropout and choice of halves

    Returns
    -------
    The number of measurements that passed the gate.

    Raises
    ------
    InputError
        If the cohort has no maps, or no measurement passes.
    """
    from mcp_servers.measures.enumeration import suite_of
    from mcp_servers.measures.gate import gate, write_gate
    from mcp_servers.measures.maps import MapsOnDisk
    from mcp_servers.measures.table import measure_patients

    if cohort.maps is None:
        raise InputError(
            f"measure: {cohort.id} has no maps; set their folder in cohort.toml, as maps = "
            '"maps", above the first section'
        )
    slides = MapsOnDisk(cohort.maps, set(cohort.patients))
    suite = suite_of(slides.held, "standard")
    report, measured = gate(suite, slides, seed=seed)
    places = [place for place, gated in enumerate(report.measurements) if gated.passed]
    if not places:
        raise InputError(f"measure: none of the {len(suite)} measurements passes the gate")
    folder.mkdir(parents=True, exist_ok=True)
    write_gate(report, folder)
    _write(measured, places, folder, f"{STEM}1")
    if second is not None and second.maps is not None:
        kept = [suite[place] for place in places]
        found = measure_patients(kept, MapsOnDisk(second.maps, set(second.patients)))
        _write(found, range(len(kept)), folder / SECOND, f"{STEM}1")
    return len(places)


@dataclass
class MapMeasures:
    """Outcome-blind measurement on maps, for the scientist's `measurement_define` tool.

    Parameters
    ----------
    reload : called when a variable has been added to the cohort
    minimum : smallest number of patients for which a count may be shown
    """

    maps: Path
    folder: Path
    cohort: Callable[[], Cohort]
    second: Callable[[], Cohort | None]
    reload: Callable[[], None]
    seed: int
    minimum: int

    @property
    def holds(self) -> str:
        """Description of the maps' content."""
        from mcp_servers.measures.maps import MapsOnDisk

        every = MapsOnDisk(self.maps, set(self.cohort().patients)).held
        names = {f"cells.{name}" for held in every for name in held.types}
        for kind in ("objects", "regions"):
            shapes = [getattr(held, kind) for held in every]
            names |= {f"{kind}.{name}" for held in shapes if held for name in held.kinds}
        return f"{', '.join(sorted(names)) or 'nothing'} on {len(every)} slides"

    def define(self, formulas: tuple[str, ...]) -> tuple[tuple[MeasurementCheck, ...], BlindCohort]:
        """Gate each formula on the maps of the cohort's patients, and add those that pass."""
        from mcp_servers.measures.formula import parse

        before = len(list(self.folder.glob(f"{STEM}*.csv"))) if self.folder.is_dir() else 0
        checks: dict[str, MeasurementCheck] = {}
        asked: dict[str, Measurement] = {}
        for text in formulas:
            try:
                asked[text] = parse(text)
            except InputError as error:
                checks[text] = MeasurementCheck(formula=text[:200], refused=str(error)[:600])
        if before + len(asked) > MOST:
            said = f"this run has already defined {before} of at most {MOST} measurements"
            checks |= {text: MeasurementCheck(formula=text[:200], refused=said) for text in asked}
        elif asked:
            checks |= self._measure(asked, before)
        found = tuple(checks[text] for text in formulas)
        return found, BlindCohort(self.cohort(), self.minimum)

    def _measure(self, asked: dict[str, Measurement], before: int) -> dict[str, MeasurementCheck]:
        from mcp_servers.measures.gate import gate
        from mcp_servers.measures.maps import MapsOnDisk

        measurements = list({m.name: m for m in asked.values()}.values())
        slides = MapsOnDisk(self.maps, set(self.cohort().patients))
        report, measured = gate(measurements, slides, seed=self.seed)
        by_name = {gated.name: gated for gated in report.measurements}
        keys: dict[str, str] = {}
        for place, gated in enumerate(report.measurements):
            if gated.passed:
                stem = f"{STEM}{before + len(keys) + 1}"
                _write(measured, [place], self.folder, stem)
                self._in_second(measurements[place], stem)
                keys[gated.name] = f"imaging:{stem}_{gated.name}"
        self.reload()
        return {text: _check(by_name[m.name], keys.get(m.name, "")) for text, m in asked.items()}

    def _in_second(self, measurement: Measurement, stem: str) -> None:
        """Make the same measurement in the confirmation cohort, if it has maps."""
        from mcp_servers.measures.maps import MapsOnDisk
        from mcp_servers.measures.table import measure_patients

        second = self.second()
        if second is not None and second.maps is not None:
            slides = MapsOnDisk(second.maps, set(second.patients))
            found = measure_patients([measurement], slides)
            _write(found, [0], self.folder / SECOND, stem)


def _write(measured: Measured, places: Sequence[int], folder: Path, stem: str) -> None:
    """Write measurements as a feature table, with a description of its columns."""
    from mcp_servers.measures.table import describe_variable
    from sage.core.files import write_json, write_text

    chosen = [measured.measurements[place] for place in places]
    rows = [",".join(["patient", *(measurement.name for measurement in chosen)])]
    for patient, values in zip(measured.patients, measured.values, strict=True):
        shown = [repr(values[at].value) if values[at].valid else "" for at in places]
        rows.append(",".join([patient, *shown]))
    described = {m.name: {"known_at": "baseline", **describe_variable(m)} for m in chosen}
    write_json(folder / f"{stem}.columns.json", described)
    write_text(folder / f"{stem}.csv", "\n".join(rows) + "\n")


def _check(gated: Gated, key: str) -> MeasurementCheck:
    return MeasurementCheck(
        formula=gated.formula,
        variable=key,
        sentence=gated.sentence,
        unit=gated.unit,
        missing=round(gated.missing, 3),
        stability={
            name: None if agreement.icc is None else round(agreement.icc, 2)
            for name, agreement in gated.stability.items()
        },
        notes=gated.notes,
        refused="" if key else "; ".join(gated.reasons)[:600],
    )
