"""The feasibility agent."""

from __future__ import annotations

import re

from agents.core.base import Agent, Role, Wording, prompt_file
from agents.feasibility.rule import assess, weights_of
from agents.feasibility.settings import FeasibilitySettings
from agents.feasibility.types import STEPS, FeasibilityInput, FeasibilityVerdict
from agents.prose.check import Judge, early_judge, own_sentence, replace_text

_ROUNDING = 1.0


def check_feasibility(given: FeasibilityInput, answer: FeasibilityVerdict) -> list[str]:
    """Reasons why a verdict is not acceptable: steps, weights, arithmetic, evidence, blockers."""
    weights = weights_of(FeasibilitySettings())
    problems = []
    if tuple(step.name for step in answer.steps) != STEPS:
        return [f"give the four steps once each, in this order: {', '.join(STEPS)}"]
    known = {item.id for item in given.evidence}
    for step in answer.steps:
        if step.weight != weights[step.name]:
            problems.append(f"step {step.name} weighs {weights[step.name]:g}")
        for check in step.checks:
            if not check.evidence:
                problems.append(f'check "{check.name}" of {step.name} names no evidence')
            problems += [
                f'check "{check.name}" cites {name}, which was not gathered'
                for name in check.evidence
                if name not in known
            ]
    total = sum(step.weight * step.score for step in answer.steps) / sum(weights.values())
    if abs(total - answer.score) > _ROUNDING:
        problems.append(f"score is {answer.score:g}, but the weighted steps give {total:.1f}")
    blocked = [item for item in given.evidence if item.blocking and item.found is False]
    if blocked and answer.verdict != "infeasible":
        problems.append(f"{blocked[0].id} blocks: the verdict has to be infeasible")
    if answer.verdict == "conditionally_feasible" and not answer.conditions:
        problems.append("a conditional verdict names its conditions")
    problems += _demand_problems(given, answer)
    if answer.verdict == "infeasible" and not answer.what_would_make_it_feasible:
        problems.append("an infeasible verdict says what would make it feasible")
    return problems


def _demand_problems(given: FeasibilityInput, answer: FeasibilityVerdict) -> list[str]:
    """Covariates are demanded by their keys, so that the contract can take them up."""
    keys = given.dictionary.keys()
    exposed = {exposure.variable for exposure in given.expanded.hypothesis.exposures}
    problems = [
        f'adjust_for names "{key}", which is '
        + ("an exposure" if key in exposed else "not in the data dictionary")
        for key in answer.adjust_for
        if key in exposed or key not in keys
    ]
    in_words = [condition for condition in answer.conditions if ADJUST.search(condition)]
    if in_words and not answer.adjust_for:
        problems.append(
            "a condition demands an adjustment: name its variables in `adjust_for`, by their keys"
        )
    return problems


ADJUST = re.compile(
    r"\badjust(?:ed|ing|ment)?\b|(?<!fewer )(?<!less )\bcovariates?\b", re.IGNORECASE
)


def _judge(given: FeasibilityInput) -> Judge:
    facts = [
        f"{item.statement} {item.source} {item.url or ''} {item.remedy}" for item in given.evidence
    ]
    return early_judge(given=facts, quotes=facts)


def unborne(given: FeasibilityInput, answer: FeasibilityVerdict) -> list[str]:
    """Sentences that claim a result before anything was measured, or cite what was not gathered."""
    judge = _judge(given)
    texts = [answer.summary, *answer.conditions, *answer.blockers]
    texts += answer.what_would_make_it_feasible
    texts += [check.statement for step in answer.steps for check in step.checks]
    return [str(problem) for text in texts for problem in judge(text)]


def in_own_words(given: FeasibilityInput, answer: FeasibilityVerdict) -> FeasibilityVerdict:
    """The verdict with the gathered facts' own sentences in place of refused sentences."""
    judge = _judge(given)
    facts = {item.id: item.statement for item in given.evidence}
    remedies = tuple(item.remedy for item in given.evidence if item.found is False and item.remedy)
    plain = f"Judged {answer.verdict.replace('_', ' ')} on the facts that are listed."

    def keep_listed(texts: tuple[str, ...]) -> tuple[str, ...]:
        kept = tuple(text for text in texts if not judge(text))
        refused = [problem for text in texts for problem in judge(text)]
        return (*kept, own_sentence((remedies or (plain,))[0], refused)) if refused else texts

    steps = tuple(
        step.model_copy(
            update={
                "checks": tuple(
                    check.model_copy(
                        update={
                            "statement": replace_text(
                                check.statement,
                                " ".join(facts[name] for name in check.evidence if name in facts)
                                or plain,
                                judge,
                            )
                        }
                    )
                    for check in step.checks
                )
            }
        )
        for step in answer.steps
    )
    return answer.model_copy(
        update={
            "steps": steps,
            "summary": replace_text(answer.summary, plain, judge),
            "conditions": keep_listed(answer.conditions),
            "blockers": keep_listed(answer.blockers),
            "what_would_make_it_feasible": keep_listed(answer.what_would_make_it_feasible),
        }
    )


FEASIBILITY = Agent(
    name="feasibility",
    role=Role.MINI,
    reads=FeasibilityInput,
    returns=FeasibilityVerdict,
    prompt=prompt_file(__file__, "feasibility.md"),
    rule=assess,
    check=check_feasibility,
    wording=Wording(problems=unborne, replace=in_own_words),
)
