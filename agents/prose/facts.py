"""Typed facts of an analysis, on which a sentence about its result may rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from agents.core.base import View
from validation.contracts.contract import Contract
from validation.core.hypothesis import Direction
from validation.results.controls import Controls
from validation.results.results import Results, TestOutcome
from validation.verdict.relevance import expected_direction

Tri = bool | None
"""True, False, or None where nothing was computed or the rules leave it open."""


NAMED_TESTS = {
    "primary": "The primary comparison",
    "adjusted": "The adjusted comparison",
    "replicate.primary": "The comparison in the second cohort",
}
SENTENCES: dict[str, tuple[str, str, str]] = {
    "independent": (
        "Beside the covariates the effect is significant in the claimed direction.",
        "Beside the covariates the interval excludes a relevant effect in the claimed direction.",
        "Whether there is an effect beside the covariates is left open.",
    ),
    "relevant": (
        "The interval lies wholly at or beyond the smallest relevant effect.",
        "The interval excludes the smallest relevant effect in the claimed direction.",
        "Whether the effect is large enough to matter is left open.",
    ),
    "replicated": (
        "The result was replicated in a second cohort.",
        "The second cohort does not confirm the claim.",
        "The result has not been replicated.",
    ),
    "proportional": (
        "No departure from proportional hazards was seen.",
        "By the test hazards were not proportional.",
        "",
    ),
    "stable": ("The sign was stable over the specifications.", "The sign was not stable.", ""),
    "permuted": (
        "The permutation p was below alpha.",
        "Permuted outcomes did as well too often.",
        "",
    ),
    "specific": (
        "Random features do not do as well at the registered level.",
        "Random features did as well too often.",
        "",
    ),
    "known_positive": (
        "The known positive was seen.",
        "The known positive was not seen.",
        "",
    ),
    "negative_control": ("", "The negative control failed.", ""),
    "powered": (
        "The number of events was sufficient for the registered power.",
        "More events are needed for the registered power.",
        "",
    ),
    "controlled": (
        "",
        "The primary comparison does not survive control over the ledger.",
        "",
    ),
    "registered_first": ("", "The contract was written after results on this claim were seen.", ""),
    "reproduced": (
        "The second implementation agrees.",
        "The second implementation disagrees.",
        "",
    ),
}
"""What may be said where a fact is true, false, or left open; nothing where it would mislead."""


class TestFact(View):
    """Facts of a test: significance after error control, and side of no effect."""

    __test__ = False

    significant: Tri = None
    expected: Tri = None
    harm: Tri = None
    excludes_null: Tri = None


class ResultFacts(View):
    """The typed facts of an analysis.

    `tests` are by id ("primary", "adjusted", "PFI.secondary", "replicate.primary"); `endpoints`
    gives the names of each endpoint in lower case. `excluded` is True where the interval leaves out
    the smallest relevant effect, `absent` where the claim was refuted without an effect on either
    side. `second_cohort` is True if another cohort was tested.
    """

    verdict: Literal["supported", "not_supported", "inconclusive"]
    because: str = "evidence"
    tests: Mapping[str, TestFact] = Field(default_factory=dict)
    primary_endpoint: str = ""
    endpoints: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    absent: bool = False
    excluded: bool = False
    independent: Tri = None
    relevant: Tri = None
    second_cohort: bool = False
    replicated: Tri = None
    proportional: Tri = None
    stable: Tri = None
    permuted: Tri = None
    specific: Tri = None
    known_positive: Tri = None
    negative_control: Tri = None
    powered: Tri = None
    controlled: Tri = None
    registered_first: Tri = None
    reproduced: Tri = None
    calibrated: Tri = None

    @property
    def associated(self) -> bool:
        """True where the primary comparison is significant after error control."""
        return self.test("primary").significant is True

    @property
    def controls_passed(self) -> Tri:
        """True where every control that ran bears the result out, and one ran."""
        ran = [
            flag
            for flag in (self.permuted, self.specific, self.known_positive, self.negative_control)
            if flag is not None
        ]
        return all(ran) if ran else None

    def sentences(self) -> tuple[str, ...]:
        """Render the facts as sentences, all of them true."""
        said = []
        for name, test in sorted(self.tests.items()):
            if name in NAMED_TESTS and test.significant is not None:
                verb = "was" if test.significant else "was not"
                said.append(f"{NAMED_TESTS[name]} {verb} significant.")
            if name in NAMED_TESTS and test.expected is not None:
                way = "expected" if test.expected else "opposite"
                said.append(f"{NAMED_TESTS[name]} points in the {way} direction.")
        for name, (true, false, left_open) in SENTENCES.items():
            value: Tri = getattr(self, name)
            said.append(true if value else false if value is False else left_open)
        return tuple(name for name in said if name)

    def test(self, name: str) -> TestFact:
        """A test's facts; all None where it did not run."""
        return self.tests.get(name, TestFact())


