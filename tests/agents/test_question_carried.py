"""Parts of a question that a hypothesis carries."""

from __future__ import annotations

import pytest

from agents.question.carried import account, account_line, unanswered
from agents.question.types import Part, PartRole, Question
from validation.core.hypothesis import (
    Comparison,
    Direction,
    Exposure,
    Filter,
    Hypothesis,
    Population,
)

WOMEN = Filter(variable="clinical:gender", op="eq", value="FEMALE")
FGFR3 = Part(words="FGFR3", role=PartRole.EXPOSURE, name="FGFR3", variables=("expression:FGFR3",))
GENES = Part(words="genes", role=PartRole.EXPOSURE, name="genes", open_to="expression")
NODES = Part(words="pN+", role=PartRole.ENDPOINT, name="lymph-node positivity", endpoint="nodes")
IN_WOMEN = Part(words="in women", role=PartRole.POPULATION, name="female", filters=(WOMEN,))
BLADDER = Part(
    words="bladder cancer", role=PartRole.POPULATION, name="bladder cancer", setting=True
)
CISPLATIN = Part(
    words="cisplatin",
    role=PartRole.TREATMENT,
    name="cisplatin",
    supply="the cohort records no treatment",
)
AGE = Part(words="age", role=PartRole.COVARIATE, name="age", variables=("clinical:age",))
NOT_TP53 = Part(
    words="TP53", role=PartRole.EXPOSURE, name="TP53", variables=("expression:TP53",), negated=True
)


def claim(*variables: str, endpoint: str = "OS", filters: tuple[Filter, ...] = ()) -> Hypothesis:
    return Hypothesis(
        id="h1",
        statement="",
        population=Population(description="", filters=filters),
        exposures=tuple(Exposure(variable=key, label=key) for key in variables),
        comparison=Comparison.EXTREMES if len(variables) > 1 else Comparison.EXPOSED_VS_REST,
        endpoint=endpoint,
        direction=Direction.HIGHER_RISK,
    )


@pytest.mark.parametrize(
    ("part", "hypothesis", "kept"),
    [
        (FGFR3, claim("expression:FGFR3"), True),
        (FGFR3, claim("expression:TP53"), False),
        (GENES, claim("imaging:tls_density"), False),
        (GENES, claim("signature:mean_z(COL1A1,FAP)"), True),
        (NODES, claim("expression:TP53", endpoint="nodes"), True),
        (IN_WOMEN, claim("expression:TP53", filters=(WOMEN,)), True),
        (IN_WOMEN, claim("expression:TP53"), False),
        (NODES, claim("expression:TP53"), False),
        (BLADDER, claim("expression:TP53"), True),
        (CISPLATIN, claim("expression:TP53"), False),
        (AGE, claim("expression:TP53").model_copy(update={"covariates": ("clinical:age",)}), True),
        (AGE, claim("clinical:age"), False),
        (NOT_TP53, claim("expression:TP53"), False),
    ],
)
def test_each_kind_of_part_is_kept_by_its_own_field(
    part: Part, hypothesis: Hypothesis, kept: bool
) -> None:
    (row,) = account(Question(prompt="?", parts=(part,)), hypothesis)
    assert row.kept is kept
    assert row.how


def test_one_exposure_does_not_carry_two_parts() -> None:
    rows = account(Question(prompt="?", parts=(GENES, FGFR3, NODES)), claim("expression:FGFR3"))
    assert [row.kept for row in rows] == [False, True, False]


def test_what_the_cohort_could_carry_must_be_carried_and_the_rest_is_said() -> None:
    question = Question(prompt="?", parts=(FGFR3, NODES, CISPLATIN))
    problems = unanswered(question, claim("expression:TP53"))
    assert len(problems) == 2
    assert "FGFR3" in problems[0]
    assert '"nodes"' in problems[1]
    assert unanswered(question, claim("expression:FGFR3", endpoint="nodes")) == []
    kept, _, dropped = account_line(
        question, claim("expression:FGFR3", endpoint="nodes")
    ).partition("Not covered")
    assert "FGFR3" in kept and "pN+" in kept and "cisplatin" in dropped
