"""A hypothesis in testable form: the five fields of the template, tied to a data dictionary.

Source: SAGE, 3.2.3 (population, variables, outcome, expected directionality, validation
feasibility).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from sage.core.models import Name, Passage, Strict
from sage.core.printable import within_sentence
from validation.core.signature import GeneSignature, genes_of, read_signature

LONGEST_ID = 80
LONGEST_NAME = 200
"""Maximum ID length in bytes, which leaves room for a prefix and suffix in a file name."""
UNPRINTED = ("Cc", "Cs", "Zl", "Zp")
"""Nonprintable Unicode categories: control characters, surrogates, line/paragraph separators."""


KnownAt = Literal["baseline", "column", "unknown"] | float
"""Time when a value became known.

"baseline" is by the start of follow-up, "column" at a time recorded for each patient,
"unknown" is not declared, and a number gives the months after the start.
"""


class Filter(Strict):
    """A condition on a variable in the data dictionary, e.g. `clinical:gender == MALE`."""

    variable: str
    op: Literal["eq", "ne", "in", "lt", "le", "gt", "ge", "present"]
    value: Name | float | tuple[Name | float, ...] | None = None


class Population(Strict):
    """The patients to whom a claim applies."""

    description: str
    filters: tuple[Filter, ...] = ()


Transform = Literal["none", "log2", "log2_plus_1", "rank"]
"""Transform applied to a variable's values first.

It is log2(x), log2(x + 1), or the percentile among the analyzed patients, (mean rank -
1/2) / n.
"""


class CutRule(StrEnum):
    """Rule for grouping a continuous variable. Only `OPTIMAL` uses the outcome, and corrects p.

    `QUARTILE` and `LEVELS` (each value of an ordinal variable is a group) are for trends.
    """

    MEDIAN = "median"
    TERTILE = "tertile"
    QUARTILE = "quartile"
    LEVELS = "levels"
    FIXED = "fixed"
    CONTINUOUS = "continuous"
    SPLINE = "spline"
    OPTIMAL = "optimal"
    """The cut that best separates outcomes, with a p-value corrected for the search.

    The effect is reported per standard deviation, because the effect at the best cut is
    overestimated.
    """


UNGROUPED = (CutRule.CONTINUOUS, CutRule.SPLINE, CutRule.OPTIMAL)
"""Cut rules that do not form groups."""


class Exposure(Strict):
    """A predictor. `level` is the level that the hypothesis calls exposed ("high" or "low").

    `variable` is a key in the data dictionary ("expression:FABP5", "imaging:tls_density",
    "clinical:age"). With `signature` the predictor is a score from several genes, and
    `variable` may be left out: it is the signature's key. `threshold` is only for
    `CutRule.FIXED`, in the variable's unit (after a rank transform: a percentile between 0
    and 1). `randomized` means that a treatment was assigned at random.
    """

    variable: str = ""
    label: Name
    level: Literal["high", "low"] = "high"
    cut: CutRule = CutRule.MEDIAN
    threshold: float | None = None
    signature: GeneSignature | None = Field(default=None, exclude_if=lambda given: given is None)
    transform: Transform = Field(default="none", exclude_if=lambda given: given == "none")
    randomized: bool = Field(default=False, exclude_if=lambda given: not given)

    @model_validator(mode="before")
    @classmethod
    def _named_by_its_genes(cls, given: Any) -> Any:
        """Fill in a signature's key from the signature, or the signature from its key."""
        if not isinstance(given, dict):
            return given
        key = given.get("variable") or ""
        signature = given.get("signature")
        if signature is None:
            found = read_signature(key) if isinstance(key, str) else None
            return given if found is None else given | {"variable": found.key, "signature": found}
        found = GeneSignature.model_validate(signature)
        same = key in ("", found.key) or read_signature(key) in (found, read_signature(found.key))
        if not same:
            raise ValueError(
                f'exposure "{given.get("label")}": `variable` specifies "{key}", but `signature` '
                "specifies other genes; leave `variable` out"
            )
        return given | {"variable": found.key, "signature": found}

    @model_validator(mode="after")
    def _names_a_variable(self) -> Exposure:
        if not self.variable:
            raise ValueError(f"exposure {self.label}: specify `variable` or `signature`")
        return self

    @model_validator(mode="after")
    def _threshold_belongs_to_fixed(self) -> Exposure:
        if (self.cut is CutRule.FIXED) != (self.threshold is not None):
            raise ValueError(
                f'exposure {self.label}: `threshold` is required if `cut` is "fixed", and not '
                "allowed otherwise"
            )
        return self


