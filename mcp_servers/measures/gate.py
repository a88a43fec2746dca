"""Quality gate: selection of measurements for testing, before any outcome is seen.

Everything here is computed from maps; no outcome can be passed in. A measurement whose
stability could not be assessed is reported as such, never as stable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
from pydantic import Field

from mcp_servers.measures import edit
from mcp_servers.measures.language import Measurement
from mcp_servers.measures.maps import SlideMaps
from mcp_servers.measures.table import Measured, measure_patients
from mcp_servers.slides.arrays import F64, I64
from sage.core.files import write_json, write_text
from sage.core.models import Strict
from sage.core.seeds import generator

SHIFTS = ("resolution", "stain", "scanner")
"""Changes that affect the maps themselves, so that slides must be measured a second time."""
LEAST_PATIENTS = 10


class GateLimits(Strict):
    """Perturbations of the slides, and the agreement required of a measurement.

    `icc` is required after jitter and loss (0.75 is good by Koo and Li 2016, J Chiropr Med)
    and after every shift that was made; `icc_half` is required after removal of half the
    tissue.
    """

    jitter_um: float = Field(
        default=2.0, ge=0, description="Standard deviation of the jitter of cells"
    )
    jitter_objects_um: float = Field(
        default=20.0, ge=0, description="Standard deviation of the jitter of objects"
    )
    dropped: float = Field(default=0.1, ge=0, lt=1, description="Share of detections removed")
    icc: float = Field(default=0.75, ge=0, le=1)
    icc_half: float = Field(default=0.5, ge=0, le=1)
    redundant: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="Absolute rank correlation from which two measurements count as redundant",
    )
    confounded: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Absolute rank correlation with area or count that is reported",
    )
    missing: float = Field(default=0.3, ge=0, le=1, description="Maximum share of missing values")
    outside_card: float = Field(
        default=0.2, ge=0, le=1, description="Maximum share of values outside a tool's card"
    )
    same: float = Field(default=0.8, ge=0, le=1, description="Maximum share of one identical value")


class Agreement(Strict):
    """Agreement before and after: intraclass correlation (absolute agreement) and rank correlation.

    None if fewer than ten patients have both values. The number of patients is zero if fewer
    than ten could be perturbed this way, so that stability remains unassessed.
    """

    icc: float | None
    spearman: float | None
    patients: int


class Gated(Strict):
    """A measurement's result at the gate."""

    name: str
    formula: str
    sentence: str
    unit: str
    passed: bool
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    missing: float
    outside_card: float
    same: float
    stability: dict[str, Agreement]
    with_area: float | None
    with_cells: float | None
    cluster: int | None = None
    kept_instead: str | None = None
    known_as: str | None = None


class GateReport(Strict):
    """Gate results for all measurements."""

    patients: int
    slides: int
    limits: GateLimits
    measurements: tuple[Gated, ...]
    not_assessed: tuple[str, ...]

    @property
    def passed(self) -> tuple[str, ...]:
        """Names of the measurements that passed."""
        return tuple(gated.name for gated in self.measurements if gated.passed)

    def text(self) -> str:
        """Describe the report as text, with passed measurements first."""
        lines = [
            f"Quality gate: {len(self.passed)} of {len(self.measurements)} measurements pass, on"
            f" {self.slides} slides of {self.patients} patients. No outcome was read.",
            f"Not assessed: {'; '.join(self.not_assessed) or 'nothing'}.",
            "",
        ]
        for gated in sorted(self.measurements, key=lambda gated: not gated.passed):
            lines.append(f"{'pass' if gated.passed else 'FAIL'}  {gated.name} [{gated.unit}]")
            lines.append(f"      {gated.sentence}")
            stable = ", ".join(
                f"{name} {'–' if a.icc is None else f'{a.icc:.2f}'}"
                for name, a in gated.stability.items()
            )
            lines.append(f"      ICC: {stable}; missing {gated.missing:.0%}")
            lines += [f"      - {reason}" for reason in gated.reasons]
            lines += [f"      note: {note}" for note in gated.notes]
        return "\n".join(lines) + "\n"


