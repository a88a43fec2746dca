"""SAGE's Python API: `from sage import Graph, Cohort, Slide, Claim, Run`.

Each class is a thin wrapper around the functions that the command line calls; none of
them computes anything itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kg.graph.model import Graph as _Graph
from validation import cohort as cohorts

if TYPE_CHECKING:
    from agents.core.types import Draft
    from kg.types import PathSearch
    from sage.run.folder import RunFolder
    from sage.run.services import Services
    from sage.run.state import Decision
    from sage.settings import Settings
    from validation.cohort.cohort import Cohort as LoadedCohort
    from validation.contracts.contract import FrozenContract
    from validation.core.hypothesis import Hypothesis
    from validation.core.types import Finding
    from validation.ledger.ledger import Ledger
    from validation.results.results import Results

__all__ = ["Claim", "Cohort", "Graph", "Run", "Slide"]


class Slide:
    """A slide to be measured with the registered tools (`sage tools list`).

    >>> from sage import Slide
    >>> slide = Slide("slide.svs", out="results")
    >>> slide.tissue()["tissue_mm2"] > 0
    True

    Parameters
    ----------
    mpp : µm per pixel of level 0, if the file does not state it
    """

    def __init__(
        self, path: str | Path, *, out: str | Path = "sage-output", mpp: float | None = None
    ) -> None:
        self.path = Path(path).resolve()
        self.out = Path(out)
        self.mpp = mpp

    def run(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Run a pathology tool on the slide with the arguments listed by `sage tools show TOOL`.

        Raises
        ------
        InputError
            If the tool is unknown, an argument is invalid, or the tool refuses the slide.
        """
        from mcp_servers.context import ToolContext
        from mcp_servers.registry import load
        from mcp_servers.roots import Roots

        context = ToolContext(Roots.resolve([self.path.parent, Path.cwd()], self.out))
        given = {"slide": str(self.path), **arguments}
        if self.mpp is not None:
            given.setdefault("mpp", self.mpp)
        return load("pathology").run(tool, given, context).result

    def properties(self) -> dict[str, Any]:
        """Return the slide's dimensions, pixel size, pyramid levels and scanner."""
        return self.run("slide_properties")

    def tissue(self, **arguments: Any) -> dict[str, Any]:
        """Find the tissue and return its mask, outlines and area."""
        return self.run("tissue_mask", **arguments)

    def tiles(self, **arguments: Any) -> dict[str, Any]:
        """Return a grid of tiles that covers the tissue."""
        return self.run("tile_slide", **arguments)

    def nuclei(self, **arguments: Any) -> dict[str, Any]:
        """Detect nuclei and return the position, shape and stain of each."""
        return self.run("nuclei", **arguments)

    def tls(self, **arguments: Any) -> dict[str, Any]:
        """Detect TLS-like lymphoid aggregates and return their count, area and density."""
        return self.run("tls", **arguments)

    def tumor(self, **arguments: Any) -> dict[str, Any]:
        """Find the tumor from `tumor_regions` or with a `model`: mask, area and outlines."""
        return self.run("tumor", **arguments)


class Cohort:
    """Patients with their variables and outcomes.

    >>> from sage import Cohort
    >>> cohort = Cohort.load("gbsg2")
    >>> cohort.dictionary().n_patients
    686
    >>> [finding.code for finding in Cohort.check("gbsg2")]
    ['censoring_flag']
    """

    @staticmethod
    def load(name_or_dir: str | Path, *, root: Path | None = None) -> LoadedCohort:
        """Load a cohort by built-in name, `cohort.toml` or folder; see `validation.cohort.load`."""
        return cohorts.load(name_or_dir, root=root)

    @staticmethod
    def check(name_or_dir: str | Path, *, root: Path | None = None) -> list[Finding]:
        """Report everything that could mislead an analysis, even if the cohort cannot be loaded."""
        return cohorts.check(name_or_dir, root=root)


class Graph(_Graph):
    """A knowledge graph.

    >>> from sage import Graph
    >>> graph = Graph.load("graph")
    >>> search = graph.paths("TLS and survival in bladder cancer", k=1)
    >>> len(search.paths)
    1
    """

    def paths(self, question: str, **options: object) -> PathSearch:
        """Find the best paths for a question.

        `options` override the settings (`kg.paths.find.PathOptions`).
        """
        from kg.paths.find import find_paths
        from sage.run.wiring import make_embedder
        from sage.settings import load

        settings = load()
        given = settings.path_options(**options)
        return find_paths(self, question, given, make_embedder(settings))


class Claim:
    """A hypothesis to be tested on a cohort under a frozen contract.

    >>> from sage import Claim
    >>> claim = Claim.load("hypothesis.json")
    >>> result = claim.test("gbsg2", out="tested", figures=False)
    >>> result.verdict.verdict
    'supported'
    """

    def __init__(self, hypothesis: Hypothesis | FrozenContract) -> None:
        self.hypothesis = hypothesis

    @classmethod
    def load(cls, path: str | Path) -> Claim:
        """Read a hypothesis or a frozen contract from a JSON file."""
        from validation.contracts.contract import read_claim

        return cls(read_claim(Path(path)))

    def freeze(self, cohort: LoadedCohort, **rules: Any) -> FrozenContract:
        """Draft and freeze the contract; `rules` are the arguments of `validation.drafting.draft`.

        Raises
        ------
        InputError
            If the cohort cannot test the hypothesis, or the contract was frozen on different
            data.
        """
        from agents.core.statement import add_statement
        from validation.contracts.contract import FrozenContract
        from validation.drafting.freezing import draft_on, freeze
        from validation.run.prepare import require_same_data

        frozen = self.hypothesis
        if not isinstance(frozen, FrozenContract):
            stated = add_statement(frozen, cohort.dictionary())
            frozen = freeze(draft_on(stated, cohort, **rules), cohort)
        require_same_data(frozen, cohort)
        return frozen

    def test(
        self,
        cohort: str | LoadedCohort,
        *,
        out: str | Path = "sage-validation",
        replicate: str | LoadedCohort | None = None,
        figures: bool = True,
        **rules: Any,
    ) -> Results:
        """Freeze the contract, run its tests and controls, and reach a verdict.

        Parameters
        ----------
        out : folder for the results and the ledger
        replicate : a second cohort in which the claim must also be supported
        """
        data = cohorts.load(cohort) if isinstance(cohort, str) else cohort
        other = cohorts.load(replicate) if isinstance(replicate, str) else replicate
        folder = Path(out)
        ledger = _open_ledger(folder)
        claims = [(self, self.freeze(data, **rules))]
        return test_claims(claims, data, folder, ledger, replicate=other, figures=figures)[0]