Penalty = Literal["lasso", "ridge"]


class Comparison(StrEnum):
    """Type of comparison that a hypothesis makes."""

    EXPOSED_VS_REST = "exposed_vs_rest"
    """Patients at the exposed level of all exposures versus all other patients."""
    EXTREMES = "extremes"
    """Patients at the exposed level of all exposures versus those at all opposite levels."""
    INTERACTION = "interaction"
    """The product term of the two exposures in a model that includes both."""
    PER_SD = "per_sd"
    """A single continuous exposure, per standard deviation."""
    PER_DOUBLING = "per_doubling"
    """A single continuous exposure, per doubling of its value."""
    TREND = "trend"
    """A single exposure in ordered groups, per step to the next group (one degree of freedom)."""
    PREDICTIVE = "predictive"
    """Difference in the effect of a treatment (second exposure) by a biomarker (first exposure)."""
    MODIFICATION = "modification"
    """Difference in the first exposure's association by the second exposure, the modifier."""
    COMBINED = "combined"
    """Improvement from all exposures together over the covariates, by a test of nested models."""
    ADDED = "added"
    """Improvement from the second exposure over the first, in all patients, by nested models."""
    MEDIATION = "mediation"
    """Effect of the first exposure on the endpoint through the second exposure, the mediator."""
    CALIBRATED = "calibrated"
    """The risks that a published score (the exposure) predicts are those observed."""

    @property
    def is_product(self) -> bool:
        """True if the comparison tests the product term of two exposures."""
        return self in (Comparison.INTERACTION, Comparison.PREDICTIVE, Comparison.MODIFICATION)

    @property
    def is_slope(self) -> bool:
        """True if a single exposure is compared by its amount rather than between two groups."""
        return self in (Comparison.PER_SD, Comparison.PER_DOUBLING, Comparison.TREND,
                        Comparison.CALIBRATED)  # fmt: skip


class Direction(StrEnum):
    """Direction expected in the exposed group."""

    HIGHER_RISK = "higher_risk"
    """Shorter survival, more events, or a higher value of a continuous outcome."""
    LOWER_RISK = "lower_risk"
    EITHER = "either"
    """No direction: an association in either direction is claimed, and the data determine which."""


def describe_outcome(direction: Direction, kind: str, label: str) -> str:
    """Describe the exposed patients' outcome for an endpoint, e.g. "shorter overall survival"."""
    words = {
        "survival": ("shorter", "longer", "different"),
        "continuous": ("higher", "lower", "different"),
    }.get(kind, ("more frequent", "less frequent", "more or less frequent"))
    return f"{words[tuple(Direction).index(direction)]} {within_sentence(label)}"


class SmallestRelevant(Strict):
    """The smallest effect that matters, with the source for that judgment.

    `size` is a ratio above 1, or a difference in standard deviations of the outcome, between
    the two groups compared. For a claim per amount of a marker it is between the upper and
    the lower half of the marker, so that the same effect is relevant regardless of how the
    marker is cut.
    """

    size: float = Field(gt=0, le=100, allow_inf_nan=False)
    source: Passage = ""


Share = Annotated[float, Field(gt=0, lt=1)]


class Calibration(Strict):
    """Conversion of a published score to predicted risks, and margins for its calibration.

    `values` are predicted risks, or linear predictors: log odds for a binary endpoint, else
    log hazards relative to a patient whose survival at the `horizon` (months) is `baseline`.
    If the exposure's `level` is low, `values` predict freedom from the event. `ratio` and
    `slope` are the margins of observed / expected events and of the calibration slope.
    `thresholds` is the range of risks at which treatment may start, for the decision curve.
    """

    values: Literal["risk", "linear"] = "risk"
    horizon: float | None = Field(default=None, gt=0, le=600)
    baseline: Share | None = None
    ratio: tuple[Share, float] = (0.8, 1.25)
    slope: tuple[Share, float] = (0.8, 1.25)
    thresholds: tuple[Share, Share]
    source: Passage = (
        "SAGE's default, 0.8 to 1.25: no margins for calibration are established; these are those "
        "of bioequivalence, also tested by two one-sided tests (Schuirmann 1987)"
    )

    @model_validator(mode="after")
    def _ranges_hold(self) -> Calibration:
        if not (1 < self.ratio[1] <= 10 and 1 < self.slope[1] <= 10):
            raise ValueError("calibration: margins must lie on both sides of 1")
        if self.thresholds[0] >= self.thresholds[1]:
            raise ValueError("calibration.thresholds: list the lower threshold first")
        return self


