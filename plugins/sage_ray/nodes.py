"""Capacity of a Ray cluster's nodes, and messages for jobs that exceed it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_servers.spec import Resources

REMEDY = "start larger nodes (ray start --num-cpus, --memory, --num-gpus) or request less"


@dataclass(frozen=True)
class Node:
    """A live node; `memory_mb` is the memory that its raylet gives to tasks, in MiB."""

    id: str
    address: str
    cpus: float
    memory_mb: float
    gpus: float = 0.0

    def holds(self, need: Resources, cpus: float, gpus: float) -> bool:
        """Return True if the node could run the job when otherwise idle."""
        return self.cpus >= cpus and self.memory_mb >= need.memory_mb and self.gpus >= gpus


def parse_nodes(listed: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Parse the live nodes from the output of `ray.nodes()`."""
    found = []
    for node in listed:
        if node["Alive"]:
            has = node["Resources"]
            found.append(
                Node(
                    node["NodeID"],
                    node["NodeManagerAddress"],
                    has.get("CPU", 0.0),
                    has.get("memory", 0.0) / 2**20,
                    has.get("GPU", 0.0),
                )
            )
    return found


def find_hosts(need: Resources, nodes: Sequence[Node], cpus: float) -> tuple[list[Node], int]:
    """Find the nodes that can hold a job, and the number of GPUs that it would use.

    A job that can use a GPU gets a GPU if any node that can hold the job has a GPU; `cpus` is
    the number of processors for the job.
    """
    if need.gpu != "none":
        with_card = [node for node in nodes if node.holds(need, cpus, 1)]
        if with_card or need.gpu == "required":
            return with_card, 1
    return [node for node in nodes if node.holds(need, cpus, 0)], 0


def explain_refusal(tool: str, need: Resources, nodes: Sequence[Node], cpus: float) -> str | None:
    """Explain why no node can ever run the job; None if a node can."""
    if find_hosts(need, nodes, cpus)[0]:
        return None
    if not nodes:
        return f"{tool}: the cluster has no live node; start one (ray start --address=…)"
    if need.gpu == "required" and not any(node.gpus for node in nodes):
        return f"{tool} needs a GPU, and the cluster has none"
    most = max(node.memory_mb for node in nodes)
    if need.memory_mb > most:
        what, has = f"{need.memory_mb} MiB", f"the largest node may use {most:.0f} MiB"
    elif cpus > max(node.cpus for node in nodes):
        most = max(node.cpus for node in nodes)
        what, has = f"{cpus:g} processors", f"the largest node has {most:g}"
    else:
        card = " and a GPU" if need.gpu == "required" else ""
        what = f"{cpus:g} processors with {need.memory_mb} MiB{card}"
        has = "no single node has all of these"
    return f"{tool} needs {what}, but of the cluster's {len(nodes)} node(s) {has}; {REMEDY}"
