"""All outside evidence for feasibility in one call; what did not answer is said, not guessed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from agents.core.types import ExpandedHypothesis
from agents.evidence.clinical_trials import ClinicalTrials
from agents.evidence.gdc import Gdc, site_of
from agents.evidence.geo import Geo
from agents.evidence.github import GitHub, repository_of
from agents.evidence.packages import installed, released
from agents.evidence.reference_code import ReferenceCode
from agents.feasibility.external import ExternalFact
from agents.feasibility.types import StepName
from sage.core import clock
from sage.core.http.cache import DiskCache
from sage.core.http.client import Policy, ServiceClient
from sage.core.http.errors import ServiceError
from sage.core.http.runner import Runner

_DAY = 86400.0
_STALE_DAYS = 730
_DISEASE = ("cancer", "carcinoma", "tumor", "tumour", "neoplasm", "melanoma", "glioma", "lymphoma")


@dataclass(frozen=True)
class Registries:
    """The registries to ask; one that is None is left out. `packages` are asked of the index."""

    geo: Geo | None = None
    gdc: Gdc | None = None
    trials: ClinicalTrials | None = None
    github: GitHub | None = None
    reference: ReferenceCode | None = None
    packages: tuple[str, ...] = ()

    @classmethod
    def public(cls, *, ncbi_key: str | None = None, github_token: str | None = None) -> Registries:
        """Every registry at its public address."""
        return cls(
            geo=Geo(api_key=ncbi_key),
            gdc=Gdc(),
            trials=ClinicalTrials(),
            github=GitHub(token=github_token),
            reference=ReferenceCode(),
            packages=("lifelines", "statsmodels"),
        )


class EvidenceClients:
    """GEO, GDC, ClinicalTrials.gov, the package index, GitHub, reference implementations.

    Nothing is raised for what a service does: its fact comes back with `found=None` and the
    reason.

    Parameters
    ----------
    cache_dir : where answers are kept for a week; None keeps none
    registries : whom to ask; by default all at their public addresses, without keys
    today : the day from which a repository's idle time counts
    """

    def __init__(
        self,
        cache_dir: Path | None,
        registries: Registries | None = None,
        *,
        today: date | None = None,
        policy: Policy | None = None,
    ) -> None:
        known = registries or Registries.public()
        self.geo = known.geo
        self.gdc = known.gdc
        self.trials = known.trials
        self.github = known.github
        self.reference = known.reference
        self.packages = known.packages
        self.today = today or clock.now().date()
        cache = DiskCache(cache_dir, max_age=7 * _DAY) if cache_dir is not None else None
        self._client = ServiceClient(cache, policy or Policy(deadline=20.0))
        self._runner = Runner()

    def close(self) -> None:
        """Close connections."""
        self._runner.run(self._client.close())
        self._runner.close()

    def facts(self, expanded: ExpandedHypothesis) -> list[ExternalFact]:
        """Data sets, trials, packages and repositories that bear on the hypothesis."""
        return self._runner.run(self._facts(expanded))

    async def _facts(self, expanded: ExpandedHypothesis) -> list[ExternalFact]:
        disease = disease_of(expanded)
        site = site_of((disease, *expanded.parts))
        jobs: list[Awaitable[ExternalFact]] = []
        if self.geo is not None:
            jobs.append(_or_unknown("data", "public data sets", "GEO", self._series(disease)))
        if self.gdc is not None and site is not None:
            jobs.append(_or_unknown("data", "public data sets", "GDC", self._projects(site)))
        if self.trials is not None:
            term = _treatment_or_gene(expanded, disease)
            jobs.append(
                _or_unknown(
                    "data", "clinical trials", "ClinicalTrials.gov", self._studies(disease, term)
                )
            )
        if self.reference is not None:
            jobs.append(
                _or_unknown(
                    "tools",
                    "reference implementations",
                    "Hugging Face Papers",
                    self._implementations(expanded),
                )
            )
        for name in self.packages:
            jobs.append(self._releases(name))
            package = installed(name)
            repository = repository_of(package.repository or "") if package else None
            if self.github is not None and repository is not None:
                jobs.append(
                    _or_unknown("tools", "maintenance", "GitHub", self._activity(repository))
                )
        return list(await asyncio.gather(*jobs))

    async def _series(self, disease: str) -> ExternalFact:
        assert self.geo is not None
        found = await self.geo.series(self._client, (disease, "survival"))
        largest = "; ".join(
            f"{column.accession} ({column.samples} samples)" for column in found.listed[:3]
        )
        return ExternalFact(
            step="data",
            check="public data sets",
            statement=f"GEO lists {found.total} human series on {disease} and survival"
            + (f", among them {largest}." if largest else "."),
            source="GEO",
            found=found.total > 0,
            share=1.0 if found.total else 0.0,
            value=found.total,
        )

    async def _projects(self, site: str) -> ExternalFact:
        assert self.gdc is not None
        found = await self.gdc.projects(self._client, site)
        listed = "; ".join(f"{project.id} ({project.cases} cases)" for project in found[:3])
        return ExternalFact(
            step="data",
            check="public data sets",
            statement=f"GDC holds {len(found)} projects of primary site {site}"
            + (f": {listed}." if listed else "."),
            source="GDC",
            found=bool(found),
            share=1.0 if found else 0.0,
            value=sum(project.cases for project in found),
        )

    async def _studies(self, disease: str, term: str) -> ExternalFact:
        assert self.trials is not None
        found = await self.trials.trials(self._client, disease, term)
        first = f", e.g. {found.listed[0].nct}" if found.listed else ""
        about = f" that mention {term}" if term else ""
        # A claim without a trial is no worse for testing on a cohort: context, half credit.
        return ExternalFact(
            step="data",
            check="clinical trials",
            statement=f"{found.total} registered studies of {disease}{about}{first}.",
            source="ClinicalTrials.gov",
            found=True,
            share=1.0 if found.total else 0.5,
            value=found.total,
        )

    async def _implementations(self, expanded: ExpandedHypothesis) -> ExternalFact:
        assert self.reference is not None
        imaging = any(
            exposure.variable.startswith("imaging:") for exposure in expanded.hypothesis.exposures
        )
        method = "whole slide image analysis" if imaging else "survival analysis"
        found = await self.reference.implementations(self._client, method)
        coded = [implementation for implementation in found if implementation.repository]
        return ExternalFact(
            step="tools",
            check="reference implementations",
            statement=f"{len(coded)} of {len(found)} listed papers on {method} link their code"
            + (f", first {coded[0].repository}." if coded else "."),
            source="Hugging Face Papers",
            found=bool(coded),
            share=1.0 if coded else 0.0,
            value=len(coded),
            url=coded[0].repository if coded else None,
        )

    async def _releases(self, name: str) -> ExternalFact:
        known = await asyncio.to_thread(released, name)
        return ExternalFact(
            step="tools",
            check="maturity",
            statement=f"{name}: {known.count} releases, the latest {known.latest}."
            if known
            else f"The package index did not answer about {name}.",
            source="package index",
            found=True if known else None,
            share=min(1.0, 0.5 + known.count / 20.0) if known else 0.0,
            value=known.count if known else None,
        )

    async def _activity(self, repository: str) -> ExternalFact:
        assert self.github is not None
        one = await self.github.repository(self._client, repository)
        idle = one.idle_days(self.today)
        alive = not one.archived and idle is not None and idle <= _STALE_DAYS
        state = "archived" if one.archived else f"last push {idle} days ago"
        return ExternalFact(
            step="tools",
            check="maintenance",
            statement=f"{one.name}: {state}, {one.stars} stars.",
            source="GitHub",
            found=alive,
            share=1.0 if alive else 0.2,
            value=idle,
        )


def disease_of(expanded: ExpandedHypothesis) -> str:
    """The part that names a disease, else the population's description."""
    return next(
        (part for part in expanded.parts if any(word in part.lower() for word in _DISEASE)),
        expanded.hypothesis.population.description,
    )


def _treatment_or_gene(expanded: ExpandedHypothesis, disease: str) -> str:
    return next((part for part in expanded.parts if part != disease), "")


async def _or_unknown(
    step: StepName, check: str, source: str, work: Awaitable[ExternalFact]
) -> ExternalFact:
    """The fact, or that the source could not be asked."""
    try:
        return await work
    except ServiceError as problem:
        return ExternalFact(
            step=step,
            check=check,
            statement=f"{source} could not be asked ({problem.reason}).",
            source=source,
            found=None,
            share=0.0,
        )
