"""The verdict's rules as a table: what is given, and what must be said. One row per rule, per
limit of a comparison, and per thing that can be missing.

The table is read by `test_verdict.py`, and by `mutants.py`, which changes the rules one
at a time and asks whether a row notices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

from validation.contracts.contract import (
    Contract,
    ControlPlan,
    EndpointUse,
    KnownPositive,
    Online,
    Power,
    SpecificationPlan,
    SplitRule,
    VariableUse,
)
from validation.core.dictionary import JoinReport
from validation.core.hypothesis import Exposure, Hypothesis, Population
from validation.core.types import Number
from validation.results.controls import (
    Controls,
    ControlStatus,
    KnownPositiveResult,
    Missingness,
    NegativeEndpoint,
    PermutedOutcome,
    RandomFeatures,
    Specifications,
    TimingResult,
    Unadjusted,
)
from validation.results.results import AnalysisResult, Effect, Objection, TestOutcome
from validation.statistics.power import HALVES
from validation.verdict.verdict import Evidence

Z = NormalDist().inv_cdf(0.975)
RAN, REFUSED, CRASHED, OFF = ControlStatus
EXPOSURES = (
    Exposure(variable="expression:FABP5", label="FABP5"),
    Exposure(variable="imaging:tls", label="TLS", level="low"),
)


def contract(
    *,
    covariates: tuple[str, ...] = ("clinical:age", "clinical:stage"),
    strata: tuple[str, ...] = (),
    unadjusted_because: str = "",
    causes: tuple[str, ...] = (),
    extra: tuple[str, ...] = (),
    method: str = "logrank",
    scale: str = "hazard ratio",
    direction: str = "higher_risk",
    controls: dict[str, Any] | None = None,
    rules: dict[str, Any] | None = None,
    time_dependent: bool = False,
    undeclared: dict[str, str] | None = None,
    **more: Any,
) -> Contract:
    """A contract on two exposures, with what a row changes. `extra` names further tests;
    `undeclared` keys, with their roles, of which nobody says when they became known.
    """
    labels = {"clinical:age": "Age", "clinical:stage": "Stage", "clinical:site": "Site"}
    tests: list[dict[str, Any]] = [
        {"id": "primary", "role": "primary", "method": method, "strata": strata, "claim": True}
    ]
    if covariates:
        beside = {"covariates": covariates, "strata": strata}
        tests.append({"id": "adjusted", "role": "adjusted", "method": "cox"} | beside)
    tests += [{"id": name, "role": "assumption", "method": name} for name in extra]
    known = {exposure.variable: ("exposure", exposure.label) for exposure in EXPOSURES}
    known |= {key: ("covariate", label) for key, label in labels.items()}
    unsaid = undeclared or {}
    uses = [
        {"key": key, "role": role, "label": label, "known_at": "baseline"}
        for key, (role, label) in known.items()
        if unsaid.get(key) != role
    ]
    uses += [{"key": key, "role": role, "label": labels.get(key, key)}
             for key, role in unsaid.items()]  # fmt: skip
    named = {"comparison": "exposed_vs_rest", "direction": direction}
    hypothesis = named | {
        "id": "h", "statement": "s", "population": Population(description="all"),
        "exposures": EXPOSURES, "endpoint": "OS", "unadjusted_because": unadjusted_because,
        "causes": causes, "time_dependent": time_dependent,
        "negative_endpoint": (controls or {}).get("negative_endpoint"),
    }  # fmt: skip
    stage = KnownPositive(variable="clinical:stage", endpoint="OS", label="Stage with OS")
    whole = named | {
        "cohort": "toy", "simulated": False, "hypothesis": Hypothesis.model_validate(hypothesis),
        "population": "all", "variables": [use | {"kind": "continuous"} for use in uses],
        "exposed": "FABP5 high", "reference": "all others",
        "endpoints": [EndpointUse(key="OS", kind="survival", label="Overall survival")],
        "scale": scale, "tests": [test | {"endpoint": "OS"} for test in tests],
        "primary": "primary", "covariates": covariates, "strata": strata, "rules": rules or {},
        "power": Power(n=400, events=200, fraction_exposed=0.5, minimum_detectable=1.5,
                       required_events=191, basis="cohort"),
        "controls": ControlPlan.model_validate({"known_positive": stage} | (controls or {})),
        "specification": SpecificationPlan(strata_sets=(strata, ())) if strata
                         else SpecificationPlan(),
    }  # fmt: skip
    return Contract.model_validate(whole | more)


def estimate(
    ratio: float,
    se: float = 0.1,
    p: float | None = None,
    *,
    lower: float | None = None,
    upper: float | None = None,
    scale: str = "hazard ratio",
) -> dict[str, Any]:
    """Effect and p of a test: Wald's, unless a row gives them."""
    where = math.log(ratio) if scale != "difference (SD)" else ratio
    ends = [where - Z * se, where + Z * se]
    if scale != "difference (SD)":
        ends = [math.exp(end) for end in ends]
    effect = {
        "value": ratio, "lower": ends[0] if lower is None else lower,
        "upper": ends[1] if upper is None else upper, "scale": scale,
    }  # fmt: skip
    p = 2 * NormalDist().cdf(-abs(where / se)) if p is None else p
    return {"effect": Effect.model_validate(effect), "p": p}


def outcome(name: str, **values: Any) -> TestOutcome:
    """How a test ended."""
    role = "primary" if name == "primary" else "adjusted"
    method = {"primary": "logrank", "adjusted": "cox"}.get(name, name)
    given = {"id": name, "role": role, "endpoint": "OS", "method": method, "status": "ok"}
    return TestOutcome.model_validate(given | {"events": 200} | values)


def controls(**changes: Any) -> Controls:
    """All controls ran and agree, but for what a row changes."""
    ran = {
        "permuted": PermutedOutcome(status=RAN, p=0.001, draws=1000),
        "random": (random_features(0.99), random_features(0.98)),
        "known_positive": known_positive(),
        "negative": NegativeEndpoint(status=OFF, reason="not asked for"),
        "specification": specification(),
        "missingness": Missingness(status=RAN, missing=0, n=400),
        "timing": TimingResult(status=RAN, n=400),
    }
    return Controls.model_validate(ran | changes)


def random_features(percentile: float, kind: str = "matched genes") -> RandomFeatures:
    """Random features that ran."""
    return RandomFeatures.model_validate(
        {"status": RAN, "percentile": percentile, "draws": 1000, "kind": kind}
    )


def known_positive(
    hr: float = 1.6, p: float = 0.001, events: int = 200, **limits: float
) -> KnownPositiveResult:
    """A known positive that ran."""
    return KnownPositiveResult.model_validate(
        {"status": RAN, "hr": hr, "p": p, "events": events} | limits
    )


def specification(
    sign: float = 1.0, own: bool = True, failed: int = 0, unadjusted: tuple[Unadjusted, ...] = ()
) -> Specifications:
    """A specification curve that ran."""
    return Specifications(
        status=RAN, expected_sign=sign, own=own, n=24, failed=failed, unadjusted=unadjusted
    )


def with_smoking(found: dict[str, Any]) -> Controls:
    """Controls in which an unadjusted variable gives this estimate."""
    effect = found["effect"]
    beside = Unadjusted(
        labels=("Smoking",), value=effect.value, lower=effect.lower, upper=effect.upper,
        p=found["p"],
    )  # fmt: skip
    return controls(specification=specification(unadjusted=(beside,)))


def analysis(*tests: TestOutcome, controls: Controls | None, **more: Any) -> AnalysisResult:
    """The results of an analysis."""
    given = {"contract_sha256": "0", "cohort": "toy", "simulated": False, "part": "all"}
    return AnalysisResult.model_validate(given | {"tests": tests, "controls": controls} | more)


SAME = "as p"


