"""Named errors of the statistics, for data that do not support the requested number.

Each class has a `code` that a verdict can carry as its reason. All are `InputError`s: the remedy is
in the data or the plan, and retrying never helps.
"""

from __future__ import annotations

from typing import ClassVar

from sage.core.errors import InputError


class StatisticsError(InputError):
    """The data do not allow this statistic."""

    code: ClassVar[str] = "statistics"


class BadTimesError(StatisticsError):
    """Times that are negative, not finite or implausible for their unit."""

    code = "bad_times"


class BadEventsError(StatisticsError):
    """Event flags other than 0 and 1 (or False and True)."""

    code = "bad_events"


class ShapeError(StatisticsError):
    """Arrays of different length, or too few rows."""

    code = "shape"


class MissingValuesError(StatisticsError):
    """NaN or infinity where complete rows are required."""

    code = "missing_values"


class NoEventsError(StatisticsError):
    """Nobody had the event, so nothing can be estimated."""

    code = "no_events"


class EmptyGroupError(StatisticsError):
    """A comparison in which one side has no patients."""

    code = "empty_group"


class ConstantFeatureError(StatisticsError):
    """A feature with a single value among the analyzed patients."""

    code = "constant_feature"


class CollinearError(StatisticsError):
    """Covariates that are linear combinations of each other."""

    code = "collinear"


class TooManyCovariatesError(StatisticsError):
    """At least as many covariates as events."""

    code = "too_many_covariates"


class SeparationError(StatisticsError):
    """A covariate that orders or splits the events perfectly: its coefficient is infinite."""

    code = "separation"


class ConvergenceError(StatisticsError):
    """The likelihood could not be maximized."""

    code = "no_convergence"
