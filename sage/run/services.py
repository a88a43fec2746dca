"""Resources used by a run's nodes, loaded on first use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from agents.core.base import Agent, I, O, Reasoner, Reply, Resources
from kg.lexicon.ontology import Ontology
from sage.core.data import data_root
from sage.core.errors import Paused
from sage.core.files import write_json
from sage.core.llm.budget import step
from sage.core.llm.trace import Trace
from sage.core.llm.turns import Spent
from sage.core.log import logger
from sage.core.progress import Listener as ProgressListener
from sage.core.progress import listen
from sage.run.folder import Manifest, RunFolder
from sage.run.spec import RunSpec
from sage.settings import Settings

if TYPE_CHECKING:
    from agents.feasibility.registries import Registries
    from agents.scientist.tools import Workbench
    from kg.embedding.embed import Embedder
    from kg.graph.model import Graph
    from kg.literature.search import Literature
    from sage.run.measuring import MapMeasures
    from sandbox.types import Sandbox
    from validation.cohort.cohort import Cohort
    from validation.core.dictionary import DataDictionary

log = logger(__name__)

Listener = Callable[[str, str, dict[str, Any]], None]
DEFINED = "defined"
BETWEEN_NOTES = 2.0
"""Minimum seconds between progress events in the event log."""


def _silent(kind: str, node: str, fields: dict[str, Any]) -> None:
    return None


@dataclass
class Services:
    """A run's resources; nodes access files, graph, cohort and reasoner only through these."""

    folder: RunFolder
    manifest: Manifest
    settings: Settings
    listener: Listener = field(default=_silent)
    freezing: threading.Lock = field(default_factory=threading.Lock)
    defined: Path = field(init=False)
    """Folder with the measurements defined in the run."""

    def __post_init__(self) -> None:
        self.defined = self.folder.root / "outputs" / DEFINED

    @property
    def spec(self) -> RunSpec:
        """The run's spec."""
        return self.manifest.spec

    @cached_property
    def ontology(self) -> Ontology:
        """The ontology that ships with SAGE."""
        return Ontology.load(data_root() / "ontology")

    @cached_property
    def reasoner(self) -> Reasoner:
        """The reasoner named in the manifest; rules replace a model that cannot be used."""
        from agents.core.rules import RulesReasoner

        rules = RulesReasoner(self.resources, self.trace)
        if self.manifest.reasoner == "rules":
            return rules
        from sage.core.llm.budget import current_step
        from sage.run.wiring import make_chat

        def note(reason: str) -> None:
            node, hypothesis = current_step()
            fields = {"node": node} | ({"hypothesis": hypothesis} if hypothesis else {})
            fields["message"] = f"{reason}. SAGE's rules stand in"
            self.folder.event("note", **fields)
            self.listener("note", node, fields)

        return make_chat(
            self.settings,
            self.folder.root,
            budget_usd=self.spec.budget_usd,
            withheld=lambda: self.patient_identifiers,
            trace=self.trace,
            stand_in=rules,
            on_stand_in=note,
        )

    @cached_property
    def trace(self) -> Trace:
        """The record of every agent's turns."""
        return Trace(self.folder.trace_path)

    @cached_property
    def resources(self) -> Resources:
        """Resources available to rules."""
        return Resources(ontology=self.ontology, seed=self.spec.seed)

    @cached_property
    def graph(self) -> Graph:
        """The knowledge graph."""
        from sage.run.wiring import open_graph

        return open_graph(Path(self.manifest.kg), self.settings)

    @cached_property
    def embedder(self) -> Embedder:
        """The embedding model."""
        from sage.run.wiring import make_embedder

        return make_embedder(self.settings)

    @cached_property
    def sandbox(self) -> Sandbox:
        """The sandbox for analyses, which starts preloading their libraries."""
        from sage.run.wiring import make_sandbox

        compiled = self.manifest.reasoner == "rules"
        found = make_sandbox(self.settings, compiled_by_sage=compiled)
        found.prepare()
        return found

    @cached_property
    def cohort(self) -> Cohort:
        """The cohort used to test hypotheses, including the run's slide measurements."""
        from sage.run.measuring import add_defined
        from sage.run.wiring import load_cohort

        spec = self.spec
        found = load_cohort(spec.cohort, self.settings, spec.cohort_root, spec.features)
        return add_defined(found, self.defined)

    @cached_property
    def second_cohort(self) -> Cohort | None:
        """The cohort in which claims are repeated, if any."""
        from sage.run.measuring import SECOND, add_defined
        from sage.run.wiring import load_cohort

        second = self.spec.second_cohort
        if not second:
            return None
        return add_defined(load_cohort(second, self.settings), self.defined / SECOND)

    def reload_cohorts(self) -> None:
        """Discard the loaded cohorts after a measurement was added to their variables."""
        for name in ("cohort", "second_cohort", "dictionary"):
            self.__dict__.pop(name, None)

    @cached_property
    def patient_identifiers(self) -> frozenset[str]:
        """The cohorts' patient identifiers and pseudonyms, which no prompt may contain."""
        from agents.core.disclosure import identifiers

        cohorts = [self.cohort, *([self.second_cohort] if self.second_cohort else [])]
        return identifiers(
            name for cohort in cohorts for pair in cohort.pseudonyms.items() for name in pair
        )

    @cached_property
    def dictionary(self) -> DataDictionary:
        """The cohort's data dictionary."""
        return self.cohort.dictionary()

    @cached_property
    def literature(self) -> Literature:
        """The literature search: the local index and, if the run is online, external services."""
        from sage.run.wiring import make_literature

        online = self.settings.literature != "local"
        return make_literature(
            self.settings,
            self.spec.corpus or data_root() / "corpus",
            self.ontology,
            self.embedder.embed if online else None,
        )

    @cached_property
    def workbench(self) -> Workbench:
        """Data for the scientist's tools, without outcomes."""
        from datetime import date

        from agents.scientist.blind import BlindCohort
        from agents.scientist.tools import Workbench

        year = self.spec.as_of
        return Workbench(
            graph=self.graph,
            literature=self.literature,
            cohort=BlindCohort(self.cohort, self.settings.min_count, self.spec.split_rule),
            ontology=self.ontology,
            embedder=lambda: self.embedder,
            history=self.spec.history,
            measures=self._measures(),
            as_of=date(year, 12, 31) if year else None,
            paths=self.settings.path_options(seed=self.spec.seed),
        )

    def _measures(self) -> MapMeasures | None:
        """Return the measurement tool for the cohort's maps; None if it has no maps."""
        from sage.run.measuring import MapMeasures

        if (maps := self.cohort.maps) is None:
            return None
        return MapMeasures(
            maps=maps,
            folder=self.defined,
            cohort=lambda: self.cohort,
            second=lambda: self.second_cohort,
            reload=self.reload_cohorts,
            seed=self.spec.seed,
            minimum=self.settings.min_count,
        )

    @cached_property
    def tool_cards(self) -> list[Any]:
        """Descriptions of the tools that measure slides, for agents."""
        from sage.run.wiring import tools

        return tools(self.settings)

    @cached_property
    def registries(self) -> Registries | None:
        """External registries for feasibility if the run is online; otherwise None."""
        if self.settings.literature == "local":
            return None
        from agents.feasibility.registries import Registries, Registry
        from kg.literature.services import load_services

        made = load_services(self.settings.services, self.settings.contact_email)
        registries = [service for service in made if isinstance(service, Registry)]
        return Registries(registries, self.settings.cache_dir / "evidence")

    def ask(self, agent: Agent[I, O], given: I, output: str) -> Reply[O]:
        """Ask the reasoner and save the answer as `outputs/<output>.json`."""
        reply = self.reasoner.ask(agent, given)
        self.save_answer(output, agent.name, reply.reasoner, reply.output, reply.spent, reply.model)
        return reply

    def save_answer(
        self,
        output: str,
        agent: str,
        reasoner: str,
        value: BaseModel,
        spent: Spent,
        model: str | None = None,
    ) -> None:
        """Save an agent's answer and its cost as `outputs/<output>.json`."""
        write_json(
            self.folder.output(output),
            {
                "agent": agent,
                "reasoner": reasoner,
                "model": model,
                "spent": {**spent.__dict__, "seconds": round(spent.seconds, 4)},
                "output": value.model_dump(mode="json"),
            },
        )

    def _relay_progress(self, name: str, fields: dict[str, Any]) -> ProgressListener:
        """Relay a step's progress: all of it to the listener, some of it to the event log."""
        last = time.monotonic()

        def relay(what: str, done: int, total: int) -> None:
            nonlocal last
            said = {"what": what, "done": done, "total": total}
            self.listener("progress", name, {**fields, **said})
            if time.monotonic() - last >= BETWEEN_NOTES:
                last = time.monotonic()
                self.folder.event("progress", **fields, **said)

        return relay

    @contextmanager
    def node(self, name: str, hypothesis: str = "") -> Iterator[None]:
        """Log a node's start, end and duration, notify the listener, and record the files it wrote.

        Raises
        ------
        Paused
            If a pause was requested; the node has not started.
        """
        from langgraph.errors import GraphInterrupt

        if self.folder.pause_path.exists():
            raise Paused(name)
        before = self.folder.record.begin(f"{name} {hypothesis}".strip())
        fields: dict[str, Any] = {"node": name}
        if hypothesis:
            fields["hypothesis"] = hypothesis
        ended = (event for event in self.folder.events() if event["event"] == "end")
        if before_this := sum(fields.items() <= event.items() for event in ended):
            fields["round"] = before_this + 1
        self.folder.event("start", **fields)
        self.listener("start", name, fields)
        begun = time.perf_counter()
        try:
            with step(name, hypothesis), listen(self._relay_progress(name, fields)):
                yield
        except GraphInterrupt:
            raise
        except Exception as error:
            self.folder.event("error", **fields, message=str(error)[:500])
            log.failed("step failed", error, **fields)
            self.listener("error", name, fields)
            raise
        seconds = round(time.perf_counter() - begun, 4)
        self.folder.event("end", **fields, seconds=seconds)
        self.folder.record.end(f"{name} {hypothesis}".strip(), before)
        self.listener("end", name, {**fields, "seconds": seconds})
