"""Feasibility before any computation: data, tools, logic, resources (SAGE, 3.2.4, Table 6)."""

from agents.feasibility.agent import FEASIBILITY, check_feasibility
from agents.feasibility.collect import gather
from agents.feasibility.rule import assess
from agents.feasibility.settings import FeasibilitySettings
from agents.feasibility.types import (
    Check,
    EvidenceItem,
    FeasibilityInput,
    FeasibilityVerdict,
    Machine,
    Step,
    StepName,
    ToolFacts,
    Verdict,
)

__all__ = [
    "FEASIBILITY",
    "Check",
    "EvidenceItem",
    "FeasibilityInput",
    "FeasibilitySettings",
    "FeasibilityVerdict",
    "Machine",
    "Step",
    "StepName",
    "ToolFacts",
    "Verdict",
    "assess",
    "check_feasibility",
    "gather",
]