def evidence(
    *,
    primary: dict[str, Any] | None,
    adjusted: dict[str, Any] | str | None = SAME,
    q: float | str | None = SAME,
    ran: Controls | str | None = SAME,
    others: tuple[TestOutcome, ...] = (),
    plan: dict[str, Any] | None = None,
    found: dict[str, Any] | None = None,
    family: int = 1,
    **more: Any,
) -> Evidence:
    """Evidence of one row.

    Parameters
    ----------
    primary, adjusted : fields of the tests (None: the test is missing; adjusted: as the primary)
    q : by default the primary's p
    ran : the controls; by default all ran and agree
    others : further tests
    plan, found : changes of the contract and of the analysis
    """
    agreed = contract(**(plan or {}))
    tests = list(others)
    if primary is not None:
        method = agreed.primary_test.method
        tests.append(outcome("primary", **({"method": method} | primary)))
    beside = primary if adjusted == SAME else adjusted
    if isinstance(beside, dict) and agreed.covariates:
        tests.append(outcome("adjusted", **beside))
    return Evidence(
        contract=agreed,
        analysis=analysis(
            *tests, controls=controls() if isinstance(ran, str) else ran, **(found or {})
        ),
        q=(primary or {}).get("p") if isinstance(q, str) else q,
        family=family,
        **more,
    )


@dataclass(frozen=True)
class Row:
    """One row: the evidence, and what the verdict must say.

    `answers` are association, independence, relevance: y, n, u(nclear) or - (not answered); empty
    where there are none. `words` stand in the badge, `limits` and `reasons` hold their texts;
    `without` holds texts that none of the limits has, `unsaid` those that none of the reasons has.
    """

    name: str
    given: Callable[[], Evidence]
    verdict: str
    because: str
    answers: str
    words: str = ""
    limits: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()


ORDER = {"not_supported": 0, "small_effect": 1, "inconclusive": 1, "supported": 2}
"""A small effect and an inconclusive verdict both are between the others."""
LETTERS = {"yes": "y", "no": "n", "unclear": "u", "not answered": "-"}
STRONG = estimate(2.0)
SMALL = estimate(1.2, 0.05)
"""Significant, and its interval (1.09 to 1.32) leaves out 1.5."""
NOTHING = estimate(1.02, 0.05)
WEAK = estimate(1.3, 0.25)
"""Neither shown nor excluded: 0.80 to 2.12."""
SUPPORTED = ("supported", "evidence")
NOT = ("not_supported", "evidence")
SMALL_EFFECT = ("small_effect", "evidence")


def open_(because: str) -> tuple[str, str]:
    """Inconclusive, because of something."""
    return "inconclusive", because


def failures(
    row: Row, judge: Callable[[Evidence], Any], given: Evidence | None = None
) -> list[str]:
    """What a verdict says other than its row; `given` spares building the evidence again."""
    found = judge(row.given() if given is None else given)
    answers = "".join(LETTERS[answer.answer] for answer in found.answers)
    wrong = []
    for what, has, wants in (
        ("verdict", (found.verdict, found.because), (row.verdict, row.because)),
        ("answers", answers, row.answers),
    ):
        if has != wants:
            wrong.append(f"{row.name}: {what} {has}, not {wants}")
    if row.words and row.words not in found.badge:
        wrong.append(f'{row.name}: badge "{found.badge}" lacks "{row.words}"')
    told = "\n".join(found.limits)
    argued = "\n".join(
        f"{reason.rule} [{reason.outcome}] {reason.text}" for reason in found.reasons
    )
    for where, text, parts in (("limits", told, row.limits), ("reasons", argued, row.reasons)):
        wrong += [
            f'{row.name}: {where} "{text}" lack "{part}"' for part in parts if part not in text
        ]
    wrong += [f'{row.name}: limits hold "{item}"' for item in row.without if item in told]
    wrong += [f'{row.name}: reasons hold "{item}"' for item in row.unsaid if item in argued]
    questions = [answer.question for answer in found.answers]
    asked = ["association", "independence", "relevance"]
    if row.name.startswith("score: "):
        asked = ["observed/expected ratio", "calibration slope"][: len(questions)]
    if questions and questions != asked:
        wrong.append(f"{row.name}: questions {questions}")
    return wrong


def rows() -> Iterator[Row]:
    """The whole table."""
    yield from _data()
    yield from _controls()
    yield from _association()
    yield from _independence()
    yield from _confounding()
    yield from _relevance()
    yield from _hazards()
    yield from _others()
    yield from _limits()
    yield from _edges()
    yield from _missing()
    yield from _either()
    yield from _calibrated()


def row(name: str, says: tuple[str, str], answers: str, **more: Any) -> Row:
    """A row; `limits`, `without`, `reasons`, `unsaid` as in `Row`, all else as in `evidence`.

    The primary test has a strong effect where nothing else is said.
    """
    more.setdefault("primary", STRONG)
    kinds = ("words", "limits", "without", "reasons", "unsaid")
    texts = {key: more.pop(key) for key in kinds if key in more}
    return Row(name, lambda: evidence(**more), *says, answers, **texts)


def _data() -> Iterator[Row]:
    none = (open_("data"), "")
    yield row("primary refused", *none, primary={"status": "refused", "reason": "too few"}, q=0.001,
              reasons=("too few",))  # fmt: skip
    yield row("primary crashed", *none, primary=STRONG | {"status": "crashed"})
    yield row("primary without effect", *none, primary={"p": 0.001}, reasons=("has no p",))
    yield row("p is not a number", *none, primary=STRONG | {"p": math.nan}, q=0.001)
    yield row("p below 0", *none, primary=STRONG | {"p": -0.001}, q=0.001)
    yield row("p above 1", *none, primary=STRONG | {"p": 1.001}, q=0.001)
    yield row("p is 0", SUPPORTED, "yyu", primary=estimate(1.6, 0.1, 0.0))
    yield row("lower limit is not a number", *none, primary=estimate(2.0, lower=math.nan))
    yield row("effect is not finite", *none,
              primary=estimate(2.0) | {"effect": Effect(value=math.inf, lower=1.5, upper=math.inf,
                                                        scale="hazard ratio")})  # fmt: skip


