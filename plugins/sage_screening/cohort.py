"""Screening of all genes and continuous features in a cohort against a survival endpoint."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from sage.core.errors import InputError
from sage.core.files import write_text
from sage_screening.volcano import volcano
from validation.inputs.study import FEWEST_PARTED
from validation.ledger.patients import profiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from validation.cohort.cohort import Cohort
    from validation.ledger.ledger import Ledger
    from validation.screening.rank import ScreenResult

Q_LEVEL = 0.05


@dataclass
class CohortScreen:
    """A screen's result in the context of its cohort.

    `losses` counts patients with the endpoint who were excluded, by missing variable.
    """

    cohort: str
    endpoint: str
    simulated: bool
    result: ScreenResult
    seconds: float
    undetected: int = 0
    losses: tuple[tuple[str, int], ...] = ()
    leaks: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """Count features, patients, events, refusals, and features with q < 0.05."""
        found = self.result
        passing = int(((found.q < Q_LEVEL) & found.ok).sum())
        return {
            "cohort": self.cohort,
            "simulated": self.simulated,
            "endpoint": self.endpoint,
            "features": len(found.names),
            "n": found.n,
            "events": found.events,
            "covariates": list(found.covariates),
            "significant": passing,
            "refused": found.count_refused(),
            "undetected": self.undetected,
            "left_out": dict(self.losses),
            "warnings": self.warnings(),
            "seconds": self.seconds,
        }

    def warnings(self) -> list[str]:
        """List caveats for readers of the ranking."""
        found = [
            f"{name} is excluded: it separates all patients with {self.endpoint} from those "
            "without, so it either contains the outcome or was recorded after it"
            for name in self.leaks
        ]
        lost, n = sum(count for _, count in self.losses), self.result.n
        if lost <= n:
            return found
        why = ", ".join(f"{count} without {what}" for what, count in self.losses)
        return [
            *found,
            f"only {n} of {n + lost} patients with {self.endpoint} are screened ({why}) and may "
            "not represent the rest; exclude variables that most patients lack",
        ]

    def rows(self, top: int | None = None) -> list[dict[str, Any]]:
        """List features by strength of association; refused features have no numbers."""
        found = self.result

        def value_at(values: NDArray[np.float64], at: int) -> float | None:
            return float(values[at]) if found.ok[at] else None

        return [
            {
                "feature": found.names[at],
                "hr": value_at(found.hr, at),
                "lower": value_at(found.lower, at),
                "upper": value_at(found.upper, at),
                "p": value_at(found.p, at),
                "p_score": value_at(found.p_score, at),
                "q": float(found.q[at]),
                "n": int(found.n_used[at]),
                "status": found.status[at],
            }
            for at in found.ranking()[:top]
        ]


def screen_cohort(
    cohort: Cohort,
    endpoint: str,
    covariates: tuple[str, ...] = (),
    *,
    detected: float = 0.2,
    out: Path | None = None,
    ledger: Ledger | None = None,
) -> CohortScreen:
    """Screen all genes and continuous variables; hazard ratios are per standard deviation.

    A gene is excluded if the fraction of patients above the matrix's lowest value is less
    than `detected`, since a handful of patients would determine its whole effect.

    With a `ledger`, the screen is recorded there before anything is estimated, and from then
    on a claim about these features in these patients is exploratory.

    Patients need the endpoint and every covariate. With `out`, `screen.csv` and `volcano.svg`
    are written there.

    Parameters
    ----------
    detected : minimum fraction of patients, see above

    Raises
    ------
    InputError
        If the endpoint is not a survival endpoint, or nothing is left to screen.
    """
    from validation.screening.rank import screen

    _require_survival(cohort, endpoint)
    table = _table(cohort, endpoint, covariates)
    given = _features(cohort, table, endpoint, covariates, detected)
    rows = given.keep.to_numpy()
    if not given.names or rows.sum() < 10:
        raise InputError(
            f'cohort "{cohort.id}": too few patients ({int(rows.sum())}) or features'
            f" ({len(given.names)}) to screen"
        )
    times = table.loc[given.keep, f"{endpoint}.time"].to_numpy(dtype=float)
    events = (table.loc[given.keep, f"{endpoint}.event"] == 1).to_numpy()
    if np.all(times == times[0]):
        raise InputError(f"{endpoint}: all {len(times)} patients have the same time, {times[0]:g}")
    features = given.values[rows]
    apart = _parts(features, events)
    leaks = tuple(np.asarray(given.names)[apart & given.detectable].tolist())
    picked = given.detectable & ~apart
    if not picked.any():
        raise InputError(f'cohort "{cohort.id}": no features left to screen')
    features = features if picked.all() else features[:, picked]
    names = [name for name, item in zip(given.names, picked, strict=True) if item]
    if ledger is not None:
        _register(ledger, cohort, endpoint, names, table.index, given.values, picked)
    adjusters = _adjusters(table, covariates)[rows]
    begin = time.perf_counter()
    found = screen(
        times,
        events,
        features,
        adjusters.to_numpy(dtype=float) if adjusters.shape[1] else None,
        names,
        covariate_names=list(adjusters.columns) or None,
    )
    seconds = time.perf_counter() - begin
    done = CohortScreen(
        cohort.id,
        endpoint,
        cohort.simulated,
        found,
        seconds,
        int((~given.detectable).sum()),
        given.losses,
        leaks,
    )
    if out is not None:
        _write(done, out, cohort.spec.title)
    return done


def _require_survival(cohort: Cohort, endpoint: str) -> None:
    spec = cohort.spec.endpoints.get(endpoint)
    if spec is None or spec.kind != "survival":
        has = [name for name, spec in cohort.spec.endpoints.items() if spec.kind == "survival"]
        raise InputError(
            f'endpoint "{endpoint}" is not a survival endpoint in "{cohort.id}"; survival '
            f"endpoints: {', '.join(has) or 'none'}"
        )

    if "entry" in cohort.outcome(endpoint):
        raise InputError(
            f'endpoint "{endpoint}" has delayed entry, which the screen does not support; validate '
            "single claims instead"
        )


def _table(cohort: Cohort, endpoint: str, covariates: tuple[str, ...]) -> pd.DataFrame:
    """Build a table with the endpoint and covariates, then all other numeric variables."""
    others = [
        variable.key
        for variable in cohort.dictionary().variables
        if variable.kind in ("continuous", "ordinal") and variable.key not in covariates
    ]
    return cohort.table([*covariates, *others], [endpoint])


class _Features(NamedTuple):
    """Collector of the screen's data: (patients, features), kept patients, detected features."""

    names: list[str]
    values: NDArray[np.float64]
    keep: pd.Series
    losses: tuple[tuple[str, int], ...]
    detectable: NDArray[np.bool_]


