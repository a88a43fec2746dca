"""No file of ours imports in a circle, imports for type checking and inside functions included."""

from __future__ import annotations

import grimp
import networkx as nx

PACKAGES = ("sage", "agents", "kg", "validation", "mcp_servers", "sandbox")


def test_no_file_imports_itself_over_others() -> None:
    imports = grimp.build_graph(*PACKAGES, cache_dir=None)
    graph = nx.DiGraph(
        (module, imported)
        for module in imports.modules
        for imported in imports.find_modules_directly_imported_by(module)
    )
    assert graph.number_of_edges() > 1000, "the imports were not read"
    circles = [sorted(found) for found in nx.strongly_connected_components(graph) if len(found) > 1]
    assert circles == []