def _open_ledger(folder: Path) -> Ledger:
    from sage.run.wiring import open_ledger
    from sage.settings import load

    return open_ledger(folder / "ledger.jsonl", load())


def test_claims(
    claims: Sequence[tuple[Claim, FrozenContract]],
    cohort: LoadedCohort,
    out: Path,
    ledger: Ledger,
    *,
    replicate: LoadedCohort | None = None,
    figures: bool = True,
    progress: Callable[[str], None] = lambda step: None,
) -> list[Results]:
    """Register all contracts before testing any of them, then test and judge them together.

    Parameters
    ----------
    out : parent folder, in which each contract gets its own folder
    """
    from validation.contracts.contract import FrozenContract
    from validation.run.runner import finalize, run

    frozen = [(contract, out / contract.contract.name) for _, contract in claims]
    for claim, contract in claims:  # before the first result
        fresh = not isinstance(claim.hypothesis, FrozenContract)
        ledger.register(contract, cohort, fresh=fresh)
    for contract, folder in frozen:
        run(
            contract,
            cohort,
            folder,
            ledger=ledger,
            replicate=replicate,
            progress=lambda step, name=contract.contract.name: progress(f"{name}: {step}"),  # type: ignore[misc]
            figures=figures,
        )
    return finalize(frozen, ledger)


class Run:
    """A research question from prompt to report, in a run folder.

    >>> from sage import Run
    >>> run = Run.start("Does FGFR3 relate to survival in bladder cancer?", out="my-run", yes=True)
    >>> run.status
    'waiting for review'
    >>> [draft.hypothesis.endpoint for draft in run.drafts()]
    ['OS']
    >>> run.reject("known").status
    'finished'
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    @classmethod
    def start(
        cls,
        prompt: str,
        *,
        out: str | Path | None = None,
        settings: Settings | None = None,
        **options: Any,
    ) -> Run:
        """Run a question until it needs a person's review or finishes.

        Parameters
        ----------
        out : folder for the run; by default, a new folder in `settings.runs_dir`
        settings : by default, those from `sage.toml` and the environment
        options : fields of `sage.run.spec.RunSpec`, and `yes` to accept that graph, cohort and
            question name different diseases

        Raises
        ------
        InputError
            If the question cannot be answered on the cohort, or an option is invalid.
        """
        from sage.run.begin import begin
        from sage.run.spec import make_spec
        from sage.settings import load

        settings = settings or load()
        spec = make_spec(settings, prompt=prompt, **options)
        return cls._advance(begin(spec, settings, out=Path(out) if out else None))

    @classmethod
    def open(cls, name: str) -> Run:
        """Find a run by its id, a prefix of its id, its path, or "last" for the latest."""
        from sage.run.begin import open_run

        return cls(open_run(name))

    @classmethod
    def _advance(cls, services: Services, answer: dict[str, Any] | None = None) -> Run:
        from sage.run.drive import advance_to_person

        try:
            advance_to_person(services, answer)
        finally:
            services.folder.release()
        return cls(services.folder)

    @property
    def status(self) -> str:
        """Status of the run, as printed by `sage show`."""
        from sage.run.folder import describe_status

        return describe_status(self.folder)

    def drafts(self) -> list[Draft]:
        """Return the hypotheses that are waiting for review."""
        from sage.run.drive import find_pause
        from sage.run.review import drafts_of

        services = self._reopen()
        try:
            pause = find_pause(services)
            review = pause is not None and pause.kind == "review"
            return list(drafts_of(services, pause.waiting)) if pause and review else []
        finally:
            services.folder.release()

    def approve(self) -> Run:
        """Approve every waiting hypothesis and continue the run."""
        return self._decide("approve", "")

    def reject(self, reason: str) -> Run:
        """Reject every waiting hypothesis and continue the run."""
        return self._decide("reject", reason)

    def _decide(self, action: Any, comment: str) -> Run:
        from sage.core.errors import InputError
        from sage.run.drive import find_pause, review_answer
        from sage.run.state import Decision

        services = self._reopen()
        pause = find_pause(services)
        if pause is None or pause.kind != "review":
            services.folder.release()
            raise InputError(f"run {self.folder.id} is not waiting for a review ({self.status})")
        decisions: tuple[Decision, ...] = tuple(
            Decision(hypothesis_id=name, action=action, comment=comment) for name in pause.waiting
        )
        return self._advance(services, review_answer(services, pause, decisions))

    def resume(self) -> Run:
        """Continue the run after an interruption, a kill or a fault."""
        return self._advance(self._reopen())

    def _reopen(self) -> Services:
        from sage.run.begin import reopen

        return reopen(str(self.folder.root))

    def result(self) -> dict[str, Any]:
        """Return the hypotheses with their verdicts, as printed by `sage show --json`."""
        from sage.report.build import summarize_run

        return summarize_run(self.folder)
