"""The validation contract: planned tests, written and hashed before any outcome is compared.

A contract is plain data. Freezing binds it to the hashes of a cohort's files; only tests
in a frozen contract are run. An amendment is a new version that names its parent by hash.

Source: SAGE, 3.3 and appendix E.5; REMARK (McShane et al. 2005) and TRIPOD (Collins et
al. 2015) for the items that a prognostic study declares in advance.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from sage.core.errors import InputError
from sage.core.files import write_text
from sage.core.hashes import hash_text
from sage.core.models import Name, Passage, Strict
from validation.core.dictionary import known_since
from validation.core.hypothesis import (
    Comparison,
    CutRule,
    Direction,
    Filter,
    Hypothesis,
    KnownAt,
    SmallestRelevant,
)
from validation.core.types import canonical_json
from validation.statistics.power import HALVES

VERSION = 2
"""Contract format. Version 2 includes the verdict's requirements for undeclared timing."""
Role = Literal[
    "exposure", "covariate", "unadjusted", "stratum", "filter", "known_positive", "cluster", "site"
]
TestRole = Literal["primary", "secondary", "adjusted", "assumption", "subgroup", "descriptive"]
Method = Literal[
    "kaplan_meier",
    "logrank",
    "cox",
    "spline",
    "maximally_selected",
    "schoenfeld",
    "rmst",
    "period_hazards",
    "cumulative_incidence",
    "cause_specific",
    "fine_gray",
    "gray",
    "fisher",
    "logistic",
    "rank",
    "linear",
    "concordance",
    "calibration",
    "recalibration",
    "calibration_slope",
    "joint_groups",
    "ordered_groups",
    "nested",
    "penalized",
    "mediation",
    "site",
    "time_dependent",
    "table_one",
    "univariable",
    "missing_data",
    "decision_curve",
    "risk_difference",
    "censoring",
    "tipping_point",
    "tipping_covariates",
]
Rescale = Literal["log2", "log2_plus_1", "rank"]
Scale = Literal[
    "hazard ratio",
    "subdistribution hazard ratio",
    "odds ratio",
    "difference (SD)",
    "relative hazard difference",
    "observed/expected ratio",
    "calibration slope",
]
DIFFERENCES: tuple[Scale, ...] = ("difference (SD)", "relative hazard difference")
"""Scales on which 0 means no effect.

A relative hazard difference is a difference in hazards, in units of the compared
patients' average hazard.
"""


def scale_of(kind: str) -> Scale:
    """Return the scale on which a model reports the effect for a kind of endpoint."""
    scales: dict[str, Scale] = {
        "survival": "hazard ratio",
        "competing": "hazard ratio",
        "binary": "odds ratio",
        "continuous": "difference (SD)",
    }
    return scales[kind]


class VariableUse(Strict):
    """A variable as the contract uses it: source, scale, and cut rule.

    Cut-points are computed in the analyzed population from this variable only, after
    `rescale`. `known_at` and `before` come from the data dictionary.
    """

    key: str
    role: Role
    label: Name
    kind: Literal["continuous", "binary", "categorical", "ordinal"]
    source: Passage = ""
    unit: Name | None = None
    transform: Literal["as_is", "z_score", "indicator"] = "as_is"
    cut: CutRule | None = None
    threshold: float | None = None
    rescale: Rescale | None = Field(default=None, exclude_if=lambda given: given is None)
    level: Literal["high", "low"] | None = None
    known_at: KnownAt = "unknown"
    before: Name | float | None = None


class EndpointUse(Strict):
    """An outcome as the contract uses it; `entry` if it has delayed entry.

    `time_zero` names the event from which times count; empty if the cohort does not declare it.
    """

    key: str
    kind: Literal["survival", "binary", "continuous", "competing"]
    label: Name
    coding: Passage = ""
    unit: Name | None = None
    entry: bool = Field(default=False, exclude_if=lambda given: not given)
    time_zero: Name = Field(default="", exclude_if=lambda given: not given)


class Within(Strict):
    """Effect of an exposure (1 or 2) with the other fixed at its exposed or reference level.

    A continuous exposure is fixed a standard deviation above or below its mean.
    """

    exposure: Literal[1, 2]
    other: Literal["exposed", "reference"]


class TestPlan(Strict):
    """A registered test. `claim` is True if its p-value can support a claim."""

    __test__ = False

    id: str
    role: TestRole
    method: Method
    endpoint: str
    covariates: tuple[str, ...] = ()
    strata: tuple[str, ...] = ()
    subgroup: Filter | None = None
    within: Within | None = Field(default=None, exclude_if=lambda given: given is None)
    claim: bool = False
    note: str = ""


