"""State shared by the pages: settings, viewable folders, and a cached cohort and graph."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage.core.errors import InputError
from sage.run.campaign.rounds import CampaignFolder, list_campaigns
from sage.run.folder import RunFolder, list_runs
from sage.run.wiring import graph_path, load_cohort, make_ontology, open_graph
from sage.settings import Settings
from sage.web.people import People

if TYPE_CHECKING:
    from agents.scientist.blind import BlindCohort
    from kg.graph.model import Graph
    from kg.lexicon.ontology import Ontology
    from sage.run.integrity import Snapshot
    from validation.cohort.cohort import Cohort
    from validation.core.types import CohortSummary

ROUND = "~"
"""Separator between a campaign and its round in a URL: `campaign~round-1`."""
DEMO = "demo"
YEARS_KEPT = 4
NAME = re.compile(r"[^/\\\x00-\x1f.][^/\\\x00-\x1f]{0,150}")
"""Pattern for a single folder name that is not hidden."""


@dataclass
class Site:
    """The data on this machine that the server can access.

    Parameters
    ----------
    roots : folders below which cohorts and slides may be shown
    reviewers : number of different people who must agree on a hypothesis
    kg : the graph used to parse questions; None for the graph that ships with SAGE
    damaged : reasons why runs are missing from the latest list, by name
    """

    settings: Settings
    roots: tuple[Path, ...] = ()
    kg: Path | None = None
    reviewers: int = 1
    people: People = field(default_factory=People)
    damaged: dict[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    _cohorts: dict[str, Cohort] = field(default_factory=dict)
    _claims: dict[Path, tuple[Snapshot, list[dict[str, Any]]]] = field(default_factory=dict)
    _past: dict[int, Graph] = field(default_factory=dict)

    def run(self, name: str) -> RunFolder:
        """Return the run with this id below the runs folder; a round is `campaign~round-N`.

        Raises
        ------
        InputError
            If the run does not exist, or a link leads out of the runs folder.
        """
        parts = name.split(ROUND)
        home = self.settings.runs_dir.resolve()
        plain = all(NAME.fullmatch(part) for part in parts)
        path = home.joinpath(*parts).resolve() if plain and len(parts) <= 2 else home
        if path == home or not path.is_relative_to(home) or not (path / "manifest.json").is_file():
            raise InputError(f'no run named "{name[:120]}" here')
        return RunFolder(path)

    def runs(self) -> list[tuple[str, RunFolder]]:
        """List runs and campaign rounds under the names that `run` accepts, newest first.

        Runs whose manifest is not readable or was changed are in `damaged` instead.
        """
        found = [(run.id, run) for run in list_runs(self.settings.runs_dir)]
        for campaign in self.campaigns():
            found += [
                (f"{campaign.root.name}{ROUND}{run.id}", run) for run in list_runs(campaign.root)
            ]
        created = {}
        self.damaged = {}
        for name, run in found:
            try:
                created[name] = run.manifest().created
            except InputError as error:
                self.damaged[name] = str(error)
        kept = [item for item in found if item[0] in created]
        return sorted(kept, key=lambda item: created[item[0]], reverse=True)

    def campaigns(self) -> list[CampaignFolder]:
        """List the campaigns, newest first."""
        return list_campaigns(self.settings.runs_dir)[::-1]

    def cohort_names(self) -> dict[str, CohortSummary]:
        """Return cohort summaries by `id`, the name on the pages; load by `path` or `id`."""
        from validation import cohort
        from validation.core.types import CohortSummary

        demo = CohortSummary(
            id=DEMO, title="The demonstration cohort", kind="builtin", simulated=True
        )
        found = {DEMO: demo}
        for item in cohort.available([*self.roots, Path("cohorts")]):
            found.setdefault(item.id, item)
        return found

    def cohort(self, name: str) -> Cohort:
        """Return a cohort by its name on the pages, loading it only once.

        Raises
        ------
        InputError
            If the pages do not list this cohort.
        """
        names = self.cohort_names()
        if name not in names:
            raise InputError(f'no cohort named "{name[:120]}" here; choose a cohort from the list')
        with self.lock:
            if name not in self._cohorts:
                self._cohorts[name] = load_cohort(names[name].path or name, self.settings)
            return self._cohorts[name]

    def claims(self, run: RunFolder) -> list[dict[str, Any]]:
        """Return an answer per claim, supported claims first; none before the report is written.

        Answers are built from verified files and cached until these change.

        Raises
        ------
        InputError
            If a run file was changed, lost or added.
        """
        from sage.report.build import summarize_run

        if not run.output("state").is_file():
            return []
        files = run.record.snapshot(whole=True)
        kept = self._claims.get(run.root)
        if kept is None or kept[0] != files:
            found = summarize_run(run)["hypotheses"]
            kept = files, [{"id": item["id"], **item["answer"]} for item in found]
            self._claims[run.root] = kept
        return kept[1]

    def forget_cohort(self, name: str) -> None:
        """Discard a cohort whose files were written, so that it is reloaded on its next use."""
        with self.lock:
            self._cohorts.pop(name, None)

    def cohort_of(self, run: RunFolder) -> BlindCohort:
        """Return a run's cohort, limited to the data visible before a contract is frozen."""
        from agents.scientist.blind import BlindCohort

        split = run.manifest().spec.split_rule
        return BlindCohort(self.whole_cohort_of(run), self.settings.min_count, split)

    def whole_cohort_of(self, run: RunFolder) -> Cohort:
        """Return a run's cohort with its measurements, loading it only once."""
        from sage.run.services import Services

        key = f"run {run.root}"
        with self.lock:
            if key not in self._cohorts:
                self._cohorts[key] = Services(run, run.manifest(), self.settings).cohort
            return self._cohorts[key]

    @cached_property
    def graph(self) -> Graph:
        """The graph used to parse questions."""
        return open_graph(graph_path(self.kg, self.settings), self.settings)

    def graph_as_of(self, year: int) -> Graph:
        """Return the graph as of a year, cached for a few years; 0 means today."""
        with self.lock:
            if year and year not in self._past:
                while len(self._past) >= YEARS_KEPT:
                    self._past.pop(next(iter(self._past)))
                self._past[year] = self.graph.as_of(year)
            return self._past[year] if year else self.graph

    @cached_property
    def ontology(self) -> Ontology:
        """The ontology that ships with SAGE."""
        return make_ontology()