def gate(
    measurements: Sequence[Measurement],
    slides: Iterable[SlideMaps],
    *,
    shifted: Mapping[str, Iterable[SlideMaps]] | None = None,
    known: Mapping[str, Mapping[str, float]] | None = None,
    limits: GateLimits | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
    coded: Callable[[Iterable[SlideMaps]], Iterable[SlideMaps]] = iter,
) -> tuple[GateReport, Measured]:
    """Assess measurements on slides from the patients used to search for hypotheses.

    Parameters
    ----------
    slides : slides from discovery patients only, grouped by patient; iterated several times,
        so that maps can stay on disk (`MapsOnDisk`). Patients reserved for confirmation must
        not be included
    shifted : new maps of the same slides, by type of change ("resolution", "stain",
        "scanner")
    known : the cohort's existing variables, each by patient; measurements that repeat them
        are reported
    seed : seed for jitter, loss and the choice of halves
    coded : function that runs the measurements' programs on original and perturbed slides
        (`with_values`)

    Returns
    -------
    The report, and the unperturbed values.
    """
    limits = limits or GateLimits()
    progress("measuring")
    measured = measure_patients(measurements, coded(slides))
    agreements: dict[str, list[Agreement]] = {}
    disturbed: dict[str, Callable[[], Iterator[SlideMaps]]] = {
        "jitter": lambda: _jitter_maps(slides, limits, seed),
        "loss": lambda: _drop_points(slides, limits, seed),
        "half of the tissue": lambda: _halve_maps(slides, seed),
    }
    for name, maps in (shifted or {}).items():
        disturbed[name] = lambda maps=maps: iter(maps)  # type: ignore[misc]
    for name, make in disturbed.items():
        progress(name)
        agreements[name] = _agreements(measured, measure_patients(measurements, coded(make())))
    not_assessed = [
        f"{name} (needs maps of the same slides made again)"
        for name in SHIFTS
        if name not in (shifted or {})
    ]
    if not any(agreement.patients for agreement in agreements["half of the tissue"]):
        not_assessed.append(
            "half of the tissue (the outline of the tissue is known for too few patients)"
        )
    judged = [
        _judge(place, measured, {name: found[place] for name, found in agreements.items()}, limits)
        for place in range(len(measurements))
    ]
    progress("redundancy")
    judged = _drop_repeats(judged, measured, limits)
    if known:
        judged = [_compare(gated, measured, known, limits) for gated in judged]
    report = GateReport(
        patients=len(measured.patients),
        slides=int(measured.slides.sum()),
        limits=limits,
        measurements=tuple(judged),
        not_assessed=tuple(not_assessed),
    )
    return report, measured


def write_gate(report: GateReport, folder: Path) -> None:
    """Write `gate.json` and `gate.txt`."""
    write_json(folder / "gate.json", report)
    write_text(folder / "gate.txt", report.text())


def icc(first: F64, second: F64) -> float | None:
    """Compute the intraclass correlation ICC(A,1) of two values per subject.

    This is the two-way, absolute-agreement form, ICC(2,1) in Shrout and Fleiss 1979 (Psychol
    Bull). Return None if the values do not vary.
    """
    table = np.column_stack([first, second])
    count = len(table)
    mean = table.mean()
    rows = 2 * ((table.mean(axis=1) - mean) ** 2).sum() / (count - 1)
    columns = count * ((table.mean(axis=0) - mean) ** 2).sum()
    residual = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + mean
    error = (residual**2).sum() / (count - 1)
    below = rows + error + 2 * (columns - error) / count
    return float((rows - error) / below) if below > 0 else None


def spearman(first: F64, second: F64) -> float | None:
    """Compute the rank correlation of finite pairs; None if too few, or if either is constant."""
    from scipy.stats import rankdata

    both = np.isfinite(first) & np.isfinite(second)
    if both.sum() < LEAST_PATIENTS:
        return None
    ranks = [rankdata(values[both]) for values in (first, second)]
    if min(np.ptp(rank) for rank in ranks) == 0:
        return None
    return float(np.corrcoef(*ranks)[0, 1])


def _jitter_maps(slides: Iterable[SlideMaps], limits: GateLimits, seed: int) -> Iterator[SlideMaps]:
    rng = generator(seed, 1)
    for maps in slides:
        yield edit.jitter(maps, limits.jitter_um, limits.jitter_objects_um, rng)


def _drop_points(slides: Iterable[SlideMaps], limits: GateLimits, seed: int) -> Iterator[SlideMaps]:
    rng = generator(seed, 2)
    for maps in slides:
        yield edit.drop(maps, limits.dropped, rng)


def _halve_maps(slides: Iterable[SlideMaps], seed: int) -> Iterator[SlideMaps]:
    rng = generator(seed, 3)
    for _, own in groupby(slides, key=lambda maps: maps.patient):
        yield from edit.half_of(list(own), rng)


def _agreements(before: Measured, after: Measured) -> list[Agreement]:
    place = {patient: i for i, patient in enumerate(after.patients)}
    rows = [i for i, patient in enumerate(before.patients) if patient in place]
    first = before.table[rows]
    second = after.table[[place[before.patients[i]] for i in rows]]
    if len(rows) < LEAST_PATIENTS <= len(before.patients):
        return [Agreement(icc=None, spearman=None, patients=0)] * first.shape[1]
    found = []
    for column in range(first.shape[1]):
        both = np.isfinite(first[:, column]) & np.isfinite(second[:, column])
        pair = first[both, column], second[both, column]
        enough = int(both.sum()) >= LEAST_PATIENTS
        found.append(
            Agreement(
                icc=icc(*pair) if enough else None,
                spearman=spearman(*pair) if enough else None,
                patients=int(both.sum()),
            )
        )
    return found