def _controls() -> Iterator[Row]:
    def given(name: str, says: tuple[str, str], ran: Controls | None, **more: Any) -> Row:
        return row(name, says, "yyy", ran=ran, **more)

    control = open_("control")
    yield row("everything agrees", SUPPORTED, "yyy",
              words="Supported: associated, also after adjustment for age and stage",
              reasons=("permuted outcome [for]", "random features [for]", "matched genes for FABP5",
                       "specification curve [for] expected sign in 100%",
                       "stronger in the claimed direction than 990 of 1000 matched genes for FABP5",
                       "adjusted model [for]", "relevant effect [for]"))  # fmt: skip
    yield given("no controls at all", control, None, words="known positive was not run")
    for field, kind, status in (
        ("permuted", PermutedOutcome, CRASHED), ("known_positive", KnownPositiveResult, REFUSED),
        ("specification", Specifications, REFUSED), ("missingness", Missingness, OFF),
        ("timing", TimingResult, CRASHED),
    ):  # fmt: skip
        result = kind(status=status, reason="MemoryError")
        yield given(f"{field} {status}", control, controls(**{field: result}))
    yield given("timing missing", control, controls(timing=None))
    leak = TimingResult(status=RAN, n=400, leaks=("FABP5: it reveals who", "TLS: it moves with"))
    yield given("an exposure that was not known at baseline", open_("data"), controls(timing=leak),
                reasons=("FABP5: it reveals who; TLS: it moves with",))  # fmt: skip
    beside = TimingResult(status=RAN, n=400, beside=("filter by evaluable: it moves with",))
    yield given("a filter that was not known at baseline", open_("data"), controls(timing=beside),
                reasons=("filter by evaluable: it moves with",))  # fmt: skip
    for key, role in (
        ("imaging:tls", "exposure"),
        ("clinical:stage", "covariate"),
        ("clinical:site", "stratum"),
        ("clinical:sex", "filter"),
    ):
        yield given(f"undeclared {role} {key}", open_("timing"), controls(),
                    plan={"undeclared": {key: role}}, reasons=("declared timing [prevents]",)
        )  # fmt: skip
    yield given("undeclared cluster", SUPPORTED, controls(),
                plan={"undeclared": {"clinical:other": "cluster"}})  # fmt: skip
    off = TimingResult(status=OFF, reason="not asked for")
    followed = {"time_dependent": True}
    yield given("time-dependent", SUPPORTED, controls(timing=off), plan=followed)
    crashed = RandomFeatures(status=CRASHED, reason="MemoryError")
    yield given("one of two random features crashed", control,
                controls(random=(random_features(0.99), crashed)))  # fmt: skip
    negative = {"controls": {"negative_endpoint": "NEG"}}
    yield given("negative control missing", control, controls(negative=None), plan=negative)
    for p, says in ((0.049, control), (0.05, SUPPORTED)):
        result = NegativeEndpoint(status=RAN, endpoint="NEG", p=p)
        yield given(f"negative control p {p}", says, controls(negative=result), plan=negative)
    for changes, says in (
        ({"p": 0.05}, control),
        ({"hr": 1.0}, control),
        ({"p": 0.5, "events": 50}, control),
        ({"p": 0.5, "events": 49}, SUPPORTED),
    ):
        yield given(f"known positive {changes}", says,
                    controls(known_positive=known_positive(**changes)))  # fmt: skip
    protective = {
        "controls": {
            "known_positive": KnownPositive(
                variable="clinical:stage", endpoint="OS", direction="lower_risk"
            )
        }
    }
    for hr, says in ((0.6, SUPPORTED), (1.0, control), (1.6, control)):
        yield given(f"protective known positive {hr}", says,
                    controls(known_positive=known_positive(hr=hr)), plan=protective)  # fmt: skip
    for hr, plan, limits, says in (
        (1.1, {}, {"lower": 0.9, "upper": 1.5 ** (1 / HALVES)}, SUPPORTED),
        (1.1, {}, {"lower": 0.9, "upper": 1.2892}, control),
        (0.83, protective, {"lower": 1 / 1.5 ** (1 / HALVES), "upper": 1.1}, SUPPORTED),
        (0.83, protective, {"lower": 0.7757, "upper": 1.6}, control),
    ):
        yield given(f"known positive neither shown nor left out {limits}", says,
                    controls(known_positive=known_positive(hr=hr, p=0.05, **limits)), plan=plan,
                    limits=("known positive is not significant (p = 0.05",))  # fmt: skip
    for name, changes, says in (
        ("has few events", {"p": 0.05, "events": 49}, NOT),
        ("has events enough", {"p": 0.05, "events": 50}, control),
    ):
        yield row(f"nothing there, and the known positive {name}", says, "nnn", primary=NOTHING,
                  ran=controls(known_positive=known_positive(hr=1.2, upper=1.6, **changes)),
                  reasons=("primary [against]",))  # fmt: skip
    yield row("nothing there, and no known positive", NOT, "nnn", primary=NOTHING,
              plan={"controls": {"known_positive": None}},
              ran=controls(known_positive=known_positive(p=0.5, upper=1.6)))  # fmt: skip
    yield given("a significant known positive is no limit", SUPPORTED,
                controls(known_positive=known_positive(p=0.049)), without=("known positive",)
    )  # fmt: skip
    nothing_known = {"controls": {"known_positive": None}}
    yield given("no known positive in the contract", SUPPORTED, controls(known_positive=None),
                plan=nothing_known, limits=("no known positive",))  # fmt: skip
    for p, says in ((0.05, control), (0.6, control)):
        yield given(f"permutation p {p}", says,
                    controls(permuted=PermutedOutcome(status=RAN, p=p, draws=100)))  # fmt: skip
    yield given("permutations switched off", control,
                controls(permuted=PermutedOutcome(status=OFF, reason="off")),
                words="the permutations are switched off", plan={"controls": {"permutations": 0}},
                limits=("permuted outcome is switched off",))  # fmt: skip
    yield given("one permutation is asked for", control, controls(permuted=None),
                plan={"controls": {"permutations": 1}}, without=("switched off",))  # fmt: skip
    yield given("random features 0.2", control,
                controls(random=(random_features(0.99), random_features(0.2))),
                reasons=("random features [for] stronger in the claimed direction than 990",)
    )  # fmt: skip
    yield given(
        "permuted feature",
        control,
        controls(random=(random_features(0.5, "permuted feature"), random_features(0.99))),
        reasons=("only stronger in the claimed direction than 500 of 1000 permutations of",),
    )
    yield given("random features switched off", control, controls(random=()),
                words="the random features are switched off",
                plan={"controls": {"random_features": 0}},
                limits=("random features is switched off",))  # fmt: skip
    yield given("one random feature is asked for", control, controls(random=()),
                plan={"controls": {"random_features": 1}})  # fmt: skip
    alone = specification().model_copy(update={"left_out_sign": 0.8, "left_out": 10})
    yield given(
        "sign without one site at a time",
        open_("assumption"),
        controls(specification=alone),
        reasons=("100% of the 24 specifications and in 80% of the 10 estimates",),
    )
    for sign, own, says in (
        (0.9, True, SUPPORTED),
        (0.899, True, open_("assumption")),
        (1.0, False, open_("assumption")),
    ):
        yield given(f"sign in {sign}, own {own}", says,
                    controls(specification=specification(sign, own)))  # fmt: skip
    yield row("nothing there, known positive crashed", control, "nnn", primary=NOTHING,
              ran=controls(known_positive=KnownPositiveResult(status=CRASHED, reason="x"))
    )  # fmt: skip


