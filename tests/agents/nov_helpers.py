"""Builders for tests of the debate and of feasibility."""

from __future__ import annotations

from typing import Any

from agents.core.types import ExpandedHypothesis
from validation.core.dictionary import DataDictionary, Endpoint, Variable
from validation.core.hypothesis import Comparison, Direction, Exposure, Hypothesis, Population

PARTS = ("FABP5", "tertiary lymphoid structure", "overall survival", "bladder cancer")


def hypothesis(**change: Any) -> Hypothesis:
    fields: dict[str, Any] = {
        "id": "H1",
        "statement": "In bladder cancer, high FABP5 expression with low density of tertiary "
        "lymphoid structures predicts shorter overall survival.",
        "population": Population(description="bladder cancer"),
        "exposures": (
            Exposure(variable="expression:FABP5", label="FABP5 expression"),
            Exposure(variable="imaging:tls_density", label="TLS density", level="low"),
        ),
        "comparison": Comparison.EXPOSED_VS_REST,
        "endpoint": "OS",
        "direction": Direction.HIGHER_RISK,
        "covariates": ("clinical:age", "clinical:stage"),
    }
    return Hypothesis(**(fields | change))


def expanded(parts: tuple[str, ...] = PARTS, **change: Any) -> ExpandedHypothesis:
    return ExpandedHypothesis(
        hypothesis=hypothesis(**change),
        background="Background.",
        mechanism="Mechanism.",
        clinical_interpretation="Meaning.",
        parts=parts,
    )


def dictionary(**change: Any) -> DataDictionary:
    def variable(key: str, modality: str, n: int = 400) -> Variable:
        return Variable(
            key=key,
            label=key,
            modality=modality,  # type: ignore[arg-type]
            kind="continuous",
            n=n,
            missing=1 - n / 400,
        )

    fields: dict[str, Any] = {
        "cohort": "demo",
        "title": "Demo",
        "simulated": True,
        "n_patients": 400,
        "variables": (
            variable("imaging:tls_density", "imaging", 380),
            variable("clinical:age", "clinical"),
            variable("clinical:stage", "clinical"),
        ),
        "expression": ("FABP4", "FABP5"),
        "expression_n": 400,
        "endpoints": (
            Endpoint(key="OS", label="Overall survival", kind="survival", n=400, events=200),
        ),
    }
    return DataDictionary(**(fields | change))
