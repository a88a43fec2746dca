"""Power of a survival comparison, computed only from the number of events.

Power can therefore be known before the outcome is seen. Schoenfeld 1983 (Biometrics): the
log hazard ratio for a binary exposure with prevalence q among D events has variance 1 /
(D q (1 - q)); for a continuous exposure with standard deviation s it is 1 / (D s^2)
(Hsieh and Lavori 2000, Controlled Clinical Trials), inflated by 1 / (1 - R^2), where R^2
is the share of its variance explained by the covariates.
"""

from __future__ import annotations

import math

from scipy.special import ndtr, ndtri

from validation.statistics.errors import NoEventsError, ShapeError

HALVES = 4 / math.sqrt(2 * math.pi)
"""Distance between the means of the two halves of a normal variable: 1.596 standard deviations.

The upper half has the mean phi(0) / 0.5 and the lower half its negative.
"""


def _spread(fraction_exposed: float | None, sd: float | None, r_squared: float) -> float:
    if not 0.0 <= r_squared < 1.0:
        raise ShapeError(f"r_squared must be in [0, 1), got {r_squared:g}")
    if (fraction_exposed is None) == (sd is None):
        raise ShapeError("give either fraction_exposed (binary) or sd (continuous)")
    if fraction_exposed is not None:
        if not 0.0 < fraction_exposed < 1.0:
            raise ShapeError(f"fraction_exposed must be between 0 and 1, got {fraction_exposed:g}")
        return fraction_exposed * (1.0 - fraction_exposed) * (1.0 - r_squared)
    assert sd is not None
    if sd <= 0.0:
        raise ShapeError(f"sd must be positive, got {sd:g}")
    return sd * sd * (1.0 - r_squared)


def minimum_detectable_hr(
    events: int,
    fraction_exposed: float | None = 0.5,
    alpha: float = 0.05,
    power: float = 0.8,
    *,
    sd: float | None = None,
) -> float:
    """Compute the smallest hazard ratio above 1 that a two-sided test detects with this power.

    The ratio is exp((z_(1 - alpha/2) + z_power) / sqrt(D q (1 - q))); its inverse is the
    protective ratio. For a continuous exposure, pass `fraction_exposed=None` and `sd`.

    Parameters
    ----------
    events : expected number of events D
    fraction_exposed : share q of patients who are exposed
    power : probability of detecting the effect
    sd : standard deviation of a continuous exposure, in the unit to which the ratio refers

    Raises
    ------
    NoEventsError
        If no events are expected.
    """
    if events <= 0:
        raise NoEventsError("no events, so no hazard ratio can be detected")
    z = float(ndtri(1.0 - alpha / 2.0) + ndtri(power))
    return math.exp(z / math.sqrt(events * _spread(fraction_exposed, sd, 0.0)))


def power_at(
    hr: float,
    events: int,
    fraction_exposed: float | None = 0.5,
    alpha: float = 0.05,
    *,
    sd: float | None = None,
    r_squared: float = 0.0,
) -> float:
    """Compute the power of a two-sided test at hazard ratio `hr` (both tails counted).

    Parameters
    ----------
    hr : hazard ratio, per unit of a continuous exposure; above 0
    events : expected number of events
    fraction_exposed : share of patients who are exposed; None for a continuous exposure
    sd : standard deviation of a continuous exposure
    r_squared : share of the exposure's variance that the covariates explain

    Returns
    -------
    The power, between 0 and 1; 0 without events.
    """
    if hr <= 0.0:
        raise ShapeError(f"a hazard ratio must be positive, got {hr:g}")
    if events <= 0:
        return 0.0
    shift = abs(math.log(hr)) * math.sqrt(events * _spread(fraction_exposed, sd, r_squared))
    z = float(ndtri(1.0 - alpha / 2.0))
    return float(ndtr(shift - z) + ndtr(-shift - z))


def power_from_detectable(
    effect: float, detectable: float, alpha: float, *, level: float | None = None, share: float = 1
) -> float:
    """Compute the power at an effect from the effect detectable with 80% power at `alpha`.

    Parameters
    ----------
    effect, detectable : distances from no effect (logarithms of ratios)
    level : two-sided level of the test; `alpha` if None
    share : share of patients who are tested
    """
    error = abs(detectable) / (ndtri(1 - alpha / 2) + ndtri(0.8)) / math.sqrt(share)
    return float(ndtr(abs(effect) / error - ndtri(1 - (level or alpha) / 2)))


def events_needed(
    hr: float,
    fraction_exposed: float | None = 0.5,
    alpha: float = 0.05,
    power: float = 0.8,
    *,
    sd: float | None = None,
    r_squared: float = 0.0,
) -> int:
    """Compute the number of events needed for a two-sided test to detect `hr` with this power.

    Parameters
    ----------
    hr : hazard ratio, per unit of a continuous exposure; above 0 and not 1
    fraction_exposed : share of patients who are exposed; None for a continuous exposure
    power : probability of detecting the effect
    sd : standard deviation of a continuous exposure
    r_squared : share of the exposure's variance that the covariates explain

    Returns
    -------
    Number of events, rounded up.
    """
    if hr <= 0.0 or hr == 1.0:
        raise ShapeError("the hazard ratio must differ from 1")
    z = float(ndtri(1.0 - alpha / 2.0) + ndtri(power))
    return math.ceil((z / math.log(hr)) ** 2 / _spread(fraction_exposed, sd, r_squared))


def minimum_detectable_or(
    n: int, events: int, fraction_exposed: float, alpha: float = 0.05, power: float = 0.8
) -> float:
    """Compute the smallest odds ratio above 1 detected with this power for a binary outcome.

    The log odds ratio has the Wald variance 1 / (n q (1 - q) r (1 - r)), with r = events / n
    as the outcome's overall rate in both groups.

    Parameters
    ----------
    n : number of patients with a known outcome
    events : number of these patients who have the outcome
    fraction_exposed : share of patients who are exposed
    power : probability of detecting the effect

    Raises
    ------
    NoEventsError
        If none or all of the patients have the outcome.
    """
    if not 0 < events < n:
        raise NoEventsError(f"{events} of {n} have the outcome, but both outcomes are required")
    rate = events / n
    z = float(ndtri(1.0 - alpha / 2.0) + ndtri(power))
    return math.exp(z / math.sqrt(n * rate * (1.0 - rate) * _spread(fraction_exposed, None, 0.0)))