class Hypothesis(Strict):
    """A claim that a cohort can refute.

    If `statement` is left out, SAGE writes it from the fields. With `hierarchy` the secondary
    endpoints are claimed too, in their order: each is tested only if the claim is supported
    for all preceding ones, at the same alpha (fixed sequence). `subgroups` are reported next
    to the claim and never carry it. `strata` are categorical variables within whose levels
    patients are compared: each level has its own baseline hazard but no hazard ratio of its
    own. `negative_endpoint` is an endpoint that the exposure should not affect. `causes` are
    the arrows in a causal diagram ("clinical:age -> OS") over variables, endpoints and
    unmeasured factors: without `covariates` they determine the adjustment set.
    `unadjusted_because` declares that there is nothing to adjust for, with the reason ("the
    exposure was randomized"); without it, and without a covariate (an empty list does not
    count as a declaration), baseline variables are adjusted for in the order of their
    relation to the exposure. `untested` lists the parts of the statement that the cohort
    cannot test; the report repeats them next to the verdict. `relevant` is the smallest
    effect that matters, if the claim does not use the endpoint's default. With a `penalty`,
    a `combined` claim is about the score of a lasso or ridge Cox model, by which each patient
    is scored from the models of the other patients (nested cross-validation).

    Variables that became known after the start of follow-up are handled in either of two
    ways: with `landmark`, follow-up starts that many months later, among patients still at
    risk then; with `time_dependent`, each patient counts as unexposed until the exposure
    occurred (start-stop records).
    """

    id: str
    statement: str = ""
    population: Population
    exposures: tuple[Exposure, ...] = Field(min_length=1, max_length=40)
    comparison: Comparison
    penalty: Penalty | None = Field(default=None, exclude_if=lambda given: given is None)
    calibration: Calibration | None = Field(default=None, exclude_if=lambda given: given is None)
    endpoint: str
    secondary_endpoints: tuple[str, ...] = ()
    hierarchy: bool = Field(default=False, exclude_if=lambda given: not given)
    direction: Direction
    relevant: SmallestRelevant | None = Field(default=None, exclude_if=lambda given: given is None)
    covariates: tuple[str, ...] = ()
    strata: tuple[str, ...] = Field(default=(), max_length=3)
    subgroups: tuple[Filter, ...] = ()
    negative_endpoint: str | None = None
    landmark: float | None = Field(default=None, gt=0, le=600)
    time_dependent: bool = False
    causes: tuple[str, ...] = Field(default=(), max_length=200)
    unadjusted_because: Passage = ""
    rationale: Passage = ""
    feasibility: Passage = ""
    untested: tuple[Passage, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _no_frailty(cls, given: Any) -> Any:
        if isinstance(given, dict) and "frailty" in given:
            raise ValueError(
                "frailty (a random effect per group) is not estimated, because it depends on an "
                "assumed distribution; list the groups in `strata` to compare patients "
                "within them, or as the cohort's `cluster` for a robust variance"
            )
        return given

    @model_validator(mode="after")
    def _comparison_fits(self) -> Hypothesis:
        count = len(self.exposures)
        paired = self.comparison.is_product or self.comparison is Comparison.ADDED
        if paired and count != 2:
            raise ValueError(f"comparison `{self.comparison}` needs two exposures, got {count}")
        if self.comparison.is_slope and count != 1:
            raise ValueError(f"comparison `{self.comparison}` needs one exposure, got {count}")
        if self.comparison is Comparison.MEDIATION:
            if count != 2:
                raise ValueError(
                    f"comparison `mediation` requires an exposure and a mediator, got {count}"
                )
            if self.direction is Direction.EITHER:
                raise ValueError("comparison `mediation` requires a direction other than `either`")
            if self.exposures[1].cut is not CutRule.CONTINUOUS:
                raise ValueError(
                    f"mediator {self.exposures[1].label}: a mediator must not be cut; set its "
                    '`cut` to "continuous"'
                )
        if self.comparison is Comparison.COMBINED and count < 2:
            raise ValueError("comparison `combined` needs two exposures or more")
        if self.comparison is not Comparison.COMBINED and count > 3:
            raise ValueError(
                f"comparison `{self.comparison}` allows at most three exposures, got {count}; "
                "`combined` allows eight, and forty with a `penalty`"
            )
        if self.penalty is None and count > 8:
            raise ValueError(f"{count} exposures need a `penalty`; without it, eight are allowed")
        if self.penalty is not None and (
            self.comparison is not Comparison.COMBINED
            or self.direction is not Direction.HIGHER_RISK
            or self.secondary_endpoints
            or self.subgroups
        ):
            raise ValueError(
                "`penalty` requires comparison `combined` and direction `higher_risk`, because a "
                "higher score means a higher risk; the score is trained on the claim's endpoint in "
                "all patients, so omit `secondary_endpoints` and `subgroups`"
            )
        if self.hierarchy and not self.secondary_endpoints:
            raise ValueError(
                "`hierarchy` orders `secondary_endpoints`; specify at least one secondary endpoint"
            )
        return self

    @model_validator(mode="after")
    def _calibrates_a_score(self) -> Hypothesis:
        if (self.comparison is Comparison.CALIBRATED) != (self.calibration is not None):
            raise ValueError("comparison `calibrated` and the field `calibration` need each other")
        beside = ("covariates", "strata", "secondary_endpoints", "negative_endpoint", "landmark",
                  "causes", "unadjusted_because", "relevant")  # fmt: skip
        given = [name for name in beside if self.calibration is not None and getattr(self, name)]
        if given:
            raise ValueError(f"a calibrated score is compared with outcomes alone; omit {given[0]}")
        score = (self.exposures[0].cut, self.exposures[0].transform, self.direction)
        if self.calibration and score != (CutRule.CONTINUOUS, "none", Direction.HIGHER_RISK):
            raise ValueError(
                'comparison `calibrated` requires cut "continuous", no transform, and direction '
                "`higher_risk`"
            )
        return self

    @model_validator(mode="after")
    def _values_and_cuts_fit(self) -> Hypothesis:
        comparison = self.comparison
        for exposure in self.exposures:
            named = f"exposure {exposure.label}"
            ordered = exposure.cut in (CutRule.TERTILE, CutRule.QUARTILE, CutRule.LEVELS)
            if comparison is Comparison.TREND and not ordered:
                raise ValueError(f'{named}: a trend takes cut "tertile", "quartile" or "levels"')
            if comparison is not Comparison.TREND and exposure.cut in (
                CutRule.QUARTILE, CutRule.LEVELS,
            ):  # fmt: skip
                raise ValueError(
                    f'{named}: cut "{exposure.cut}" is allowed only for comparison `trend`'
                )
            if exposure.randomized and comparison is not Comparison.PREDICTIVE:
                raise ValueError(
                    f"{named}: `randomized` applies only to the treatment in comparison "
                    "`predictive`; otherwise use `unadjusted_because`"
                )
            if exposure.transform == "none":
                continue
            if comparison is Comparison.PER_DOUBLING and exposure.transform == "rank":
                raise ValueError(
                    f"{named}: an effect per doubling is undefined for a percentile; omit "
                    "`transform`"
                )
            grouped = exposure.cut not in UNGROUPED and comparison not in (
                Comparison.PER_SD, Comparison.PER_DOUBLING,
            )  # fmt: skip
            if grouped and (exposure.cut, exposure.transform) != (CutRule.FIXED, "rank"):
                raise ValueError(
                    f'{named}: transform "{exposure.transform}" does not change the groups '
                    f'defined by cut "{exposure.cut}"; omit it, or use comparison per_sd'
                )
        return self

    @model_validator(mode="after")
    def _genes_belong_to_one_exposure(self) -> Hypothesis:
        for at, exposure in enumerate(self.exposures):
            for other in self.exposures[:at]:
                if both := genes_of(exposure.variable) & genes_of(other.variable):
                    raise ValueError(
                        f'gene "{min(both)}" is part of both {other.label} and '
                        f"{exposure.label}; keep it in only one exposure"
                    )
        return self

    @model_validator(mode="after")
    def _one_way_to_count_time(self) -> Hypothesis:
        if self.time_dependent and self.landmark is not None:
            raise ValueError("specify `landmark` or `time_dependent`, not both")
        amounts = self.comparison.is_slope and self.comparison is not Comparison.PER_SD
        changes = any(exposure.transform != "none" for exposure in self.exposures)
        several = self.comparison.is_product or self.comparison in (
            Comparison.COMBINED, Comparison.ADDED, Comparison.MEDIATION,
        )  # fmt: skip
        several = several and self.comparison is not Comparison.INTERACTION
        if self.time_dependent and (amounts or several or changes):
            raise ValueError(
                "`time_dependent` requires a yes/no exposure counted from its occurrence; "
                f"comparison `{self.comparison}` and transforms are not supported"
            )
        return self

    @field_validator("id")
    @classmethod
    def _id_names_a_folder(cls, value: str) -> str:
        """Require an id that is safe as the name of the results folder."""
        if not value.strip() or value != value.strip():
            raise ValueError("an id must not start or end with spaces")
        if len(value) > LONGEST_ID or len(value.encode("utf-8", "replace")) > LONGEST_NAME:
            raise ValueError(f"an id must have at most {LONGEST_ID} characters, got {len(value)}")
        if value.startswith(".") or value == "ledger.jsonl":
            raise ValueError(
                f'"{value}" cannot be used as the name of a results folder; choose another id'
            )
        if any(item in "/\\" or unicodedata.category(item) in UNPRINTED for item in value):
            raise ValueError(
                "an id must not contain a slash, backslash, line break or control character"
            )
        return value

    @model_validator(mode="after")
    def _each_thing_once(self) -> Hypothesis:
        """Reject duplicates, which would count the same evidence twice."""
        endpoints = (self.endpoint, *self.secondary_endpoints)
        for what, names in (
            ("endpoint", endpoints),
            ("covariate", self.covariates),
            ("stratum", self.strata),
            ("exposure variable", [exposure.variable for exposure in self.exposures]),
        ):
            if (twice := _first_repeated(names)) is not None:
                raise ValueError(f'{what} "{twice}" is listed twice; keep only one entry')
        if self.negative_endpoint in endpoints:
            raise ValueError(
                f'negative_endpoint "{self.negative_endpoint}" is an endpoint that the '
                "exposure should affect; choose another endpoint, or none"
            )
        return self

    @model_validator(mode="after")
    def _adjusts_or_says_why_not(self) -> Hypothesis:
        if self.unadjusted_because and self.covariates:
            raise ValueError(
                "`unadjusted_because` states that there is nothing to adjust for, but `covariates` "
                "lists variables to adjust for; keep only one of them"
            )
        return self

    @model_validator(mode="after")
    def _strata_are_nothing_else(self) -> Hypothesis:
        used = {exposure.variable for exposure in self.exposures} | set(self.covariates)
        twice = sorted(used & set(self.strata))
        if twice:
            raise ValueError(
                f'"{twice[0]}" is both a stratum and an exposure or covariate; keep only one of '
                "them"
            )
        return self


def levels_of(hypothesis: Hypothesis) -> dict[str, str]:
    """Return the levels to which the population is restricted, by variable."""
    return {
        each.variable: _plain(each.value)
        for each in hypothesis.population.filters
        if each.op == "eq"
    }


def _plain(value: object) -> str:
    """Convert a level to text, so that 1, 1.0 and "1" are the same."""
    return f"{value:g}" if isinstance(value, int | float) else str(value).casefold()


def disjoint(some: Mapping[str, str], others: Mapping[str, str]) -> bool:
    """Check whether two populations cannot share a patient, given their levels."""
    return any(others.get(variable, level) != level for variable, level in some.items())


def _first_repeated(names: Sequence[str]) -> str | None:
    return next((item for at, item in enumerate(names) if item in names[:at]), None)