def _association() -> Iterator[Row]:
    one = estimate(1.6, 0.2)
    for q, says, answers in (
        (0.049, SUPPORTED, "yyu"),
        (0.05, open_("multiplicity"), "uyu"),
        (math.nan, open_("multiplicity"), "uyu"),
    ):
        yield row(f"q {q}", says, answers, primary=one, q=q, family=3)
    yield row("q 0.05, adjusted to none", open_("independence"), "unn", primary=one, q=0.05,
              adjusted=NOTHING)  # fmt: skip
    yield row("q 0.05, adjusted to none, wide", open_("independence"), "uuu", primary=one, q=0.05,
              adjusted=estimate(1.0, 0.25))  # fmt: skip
    yield row("q 0.05, adjusted missing", open_("multiplicity"), "u-u", primary=one, q=0.05,
              adjusted=None)  # fmt: skip
    sign = estimate(1.4, 0.2, 0.0999)
    beside: dict[str, Any] = {"adjusted": one, "q_adjusted": 0.0499}
    yield row("a sign alone, shown beside the covariates", SUPPORTED, "yyu", primary=sign, **beside,
              reasons=("primary [for]", "adjusted for age and stage in its place, q = 0.050")
    )  # fmt: skip
    for name, changes, answers in (
        ("no sign alone", {"primary": estimate(1.4, 0.2, 0.1)}, "uyu"),
        ("adjusted q 0.05", {"q_adjusted": 0.05}, "uyu"),
        ("adjusted the other way", {"adjusted": estimate(0.6, 0.2)}, "unn"),
        ("adjusted without p", {"adjusted": one | {"p": None}}, "u-u"),
        ("alone the other way", {"primary": estimate(0.95, 0.3, 0.0999)}, "uyu"),
        ("no covariates", {"plan": {"covariates": ()}}, "u-u"),
        ("a spline", {"plan": {"method": "spline"}}, "uyu"),
        ("discovery", {"locked": True}, "uyu"),
    ):
        given: dict[str, Any] = {"primary": sign, "q": 0.2} | beside | changes
        because = "independence" if answers[1] == "n" else "power"
        yield row(f"a sign alone, but {name}", open_(because), answers, **given)
    for questions, told in ((3, "4 claims of the ledger that ask 3 questions"), (4, "4 claims of")):
        yield row(f"4 claims, {questions} questions", SUPPORTED, "yyy", family=4,
                  questions=questions, reasons=(told,), unsaid=("ask 4",))  # fmt: skip
    yield row("alpha of the contract", SUPPORTED, "yyu", primary=estimate(1.6, 0.25, 0.08),
              plan={"rules": {"alpha": 0.1}})  # fmt: skip
    yield row("weak", open_("power"), "uuu", primary=WEAK,
              reasons=("200 events, 191 are needed to find a hazard ratio of 1.50 with 80% power",)
    )  # fmt: skip
    yield row("weak, no events", open_("power"), "uuu", primary=WEAK | {"events": None},
              reasons=("0 events, 191 are needed",))  # fmt: skip
    yield row("nothing", NOT, "nnn", words="Not supported: no relevant association",
              primary=NOTHING, reasons=("the interval excludes the smallest relevant effect",)
    )  # fmt: skip
    yield row("nothing, adjusted wide", open_("power"), "nuu", primary=NOTHING,
              adjusted=estimate(0.9, 0.4))  # fmt: skip
    for ratio, says, answers in ((1.176, NOT, "nnn"), (1.177, open_("independence"), "unn")):
        yield row(f"nearer to none, {ratio}", says, answers, primary=estimate(ratio, 0.1, 0.1))
    yield row("the other way", NOT, "nnn", words="associated in the other direction",
              primary=estimate(0.5), reasons=("significant in the other direction",))  # fmt: skip
    yield row("the other way, p 0.05", NOT, "nnn", words="no relevant association",
              primary=estimate(0.9, 0.05, 0.05))  # fmt: skip
    yield row("protective", SUPPORTED, "yyy", primary=estimate(0.5),
              plan={"direction": "lower_risk"})  # fmt: skip
    yield row("protective, exactly none", open_("independence"), "unu",
              primary=estimate(1.0, 0.5, 0.01),
              plan={"direction": "lower_risk"})  # fmt: skip
    example = {
        "primary": estimate(0.88, p=0.021, lower=0.78, upper=0.98),
        "plan": {"direction": "lower_risk"},
    }
    yield row("0.88 (0.78 to 0.98), q 0.026", SMALL_EFFECT, "yyn", q=0.026, **example)
    yield row("0.88 (0.78 to 0.98), q 0.052", NOT, "nyn", q=0.052, **example)
    locked = {"locked": True, "q": None}
    yield row("no q", open_("multiplicity"), "uyy", q=None)
    yield row("locked, p below alpha", open_("power"), "uyu", primary=estimate(1.6, 0.2), **locked)
    yield row("locked is never supported", open_("power"), "uyy", locked=True, q=0.001,
              reasons=("q = 0.0010 over 1 claim",))  # fmt: skip
    yield row("several terms, beside the covariates no direction", open_("independence"), "yuu",
              adjusted=estimate(1.1, 0.2, 0.001) | {"method": "nested"}, plan={"method": "nested"}
    )  # fmt: skip
    for method in ("spline", "maximally_selected"):
        plan = {"plan": {"method": method}, "adjusted": STRONG}
        flat = {"primary": estimate(1.1, 0.2, 0.001), **plan}
        yield row(f"{method}, no direction", open_("assumption"), "uyy", **flat)
        yield row(f"{method}, slope touches none", SUPPORTED, "yyy",
                  primary=estimate(1.4, lower=1.0, upper=1.9, p=0.001), **plan)  # fmt: skip
        yield row(f"{method}, slope touches none from below", NOT, "nnn",
                  primary=estimate(0.8, lower=0.7, upper=1.0, p=0.001), plan={"method": method}
        )  # fmt: skip
        yield row(f"{method}, no direction, p 0.05", open_("power"), "uuu",
                  primary=estimate(1.1, 0.2, 0.05), plan={"method": method})  # fmt: skip
        yield row(f"{method}, falling slope, p of any association", open_("assumption"), "unn",
                  primary=estimate(0.98, 0.05, 0.001), plan={"method": method})  # fmt: skip
    turned, met = (open_("assumption"), SUPPORTED)
    for p, mean, above, says, answers in (
        (0.001, 0.4, 0.5, met, "yyu"),
        (0.001, 0.4, None, met, "yyu"),
        (0.001, 0.4, 0.48, turned, "uyu"),
        (0.001, -0.4, 0.5, NOT, "nnn"),
        (0.001, 0.0, 0.52, turned, "unn"),
        (0.09, 0.4, 0.48, open_("power"), "uyu"),
    ):
        given = estimate(mean, 0.15, p, scale="difference (SD)")
        yield row(f"rank test, p {p}, means {mean}, exposed higher in {above}", says, answers,
                  primary=given | {"method": "rank", "statistic": above},
                  adjusted=given | {"p": 0.001 if mean else 0.9}, q_adjusted=0.001,
                  plan={"method": "rank", "scale": "difference (SD)"})  # fmt: skip


def _independence() -> Iterator[Row]:
    independence = open_("independence")
    for name, beside, answers in (
        ("not shown", estimate(1.4, 0.25), "yuu"),
        ("p 0.05", estimate(1.5, 0.2, 0.05), "yuu"),
        ("the other way", estimate(0.5, 0.1), "ynn"),
        ("missing", None, "y-y"),
    ):
        yield row(f"adjusted {name}", independence, answers, adjusted=beside)
    yield row(
        "adjusted p 0.0499",
        SUPPORTED,
        "yyu",
        words="after adjustment for age and stage; whether it is large enough to matter is open",
        adjusted=estimate(1.5, 0.2, 0.0499),
        reasons=(
            "relevant effect [limits] ",
            ": the interval reaches the smallest relevant effect",
        ),
    )
    yield row("no term for a covariate", SUPPORTED, "yyy",
              words="Supported: associated, also after adjustment for age",
              adjusted=STRONG | {"absent": ("Stage",)},
              reasons=("adjusted for age (no term for Stage): ",))  # fmt: skip
    yield row("no term for any covariate", open_("independence"), "y-y",
              adjusted=STRONG | {"absent": ("Age", "Stage")})  # fmt: skip
    yield row("adjusted the other way, wide", independence, "ynu",
              words="no relevant effect after adjustment for age and stage",
              adjusted=estimate(0.8, 0.5, 0.01),
              reasons=("p = 0.010: significant in the other direction",))  # fmt: skip
    yield row("adjusted to nothing", independence, "ynn", adjusted=NOTHING,
              unsaid=("significant in the other direction",))  # fmt: skip
    yield row(
        "what an estimate is per",
        SUPPORTED,
        "yyy",
        plan={"exposed": "FABP5 higher (per standard deviation of the exploring patients)"},
        reasons=(
            "2.43) per standard deviation of the exploring patients, p <",
            "adjusted for age and stage: hazard ratio 2.00 (95% CI 1.64 to 2.43) per standard",
        ),
    )
    yield row("an interaction is a ratio of ratios", independence, "ynn", adjusted=NOTHING,
              plan={"comparison": "modification"},
              reasons=("hazard ratio 2.00 (95% CI 1.64 to 2.43) for the interaction, p <",
                       "excludes the smallest relevant effect (a ratio of 1.50)"))  # fmt: skip
    none = {"covariates": ()}
    yield row("adjusted for nothing", independence, "y-y", plan=none)
    declared = none | {"unadjusted_because": "the exposure was randomized"}
    yield row("nothing to adjust for", SUPPORTED, "y-y", plan=declared)
    arrows = ("expression:FABP5 -> OS", "imaging:tls -> OS")
    confounded = (*arrows, "u -> OS", "u -> expression:FABP5")
    for name, causes, says in (
        ("a diagram that leaves nothing to adjust for", arrows, SUPPORTED),
        ("a diagram with an unmeasured confounder", confounded, independence),
    ):
        yield row(name, says, "y-y", plan=none | {"causes": causes})
    within = {"strata": ("clinical:site",)}
    yield row(
        "strata alone", SUPPORTED, "yyy", words="also after adjustment for site", plan=none | within
    )
    yield row("strata and covariates", SUPPORTED, "yyy",
              words="also after adjustment for age, stage and site", plan=within)  # fmt: skip
    yield row("nothing crude, but adjusted", independence, "nyy", primary=NOTHING, adjusted=STRONG)