class Power(Strict):
    """Power of the primary test, computed only from event counts and group sizes.

    `minimum_detectable` is on the effect's ratio scale (1 / it for protective effects), or in
    standard deviations for continuous outcomes. `contrast` is the distance between the groups
    to which the smallest relevant effect refers, in units of the effect (standard deviations,
    doublings, steps); None if the effect itself compares the groups.
    """

    n: int
    events: float | None
    fraction_exposed: float | None
    power: float = 0.8
    minimum_detectable: float | None
    required_events: int | None
    basis: Literal["dictionary", "cohort"]
    note: str = ""
    contrast: float | None = Field(default=None, exclude_if=lambda given: given is None)


class MissingRule(Strict):
    """Rule for missing values in covariates; patients without exposure or outcome are excluded."""

    policy: Literal["complete_case", "multiple_imputation"] = "complete_case"
    imputations: int = Field(default=20, ge=2, le=200)
    most_missing: float = Field(default=0.5, gt=0, lt=1)


class SplitRule(Strict):
    """Rule for splitting patients.

    `discovery_confirmation` holds patients back; they are unlocked once, after discovery.
    """

    policy: Literal["none", "discovery_confirmation"] = "none"
    confirmation: float = Field(default=0.5, gt=0.1, lt=0.9)
    unlock_alpha: float = Field(default=0.2, gt=0, le=1)

    @property
    def confirming(self) -> float:
        """Expected share of patients on whom the claim is tested."""
        return 1.0 if self.policy == "none" else self.confirmation


class Online(Strict):
    """The claim's place among those ever confirmed in the same patients.

    `level` is the significance level that a campaign's online error control assigns to that
    place: the two-sided p-value in the confirmation patients or the second cohort must be
    below it.
    """

    campaign: str
    place: int = Field(ge=1)
    level: float = Field(gt=0, lt=1)


class KnownPositive(Strict):
    """An association that must appear if the outcome data are sound (stage with survival)."""

    variable: str
    endpoint: str
    direction: Direction = Direction.HIGHER_RISK
    label: Name = ""


class ControlPlan(Strict):
    """Controls that run alongside the claim. Zero or None turns a control off, visibly."""

    permutations: int = Field(default=2000, ge=0, le=100_000)
    random_features: int = Field(default=1000, ge=0, le=5000)
    missingness: bool = True
    known_positive: KnownPositive | None = None
    negative_endpoint: str | None = None


class SpecificationPlan(Strict):
    """The defensible choices, whose product is the curve (`strata`: with and without them)."""

    cuts: tuple[CutRule, ...] = (CutRule.MEDIAN, CutRule.TERTILE, CutRule.CONTINUOUS)
    covariate_sets: tuple[tuple[str, ...], ...] = ((),)
    strata_sets: tuple[tuple[str, ...], ...] = ((),)
    follow_up_months: tuple[float | None, ...] = (None, 60.0)
    exclude_first_months: tuple[float, ...] = (0.0, 1.0)

    @model_validator(mode="after")
    def _holds_the_claims_own(self) -> SpecificationPlan:
        own = (() in self.covariate_sets, None in self.follow_up_months)
        if not (self.cuts and all(own) and 0.0 in self.exclude_first_months):
            raise ValueError(
                "the curve omits the claim's own choices; keep at least one cut, covariates [], "
                "follow-up null, exclusions 0"
            )
        return self


class Rules(Strict):
    """Thresholds used by tests and verdict. All are fixed when the contract is frozen."""

    alpha: float = Field(default=0.05, gt=0, le=0.2)
    relevant_ratio: float = Field(default=1.5, gt=1)
    relevant_difference: float = Field(default=0.3, gt=0)
    min_group: int = Field(default=10, ge=2)
    min_events: int = Field(default=10, ge=1)
    events_per_covariate: float = Field(default=10.0, gt=0)
    proportionality_alpha: float = Field(default=0.05, gt=0, lt=0.5)
    rmst_months: float = Field(default=60.0, gt=0)
    sign_stability: float = Field(default=0.9, gt=0.5, le=1)
    random_percentile: float = Field(default=0.95, gt=0.5, lt=1)


RATIO_SOURCE = (
    "SAGE's default, 1.5: no threshold for markers is established; as an odds ratio, it is "
    "0.22 SD, a small effect (Cohen 1988; Chinn 2000)"
)
DIFFERENCE_SOURCE = "a convention: 0.3 SD, between a small and a medium effect (Cohen 1988)"
INDIRECT_SOURCE = "a convention: product of the two paths' smallest relevant effects"


