"""SAGE from Python: a slide, a cohort, a graph, with the verbs of the command line.

    from sage.api import Cohort, Graph, Slide

The verbs are the registered tools and the functions below them; nothing is computed here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kg.graph.model import Graph as _Graph
from validation import cohort as cohorts

if TYPE_CHECKING:
    from kg.types import PathSearch
    from validation.cohort.cohort import Cohort as LoadedCohort
    from validation.core.types import Finding

__all__ = ["Cohort", "Graph", "Slide"]


class Slide:
    """One slide. Each verb runs the tool of that name (`sage tools list`) and gives its result.

    Parameters
    ----------
    path : the slide's file
    out : the folder for what tools write
    mpp : µm per pixel of level 0, where the file does not say
    """

    def __init__(
        self, path: str | Path, *, out: str | Path = "sage-output", mpp: float | None = None
    ) -> None:
        self.path = Path(path).resolve()
        self.out = Path(out)
        self.mpp = mpp

    def run(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Run a pathology tool on the slide; its arguments are those of `sage tools show TOOL`.

        Raises
        ------
        InputError
            Unknown tool, bad arguments, or a slide that the tool refuses.
        """
        from mcp_servers.context import ToolContext
        from mcp_servers.registry import load
        from mcp_servers.roots import Roots

        context = ToolContext(Roots.of([self.path.parent, Path.cwd()], self.out))
        given = {"slide": str(self.path), **arguments}
        if self.mpp is not None:
            given.setdefault("mpp", self.mpp)
        return load("pathology").run(tool, given, context).result

    def properties(self) -> dict[str, Any]:
        """Size, pixel size, levels, scanner."""
        return self.run("slide_properties")

    def tissue(self, **arguments: Any) -> dict[str, Any]:
        """Where the tissue is: mask, outlines, area."""
        return self.run("tissue_mask", **arguments)

    def tiles(self, **arguments: Any) -> dict[str, Any]:
        """A grid of tiles over the tissue."""
        return self.run("tile_slide", **arguments)

    def nuclei(self, **arguments: Any) -> dict[str, Any]:
        """Position, shape and stain of each nucleus."""
        return self.run("nuclei", **arguments)

    def tls(self, **arguments: Any) -> dict[str, Any]:
        """TLS-like lymphoid aggregates: count, area, density."""
        return self.run("tls", **arguments)

    def tumor(self, **arguments: Any) -> dict[str, Any]:
        """Tumor, or tumor-like epithelium: mask, score, outlines."""
        return self.run("tumor", **arguments)


class Cohort:
    """Patients with variables and outcomes: `Cohort.load("my-cohort")`."""

    @staticmethod
    def load(name_or_dir: str | Path, *, root: Path | None = None) -> LoadedCohort:
        """A cohort by built-in name, `cohort.toml`, or folder; see `validation.cohort.load`."""
        return cohorts.load(name_or_dir, root=root)

    @staticmethod
    def check(name_or_dir: str | Path, *, root: Path | None = None) -> list[Finding]:
        """What would mislead an analysis, also of a cohort that does not load."""
        return cohorts.check(name_or_dir, root=root)


class Graph(_Graph):
    """A knowledge graph: `Graph.load("graph").paths("FABP5 and survival")`."""

    def paths(self, question: str, *, k: int = 8, max_hops: int = 5) -> PathSearch:
        """The `k` best paths for a question, by logic, relevance, novelty and surprise."""
        from kg.paths.find import PathOptions, generate
        from sage.run.wiring import make_embedder
        from sage.settings import load

        return generate(
            self,
            question,
            PathOptions(k=k, max_hops=max_hops, co_study=False),
            make_embedder(load()),
        )
