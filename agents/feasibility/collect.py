"""Collection of the facts that the feasibility agent judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from agents.core.types import ExpandedHypothesis
from agents.feasibility.data_facts import data_facts
from agents.feasibility.logic_facts import logic_facts
from agents.feasibility.plan import ContractNumbers, contract_numbers
from agents.feasibility.registries import Registries
from agents.feasibility.tool_facts import resource_facts, tool_facts
from agents.feasibility.types import EvidenceItem, FactList, Machine
from validation.core.dictionary import DataDictionary

if TYPE_CHECKING:
    from mcp_servers.spec import ToolSpec


def gather(
    expanded: ExpandedHypothesis,
    dictionary: DataDictionary,
    registry_tools: Callable[[], Sequence[ToolSpec]] = tuple,
    registries: Registries | None = None,
    *,
    machine: Machine | None = None,
    numbers: ContractNumbers | None = None,
) -> list[EvidenceItem]:
    """Gather facts for the four steps, numbered E1, E2, … in a fixed order.

    Parameters
    ----------
    registry_tools : loads the tool registry, when an exposure needs a tool
    registries : external registries; if None, the verdict is based only on the cohort, the
        installed packages and the tool registry
    """
    machine = machine or Machine()
    facts = FactList()
    numbers = numbers or contract_numbers(expanded.hypothesis, dictionary)
    data_facts(facts, expanded.hypothesis, dictionary, numbers)
    computed = tool_facts(facts, expanded.hypothesis, dictionary, registry_tools)
    logic_facts(facts, expanded.hypothesis, dictionary, numbers)
    resource_facts(facts, expanded.hypothesis, dictionary, computed, machine)
    for fact in registries.facts(expanded) if registries is not None else ():
        facts.add(**asdict(fact))
    return facts.items
