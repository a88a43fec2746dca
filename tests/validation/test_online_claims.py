"""Online control in contract, ledger and verdict: places, levels, and what cannot be supported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sage.core.errors import InputError
from tests.validation.core_help import STRONG, claim, load, patients
from tests.validation.verdict_table import estimate, evidence
from validation.cohort.cohort import Cohort
from validation.contracts.contract import Contract, FrozenContract, Online, SplitRule
from validation.core.hypothesis import Hypothesis
from validation.drafting.amending import amend
from validation.drafting.draft import draft
from validation.drafting.freezing import freeze
from validation.ledger.ledger import Ledger
from validation.ledger.lines import Entry
from validation.ledger.store import open_store
from validation.run.runner import run
from validation.statistics.online import level
from validation.verdict.verdict import judge

SPLIT = SplitRule(policy="discovery_confirmation")


def placed(cohort: Cohort, place: int, hypothesis: Hypothesis | None = None) -> FrozenContract:
    plan = draft(hypothesis or claim(), cohort.dictionary(), split=SPLIT)
    online = Online(campaign="c", place=place, level=level(place))
    return freeze(
        Contract.model_validate(plan.model_copy(update={"online": online}).model_dump()), cohort
    )


def explored(frozen: FrozenContract, p: float | None, part: str = "discovery") -> Entry:
    return Entry(
        contract=frozen.sha256, hypothesis="h", cohort="toy", test="primary", role="primary",
        part=part, claim=False, status="ok" if p is not None else "crashed", p=p,
    )  # fmt: skip


@settings(deadline=None, max_examples=80)
@given(
    st.floats(0.3, 3.0),
    st.floats(0.05, 0.5),
    st.floats(0.0, 0.06),
    st.floats(0.0, 0.06),
    st.booleans(),
)
def test_a_claim_that_misses_its_level_is_never_supported(
    ratio: float, se: float, p: float, beside: float, locked: bool
) -> None:
    """What lets the benchmark of campaigns leave out everything else of such a claim."""
    spent = level(2)
    given_plan = {"online": Online(campaign="c", place=2, level=spent), "split": SPLIT}
    found = evidence(
        primary=estimate(ratio, se, p=p),
        adjusted=estimate(ratio, se, p=beside),
        plan=given_plan,
        q=0.0,
        q_adjusted=0.0,
        locked=locked,
    )
    if locked or ratio <= 1 or (p >= spent and (beside >= spent or p >= 0.1)):
        assert judge(found).verdict != "supported"
    # The level of its place takes nothing from anybody else: without it, the rules are as before.
    plain = replace(found, contract=found.contract.model_copy(update={"online": None}))
    if judge(found).verdict == "supported":
        assert judge(plain).verdict == "supported"


def test_a_contract_cannot_spend_more_than_its_place_has(tmp_path: Path) -> None:
    cohort = load(tmp_path, patients())
    plan = draft(claim(), cohort.dictionary(), split=SPLIT)
    told = plan.model_dump() | {"online": {"campaign": "c", "place": 3, "level": level(1)}}
    with pytest.raises(ValidationError, match="position 3"):
        Contract.model_validate(told)


def test_a_place_is_not_amended_away(tmp_path: Path) -> None:
    cohort = load(tmp_path, patients(300))
    with pytest.raises(InputError):
        amend(placed(cohort, 2), cohort, reason="later", changes={"seed": 5})


def test_places_go_to_one_claim_each_and_come_back_where_nothing_was_confirmed(
    tmp_path: Path,
) -> None:
    cohort = load(tmp_path / "c", patients())
    ledger = Ledger(tmp_path / "ledger.jsonl", open_store(str(tmp_path / "store.sqlite")))
    first = placed(cohort, 1)
    assert ledger.next_place() == 1
    ledger.register(first, cohort)
    assert ledger.next_place() == 2  # held while nobody knows how it ends
    ledger.record(explored(first, 0.15))
    assert ledger.next_place() == 2  # it may have been confirmed
    other = Ledger(tmp_path / "other.jsonl", open_store(str(tmp_path / "store.sqlite")))
    other.follow(cohort)
    assert other.next_place() == 2  # whatever the folder: the patients are the same
    second = placed(cohort, 2, claim(direction="lower_risk"))
    other.register(second, cohort)
    other.record(explored(second, 0.4))
    assert other.next_place() == 2  # explored in vain, so that its place was never spent


@pytest.mark.parametrize(("p", "free"), [(0.2, True), (0.1999, False), (None, False)])
def test_which_exploration_frees_a_place(tmp_path: Path, p: float | None, free: bool) -> None:
    cohort = load(tmp_path / "c", patients())
    ledger = Ledger(tmp_path / "l")
    frozen = placed(cohort, 1)
    ledger.register(frozen)
    ledger.record(explored(frozen, p))
    assert ledger.next_place() == (1 if free else 2)


def test_one_cohort_that_confirms_for_two_others_has_each_place_once(tmp_path: Path) -> None:
    """Both were frozen before either came to the patients that confirm: the later one pays."""
    confirms = load(tmp_path / "b", patients(300, seed=9))
    store = open_store(str(tmp_path / "store.sqlite"))
    books, claims = [], []
    for at in range(2):
        cohort = load(tmp_path / f"a{at}", patients(300, seed=at))
        books.append(Ledger(tmp_path / f"ledger{at}.jsonl", store))
        claims.append(placed(cohort, 1))
        books[at].register(claims[at], cohort)
    for at in (1, 0):
        books[at].register_replication(claims[at], confirms)
        books[at].record(explored(claims[at], 0.01, "all"))
    assert books[1].place_taken(claims[1]) is None
    assert books[0].place_taken(claims[0]) == claims[1].sha256
    again = Ledger(tmp_path / "ledger0.jsonl", store)
    assert again.place_taken(claims[0]) == claims[1].sha256


def test_a_place_that_was_spent_supports_nobody_else(tmp_path: Path) -> None:
    """Two campaigns that took one place at once: the later one pays."""
    raw = patients(400, log_hr=STRONG)
    cohort = load(tmp_path / "c", raw.assign(other=raw["marker"].rank()))
    ledger = Ledger(tmp_path / "l")
    taken = placed(cohort, 1, claim(direction="lower_risk"))
    ledger.register(taken)
    ledger.record(explored(taken, 0.01))
    mine = placed(cohort, 1)
    out = tmp_path / "out"
    found = run(mine, cohort, out, ledger=ledger, figures=False, reproduce=False)
    assert ledger.place_taken(mine) == taken.sha256
    assert found.verdict.verdict == "inconclusive"
    assert any(reason.rule == "online control" for reason in found.verdict.reasons)


def test_men_are_not_seen_by_asking_women(tmp_path: Path) -> None:
    """What was found in one subgroup makes no claim on the other one exploratory."""
    cohort = load(tmp_path / "c", patients(400, log_hr=STRONG))

    def within(sex: str) -> Hypothesis:
        filters = [{"variable": "clinical:sex", "op": "eq", "value": sex}]
        return claim(population={"description": sex, "filters": filters})

    ledger = Ledger(tmp_path / "l")
    contracts = {
        sex: freeze(draft(within(sex), cohort.dictionary()), cohort) for sex in ("female", "male")
    }
    ledger.register(contracts["female"])
    ledger.record(explored(contracts["female"], 0.01, "all"))
    ledger.register(contracts["male"])
    assert ledger.seen_before(contracts["male"]) is None
    everybody = freeze(draft(claim(), cohort.dictionary()), cohort)
    ledger.register(everybody)
    assert ledger.seen_before(everybody) == contracts["female"].sha256
