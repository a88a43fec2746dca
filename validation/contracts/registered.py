"""Selection of the tests that a contract registers for each kind of endpoint."""

from __future__ import annotations

from collections.abc import Iterator

from sage.core.errors import InputError
from validation.contracts.contract import Method, TestPlan, Within
from validation.core.dictionary import DataDictionary, Endpoint
from validation.core.hypothesis import Comparison, CutRule, Hypothesis

SEARCHING: dict[CutRule, Method] = {CutRule.SPLINE: "spline", CutRule.OPTIMAL: "maximally_selected"}
ADJUSTED: dict[str, Method] = {
    "survival": "cox",
    "competing": "cause_specific",
    "binary": "logistic",
    "continuous": "linear",
}
WHOLE: dict[Comparison, tuple[Method, str]] = {
    Comparison.COMBINED: ("nested", "p tests all terms; the effect is that of their mean"),
    Comparison.ADDED: ("nested", "p compares models with and without the second exposure"),
    Comparison.MEDIATION: (
        "mediation",
        "natural indirect effect; p is the larger of the two paths'",
    ),
}
"""Comparisons tested by a single method on all exposures together, each with a note."""


def whole_of(hypothesis: Hypothesis) -> tuple[Method, str] | None:
    """Return the method that tests all exposures together, and a note; None if there is none."""
    if hypothesis.penalty is not None:
        return "penalized", f"p by dealing the markers at random; {hypothesis.penalty} Cox model"
    return WHOLE.get(hypothesis.comparison)


PROGNOSIS = "incidence in the presence of the competing event; carries no claim"
TREND_CUTS = (CutRule.TERTILE, CutRule.QUARTILE)
CONTINUOUS_CUTS = (CutRule.CONTINUOUS, CutRule.SPLINE, CutRule.OPTIMAL)


def uses_groups(hypothesis: Hypothesis) -> bool:
    """Check whether two groups are compared, as opposed to a slope or an interaction."""
    compared = hypothesis.comparison
    if compared.is_slope or compared.is_product or compared in WHOLE:
        return False
    return hypothesis.exposures[0].cut not in CONTINUOUS_CUTS


def splits_jointly(hypothesis: Hypothesis) -> bool:
    """Check whether two exposures, each with a cut, split the patients into four groups."""
    together = hypothesis.comparison in WHOLE
    return (
        not together
        and len(hypothesis.exposures) == 2
        and all(exposure.cut not in CONTINUOUS_CUTS for exposure in hypothesis.exposures)
    )


def tests_of(
    hypothesis: Hypothesis,
    endpoint: Endpoint,
    secondary: list[Endpoint],
    covariates: tuple[str, ...],
    strata: tuple[str, ...] = (),
) -> tuple[TestPlan, ...]:
    """Plan all tests in a contract, the primary test first.

    Subgroups repeat the primary test and carry no claim.
    """
    if hypothesis.time_dependent:
        return tuple(_extended_cox_tests(hypothesis, endpoint, secondary, covariates, strata))
    grouped = uses_groups(hypothesis)
    rule = hypothesis.exposures[0].cut
    whole = whole_of(hypothesis)
    tests = _recalibrating(endpoint.key) if hypothesis.calibration is not None else of_endpoint(
        "", endpoint, grouped, rule, covariates, strata, primary=True, whole=whole
    )  # fmt: skip
    if endpoint.kind == "survival" and splits_jointly(hypothesis):
        tests.append(
            TestPlan(
                id="joint_groups",
                role="descriptive",
                method="joint_groups",
                endpoint=endpoint.key,
                strata=strata,
            )
        )
    for other in secondary:
        tests += of_endpoint(
            f"{other.key}.", other, grouped, rule, covariates, strata, primary=False, whole=whole
        )
    if endpoint.kind == "survival" and hypothesis.comparison is Comparison.TREND:
        tests.append(
            TestPlan(
                id="ordered_groups",
                role="secondary",
                method="ordered_groups",
                endpoint=endpoint.key,
                strata=strata,
                note="log-rank test for trend; carries no claim",
            )
        )
    if hypothesis.comparison in (Comparison.PREDICTIVE, Comparison.MODIFICATION):
        tests += _each_within_the_other(hypothesis, endpoint, covariates, strata)
    for number, subgroup in enumerate(hypothesis.subgroups, start=1):
        tests.append(
            tests[0].model_copy(
                update={
                    "id": f"subgroup.{number}",
                    "role": "subgroup",
                    "subgroup": subgroup,
                    "claim": False,
                    "note": f"{subgroup.variable} {subgroup.op} {subgroup.value}",
                }
            )
        )
    return tuple(tests)


