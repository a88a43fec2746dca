"""Named statistics errors, for data that do not support the requested number.

Each class has a `code` that a verdict can use as its reason. All are `InputError`s: the
remedy is in the data or the plan, and retrying never helps.
"""

from __future__ import annotations

from typing import ClassVar

from sage.core.errors import InputError


class StatisticsError(InputError):
    """Base class of errors for data that do not allow a statistic."""

    code: ClassVar[str] = "statistics"


class BadTimesError(StatisticsError):
    """Error for times that are negative, not finite or implausible for their unit."""

    code = "bad_times"


class BadEventsError(StatisticsError):
    """Error for event flags other than 0 and 1 (or False and True)."""

    code = "bad_events"


class ShapeError(StatisticsError):
    """Error for arrays with different lengths or too few rows."""

    code = "shape"


class MissingValuesError(StatisticsError):
    """Error for NaN or infinity where complete rows are required."""

    code = "missing_values"


class NoEventsError(StatisticsError):
    """Error raised if no patient had the event, so nothing can be estimated."""

    code = "no_events"


class EmptyGroupError(StatisticsError):
    """Error for a comparison in which a group has no patients."""

    code = "empty_group"


class ConstantFeatureError(StatisticsError):
    """Error for a feature with a single value among the analyzed patients."""

    code = "constant_feature"


class CollinearError(StatisticsError):
    """Error for covariates that are linear combinations of each other."""

    code = "collinear"


class TooManyCovariatesError(StatisticsError):
    """Error raised if there are at least as many covariates as events."""

    code = "too_many_covariates"


class SeparationError(StatisticsError):
    """Error for a covariate that separates the events perfectly, with an infinite coefficient."""

    code = "separation"


class ConvergenceError(StatisticsError):
    """Error raised if the likelihood could not be maximized."""

    code = "no_convergence"