def default_relevant(comparison: Comparison, scale: Scale, rules: Rules) -> SmallestRelevant:
    """Return the smallest relevant effect on a scale, for claims that do not name one.

    For an indirect effect, it is the smallest relevant effect on the mediator (in its
    standard deviations) times the mediator's smallest relevant effect on the outcome, per
    standard deviation.
    """
    if comparison is Comparison.MEDIATION:
        hazards = scale == "relative hazard difference"
        further = rules.relevant_ratio - 1.0 if hazards else rules.relevant_difference
        size = rules.relevant_difference * further / HALVES
        return SmallestRelevant(size=size, source=INDIRECT_SOURCE)
    if scale in DIFFERENCES:
        return SmallestRelevant(size=rules.relevant_difference, source=DIFFERENCE_SOURCE)
    return SmallestRelevant(size=rules.relevant_ratio, source=RATIO_SOURCE)


class Contract(Strict):
    """The complete analysis plan, in the order of a protocol."""

    schema_version: int = VERSION
    version: int = 1
    parent: str | None = None
    amendment: str = ""
    cohort: str
    simulated: bool
    hypothesis: Hypothesis
    population: str
    filters: tuple[Filter, ...] = ()
    variables: tuple[VariableUse, ...]
    comparison: Comparison
    exposed: str
    reference: str
    endpoints: tuple[EndpointUse, ...]
    direction: Direction
    scale: Scale
    tests: tuple[TestPlan, ...]
    primary: str
    covariates: tuple[str, ...] = ()
    strata: tuple[str, ...] = ()
    cluster: str | None = None
    site: str | None = None
    rules: Rules = Rules()
    relevant: SmallestRelevant | None = Field(default=None, exclude_if=lambda given: given is None)
    power: Power
    missing: MissingRule = MissingRule()
    split: SplitRule = SplitRule()
    controls: ControlPlan = ControlPlan()
    specification: SpecificationPlan = SpecificationPlan()
    seed: int = 0
    untested: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    online: Online | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> Contract:
        ids = [test.id for test in self.tests]
        if len(set(ids)) != len(ids):
            raise ValueError("two tests have the same id")
        if self.primary not in ids:
            raise ValueError(f'the primary test "{self.primary}" is not among the tests')
        if [test.id for test in self.tests if test.role == "primary"] != [self.primary]:
            raise ValueError(
                "a contract must have exactly one primary test, which must be the declared one"
            )
        if not self.primary_test.claim:
            raise ValueError("the primary test must support the claim; set its `claim`")
        known = {endpoint.key for endpoint in self.endpoints}
        for test in self.tests:
            if test.endpoint not in known:
                raise ValueError(
                    f'test "{test.id}" uses endpoint "{test.endpoint}", which is not listed'
                )
        if self.version > 1 and (self.parent is None or not self.amendment):
            raise ValueError("an amended contract must specify its parent and the reason")
        return self

    @model_validator(mode="after")
    def _controls_and_choices_are_its_own(self) -> Contract:
        positive, negative = self.controls.known_positive, self.controls.negative_endpoint
        if negative is not None and negative != self.hypothesis.negative_endpoint:
            raise ValueError(
                f'"{negative}" is not hypothesis.negative_endpoint; set it to this endpoint'
            )
        if positive is not None and positive.variable not in self.keys():
            raise ValueError(f'the known positive "{positive.variable}" is not a listed variable')
        for what, sets, has in (
            ("covariate", self.specification.covariate_sets, self.covariates),
            ("stratum", self.specification.strata_sets, self.strata),
        ):
            other = sorted({key for group in sets for key in group} - set(has))
            if other:
                raise ValueError(f'specification: "{other[0]}" is not a {what} in the contract')
        if self.strata not in self.specification.strata_sets:
            raise ValueError("specification.strata_sets omits the contract's own strata")
        return self

    @model_validator(mode="after")
    def _spends_what_its_place_has(self) -> Contract:
        if self.online is not None:
            from validation.statistics.online import level

            most = level(self.online.place, self.rules.alpha)
            if self.online.level > most * (1 + 1e-9):
                raise ValueError(
                    f"online.level {self.online.level:.6g} exceeds the level for position "
                    f"{self.online.place} in a campaign ({most:.6g})"
                )
        return self

    @property
    def primary_test(self) -> TestPlan:
        """Return the test on which the verdict is based."""
        return self.test(self.primary)

    @property
    def model_scale(self) -> Scale:
        """Scale of a single model for the primary endpoint, as in the specification curve."""
        return scale_of(self.endpoint(self.primary_test.endpoint).kind)

    @property
    def effect_name(self) -> str:
        """Name of the primary test's effect scale, such as a ratio of ratios for a product."""
        product = self.comparison.is_product and self.scale.endswith("ratio")
        return f"ratio of two {self.scale}s" if product else self.scale

    @property
    def relevant_effect(self) -> float:
        """Smallest relevant effect per unit of the effect; a logarithm for ratios."""
        size = (self.relevant or default_relevant(self.comparison, self.scale, self.rules)).size
        return (size if self.scale in DIFFERENCES else math.log(size)) / (self.power.contrast or 1)

    @property
    def associates(self) -> bool:
        """True if an association is claimed, which permutations and other choices can test."""
        return self.comparison is not Comparison.CALIBRATED

    @property
    def exposures(self) -> tuple[VariableUse, ...]:
        """The variables whose effect is claimed."""
        return tuple(variable for variable in self.variables if variable.role == "exposure")

    @property
    def claimed(self) -> tuple[VariableUse, ...]:
        """The exposures that carry the claim: all, or only those added to the first."""
        return self.exposures[1:] if self.comparison is Comparison.ADDED else self.exposures

    @property
    def redrawn(self) -> tuple[VariableUse, ...]:
        """Claimed exposures that are redrawn apart; the first stands for all of a score."""
        return self.claimed[:1] if self.hypothesis.penalty else self.claimed

    def test(self, name: str) -> TestPlan:
        """Return a registered test.

        Raises `InputError` if it is not registered; the runner runs only registered tests.
        """
        for item in self.tests:
            if item.id == name:
                return item
        raise InputError(
            f'test "{name}" is not in the contract; registered: '
            f"{', '.join(test.id for test in self.tests)}. Amend the contract to add it"
        )

    def endpoint(self, key: str) -> EndpointUse:
        """Return a registered endpoint."""
        for item in self.endpoints:
            if item.key == key:
                return item
        raise InputError(f'endpoint "{key}" is not in the contract')

    def keys(self) -> list[str]:
        """List the columns that the analysis may read: variables and when they became known."""
        found = [variable.key for variable in self.variables]
        found += [
            known_since(variable.key)
            for variable in self.variables
            if variable.known_at == "column"
        ]
        return list(dict.fromkeys(found))

    @property
    def name(self) -> str:
        """Name of the results folder: the hypothesis's ID, with a suffix from version 2 on."""
        versioned = f"{self.hypothesis.id}.v{self.version}"
        return self.hypothesis.id if self.version == 1 else versioned