def _recalibrating(key: str) -> list[TestPlan]:
    """Plan the tests of a score's predicted risks."""
    both, slope = "p tests both margins", "p tests margins"
    return [
        TestPlan(id="primary", role="primary", method="recalibration", endpoint=key, claim=True,
                 note=both),
        TestPlan(id="slope", role="secondary", method="calibration_slope", endpoint=key,
                 note=slope),
        TestPlan(id="decision_curve", role="secondary", method="decision_curve", endpoint=key),
        TestPlan(id="table_one", role="descriptive", method="table_one", endpoint=key),
    ]  # fmt: skip


def _each_within_the_other(
    hypothesis: Hypothesis, endpoint: Endpoint, covariates: tuple[str, ...], strata: tuple[str, ...]
) -> list[TestPlan]:
    """Plan each exposure's effects at both levels of the other, from a model with all terms."""
    covariates = tuple(key for key in covariates if key not in endpoint.contained_in)
    found = []
    for exposure, other in ((2, 1), (1, 2)):
        effect, held = hypothesis.exposures[exposure - 1], hypothesis.exposures[other - 1]
        sides = {"exposed": held.level, "reference": "low" if held.level == "high" else "high"}
        where = {side: f"where {held.label} is {level}" for side, level in sides.items()}
        if hypothesis.comparison is Comparison.PREDICTIVE and other == 2:
            words = {"high": "with", "low": "without"}
            where = {side: f"{words[level]} {held.label}" for side, level in sides.items()}
        for side, text in where.items():
            found.append(
                TestPlan(
                    id=f"within.{exposure}.{side}",
                    role="subgroup",
                    method=ADJUSTED[endpoint.kind],
                    endpoint=endpoint.key,
                    covariates=covariates,
                    strata=strata,
                    within=Within.model_validate({"exposure": exposure, "other": side}),
                    note=f"{effect.label} {text}",
                )
            )
    return found


def _extended_cox_tests(
    hypothesis: Hypothesis,
    endpoint: Endpoint,
    secondary: list[Endpoint],
    covariates: tuple[str, ...],
    strata: tuple[str, ...],
) -> list[TestPlan]:
    """Plan extended Cox models on start-stop records, with and without covariates.

    A spline is fitted only to the exposure; with covariates, its linear slope is reported.
    """
    found = []
    splined = hypothesis.exposures[0].cut is CutRule.SPLINE
    for item in (endpoint, *secondary):
        first = item is endpoint
        for adjusted in (False, True) if covariates else (False,):
            name = "adjusted" if adjusted else "primary" if first else "secondary"
            found.append(
                TestPlan(
                    id=name if first else f"{item.key}.{name}",
                    role="adjusted" if adjusted else "primary" if first else "secondary",
                    method="spline" if splined and not adjusted else "time_dependent",
                    endpoint=item.key,
                    covariates=covariates if adjusted else (),
                    strata=strata,
                    claim=not adjusted,
                )
            )
    return found


CLUSTERED: tuple[Method, ...] = (
    "logrank",
    "cox",
    "cause_specific",
    "kaplan_meier",
    "cumulative_incidence",
    "schoenfeld",
    "period_hazards",
    "table_one",
    "missing_data",
    "tipping_covariates",
    "site",
)
"""Methods that are descriptive or have a robust variance."""
ENTERED: tuple[Method, ...] = (
    *CLUSTERED,
    "spline",
    "nested",
    "fine_gray",
    "joint_groups",
    "ordered_groups",
    "time_dependent",
    "univariable",
    "risk_difference",
)
"""Methods that count patients as at risk from their entry time, or use no time."""
PREDICTING: tuple[Method, ...] = ("concordance", "calibration", "decision_curve")
"""Methods that evaluate a model's predictions."""


