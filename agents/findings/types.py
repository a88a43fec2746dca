"""Kinds of statements about a result.

A statement names its subject and gives its direction and outcome as terms from a closed
list. It contains no text or numbers: SAGE renders it from the results
(`agents.findings.render`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agents.core.base import View

Direction = Literal["expected", "opposite", "higher", "lower", "unknown"]
"""Direction relative to the claim; for undirected claims, higher or lower risk if found."""
Significance = Literal["significant", "not_significant", "open"]


class Statement(View):
    """A statement about `subject`: a test's id, a control, a group, a variable or an endpoint."""

    subject: str


class Compared(Statement):
    """A comparison: its direction, and its significance after error control."""

    direction: Direction
    outcome: Significance


class Effect(Compared):
    """The claim's comparison, or another on the same endpoint; `subject` is the test's id."""

    kind: Literal["effect"] = "effect"


class AdjustedEffect(Compared):
    """A comparison adjusted for covariates."""

    kind: Literal["adjusted_effect"] = "adjusted_effect"


class SubgroupEffect(Compared):
    """A comparison in a subgroup of patients, which supports no claim."""

    kind: Literal["subgroup_effect"] = "subgroup_effect"


class Interaction(Compared):
    """A claim about how an effect differs between patients."""

    kind: Literal["interaction"] = "interaction"


class SecondaryEndpoint(Compared):
    """The comparison for another endpoint."""

    kind: Literal["secondary_endpoint"] = "secondary_endpoint"


class AddedValue(Statement):
    """Change in a model's discrimination when the exposure is added."""

    kind: Literal["added_value"] = "added_value"
    outcome: Literal["better", "worse", "open"]


class BesideOther(Statement):
    """Effect of an exposure at the same level of the other; `subject` is the exposure's label."""

    kind: Literal["beside_other"] = "beside_other"
    outcome: Literal["adds", "open"]


class Control(Statement):
    """A completed control: permuted outcome, random features, known positive, negative endpoint."""

    kind: Literal["control"] = "control"
    outcome: Literal["passed", "failed"]


class Sensitivity(Statement):
    """Stability of the effect's sign over the prespecified analysis choices."""

    kind: Literal["sensitivity"] = "sensitivity"
    outcome: Literal["stable", "unstable"]


class Assumption(Statement):
    """An assumption of the analysis."""

    kind: Literal["assumption"] = "assumption"
    outcome: Literal["holds", "fails", "untestable"]


class Replication(Statement):
    """Replication of the claim in a second cohort."""

    kind: Literal["replication"] = "replication"
    outcome: Literal["replicated", "not_replicated", "not_run"]


class NotMeasured(Statement):
    """A part of the claim that the cohort cannot test."""

    kind: Literal["not_measured"] = "not_measured"


class NotAdjustedFor(Statement):
    """A covariate without a term in the model, or all of them ("covariates")."""

    kind: Literal["not_adjusted_for"] = "not_adjusted_for"


class Sample(Statement):
    """Number of events compared with the number required for the planned power."""

    kind: Literal["sample"] = "sample"
    outcome: Literal["enough", "too_few"]


class MissingData(Statement):
    """Patients without a value, and whether their outcomes differ."""

    kind: Literal["missing_data"] = "missing_data"
    outcome: Literal["none", "some", "unclear", "unrelated", "related"]


class Generalization(Statement):
    """The population to which the result generalizes; `subject` is the cohort."""

    kind: Literal["generalization"] = "generalization"
    outcome: Literal["simulated", "one_cohort", "two_cohorts"]


class AlternativeExplanation(Statement):
    """Another possible explanation for the estimate."""

    kind: Literal["alternative_explanation"] = "alternative_explanation"
    subject: Literal["chance", "confounding", "selection", "measurement", "reverse_causation"]


class NextStep(Statement):
    """The next step: a design, applied to a cohort, variable or endpoint."""

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
    """A statement supported by the results, with its sentence; numbers appear as `[[key]]`."""

    finding: Finding
    sentence: str