class FrozenContract(Strict):
    """A contract bound to its data. `sha256` covers both."""

    contract: Contract
    data_hashes: dict[str, str]
    sha256: str

    @model_validator(mode="after")
    def _hash_holds(self) -> FrozenContract:
        if self.sha256 != digest(self.contract, self.data_hashes):
            raise ValueError("the contract was changed after it was frozen (hash does not match)")
        return self

    def save(self, path: Path) -> Path:
        """Write the contract as JSON; equal contracts give identical text."""
        text = json.dumps(
            self.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False
        )
        write_text(path, text + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> FrozenContract:
        """Read and verify a frozen contract.

        Raises `InputError` if the file is missing, not JSON, not a frozen contract, or was changed
        after freezing.
        """
        given = _load_json(path)
        contract = given.get("contract") if isinstance(given, dict) else None
        written = contract.get("schema_version") if isinstance(contract, dict) else None
        if isinstance(written, int) and written != VERSION:
            raise InputError(
                f"{path}: frozen in contract format {written}, but this SAGE version reads "
                f"format {VERSION}. Run it with the version that froze it, or freeze its "
                "hypothesis again with `sage validate contract`"
            )
        found: FrozenContract = validated(cls, given, f"{path}: ")
        return found


def digest(contract: Contract, data_hashes: dict[str, str]) -> str:
    """Compute the SHA-256 of the canonical JSON of a contract and its data hashes.

    A contract outside a campaign has the same hash as before campaigns were introduced.
    """
    apart = {"online"} if contract.online is None else set()
    value = {"contract": contract.model_dump(mode="json", exclude=apart), "data": data_hashes}
    return hash_text(canonical_json(value))


def read_claim(path: Path) -> Hypothesis | FrozenContract:
    """Read a hypothesis or a frozen contract; raises `InputError` if the file is neither."""
    found = _load_json(path)
    frozen = isinstance(found, dict) and "contract" in found
    return FrozenContract.load(path) if frozen else read_hypothesis(path)


def read_hypothesis(path: Path) -> Hypothesis:
    """Read a hypothesis file.

    Raises `InputError` if the file is missing, not JSON, or not a hypothesis; the message names the
    field.
    """
    found: Hypothesis = validated(Hypothesis, _load_json(path), f"{path}: ")
    return found


def validated(model: type[Any], values: Any, where: str) -> Any:
    """Validate values; raise `InputError`, whose message begins with `where`, if invalid."""
    from validation.cohort.model import describe

    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{where}{describe(error)}") from None


def _load_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise InputError(f"{path}: file not found") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not readable JSON: {error}") from None