def _confounding() -> Iterator[Row]:
    confounding = open_("confounding")
    smoking = VariableUse(key="clinical:q", role="unadjusted", label="Smoking", kind="binary")
    named = {"variables": (*contract().variables, smoking)}
    yield row("an unadjusted variable that changes nothing", SUPPORTED, "yyy",
              ran=with_smoking(STRONG), plan=named,
              reasons=("; not adjusted for: smoking",))  # fmt: skip
    for name, found, says in (
        ("p 0.0499", estimate(1.5, p=0.0499), SUPPORTED),
        ("p 0.05", estimate(1.5, p=0.05), confounding),
        ("too small", SMALL, confounding),
    ):
        yield row(f"with an unadjusted variable: {name}", says, "yyy", ran=with_smoking(found),
                  reasons=("unadjusted variables [prevents] with smoking in the model",)
                  if says == confounding else ())  # fmt: skip
    for name, found, says in (
        ("as small", SMALL, SMALL_EFFECT),
        ("large", STRONG, SMALL_EFFECT),
        ("none", NOTHING, confounding),
    ):
        yield row(f"a small effect, with an unadjusted variable: {name}", says, "yyn",
                  primary=SMALL, ran=with_smoking(found))  # fmt: skip
    for name, found, says in (
        ("small", SMALL, NOT),
        ("not significant", estimate(1.5, p=0.05), NOT),
        ("large", STRONG, confounding),
    ):
        yield row(f"refuted, with an unadjusted variable: {name}", says, "nnn",
                  primary=NOTHING, ran=with_smoking(found))  # fmt: skip
    apart = Unadjusted(labels=("Smoking",), reason="no comparison", inseparable=True)
    for name, beside, primary, says, answers in (
        ("not told apart, and refuted", apart, NOTHING, NOT, "nnn"),
        ("not fitted", apart.model_copy(update={"inseparable": False}), STRONG, SUPPORTED, "yyy"),
        ("p 0.05, unmoved", Unadjusted(labels=("Smoking",), value=1.5, lower=1.0, upper=2.2, p=0.05,
                                       moved=False), STRONG, SUPPORTED, "yyy"),
    ):  # fmt: skip
        yield row(f"an unadjusted variable, {name}", says, answers, primary=primary,
                  ran=controls(specification=specification(unadjusted=(beside,))))  # fmt: skip


def _relevance() -> Iterator[Row]:
    tiny = estimate(1.1, 0.03)
    yield row("small", SMALL_EFFECT, "yyn", primary=SMALL,
              words="associated, also after adjustment for age and stage; too small to matter",
              reasons=("relevant effect [against]",))  # fmt: skip
    yield row("small crude, large adjusted", SUPPORTED, "yyy", primary=SMALL, adjusted=STRONG)
    yield row("tiny, adjusted missing", NOT, "y-n", primary=tiny, adjusted=None,
              words="Not supported: too small to matter",
              reasons=("adjusted model [prevents]", "relevant effect [against]"))  # fmt: skip
    yield row("small sign, small adjusted", open_("relevance"), "uyn", adjusted=SMALL,
              primary=estimate(1.2, 0.2))  # fmt: skip
    objects = {"ran": controls(permuted=PermutedOutcome(status=RAN, p=0.9, draws=100))}
    yield row("tiny, and a control objects", NOT, "yyn", primary=tiny, **objects)
    yield row("small, known positive p 0.05", open_("control"), "yyn", primary=SMALL,
              ran=controls(known_positive=known_positive(hr=1.2, p=0.05, upper=1.6)))  # fmt: skip
    for upper, says, answers in ((1.5, SUPPORTED, "yyu"), (1.499, SMALL_EFFECT, "yyn")):
        yield row(f"upper limit {upper}", says, answers,
                  primary=estimate(1.2, lower=1.05, upper=upper, p=0.01))  # fmt: skip
    for lower, answers in ((1.5, "yyy"), (1.499, "yyu")):
        yield row(f"adjusted lower limit {lower}", SUPPORTED, answers,
                  adjusted=estimate(1.9, lower=lower, upper=2.4, p=0.001))  # fmt: skip
    twice = {"plan": {"direction": "lower_risk", "rules": {"relevant_ratio": 2.0}}}
    yield row("protective, lower limit at the edge", SUPPORTED, "yyu",
              primary=estimate(0.8, lower=0.5, upper=0.95, p=0.01), **twice)  # fmt: skip
    yield row("protective, upper limit at the edge", SUPPORTED, "yyy",
              primary=estimate(0.4, lower=0.3, upper=0.5, p=0.001), **twice)  # fmt: skip
    sd = {"plan": {"scale": "difference (SD)", "method": "linear"}}
    for lower, upper, says, answers in (
        (0.3, 0.7, SUPPORTED, "yyy"),
        (0.1, 0.29, SMALL_EFFECT, "yyn"),
    ):
        yield row(f"difference {lower} to {upper}", says, answers,
                  primary=estimate((lower + upper) / 2, p=0.001, lower=lower, upper=upper,
                                   scale="difference (SD)"), **sd)  # fmt: skip
    yield row("difference, spelled out", open_("power"), "uuu",
              primary=estimate(0.1, 0.2, scale="difference (SD)"),
              reasons=("a difference of 0.30 SD",), **sd)  # fmt: skip
    yield row("difference 0.12 of 0.3", open_("independence"), "unn",
              primary=estimate(0.12, 0.09, scale="difference (SD)"), **sd)  # fmt: skip


def _hazards() -> Iterator[Row]:
    both = {"plan": {"extra": ("schoenfeld", "rmst")}}
    alone = {"plan": {"extra": ("schoenfeld",)}}

    def test(p: float | None) -> TestOutcome:
        return outcome("schoenfeld", p=p)

    def mean(difference: float, p: float) -> TestOutcome:
        return outcome("rmst", statistic=difference, p=p)

    assumption = open_("assumption")
    horizon = {"found": {"numbers": {"rmst.horizon": Number(value=60, unit="months", text="60.0")}}}
    told = {"cut": "12.0", "early.summary": "HR 3.00", "late.summary": "HR 0.90"}
    periods = {
        f"period_hazards.{key}": Number(value=1, unit="", text=text) for key, text in told.items()
    }
    for name, others, says, text in (
        ("proportional", (test(0.05),), SUPPORTED, "[for]"),
        ("not, mean agrees", (test(0.049), mean(-5, 0.01)), SUPPORTED, ""),
        ("not, mean p 0.05", (test(0.049), mean(-5, 0.05)), assumption, ""),
        ("not, no difference", (test(0.01), mean(0, 0.01)), assumption, ""),
        ("not, mean missing", (test(0.01),), assumption, ""),
        ("not, mean without p", (test(0.01), outcome("rmst", statistic=-5.0)), assumption, ""),
        ("not, mean without difference", (test(0.01), outcome("rmst", p=0.01)), assumption, ""),
        ("missing", (), assumption, ""),
        ("crashed", (outcome("schoenfeld", status="crashed", reason="singular"),), assumption, ""),
    ):
        yield row(f"hazards {name}", says, "yyy", others=others, reasons=(text,), **both)
    yield row(
        "horizon is named",
        SUPPORTED,
        "yyy",
        **both,
        **horizon,
        others=(test(0.01), mean(-5, 0.01)),
        reasons=("mean time to the event to 60.0 months is 5.0 months shorter in the exposed",),
    )
    yield row("the change over follow-up is told", SUPPORTED, "yyy", **both,
              found={"numbers": periods}, others=(test(0.01), mean(-5, 0.01)),
              reasons=("(p = 0.010; HR 3.00 up to 12.0 months, HR 0.90 after); mean time",)
    )  # fmt: skip
    near = math.exp(0.4 * math.log(1.5))
    for early, late, crosses in (
        (near, 1 / near, True), (1 / near, near, True), (near, 1 / (near - 1e-9), False),
        (None, 0.3, False),
    ):  # fmt: skip
        numbers = {
            f"period_hazards.{part}.effect": Number(value=value, unit="", text="")
            for part, value in (("early", early), ("late", late))
        }
        yield row(f"hazards {early} then {late}", assumption if crosses else SUPPORTED, "yyy",
                  **both, found={"numbers": numbers}, others=(test(0.01), mean(-5, 0.01))
        )  # fmt: skip
        yield row(f"hazards {early} then {late}, refuted", assumption if crosses else NOT, "nnn",
                  primary=NOTHING, **both, found={"numbers": numbers},
                  others=(test(0.01), mean(5, 0.01)))  # fmt: skip
    yield row("the mean is longer", open_("assumption"), "yyy", **both,
              others=(test(0.01), mean(5, 0.01)),
              reasons=("mean time to the event is 5.0 months longer in the exposed",))  # fmt: skip
    yield row("no mean registered", SUPPORTED, "yyy", others=(test(0.01),), **alone,
              reasons=("proportional hazards [limits]",))  # fmt: skip
    yield row("refuted, but the mean agrees", assumption, "nnn", primary=NOTHING,
              others=(test(0.01), mean(-5, 0.01)), **both)  # fmt: skip
    yield row("refuted, the mean does not", NOT, "nnn", primary=NOTHING,
              others=(test(0.01), mean(-5, 0.5)), **both,
              reasons=("proportional hazards [limits]",))  # fmt: skip
    yield row("refuted, proportional", NOT, "nnn", primary=NOTHING,
              others=(test(0.05), mean(-5, 0.01)), **both)  # fmt: skip