def for_rows(
    tests: tuple[TestPlan, ...], dictionary: DataDictionary
) -> tuple[tuple[TestPlan, ...], list[str]]:
    """Adapt the tests to the cohort's rows; return them with notes on omitted tests.

    If a site is declared, a test of the variation it explains is added. If several rows
    belong to the same person, tests that assume independent rows are left out; with delayed
    entry, so are tests that cannot account for it. Without missing covariates, there is no tipping
    point of theirs.

    Raises `InputError` if the primary test would be left out.
    """
    gaps = {item.key for item in dictionary.variables if item.missing > 0}
    tests = tuple(
        test for test in tests if test.method != "tipping_covariates" or gaps & {*test.covariates}
    )
    primary = tests[0]
    followed = any(test.method == "time_dependent" for test in tests)
    if dictionary.site is not None and not followed:
        site = TestPlan(id="site", role="descriptive", method="site", endpoint=primary.endpoint)
        tests = (*tests, site)
        # A model with these hospitals as levels cannot predict in another cohort.
        tests = tuple(
            test.model_copy(
                update={"covariates": tuple(k for k in test.covariates if k != dictionary.site)}
            )
            if test.method in PREDICTING
            else test
            for test in tests
        )
        tests = tuple(test for test in tests if test.covariates or test.method not in PREDICTING)
    entered = {endpoint.key for endpoint in dictionary.endpoints if endpoint.entry}
    notes = []
    for concerned, able, why, remedy in (
        (
            tests if dictionary.cluster is not None else (),
            CLUSTERED,
            "it treats a person's rows as independent",
            "choose a survival endpoint, or use one row per patient",
        ),
        (
            tuple(test for test in tests if test.endpoint in entered),
            ENTERED,
            "it has no form for delayed entry",
            "choose a comparison other than mediation and calibrated",
        ),
    ):
        lost = [test for test in concerned if test.method not in able]
        if primary in lost:
            raise InputError(
                f'the primary test "{primary.method}" cannot be used for this cohort because '
                f"{why}; {remedy}, and a cut that is not searched"
            )
        if lost:
            notes.append(f"omitted, as {why}: {', '.join(test.id for test in lost)}")
        tests = tuple(test for test in tests if test not in lost)
    return tests, notes


MAIN: dict[tuple[str, bool], Method] = {
    ("survival", True): "logrank",
    ("survival", False): "cox",
    ("competing", True): "cause_specific",
    ("competing", False): "cause_specific",
    ("binary", True): "fisher",
    ("binary", False): "logistic",
    ("continuous", True): "rank",
    ("continuous", False): "linear",
}
"""Test for a claim, by kind of endpoint and by whether two groups are compared."""


def of_endpoint(
    prefix: str,
    endpoint: Endpoint,
    grouped: bool,
    rule: CutRule,
    covariates: tuple[str, ...],
    strata: tuple[str, ...],
    *,
    primary: bool,
    whole: tuple[Method, str] | None = None,
) -> list[TestPlan]:
    """Plan the tests for an endpoint; the first carries the claim.

    `whole` is the method that tests all exposures together, instead of a model with one term,
    and the note on it.

    Strata apply to comparisons of hazards. A prediction needs a single baseline, so its model
    uses the strata as covariates.
    """
    covariates = tuple(key for key in covariates if key not in endpoint.contained_in)
    method, note = _carrying(endpoint, grouped, rule, whole)
    role = "primary" if primary else "secondary"
    claim = TestPlan(
        id=f"{prefix}{role}",
        role=role,
        method=method,
        endpoint=endpoint.key,
        strata=strata,
        claim=True,
        note=note,
    )
    known = (*covariates, *(key for key in strata if key not in endpoint.contained_in))
    kind = whole[0] if whole is not None else ADJUSTED[endpoint.kind]
    beside = list(_of_kind(endpoint, grouped, covariates, strata, primary, kind))
    if covariates:
        beside.append(("adjusted", "adjusted", kind, covariates, strata, ""))
    if primary and covariates and whole is None:
        beside.append(
            ("tipping_covariates", "assumption", "tipping_covariates", covariates, strata, "")
        )
    if primary:
        beside += _described(endpoint, covariates, strata, known)
        beside += _absolute(endpoint, known) if grouped else ()
    return [claim] + [
        TestPlan.model_validate(
            {
                "id": f"{prefix}{suffix}",
                "role": role,
                "method": kind,
                "endpoint": endpoint.key,
                "covariates": keys,
                "strata": layers,
                "note": note,
            }
        )
        for suffix, role, kind, keys, layers, note in beside
    ]


_Beside = tuple[str, str, Method, tuple[str, ...], tuple[str, ...], str]
"""A supporting test: suffix of its name, role, method, covariates, strata, note."""