def _judge(
    place: int, measured: Measured, stability: dict[str, Agreement], limits: GateLimits
) -> Gated:
    measurement = measured.measurements[place]
    values = measured.table[:, place]
    known = np.isfinite(values)
    missing = 1.0 - float(known.mean())
    outside = float((known & ~measured.valid[:, place]).sum() / max(known.sum(), 1))
    same = float(np.unique(values[known], return_counts=True)[1].max(initial=0) / len(values))
    reasons = []
    if missing > limits.missing:
        why = [value.why_not for row in measured.values if not (value := row[place]).valid]
        usual = max(set(why), key=why.count)
        reasons.append(f"no value in {missing:.0%} of patients, mostly: {usual}")
    if outside > limits.outside_card:
        reasons.append(f"{outside:.0%} of values are outside a tool's card")
    if same > limits.same:
        reasons.append(f"the same value in {same:.0%} of patients")
    for name, agreement in stability.items():
        least = limits.icc_half if name == "half of the tissue" else limits.icc
        if agreement.icc is None and agreement.patients:
            reasons.append(
                f"stability ({name}) could not be assessed: only {agreement.patients} patients"
            )
        elif agreement.icc is not None and agreement.icc < least:
            reasons.append(f"ICC {agreement.icc:.2f} after {name}, below {least:g}")
    with_area = spearman(values, measured.area_mm2)
    with_cells = spearman(values, measured.cells)
    notes = [
        f"rank correlation {rho:.2f} with {what}: adjust for {column}"
        for rho, what, column in (
            (with_area, "tissue area", "imaging:pooled_area_tissue"),
            (with_cells, "the number of cells", "imaging:pooled_count_cells"),
        )
        if rho is not None and abs(rho) > limits.confounded
    ]
    return Gated(
        name=measurement.name,
        formula=measurement.formula,
        sentence=measurement.sentence,
        unit=measurement.unit,
        passed=not reasons,
        reasons=tuple(reasons),
        notes=tuple(notes),
        missing=missing,
        outside_card=outside,
        same=same,
        stability=stability,
        with_area=with_area,
        with_cells=with_cells,
    )


def _drop_repeats(judged: list[Gated], measured: Measured, limits: GateLimits) -> list[Gated]:
    """Keep the most central measurement from each cluster of correlated measurements.

    Clusters are found by complete linkage, so that any two members correlate above the limit.
    """
    places = [place for place, gated in enumerate(judged) if gated.passed]
    if len(places) < 2:
        return judged
    correlation = rank_correlations(measured.table[:, places])
    clusters = _cluster(np.abs(correlation), limits.redundant)
    out = list(judged)
    for label in np.unique(clusters):
        members = np.flatnonzero(clusters == label)
        closeness = np.abs(correlation[np.ix_(members, members)]).sum(axis=0)
        kept = members[int(np.argmax(closeness))]
        kept_name = judged[places[kept]].name
        for member in members:
            gated = judged[places[member]]
            update: dict[str, object] = {"cluster": int(label)}
            if member != kept:
                rho = correlation[member, kept]
                reason = f"redundant with {kept_name} (rank correlation {rho:.2f}), which is kept"
                update |= {"passed": False, "reasons": (reason,), "kept_instead": kept_name}
            out[places[member]] = gated.model_copy(update=update)
    return out


def rank_correlations(table: F64) -> F64:
    """Compute Spearman correlations between columns over the rows where both are defined.

    Return an (m, m) array, with 0 for pairs without a defined correlation.
    """
    import pandas as pd

    found = pd.DataFrame(table).corr(method="spearman", min_periods=LEAST_PATIENTS)
    correlation = np.array(found, dtype=np.float64)
    correlation[~np.isfinite(correlation)] = 0.0
    np.fill_diagonal(correlation, 1.0)
    return correlation


def _cluster(closeness: F64, limit: float) -> I64:
    """Assign each of m measurements to a cluster by complete linkage."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    apart = np.clip(1.0 - (closeness + closeness.T) / 2, 0.0, None)
    np.fill_diagonal(apart, 0.0)
    merges = linkage(squareform(apart, checks=False), method="complete")
    return np.asarray(fcluster(merges, t=np.nextafter(1.0 - limit, 0), criterion="distance"))


def _compare(
    gated: Gated, measured: Measured, known: Mapping[str, Mapping[str, float]], limits: GateLimits
) -> Gated:
    """Record which cohort variables a measurement repeats."""
    place = [measurement.name for measurement in measured.measurements].index(gated.name)
    for key, values in known.items():
        other = np.array([values.get(patient, np.nan) for patient in measured.patients])
        rho = spearman(measured.table[:, place], other)
        if rho is not None and abs(rho) > limits.redundant:
            reason = f"repeats {key} (rank correlation {rho:.2f})"
            return gated.model_copy(
                update={"passed": False, "known_as": key, "reasons": (*gated.reasons, reason)}
            )
    return gated