def _campaigns(second: Callable[..., AnalysisResult]) -> Iterator[Row]:
    "Claims with a place in a campaign's online control; place 2 has the level 0.0072."
    online = Online(campaign="c", place=2, level=0.0072)
    split = {"online": online, "split": SplitRule(policy="discovery_confirmation")}
    elsewhere = {"online": online}
    for name, p, says, answers in (
        ("below", 0.0071, SUPPORTED, "yyu"),
        ("at", 0.0072, open_("multiplicity"), "uyu"),
    ):
        given = estimate(1.6, p=p)
        yield row(f"campaign, {name} its level", says, answers, primary=given, plan=split)
    weak = estimate(1.6, p=0.04)
    for p, says, answers in ((0.0071, SUPPORTED, "yyu"), (0.0072, open_("multiplicity"), "uyu")):
        yield row(f"campaign, adjusted p {p}", says, answers, primary=weak,
                  adjusted=estimate(1.6, p=p), plan=split, q_adjusted=p)  # fmt: skip
    yield row("campaign without confirmation", open_("multiplicity"), "uyy",
              primary=estimate(2.0, p=0.04), plan=elsewhere)  # fmt: skip
    yield row("campaign, seen before where another cohort confirms", SUPPORTED, "yyy",
              plan=elsewhere, replicate=second(**STRONG), seen="0" * 64)  # fmt: skip
    yield row("campaign, seen before in a split cohort", open_("registration"), "yyy", plan=split,
              replicate=second(**STRONG), seen="0" * 64)  # fmt: skip
    unconfirmed = (open_("replication"), "yyy")
    for name, found, says in (
        ("below", second(**estimate(1.3, p=0.0071)), (SUPPORTED, "yyy")),
        ("at", second(**estimate(1.3, p=0.0072)), unconfirmed),
        ("refused", second(status="refused", reason="no stage"), unconfirmed),
    ):
        yield row(f"campaign, second cohort {name}", *says, primary=estimate(2.0, p=1e-05),
                  plan=elsewhere, replicate=found,
                  reasons=("replication [prevents]",) if name == "at" else ())  # fmt: skip
    ranked = estimate(0.4, 0.15, 1e-05, scale="difference (SD)") | {"method": "rank"}
    yield row("campaign, second cohort's ranks turn", open_("replication"), "yyu",
              primary=ranked | {"statistic": 0.52}, adjusted=ranked, q_adjusted=1e-05,
              plan=elsewhere | {"method": "rank", "scale": "difference (SD)"},
              replicate=second(**ranked, statistic=0.48), reasons=("replication [prevents]",)
    )  # fmt: skip


def _others() -> Iterator[Row]:
    def second(**values: Any) -> AnalysisResult:
        return analysis(outcome("primary", **values), controls=None)

    for name, found, says, limits in (
        ("agrees", second(**STRONG), SUPPORTED, ()),
        ("p 0.05", second(**estimate(1.3, p=0.05)), SUPPORTED, ("points the same way",)),
        ("contradicts", second(**estimate(0.7)), open_("replication"), ()),
        (
            "refused",
            second(status="refused", reason="no stage"),
            SUPPORTED,
            ("no external validation: the second cohort could not be tested",),
        ),
    ):
        other = () if name.startswith("p 0.05") else ("points the same way",)
        yield row(f"second cohort {name}", says, "yyy", replicate=found, limits=limits,
                  without=("one cohort only", *other))  # fmt: skip
    given = estimate(0.4, 0.15, 0.001, scale="difference (SD)") | {"method": "rank"}
    yield row("second cohort, rank test, exposed higher in 0.48", SUPPORTED, "yyu",
              primary=given | {"statistic": 0.52}, adjusted=given, q_adjusted=0.001,
              plan={"method": "rank", "scale": "difference (SD)"},
              replicate=second(**given, statistic=0.48),
              limits=("points the same way by its means, not by its ranks",))  # fmt: skip
    yield from _campaigns(second)
    yield row("no second cohort", SUPPORTED, "yyy",
              limits=("one cohort only; no external validation",))  # fmt: skip
    yield row("what cohort, exposure and endpoint say of themselves", SUPPORTED, "yyy",
              plan={"notes": ("toy: seven are M1", "FABP5: a proxy", "Overall survival: old",
                              "Age: x")},
              limits=("toy: seven are M1\nFABP5: a proxy\nOverall survival: old",),
              without=("Age: x",))  # fmt: skip
    yield row("nothing to replicate", NOT, "nnn", primary=NOTHING, replicate=second(**STRONG),
              reasons=("replication [limits]",), without=("one cohort only",))  # fmt: skip
    yield row("seen before", open_("registration"), "yyy", seen="abcdef0123456789",
              without=("written after contract",))  # fmt: skip
    for unsafe in (False, True):
        brought = Objection(
            "reproduction", "second implementation", "not reproduced", "differs", any_reading=unsafe
        )
        says = open_("reproduction")
        yield row(f"objection brought along, {unsafe}", says, "yyy", objections=(brought,))
        yield row(f"objection to nothing, {unsafe}", says if unsafe else NOT, "nnn",
                  primary=NOTHING, objections=(brought,))  # fmt: skip
    for name, p, text in (
        ("for", 0.049, "incidence [for]"),
        ("p", 0.05, "incidence [limits]"),
        ("none", None, "incidence [limits]"),
    ):
        yield row(f"incidence {name}", SUPPORTED, "yyy", reasons=(text,),
                  others=(outcome("fine_gray", effect=STRONG["effect"], p=p),),
                  without=("different directions",))  # fmt: skip
    yield row("incidence the other way", SUPPORTED, "yyy",
              others=(outcome("fine_gray", **estimate(0.7)),), reasons=("incidence [limits]",),
              limits=("in different directions",))  # fmt: skip
    yield row("incidence refused", SUPPORTED, "yyy",
              others=(outcome("fine_gray", status="refused"),))  # fmt: skip


def _missing() -> Iterator[Row]:
    may = "of the 40 patients without the exposure may differ"
    for p, says, told in (
        (0.0099, open_("assumption"), ()),
        (0.01, SUPPORTED, (may,)),
        (0.05, SUPPORTED, ()),
    ):
        text = () if says == SUPPORTED else ("of the 40 patients without", "of the 360 with it")
        yield row(f"missingness p {p}", says, "yyy",
                  ran=controls(missingness=Missingness(status=RAN, missing=40, n=400, p=p)),
                  reasons=text, limits=told, without=() if told else (may,))  # fmt: skip
    for p, says in ((0.0099, open_("assumption")), (0.01, SUPPORTED)):
        found = Missingness(status=RAN, missing=0, n=400, unseen=40, unseen_p=p)
        text = ("the exposure of the 40 patients without the outcome",) if p == 0.0099 else ()
        yield row(f"outcomes lost p {p}", says, "yyy", ran=controls(missingness=found),
                  reasons=text)  # fmt: skip
    yield row("no missingness in the contract", SUPPORTED, "yyy", ran=controls(missingness=None),
              plan={"controls": {"missingness": False}})  # fmt: skip


def _edges() -> Iterator[Row]:
    "Texts and limits of comparisons that no other row reaches."
    yield row("random features at the contract's share", SUPPORTED, "yyy",
              ran=controls(random=(random_features(0.95), random_features(0.99))),
              reasons=("random features [for] stronger in the claimed direction than 950",)
    )  # fmt: skip
    yield row("spline, falling slope, p at alpha", NOT, "nnn",
              primary=estimate(0.98, 0.05, 0.05), plan={"method": "spline"})  # fmt: skip
    yield row("the other way, p at alpha", NOT, "nnn", primary=estimate(0.9, 0.05, 0.05),
              reasons=("the interval excludes the smallest relevant effect",))  # fmt: skip
    yield row("no difference in mean survival, protective claim", open_("assumption"), "yyy",
              primary=estimate(0.5),
              plan={"extra": ("schoenfeld", "rmst"), "direction": "lower_risk"},
              others=(outcome("schoenfeld", p=0.01), outcome("rmst", statistic=-0.5, p=0.01))
    )  # fmt: skip
    yield row("locked, what argues", NOT, "nnn", primary=NOTHING, locked=True, q=None,
              reasons=("discovery [against]",))  # fmt: skip
    yield row("data, what argues", open_("data"), "", primary=None, q=0.001,
              reasons=("data [prevents]",))  # fmt: skip
    yield row("weak and proportional", open_("power"), "uuu", primary=WEAK,
              plan={"extra": ("schoenfeld",)}, others=(outcome("schoenfeld", p=0.5),),
              unsaid=("proportional hazards",))  # fmt: skip
    again = analysis(outcome("primary", **STRONG), controls=None)
    yield row("second cohort, what argues", SUPPORTED, "yyy", replicate=again,
              reasons=("replication [for]",))  # fmt: skip
    untested = analysis(controls=None)
    yield row("second cohort untested, what argues", SUPPORTED, "yyy", replicate=untested,
              reasons=("replication [limits]",))  # fmt: skip


