"""Types for the feasibility agent."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from agents.core.base import View
from agents.core.types import DictionaryView, ExpandedHypothesis
from agents.core.words import Words

StepName = Literal["data", "tools", "logic", "resources"]
Verdict = Literal["feasible", "conditionally_feasible", "infeasible"]
STEPS: tuple[StepName, ...] = ("data", "tools", "logic", "resources")


class EvidenceItem(View):
    """A gathered fact.

    `found` is True, False, or None if the source could not be queried; `share` in [0, 1] is
    the degree to which the check is met; only `blocking` facts can make a hypothesis
    infeasible on their own. `remedy` states what would fix the problem; `adjust_for` lists
    the data dictionary variables that would fix it as covariates.
    """

    id: str
    step: StepName
    check: str
    statement: str
    source: str
    found: bool | None
    share: float = Field(ge=0.0, le=1.0)
    value: float | None = None
    unit: str | None = None
    blocking: bool = False
    remedy: str = ""
    adjust_for: tuple[str, ...] = ()
    url: str | None = None


class FactList:
    """A list that numbers facts as they are added (E1, E2 and so on)."""

    def __init__(self) -> None:
        self.items: list[EvidenceItem] = []

    def add(
        self,
        step: StepName,
        check: str,
        statement: str,
        source: str,
        *,
        found: bool | None,
        share: float | None = None,
        remedy: str = "",
        **more: Any,
    ) -> None:
        """Add a fact.

        Parameters
        ----------
        found : whether the fact is true; None if the source could not be queried
        share : degree to which the check is met, clipped to [0, 1]; by default, 1 if found, else
            0
        remedy : action that would fix the problem; omitted if the fact was found
        more : further fields of `EvidenceItem`; a `value` of None must not be shown
        """
        met = float(bool(found)) if share is None else min(1.0, max(0.0, share))
        self.items.append(
            EvidenceItem(
                id=f"E{len(self.items) + 1}",
                step=step,
                check=check,
                statement=statement,
                source=source,
                found=found,
                share=met,
                remedy="" if found else remedy,
                **more,
            )
        )


class FeasibilityInput(View):
    """Input to the feasibility agent (SAGE, 3.2.4): nothing earlier than the expansion."""

    expanded: ExpandedHypothesis
    dictionary: DictionaryView
    evidence: tuple[EvidenceItem, ...]


class Check(View):
    """A check within a step; `evidence` lists the ids of the facts on which it is based."""

    name: str
    share: float = Field(ge=0.0, le=1.0)
    passed: bool | None
    evidence: tuple[str, ...]


class Step(View):
    """An assessment step. `score` in [0, 100] is the mean share over its checks."""

    name: StepName
    weight: float
    score: float = Field(ge=0.0, le=100.0)
    checks: tuple[Check, ...]


class FeasibilityVerdict(View):
    """The weighted score, the verdict, and the conditions that would change it.

    `conditions` are ids of facts that failed or are unknown; remedying them makes the
    hypothesis feasible. `adjust_for` lists the required covariates by their data dictionary
    keys; the contract includes them, or the report explains why not.
    """

    steps: tuple[Step, ...]
    score: float = Field(ge=0.0, le=100.0)
    verdict: Verdict
    conditions: tuple[str, ...] = ()
    adjust_for: tuple[str, ...] = Field(default=(), max_length=6)
    remark: Words = ""

    @property
    def may_run(self) -> bool:
        """False if the verdict forbids any computation."""
        return self.verdict != "infeasible"


class Machine(View):
    """The machine that would run the analysis."""

    cores: int = 1
    memory_mb: int = 4096
    gpu: bool = False