def facts_of(results: Results, contract: Contract) -> ResultFacts:
    """Read the typed facts from results and contract; nothing is inferred from any text.

    Where the confirming patients were looked at, the tests of the exploring patients do not count.
    """
    verdict, rules = results.verdict, contract.rules
    outcomes: dict[str, set[str]] = {}
    for reason in verdict.reasons:
        outcomes.setdefault(reason.rule, set()).add(reason.outcome)
    answers = {answer.question: answer.answer for answer in verdict.answers}
    controls = results.controls or Controls()

    def spoke(rule: str) -> Tri:
        said = outcomes.get(rule, set())
        return False if "prevents" in said else True if "for" in said else None

    def q_of(test: str) -> float | None:
        found = results.numbers.get(f"{test}.q")
        return None if found is None or found.value is None else float(found.value)

    confirmed = any(test.part == "confirmation" for test in results.tests)
    tests = {
        results.key(test): _test_fact(test, contract, q_of(results.key(test)))
        for test in results.tests
        if test.status == "ok" and not (confirmed and test.part == "discovery")
    }
    primary = results.test(contract.primary)
    if primary is not None and primary.status == "ok":
        tests["primary"] = tests[contract.primary]
    schoenfeld = results.test("schoenfeld")
    found = tests.get("primary", TestFact())
    again = outcomes.get("replication", set())
    permuted, known, negative = (
        control.p if control is not None and control.ran else None
        for control in (controls.permuted, controls.known_positive, controls.negative)
    )
    return ResultFacts(
        verdict=verdict.verdict,
        because=verdict.because,
        tests=tests,
        primary_endpoint=contract.primary_test.endpoint,
        endpoints={
            endpoint.key: tuple(
                dict.fromkeys(
                    " ".join(name.lower().replace("_", " ").replace("-", " ").split())
                    for name in (endpoint.label, endpoint.key)
                    if name
                )
            )
            for endpoint in contract.endpoints
            if endpoint.key != contract.controls.negative_endpoint
        },
        absent=verdict.verdict == "not_supported" and found.significant is False,
        excluded="no" in (answers.get("association"), answers.get("relevance")),
        independent=_parse_answer(answers.get("independence")),
        relevant=_parse_answer(answers.get("relevance")),
        second_cohort=any(name.startswith("replicate.") for name in tests),
        replicated=None if not again else again == {"for"},
        proportional=None
        if schoenfeld is None or schoenfeld.p is None
        else schoenfeld.p >= rules.proportionality_alpha,
        stable=spoke("specification curve"),
        permuted=None if permuted is None else permuted < rules.alpha,
        specific=spoke("random features"),
        known_positive=None
        if known is None
        else known < rules.alpha and spoke("known positive") is not False,
        negative_control=None if negative is None else spoke("negative control") is not False,
        powered=_has_power(primary, contract),
        controlled=False if verdict.because == "multiplicity" else found.significant,
        registered_first=verdict.because != "registration",
        reproduced=_reproduced(results),
    )


def _reproduced(results: Results) -> Tri:
    """True if the second implementation gave the same numbers, all that were compared."""
    if results.verdict.because == "reproduction":
        return False
    found = results.reproduction
    if not found or not all(reproduction.ran for reproduction in found):
        return None
    states = {number.state for reproduction in found for number in reproduction.compared}
    if "reproduced" not in states:
        return None
    return states <= {"reproduced", "no second implementation"}


def _parse_answer(answer: str | None) -> Tri:
    return {"yes": True, "no": False}.get(answer or "")


def _test_fact(outcome: TestOutcome, contract: Contract, q: float | None) -> TestFact:
    p, effect, alpha = outcome.p, outcome.effect, contract.rules.alpha
    significant: Tri = None
    if p is not None:
        significant = p < alpha
        if significant and q is not None and q >= alpha:
            significant = None
    if effect is None:
        return TestFact(significant=significant)
    expected = expected_direction(contract, effect)
    worse = contract.direction is Direction.HIGHER_RISK
    low, high = effect.distance_from_null(effect.lower), effect.distance_from_null(effect.upper)
    return TestFact(
        significant=significant,
        expected=expected,
        harm=expected == worse,
        excludes_null=None if significant is None else not low <= 0 <= high,
    )


def _has_power(primary: TestOutcome | None, contract: Contract) -> Tri:
    needed = contract.power.required_events
    if primary is None or primary.events is None or needed is None:
        return None
    return primary.events >= needed