def _limits() -> Iterator[Row]:
    def flow(after: int, step: str = "exposure") -> dict[str, Any]:
        lost = JoinReport(step=step, before=100, after=after, reason="no value")
        return {"found": {"joins": (lost,)}}

    few = "no value in 49 of 100 patients only"
    yield row("few patients left", SUPPORTED, "yyy", limits=(few,), **flow(49))
    yield row("half left", SUPPORTED, "yyy", without=("patients only",), **flow(50))
    yield row("few joined", SUPPORTED, "yyy", without=("patients only",), **flow(49, "join"))
    for group, events, told in (("exposed", 0, "limits"), ("reference", 0, "limits"),
                                ("exposed", 1, "without")):  # fmt: skip
        key = f"primary.{group}.events"
        numbers = {"numbers": {key: Number(value=events, unit="events", text=str(events))}}
        yield row(f"{events} events in {group}", SUPPORTED, "yyy", found=numbers,
                  **{told: ("no event in a group",)})  # fmt: skip
    yield row("failed specifications", SUPPORTED, "yyy",
              ran=controls(specification=specification(failed=3)),
              limits=("3 of 27 specifications could not be estimated",))  # fmt: skip
    yield row("no failed specification", SUPPORTED, "yyy", without=("could not be estimated",
                                                                    "SIMULATED", "amended",
                                                                    "switched off",
                                                                    "no known positive",
                                                                    "registered after",
                                                                    "another version"))  # fmt: skip
    yield row("simulated", SUPPORTED, "yyy", plan={"simulated": True}, limits=("simulated data",))
    second = {"version": 2, "parent": "0" * 64, "amendment": "look again"}
    yield row("second version", SUPPORTED, "yyy", plan=second,
              limits=("contract amended, version 2: look again", "no results of another version")
    )  # fmt: skip
    yield row("untested", SUPPORTED, "yyy", plan={"untested": ("margin",)},
              limits=("not tested: margin",))  # fmt: skip


def on_line(given: Evidence, *, ratio: float, se: float, q: float | None = None) -> Evidence:
    """The same evidence with another estimate (Wald's p) and, if given, another q."""
    now = estimate(ratio, se)
    tests = tuple(
        test.model_copy(update=now) if test.id == "primary" else test
        for test in given.analysis.tests
    )
    moved = given.analysis.model_copy(update={"tests": tests})
    return replace(given, analysis=moved, q=now["p"] if q is None else q)


SHOWN = {
    "everything agrees": "all answers and controls agree",
    "adjusted p 0.0499": "associated and independent; how large the effect is stays open",
    "strata alone": "strata and no covariates: the primary test compares within them",
    "nothing to adjust for": "the contract declares that there is nothing to adjust for",
    "adjusted not shown": "adjusted effect not significant",
    "adjusted missing": "adjusted model without result",
    "adjusted for nothing": "no covariates, no reason given",
    "small": "significant, but the adjusted interval leaves out the smallest relevant effect",
    "0.88 (0.78 to 0.98), q 0.052": "the same, not after control over the ledger",
    "tiny, and a control objects": "the same, and a control objects",
    "small crude, large adjusted": "only the crude interval leaves it out",
    "q 0.05, adjusted to none": "significant alone, but adjusted to no relevant effect",
    "q 0.05": "significant alone, not after control over the ledger",
    "weak": "neither shown nor excluded",
    "nothing": "the intervals leave out the smallest relevant effect",
    "nothing, adjusted wide": "the same, and the adjusted interval reaches it",
    "the other way": "significant in the other direction",
    "nothing crude, but adjusted": "no crude effect, but an adjusted one",
    "refuted, but the mean agrees": "no effect on average, but mean survival differs as claimed",
    "permutation p 0.6": "permutations do as well",
    "random features 0.2": "comparable features do as well",
    "sign in 0.899, own True": "sign unstable over the specification curve",
    "missingness p 0.0099": "patients without the exposure fare otherwise",
    "hazards not, mean p 0.05": "hazards not proportional, mean survival does not agree",
    "second cohort contradicts": "a second cohort contradicts",
    "undeclared exposure imaging:tls": "nobody declared when the exposure became known",
    "seen before": "the claim was asked again after its results",
    "permuted crashed": "a registered control crashed",
    "no controls at all": "no control ran",
    "nothing there, known positive crashed": "no effect, and a registered control crashed",
    "known positive {'p': 0.05}": "the known positive does not show",
    "negative control p 0.049": "the negative control moves",
    "primary refused": "the primary test was refused",
    "either, longer": "no direction claimed, and the primary test shows one",
    "either, adjusted points the other way": "the same, and the adjusted one points the other way",
    "either, one side is open, 1.05": "no direction claimed; a relevant effect on a side is left",
    "either, nothing": "no direction claimed; a relevant effect is excluded on both sides",
    "either, only adjusted, longer": "the same, but an adjusted effect in either direction",
    "either, confirmed the other way": "other patients show the opposite of what discovery showed",
}
"""Rows that the README shows, in the words that stand there."""


def decision_table(judge: Callable[[Evidence], Any]) -> str:
    """The README's table of decisions, from the rows and what the rules say to them."""
    by_name = {row.name: row for row in rows()}
    lines = ["| what is found | associated | independent | relevant | verdict |", "|---" * 5 + "|"]
    for name, words in SHOWN.items():
        found = judge(by_name[name].given())
        answers = [answer.answer for answer in found.answers] or ["–"] * 3
        because = "" if found.because == "evidence" else f" ({found.because})"
        verdict = found.verdict.replace("_", " ") + because
        lines.append("| " + " | ".join([words, *answers, verdict]) + " |")
    return "\n".join(lines)