def _features(
    cohort: Cohort, table: pd.DataFrame, endpoint: str, covariates: tuple[str, ...], detected: float
) -> _Features:
    keep = table[f"{endpoint}.time"].notna()
    losses = []
    for key in covariates:
        left = keep & table[key].notna()
        losses.append((key, int(keep.sum() - left.sum())))
        keep = left
    names = [
        name
        for name in map(str, table.columns)
        if name not in covariates and not name.startswith(f"{endpoint}.")
    ]
    blocks = [table[names].to_numpy(dtype=float)]
    shown = [True] * len(names)
    if cohort.expression is not None:
        genes = cohort.expression.genes
        values, patients = cohort.block(genes)
        frame = pd.DataFrame(values, index=patients).reindex(table.index)
        blocks.append(frame.to_numpy(dtype=float))
        names += [f"expression:{gene}" for gene in genes]
        left = keep & frame.notna().all(axis=1)
        losses.append(("expression", int(keep.sum() - left.sum())))
        keep = left
        floor = float(np.nanmin(values)) if values.size else 0.0
        shown += ((values > floor + 1e-9).mean(axis=0) >= detected).tolist()
    lost = tuple((what, count) for what, count in losses if count)
    return _Features(names, np.column_stack(blocks), keep, lost, np.asarray(shown, dtype=bool))


def _register(
    ledger: Ledger,
    cohort: Cohort,
    endpoint: str,
    names: list[str],
    index: pd.Index,
    features: NDArray[np.float64],
    picked: NDArray[np.bool_],
) -> None:
    """Record a screen in the ledger with its features' ranks among the ledger's patients."""
    patients = ledger.patients(cohort)
    places = {name: at for at, name in enumerate(index)}
    rows = [places[cohort.pseudonyms[patients.ids[at]]] for at in patients.pilots]
    ledger.screen(cohort, endpoint, names, profiles(features[rows][:, picked].T))


def _parts(features: NDArray[np.float64], events: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Find (p,) features that perfectly separate patients with and without the event."""
    had, had_not = features[events], features[~events]
    if min(len(had), len(had_not)) < FEWEST_PARTED:
        return np.zeros(features.shape[1], dtype=bool)
    low, high = (np.fmin.reduce(item) for item in (had, had_not))
    top, bottom = (np.fmax.reduce(item) for item in (had_not, had))
    return np.asarray((low > top) | (bottom < high))


def _adjusters(table: Any, covariates: tuple[str, ...]) -> Any:
    """Encode covariates as numbers; text becomes indicators relative to its largest level."""
    columns: dict[str, Any] = {}
    for key in covariates:
        column = table[key]
        if pd.api.types.is_numeric_dtype(column):
            columns[key] = column.astype(float)
            continue
        levels = column.value_counts().index
        for level in levels[1:]:
            flag = (column == level).astype(float)
            columns[f"{key}: {level}"] = flag.where(column.notna())
    return pd.DataFrame(columns, index=table.index)


def _write(done: CohortScreen, out: Path, title: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "screen.csv", pd.DataFrame(done.rows()).to_csv(index=False))
    volcano(
        done.result,
        out / "volcano.svg",
        title=f"{done.endpoint}: {len(done.result.names)} features",
        subtitle=title,
        simulated=done.simulated,
    )
