"""The task agent: converts the contract to a normalized execution plan (SAGE, 3.3.1)."""

from __future__ import annotations

from agents.coding.types import ContractBrief, ExecutionPlan, Step
from agents.core.base import Agent, Resources, Role, View, prompt_file


class TaskInput(View):
    """The contract, and the tasks that the coding instructions set."""

    contract: ContractBrief
    tasks: tuple[str, ...] = ()


ORDER = ("descriptive", "primary", "adjusted", "assumption", "secondary", "subgroup")
TITLES = {
    "descriptive": "Describe the groups",
    "primary": "Primary test",
    "adjusted": "Adjusted tests",
    "assumption": "Check the assumptions",
    "secondary": "Secondary tests",
    "subgroup": "Subgroups",
}


def normalize(given: TaskInput, resources: Resources) -> ExecutionPlan:
    """Plan the data first, then every registered test by its role, then the controls."""
    contract = given.contract
    columns = ", ".join(dict.fromkeys(column.key for column in contract.columns))
    steps = [
        Step(
            name="Assemble data",
            what=f"Join {columns} and {', '.join(contract.endpoints)} per patient of "
            f"{contract.cohort}; population: {contract.population}.",
        ),
        Step(
            name="Form groups",
            what=f"{contract.exposed} against {contract.reference}, by the registered cut rules, "
            "without the outcome.",
        ),
    ]
    for role in ORDER:
        tests = [test for test in contract.tests if test.role == role]
        if tests:
            methods = ", ".join(
                dict.fromkeys(f"{test.method} on {test.endpoint}" for test in tests)
            )
            steps.append(
                Step(name=TITLES[role], what=f"{methods}.", tests=tuple(test.id for test in tests))
            )
    steps.append(Step(name="Controls", what="Run the registered controls alongside the claim."))
    return ExecutionPlan(
        contract_sha256=contract.sha256,
        data=tuple(dict.fromkeys(column.key for column in contract.columns)),
        endpoints=contract.endpoints,
        steps=tuple(steps),
    )


def check_plan(given: TaskInput, plan: ExecutionPlan) -> list[str]:
    """Check that the plan is for this contract, with exactly its variables, endpoints and tests."""
    contract, problems = given.contract, []
    if plan.contract_sha256 != contract.sha256:
        problems.append(f'contract_sha256 must be "{contract.sha256}"')
    for what, planned, registered in (
        ("variable", plan.data, {column.key for column in contract.columns}),
        ("endpoint", plan.endpoints, set(contract.endpoints)),
        (
            "test",
            tuple(test for step in plan.steps for test in step.tests),
            {test.id for test in contract.tests},
        ),
    ):
        problems += [
            f'{what} "{name}" is not in the contract' for name in planned if name not in registered
        ]
        missing = sorted(registered - set(planned))
        problems += [f'{what} "{name}" of the contract is not in the plan' for name in missing]
        if len(set(planned)) != len(planned):
            problems.append(f"a {what} is in the plan twice")
    return problems


TASK_AGENT = Agent(
    name="task_agent",
    role=Role.MINI,
    reads=TaskInput,
    returns=ExecutionPlan,
    prompt=prompt_file(__file__, "task.md"),
    rule=normalize,
    check=check_plan,
)