def _carrying(
    endpoint: Endpoint, grouped: bool, rule: CutRule, whole: tuple[Method, str] | None
) -> tuple[Method, str]:
    """Choose the method for the claim's own test, and return it with a note."""
    if whole is not None:
        return whole
    if rule in SEARCHING and endpoint.kind == "survival":
        return SEARCHING[rule], ""
    note = f'linear, per standard deviation: "{rule}" serves survival endpoints'
    return MAIN[endpoint.kind, grouped], note if rule in SEARCHING else ""


def _of_kind(
    endpoint: Endpoint,
    grouped: bool,
    covariates: tuple[str, ...],
    strata: tuple[str, ...],
    primary: bool,
    adjusted: Method,
) -> Iterator[_Beside]:
    """Yield the supporting tests for a time-to-event endpoint."""
    if endpoint.kind == "survival":
        if grouped:
            yield "kaplan_meier", "descriptive", "kaplan_meier", (), (), ""
        if grouped and primary:
            yield "rmst", "assumption", "rmst", (), (), ""
            yield "period_hazards", "assumption", "period_hazards", (), (), ""
        if primary and adjusted != "mediation":  # mediation models additive hazards
            yield "schoenfeld", "assumption", "schoenfeld", covariates, strata, ""
    if endpoint.kind == "competing":
        yield "cumulative_incidence", "descriptive", "cumulative_incidence", (), (), ""
        if grouped:
            yield "gray", "secondary", "gray", (), (), PROGNOSIS
        yield "fine_gray", "secondary", "fine_gray", (), (), PROGNOSIS
        if primary:
            yield "schoenfeld", "assumption", "schoenfeld", covariates, (), ""
        if covariates:
            yield "fine_gray_adjusted", "adjusted", "fine_gray", covariates, (), PROGNOSIS


def _described(
    endpoint: Endpoint, covariates: tuple[str, ...], strata: tuple[str, ...], known: tuple[str, ...]
) -> Iterator[_Beside]:
    """Yield descriptive tests of the patients and of a model's performance."""
    if known and endpoint.kind == "survival":
        yield "concordance", "descriptive", "concordance", known, (), ""
        yield "calibration", "descriptive", "calibration", known, (), ""
    yield "table_one", "descriptive", "table_one", (), (), ""
    if known:
        yield "missing_data", "descriptive", "missing_data", known, (), ""
    if covariates and endpoint.kind != "continuous":
        yield "univariable", "descriptive", "univariable", covariates, strata, ""
    if known and endpoint.kind in ("survival", "binary"):
        yield "decision_curve", "descriptive", "decision_curve", known, (), ""


def _absolute(endpoint: Endpoint, known: tuple[str, ...]) -> Iterator[_Beside]:
    """Yield tests of absolute risks, and of their assumptions about censored patients."""
    if endpoint.kind in ("survival", "binary"):
        if known:
            yield "risk_difference", "secondary", "risk_difference", known, (), ""
        yield "tipping_point", "assumption", "tipping_point", (), (), ""
    if known and endpoint.kind == "survival":
        yield "censoring", "assumption", "censoring", known, (), ""


def curve_cuts(hypothesis: Hypothesis, *, binary: bool = False) -> tuple[CutRule, ...]:
    """Return the cut rules for the specification curve: the claim's own and common alternatives.

    `binary` means that the exposures have two values, so that every rule gives the same
    groups.
    """
    own = hypothesis.exposures[0].cut
    if binary or hypothesis.penalty is not None or hypothesis.calibration is not None:
        return (own,)
    if hypothesis.comparison is Comparison.TREND:
        levels = own is CutRule.LEVELS
        cuts = [own, CutRule.CONTINUOUS] if levels else [own, *TREND_CUTS, CutRule.CONTINUOUS]
    elif hypothesis.comparison.is_product or hypothesis.comparison in WHOLE:
        cuts = [own, CutRule.MEDIAN, CutRule.CONTINUOUS]
    elif len(hypothesis.exposures) > 1 or hypothesis.comparison is Comparison.EXTREMES:
        cuts = [own, CutRule.MEDIAN, CutRule.TERTILE]
    else:
        cuts = [own, CutRule.MEDIAN, CutRule.TERTILE, CutRule.CONTINUOUS]
    return tuple(fromkey for fromkey in dict.fromkeys(cuts) if fromkey not in SEARCHING)
