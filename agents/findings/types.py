"""Kinds of statements on a result.

A statement names its subject and gives direction and outcome as words of a closed list. It contains
no text and no numbers: SAGE renders it from the results (`agents.findings.render`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agents.core.base import View

Direction = Literal["expected", "opposite", "higher", "lower", "unknown"]
"""By the claim's direction; if it names none, higher or lower risk where a direction is found."""
Significance = Literal["significant", "not_significant", "open"]


class Statement(View):
    """A statement on `subject`: a test's id, a control, a group, a variable, an endpoint."""

    subject: str


class Compared(Statement):
    """A comparison: which way it points, and whether it is significant after error control."""

    direction: Direction
    outcome: Significance


class Effect(Compared):
    """The claim's comparison, or another one of its endpoint; `subject` is the test's id."""

    kind: Literal["effect"] = "effect"


class AdjustedEffect(Compared):
    """A comparison with covariates in the model."""

    kind: Literal["adjusted_effect"] = "adjusted_effect"


class SubgroupEffect(Compared):
    """A comparison in some of the patients; it carries no claim."""

    kind: Literal["subgroup_effect"] = "subgroup_effect"


class Interaction(Compared):
    """A claim on how an effect differs between patients."""

    kind: Literal["interaction"] = "interaction"


class SecondaryEndpoint(Compared):
    """The comparison of another endpoint."""

    kind: Literal["secondary_endpoint"] = "secondary_endpoint"


class AddedValue(Statement):
    """Change in the discrimination of a model by the exposure."""

    kind: Literal["added_value"] = "added_value"
    outcome: Literal["better", "worse", "open"]


class BesideOther(Statement):
    """One of two exposures at the same level of the other; `subject` is its label."""

    kind: Literal["beside_other"] = "beside_other"
    outcome: Literal["adds", "open"]


class Control(Statement):
    """A control that ran: permuted outcome, random features, known positive, negative endpoint."""

    kind: Literal["control"] = "control"
    outcome: Literal["passed", "failed"]


class Sensitivity(Statement):
    """Whether the sign holds over the prespecified choices."""

    kind: Literal["sensitivity"] = "sensitivity"
    outcome: Literal["stable", "unstable"]


class Assumption(Statement):
    """What the analysis assumed."""

    kind: Literal["assumption"] = "assumption"
    outcome: Literal["holds", "fails", "untestable"]


class Replication(Statement):
    """The claim in a second cohort."""

    kind: Literal["replication"] = "replication"
    outcome: Literal["replicated", "not_replicated", "not_run"]


class NotMeasured(Statement):
    """A part of the claim that the cohort cannot test."""

    kind: Literal["not_measured"] = "not_measured"


class NotAdjustedFor(Statement):
    """A covariate without a term in the model, or all of them ("covariates")."""

    kind: Literal["not_adjusted_for"] = "not_adjusted_for"


class Sample(Statement):
    """Events beside those that the planned power needs."""

    kind: Literal["sample"] = "sample"
    outcome: Literal["enough", "too_few"]


class MissingData(Statement):
    """Patients without a value, and whether they fare otherwise."""

    kind: Literal["missing_data"] = "missing_data"
    outcome: Literal["none", "some", "unclear", "unrelated", "related"]


class Generalization(Statement):
    """The patients for whom the result speaks; `subject` is the cohort."""

    kind: Literal["generalization"] = "generalization"
    outcome: Literal["simulated", "one_cohort", "two_cohorts"]


class AlternativeExplanation(Statement):
    """What else could explain the estimate."""

    kind: Literal["alternative_explanation"] = "alternative_explanation"
    subject: Literal["chance", "confounding", "selection", "measurement", "reverse_causation"]


class NextStep(Statement):
    """What to do next: which design, on which cohort, variable or endpoint."""

    kind: Literal["next_step"] = "next_step"
    design: Literal["repeat", "enlarge", "adjust", "measure", "test_endpoint", "turn_round"]


Finding = Annotated[
    Effect
    | AdjustedEffect
    | SubgroupEffect
    | Interaction
    | SecondaryEndpoint
    | AddedValue
    | BesideOther
    | Control
    | Sensitivity
    | Assumption
    | Replication
    | NotMeasured
    | NotAdjustedFor
    | Sample
    | MissingData
    | Generalization
    | AlternativeExplanation
    | NextStep,
    Field(discriminator="kind"),
]
RESULTS = (
    "effect", "interaction", "adjusted_effect", "secondary_endpoint", "subgroup_effect",
    "added_value", "beside_other", "replication", "control", "sensitivity",
)  # fmt: skip
"""Kinds that state a result; all other kinds qualify a result."""
LIMITS = (
    "sample", "missing_data", "not_adjusted_for", "not_measured", "alternative_explanation",
    "generalization",
)  # fmt: skip


class Held(View):
    """A statement that the results support, with its sentence, in which numbers are `[[key]]`."""

    finding: Finding
    sentence: str
