"""The scientist: looks at graph, literature and cohort, and drafts hypotheses (SAGE, 3.2.3)."""

from agents.scientist.agent import (
    SCIENTIST,
    at_the_bench,
    check_candidates,
    compose_draft,
    proposal_problems,
    variable_problems,
)
from agents.scientist.blind import BlindCohort
from agents.scientist.tools import Workbench
from agents.scientist.views import Candidates, Proposal, ScientistInput, StepRef

__all__ = [
    "SCIENTIST",
    "BlindCohort",
    "Candidates",
    "Proposal",
    "ScientistInput",
    "StepRef",
    "Workbench",
    "at_the_bench",
    "check_candidates",
    "compose_draft",
    "proposal_problems",
    "variable_problems",
]
