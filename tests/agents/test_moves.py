"""The policy of a campaign: a table of moves, what is never asked, and what is asked first."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.campaign.moves import (
    DEEPEST,
    Came,
    Earlier,
    Policy,
    information,
    neighbor,
    next_moves,
    reopens,
)
from agents.core.statement import same_claim
from validation.core.dictionary import DataDictionary, Endpoint, Variable
from validation.core.hypothesis import (
    Comparison,
    CutRule,
    Direction,
    Exposure,
    Filter,
    Hypothesis,
    Population,
)


def variable(key: str, kind: str, **more: object) -> Variable:
    output = {"key": key, "label": key.split(":")[1].upper(), "modality": key.split(":")[0],
            "kind": kind, "n": 400, "missing": 0.0, "known_at": "baseline"}  # fmt: skip
    return Variable.model_validate(output | more)


KNOWN = DataDictionary(
    cohort="toy",
    title="Toy",
    simulated=True,
    n_patients=400,
    variables=(
        variable("imaging:tls", "continuous"),
        variable("clinical:sex", "binary", levels={"F": 150, "M": 250}),
        variable("clinical:rare", "binary", levels={"no": 390, "yes": 10}),
        variable("clinical:age", "continuous"),
    ),
    expression=("CXCL11", "CXCL13", "FABP5", "KRT5"),
    expression_n=400,
    endpoints=(
        Endpoint(key="OS", label="Overall survival", kind="survival", n=400, events=240),
        Endpoint(key="PFI", label="Progression-free interval", kind="survival", n=400, events=250),
    ),
)
GENE = Exposure(variable="expression:CXCL13", label="CXCL13")
TLS = Exposure(variable="imaging:tls", label="TLS", level="low")


def claim(*exposures: Exposure, within: str = "", **changes: object) -> Hypothesis:
    filters = (Filter(variable="clinical:sex", op="eq", value=within),) if within else ()
    cut = exposures[0].cut
    several = Comparison.EXTREMES if len(exposures) > 1 else Comparison.EXPOSED_VS_REST
    output = {
        "id": "h",
        "statement": "s",
        "population": Population(description="", filters=filters),
        "exposures": exposures,
        "comparison": Comparison.PER_SD if cut is CutRule.CONTINUOUS else several,
        "endpoint": "OS",
        "direction": Direction.HIGHER_RISK,
    }
    return Hypothesis.model_validate(output | changes)


UNCUT = GENE.model_copy(update={"cut": CutRule.CONTINUOUS})
CUT, PER_SD, JOINT = claim(GENE), claim(UNCUT), claim(GENE, TLS)
IN_MEN = claim(UNCUT, within="M")


def describe(hypothesis: Hypothesis) -> str:
    names = "+".join(e.variable.split(":")[1] for e in hypothesis.exposures)
    within = "".join(f" in {each.value}" for each in hypothesis.population.filters)
    lower = " lower" if hypothesis.direction is Direction.LOWER_RISK else ""
    return f"{names} {hypothesis.comparison.value}{within} {hypothesis.endpoint}{lower}"


TABLE: list[tuple[str, Hypothesis, Came, list[str]]] = [
    ("joint, held", JOINT, "held", ["contrast CXCL13 per_sd OS", "contrast tls per_sd OS"]),
    ("joint, none", JOINT, "none",
     ["explain CXCL13+tls interaction OS", "explain CXCL13 per_sd OS", "explain tls per_sd OS"]),
    ("joint, unclear", JOINT, "unclear",
     ["explain CXCL13+tls interaction OS", "explain CXCL13 per_sd OS", "explain tls per_sd OS"]),
    ("single, held", PER_SD, "held", ["contrast CXCL11 per_sd OS", "refine CXCL13 per_sd PFI"]),
    ("no family, held", claim(TLS), "held", ["refine tls exposed_vs_rest PFI"]),
    ("single, none", PER_SD, "none", ["explain CXCL13 per_sd in M OS",
                                      "explain CXCL13 per_sd in F OS"]),
    ("cut, unclear", CUT, "unclear", ["refine CXCL13 per_sd OS"]),
    ("per SD, unclear", PER_SD, "unclear", ["explain CXCL13 per_sd in M OS",
                                            "explain CXCL13 per_sd in F OS"]),
    ("other direction", PER_SD, "other direction", ["refine CXCL13 per_sd OS lower"]),
    ("joint, other direction", JOINT, "other direction", ["refine CXCL13+tls extremes OS lower"]),
    ("subgroup, held", IN_MEN, "held", ["contrast CXCL13 per_sd in F OS"]),
    ("subgroup, unclear", IN_MEN, "unclear", ["refine CXCL13 per_sd OS"]),
    ("subgroup, none", IN_MEN, "none", []),
    ("dead end", PER_SD, "dead end", []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "asked", "came", "wants"), TABLE, ids=[row[0] for row in TABLE])
def test_the_table_of_moves(name: str, asked: Hypothesis, came: Came, wants: list[str]) -> None:
    moves = next_moves([Earlier(id="c", hypothesis=asked, came=came)], KNOWN)
    assert [f"{move.kind} {describe(move.hypothesis)}" for move in moves] == wants
    assert all(move.of == "c" and move.why and move.depth == 1 for move in moves)
    assert all(move.hypothesis.statement.startswith("In toy") for move in moves)


CAME = st.sampled_from(["held", "none", "other direction", "unclear", "dead end"])
CLAIMS = st.sampled_from([CUT, PER_SD, JOINT, IN_MEN, claim(TLS), claim(TLS, GENE)])


@settings(deadline=None)
@given(st.lists(st.tuples(CLAIMS, CAME, st.integers(0, DEEPEST)), max_size=8))
def test_nothing_is_asked_twice_and_no_confirmed_question_is_reopened(
    asked: list[tuple[Hypothesis, Came, int]],
) -> None:
    earlier = [
        Earlier(id=f"c{at}", hypothesis=hypothesis, came=came, depth=depth)
        for at, (hypothesis, came, depth) in enumerate(asked)
    ]
    moves = next_moves(earlier, KNOWN)
    forms = [same_claim(move.hypothesis) for move in moves]
    assert len(set(forms)) == len(forms)
    assert not set(forms) & {same_claim(claim.hypothesis) for claim in earlier}
    held = [claim.hypothesis for claim in earlier if claim.came == "held"]
    assert not any(reopens(move.hypothesis, closed) for move in moves for closed in held)
    assert all(move.depth <= DEEPEST for move in moves)
    assert moves == next_moves(earlier, KNOWN)  # the same from the same


def test_another_subgroup_is_other_patients() -> None:
    assert not reopens(claim(UNCUT, within="F"), IN_MEN)
    assert reopens(PER_SD, IN_MEN)
    assert reopens(claim(UNCUT, within="m"), IN_MEN)


@pytest.mark.parametrize(
    ("gene", "near"), [("CXCL13", "CXCL11"), ("FABP5", None), ("KRT5", None), ("ACTB", None)]
)
def test_a_neighbor_is_of_the_same_family(gene: str, near: str | None) -> None:
    assert neighbor(gene, KNOWN.expression) == near


def test_what_promises_more_is_asked_first() -> None:
    policy = Policy([CUT, claim(TLS)], KNOWN)
    bits = [promised for promised, _ in policy.rank([])]
    assert bits == sorted(bits, reverse=True)
    first = policy.rank([])[0][1]
    assert first.kind == "move on"
    assert first.hypothesis.comparison is Comparison.PER_SD  # a cut would cost power
    after = policy.rank([Earlier(id="c", hypothesis=PER_SD, came="other direction")])
    assert after[0][1].kind == "refine"


@settings(deadline=None)
@given(st.floats(0.01, 0.99), st.floats(0.1, 1.0), st.floats(0.1, 1.0))
def test_information_grows_with_power_and_is_never_more_than_the_question(
    prior: float, one: float, other: float
) -> None:
    from scipy.stats import entropy

    low, high = sorted((one, other))
    assert 0 <= information(prior, low) <= information(prior, high) + 1e-12
    assert information(prior, high) <= entropy([prior, 1 - prior], base=2) + 1e-9
    assert information(prior, 0.1) == pytest.approx(0.0, abs=1e-12)