def _either() -> Iterator[Row]:
    """Claims that name no direction: the one found takes its place."""

    def given(name: str, says: tuple[str, str], answers: str, **more: Any) -> Row:
        plan = {"direction": "either"} | more.pop("plan", {})
        return row(f"either, {name}", says, answers, plan=plan, **more)

    def part(name: str, found: dict[str, Any]) -> AnalysisResult:
        return analysis(outcome("primary", part=name, **found), controls=None)

    longer, shorter = estimate(0.5), estimate(2.0)
    yield given("longer", SUPPORTED, "yyy", primary=longer,
                words="Supported: associated with longer overall survival, also after",
                reasons=("primary [for] with longer overall survival: hazard ratio 0.50",
                         "stronger in either direction than 990 of 1000",
                         "sign of the primary test in 100%", "(a hazard ratio of 0.67)")
    )  # fmt: skip
    yield given("nothing to adjust for", SUPPORTED, "y-y", primary=longer,
                plan={"covariates": (), "unadjusted_because": "randomized"},
                words="associated with longer overall survival; nothing to adjust for")  # fmt: skip
    yield given("a product", SUPPORTED, "yyy", primary=longer,
                plan={"comparison": "interaction"},
                words="associated with a lower hazard ratio, also")  # fmt: skip
    yield given("a product, higher", SUPPORTED, "yyy", plan={"comparison": "interaction"},
                words="associated with a higher hazard ratio, also")  # fmt: skip
    yield given("p 0.05", open_("power"), "uuu", primary=estimate(1.6, 0.2, 0.05),
                reasons=("needed to find a hazard ratio of 1.50 or 0.67",))  # fmt: skip
    yield given("adjusted points the other way", open_("independence"), "ynn", primary=longer,
                adjusted=shorter)  # fmt: skip
    yield given("nothing", NOT, "nnn", primary=NOTHING,
                words="no relevant association in either direction",
                reasons=("(a hazard ratio of 1.50 or 0.67)",))  # fmt: skip
    for ratio in (1.05, 1 / 1.05):
        yield given(f"one side is open, {ratio:.2f}", open_("power"), "uuu",
                    primary=estimate(ratio, 0.2), reasons=("power [prevents]",))  # fmt: skip
    for name, beside in (("longer", longer), ("shorter", shorter)):
        yield given(f"only adjusted, {name}", open_("independence"), "nyy", primary=NOTHING,
                    adjusted=beside, reasons=("adjusted model [prevents]",))  # fmt: skip
        sign = estimate(0.7 if name == "longer" else 1 / 0.7, 0.2, 0.06)
        yield given(f"a sign, adjusted {name}", open_("power"), "uyy", primary=sign,
                    adjusted=beside, q_adjusted=0.001)  # fmt: skip
    crossed = {"plan": {"extra": ("schoenfeld", "rmst")}}
    for months, says in ((-5, open_("assumption")), (5, SUPPORTED)):
        means = (outcome("schoenfeld", p=0.01), outcome("rmst", statistic=months, p=0.01))
        yield given(f"longer, mean {months}", says, "yyy", primary=longer, others=means, **crossed)
    yield given("a second cohort points the other way", open_("replication"), "yyy",
                primary=longer, replicate=part("replication", shorter))  # fmt: skip
    yield given("locked", open_("power"), "uuu", primary=WEAK | {"part": "discovery"},
                locked=True, q=None, reasons=("level 0.2 in either direction",))  # fmt: skip
    yield row("the expected direction, locked", open_("power"), "uuu", primary=WEAK, locked=True,
              q=None, reasons=("level 0.2 in the expected direction",))  # fmt: skip
    confirmed = {"part": "confirmation"}
    before = part("discovery", estimate(0.8, 0.15))
    yield given("confirmed the other way", NOT, "nnn", primary=shorter | confirmed,
                discovery=before, words="associated in the other direction")  # fmt: skip
    yield given("confirmed beside the covariates", SUPPORTED, "yyy",
                primary=estimate(0.7, 0.2, 0.06) | confirmed, adjusted=longer, q_adjusted=0.001,
                discovery=before, words="with longer overall survival")  # fmt: skip


SCORE = Hypothesis.model_validate(
    {
        "id": "h",
        "population": {"description": "all"},
        "exposures": [{"variable": "clinical:score", "label": "score", "cut": "continuous"}],
        "comparison": "calibrated",
        "endpoint": "OS",
        "direction": "higher_risk",
        "calibration": {"horizon": 60, "slope": [0.7, 1.3], "thresholds": [0.1, 0.3]},
    }
)


def _calibrated() -> Iterator[Row]:
    """The calibration of a score: margins 0.8 to 1.25 for the ratio, 0.7 to 1.3 for the slope."""
    off = {"status": OFF, "reason": "not asked for"}
    ran = controls(
        permuted=PermutedOutcome(**off), random=(), specification=Specifications(**off)
    )  # fmt: skip

    def between(lower: float, upper: float, scale: str, p: float = 0.001) -> dict[str, Any]:
        middle = (lower + upper) / 2
        given = {"value": middle, "lower": lower, "upper": upper, "scale": scale}
        return {"effect": Effect.model_validate(given), "p": p}

    def ratio(lower: float, upper: float, p: float = 0.001) -> dict[str, Any]:
        return between(lower, upper, "observed/expected ratio", p) | {"method": "recalibration"}

    def slope(lower: float, upper: float) -> tuple[TestOutcome, ...]:
        found = between(lower, upper, "calibration slope")
        return (outcome("slope", method="calibration_slope", **found),)

    def given(name: str, says: tuple[str, str], answers: str, **more: Any) -> Row:
        plan: dict[str, Any]
        plan = {"comparison": "calibrated", "hypothesis": SCORE, "covariates": (),
                "scale": "observed/expected ratio", "method": "recalibration",
                "controls": {"permutations": 0, "random_features": 0}}  # fmt: skip
        more = {"primary": ratio(0.9, 1.1), "others": slope(0.8, 1.2), "ran": ran} | more
        more["plan"] = plan | more.get("plan", {})
        return row(f"score: {name}", says, answers, **more)

    yield given("within the margins", SUPPORTED, "yy", words="calibrated within the margins",
                without=("switched off",), unsaid=("replication", "decision curve"),
                reasons=("observed/expected ratio [for] 1.00 (95% CI 0.90 to 1.10), margins 0.8",
                         "calibration slope [for]"))  # fmt: skip
    for lower, upper in ((0.8, 1.1), (0.9, 1.25), (0.7, 0.8), (1.25, 1.4), (0.5, 2.0)):
        yield given(f"ratio {lower} to {upper}", open_("power"), "uy",
                    primary=ratio(lower, upper), reasons=("power [prevents]",))  # fmt: skip
    for lower, upper in ((0.7, 1.1), (0.9, 1.3), (0.5, 0.7), (1.3, 1.5), (-0.5, 2.0)):
        yield given(f"slope {lower} to {upper}", open_("power"), "yu", others=slope(lower, upper))
    for lower, upper, words in ((0.6, 0.79, "fewer"), (1.26, 1.5, "more")):
        yield given(f"{words} events", NOT, "ny", primary=ratio(lower, upper, 1.0),
                    words=f"{words} events than predicted",
                    reasons=("observed/expected ratio [against]",))  # fmt: skip
    for lower, upper, words in ((-0.2, 0.6, "extreme"), (1.4, 1.9, "moderate")):
        yield given(f"too {words}", NOT, "yn", others=slope(lower, upper),
                    words=f"too {words}")  # fmt: skip
    yield given("ratio outside, slope open", NOT, "nu", primary=ratio(1.3, 1.5, 1.0),
                others=slope(0.5, 1.5))  # fmt: skip
    yield given("no slope", open_("power"), "y", others=())
    for q in (None, 0.05):
        yield given(f"q {q}", open_("multiplicity"), "yy", q=q, reasons=("ledger [prevents]",))
    yield given("not declared when known", open_("timing"), "yy",
                plan={"undeclared": {"clinical:score": "exposure"}})  # fmt: skip
    yield given(
        "the known positive is refuted",
        open_("control"),
        "yy",
        ran=ran.model_copy(update={"known_positive": known_positive(0.9, 0.4, upper=1.0)}),
    )
    yield given("miscalibrated, and a control crashed", open_("control"), "ny",
                primary=ratio(1.3, 1.5),
                ran=ran.model_copy(update={"timing": None}))  # fmt: skip
    yield given("selected by course", open_("assumption"), "yy", ran=ran.model_copy(
        update={"missingness": Missingness(status=RAN, missing=40, n=400, p=0.001)}))  # fmt: skip
    yield given("asked before", open_("registration"), "yy", seen="a" * 64,
                reasons=("registration [prevents]",))  # fmt: skip
    yield given("objected elsewhere", open_("reproduction"), "yy",
                objections=(Objection("reproduction", "reproduction", "w", "t"),))  # fmt: skip
    for name, says, lower, upper, p, reason in (
        ("agrees", SUPPORTED, 0.9, 1.1, 0.001, "replication [for]"),
        ("agrees, below one", SUPPORTED, 0.85, 0.95, 0.001, "replication [for]"),
        ("is open", SUPPORTED, 0.7, 1.3, 0.3, "replication [limits]"),
        ("contradicts", open_("replication"), 1.3, 1.5, 1.0, "outside the margins"),
    ):
        second = analysis(
            outcome("primary", part="replication", **ratio(lower, upper, p)),
            *slope(0.8, 1.2), controls=None, part="replication",
        )  # fmt: skip
        yield given(f"a second cohort {name}", says, "yy", replicate=second, reasons=(reason,))
    for share, mark in ((1.0, "for"), (0.5, "limits")):
        useful = {"decision_curve.useful": Number(value=share, unit="share", text=f"{share:.0%}")}
        yield given(f"decision curve {mark}", SUPPORTED, "yy", found={"numbers": useful},
                    reasons=(f"decision curve [{mark}]",))  # fmt: skip
