"""Evidence for feasibility from outside registries; silence is reported.

GEO through NCBI E-utilities (3 requests/s, 10 with a key), Genomic Data Commons, ClinicalTrials.gov
version 2, GitHub (60 requests an hour, 5,000 with a token), the package index through pip, and
Hugging Face Papers, the successor of Papers With Code, for reference implementations.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from agents.core.types import ExpandedHypothesis
from agents.evidence.packages import find_package, find_releases
from agents.feasibility.types import StepName
from kg.literature.boolean import strip_operators
from kg.literature.reading import clean_text, get_field, parse_day, parse_json
from sage.core import clock
from sage.core.http.cache import DiskCache
from sage.core.http.client import Limit, Policy, Request, ServiceClient
from sage.core.http.errors import ServiceError
from sage.core.http.runner import Runner

T = TypeVar("T")
ADDRESSES = {
    "geo": "https://eutils.ncbi.nlm.nih.gov/entrez/eutils",
    "gdc": "https://api.gdc.cancer.gov",
    "clinical_trials": "https://clinicaltrials.gov/api/v2",
    "github": "https://api.github.com",
    "reference_code": "",
}
"""Public address of each registry; that of Hugging Face Papers comes from its own library."""
LIMITS = {
    "geo": Limit(3, 1.0, concurrency=2),
    "gdc": Limit(5, 1.0, concurrency=2),
    "clinical_trials": Limit(50, 60.0, concurrency=1),
    "github": Limit(60, 3600.0, concurrency=2),
    "reference_code": Limit(1, 1.0, concurrency=1),
}
WITH_KEY = {"geo": Limit(10, 1.0, concurrency=2), "github": Limit(5000, 3600.0, concurrency=2)}
PACKAGES = ("lifelines", "statsmodels")
STALE_DAYS = 730
_WEEK = 7 * 86400.0
_DISEASE = ("cancer", "carcinoma", "tumor", "tumour", "neoplasm", "melanoma", "glioma", "lymphoma")
_REPOSITORY = re.compile(r"github\.com[/:]([A-Za-z0-9_.-]{1,64})/([A-Za-z0-9_.-]{1,100})")
SITES = {
    "bladder": "Bladder", "urothelial": "Bladder", "breast": "Breast",
    "lung": "Bronchus and lung", "colon": "Colon", "colorectal": "Colon", "kidney": "Kidney",
    "renal": "Kidney", "liver": "Liver and intrahepatic bile ducts",
    "hepatocellular": "Liver and intrahepatic bile ducts", "melanoma": "Skin", "ovarian": "Ovary",
    "pancrea": "Pancreas", "prostate": "Prostate gland", "gastric": "Stomach",
    "stomach": "Stomach", "glioma": "Brain", "head and neck": "Larynx",
}  # fmt: skip
"""Words of a disease and the primary site under which the Genomic Data Commons files it."""


@dataclass(frozen=True)
class ExternalFact:
    """A registry's answer. `found` is None where it did not answer; `share` is in [0, 1]."""

    step: StepName
    check: str
    statement: str
    source: str
    found: bool | None
    share: float
    value: float | None = None
    url: str | None = None


class EvidenceClients:
    """Asks every registry at once; errors of a service become facts with `found=None`.

    Parameters
    ----------
    cache_dir : where answers are kept for a week; None keeps none
    """

    def __init__(
        self,
        cache_dir: Path | None,
        addresses: Mapping[str, str] | None = None,
        *,
        ncbi_key: str | None = None,
        github_token: str | None = None,
        packages: tuple[str, ...] = PACKAGES,
        today: date | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.addresses = dict(ADDRESSES if addresses is None else addresses)
        self.packages = packages
        self.today = today or clock.now().date()
        self._keys = {"geo": ncbi_key or "", "github": github_token or ""}
        cache = DiskCache(cache_dir, max_age=_WEEK) if cache_dir is not None else None
        self._client = ServiceClient(cache, policy or Policy(deadline=20.0))
        self._runner = Runner()

    def close(self) -> None:
        """Close connections."""
        self._runner.run(self._client.close())
        self._runner.close()

    def facts(self, expanded: ExpandedHypothesis) -> list[ExternalFact]:
        """Collect data sets, trials, packages and repositories that concern the hypothesis."""
        return self._runner.run(self._facts(expanded))

    async def _facts(self, expanded: ExpandedHypothesis) -> list[ExternalFact]:
        disease = disease_of(expanded)
        term = next((part for part in expanded.parts if part != disease), "")
        jobs: list[Awaitable[ExternalFact]] = []
        if "geo" in self.addresses:
            jobs.append(_try("data", "public data sets", "GEO", self._series(disease)))
        site = site_of((disease, *expanded.parts))
        if "gdc" in self.addresses and site is not None:
            jobs.append(_try("data", "public data sets", "GDC", self._projects(site)))
        if "clinical_trials" in self.addresses:
            work = self._studies(disease, term)
            jobs.append(_try("data", "clinical trials", "ClinicalTrials.gov", work))
        if "reference_code" in self.addresses:
            work = self._implementations(expanded)
            jobs.append(_try("tools", "reference implementations", "Hugging Face Papers", work))
        for name in self.packages:
            jobs.append(_releases(name))
            package = find_package(name)
            repository = repository_of(package.repository or "") if package else None
            if "github" in self.addresses and repository is not None:
                jobs.append(_try("tools", "maintenance", "GitHub", self._activity(repository)))
        return list(await asyncio.gather(*jobs))

    async def fetch(
        self,
        name: str,
        path: str,
        read: Callable[[bytes], T],
        params: Mapping[str, str | int] | None = None,
    ) -> T:
        """Fetch an answer of a registry at the rate that it allows.

        Raises
        ------
        ServiceError
            If the service cannot be reached or answers in another form.
        """
        key = self._keys.get(name)
        request = Request(
            name,
            WITH_KEY[name] if key else LIMITS[name],
            f"{(self.addresses[name] or papers_address()).rstrip('/')}/{path}",
            params=dict(params or {}),
            headers={"Accept": "application/vnd.github+json"} if name == "github" else {},
            secret_params={"api_key": key} if key and name == "geo" else {},
            secret_headers={"Authorization": f"Bearer {key}"} if key and name == "github" else {},
        )
        return await self._client.fetch(request, read)

    async def _series(self, disease: str) -> ExternalFact:
        name = strip_operators(disease)
        term = f'("{name}" AND "survival") AND gse[ETYP] AND "Homo sapiens"[Organism]'
        params: dict[str, str | int] = {"db": "gds", "term": term, "retmax": 5, "retmode": "json"}
        total, ids = await self.fetch("geo", "esearch.fcgi", read_series_ids, params)
        listed: list[tuple[str, int]] = []
        if ids:
            params = {"db": "gds", "id": ",".join(ids), "retmode": "json"}
            listed = await self.fetch("geo", "esummary.fcgi", read_series, params)
        largest = "; ".join(f"{name} ({samples} samples)" for name, samples in listed[:3])
        return ExternalFact(
            step="data",
            check="public data sets",
            statement=f"GEO lists {total} human series on {disease} and survival"
            + (f", among them {largest}." if largest else "."),
            source="GEO",
            found=total > 0,
            share=1.0 if total else 0.0,
            value=total,
        )

    async def _projects(self, site: str) -> ExternalFact:
        filters = {"op": "in", "content": {"field": "primary_site", "value": [site]}}
        params: dict[str, str | int] = {
            "filters": json.dumps(filters, separators=(",", ":")),
            "fields": "project_id,name,summary.case_count",
            "size": 50,
            "format": "json",
        }
        found = await self.fetch("gdc", "projects", read_projects, params)
        listed = "; ".join(f"{name} ({cases} cases)" for name, cases in found[:3])
        return ExternalFact(
            step="data",
            check="public data sets",
            statement=f"GDC holds {len(found)} projects of primary site {site}"
            + (f": {listed}." if listed else "."),
            source="GDC",
            found=bool(found),
            share=1.0 if found else 0.0,
            value=sum(cases for _, cases in found),
        )

    async def _studies(self, disease: str, term: str) -> ExternalFact:
        params: dict[str, str | int] = {
            "query.cond": strip_operators(disease),
            "pageSize": 5,
            "countTotal": "true",
            "fields": "NCTId,BriefTitle,OverallStatus",
        }
        if term:
            params["query.term"] = strip_operators(term)
        total, listed = await self.fetch("clinical_trials", "studies", read_trials, params)
        about = f" that mention {term}" if term else ""
        first = f", e.g. {listed[0]}" if listed else ""
        # A claim without a trial is no worse for testing on a cohort: context, half credit.
        return ExternalFact(
            step="data",
            check="clinical trials",
            statement=f"{total} registered studies of {disease}{about}{first}.",
            source="ClinicalTrials.gov",
            found=True,
            share=1.0 if total else 0.5,
            value=total,
        )

    async def _implementations(self, expanded: ExpandedHypothesis) -> ExternalFact:
        exposures = expanded.hypothesis.exposures
        imaging = any(exposure.variable.startswith("imaging:") for exposure in exposures)
        method = "whole slide image analysis" if imaging else "survival analysis"
        params = {"q": strip_operators(method)[:200]}
        found = (await self.fetch("reference_code", "api/papers/search", read_papers, params))[:5]
        coded = [repository for repository in found if repository]
        return ExternalFact(
            step="tools",
            check="reference implementations",
            statement=f"{len(coded)} of {len(found)} listed papers on {method} link their code"
            + (f", first {coded[0]}." if coded else "."),
            source="Hugging Face Papers",
            found=bool(coded),
            share=1.0 if coded else 0.0,
            value=len(coded),
            url=coded[0] if coded else None,
        )

    async def _activity(self, repository: str) -> ExternalFact:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", repository) or ".." in repository:
            raise ValueError(f'"{repository}" is not owner/name')
        found = await self.fetch("github", f"repos/{repository}", read_repository)
        idle = (self.today - found.pushed).days if found.pushed else None
        alive = not found.archived and idle is not None and idle <= STALE_DAYS
        state = "archived" if found.archived else f"last push {idle} days ago"
        return ExternalFact(
            step="tools",
            check="maintenance",
            statement=f"{found.name}: {state}, {found.stars} stars.",
            source="GitHub",
            found=alive,
            share=1.0 if alive else 0.2,
            value=idle,
        )


async def _releases(name: str) -> ExternalFact:
    known = await asyncio.to_thread(find_releases, name)
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


async def _try(
    step: StepName, check: str, source: str, work: Awaitable[ExternalFact]
) -> ExternalFact:
    try:
        return await work
    except ServiceError as problem:
        statement = f"{source} could not be asked ({problem.reason})."
        return ExternalFact(step, check, statement, source, found=None, share=0.0)


def disease_of(expanded: ExpandedHypothesis) -> str:
    """The part that names a disease, else the population's description."""
    return next(
        (part for part in expanded.parts if any(word in part.lower() for word in _DISEASE)),
        expanded.hypothesis.population.description,
    )


def site_of(concepts: tuple[str, ...]) -> str | None:
    """The primary site that the concepts name, or None."""
    joined = " ".join(concepts).lower()
    return next((site for word, site in SITES.items() if word in joined), None)


def repository_of(url: str) -> str | None:
    """Extract "owner/name" from a repository's address."""
    match = _REPOSITORY.search(url)
    return f"{match[1]}/{match[2].removesuffix('.git')}" if match else None


def papers_address() -> str:
    """Address of Hugging Face Papers, from the hub library."""
    from huggingface_hub.constants import ENDPOINT

    return str(ENDPOINT)


def read_series_ids(body: bytes) -> tuple[int, list[str]]:
    """Number of GEO series that fit, and the identifiers of the first."""
    answer = get_field("geo", parse_json("geo", body), "esearchresult", dict)
    total = int(get_field("geo", answer, "count", str))
    return total, [str(item) for item in get_field("geo", answer, "idlist", list)]


def read_series(body: bytes) -> list[tuple[str, int]]:
    """Accession and number of samples of each GEO series, the largest first."""
    result = get_field("geo", parse_json("geo", body), "result", dict)
    found = []
    for uid in get_field("geo", result, "uids", list):
        series = get_field("geo", result, str(uid), dict)
        samples = series.get("n_samples")
        count = samples if isinstance(samples, int) else len(series.get("samples") or [])
        found.append((str(get_field("geo", series, "accession", str)), count))
    return sorted(found, key=lambda series: -series[1])


def read_projects(body: bytes) -> list[tuple[str, int]]:
    """Identifier and number of cases of each GDC project, the largest first."""
    hits = get_field("gdc", parse_json("gdc", body), "data.hits", list)
    found = [
        (
            str(get_field("gdc", hit, "project_id", str)),
            int(get_field("gdc", hit, "summary.case_count", int)),
        )
        for hit in hits
    ]
    return sorted(found, key=lambda project: -project[1])


def read_trials(body: bytes) -> tuple[int, list[str]]:
    """Number of studies that fit, and the NCT numbers of the first."""
    name = "clinical_trials"
    answer = parse_json(name, body)
    path = "protocolSection.identificationModule.nctId"
    listed = [get_field(name, item, path, str) for item in get_field(name, answer, "studies", list)]
    return get_field(name, answer, "totalCount", int), listed


def read_papers(body: bytes) -> list[str | None]:
    """The repository of each paper, None where none is linked; most stars first, None last."""
    listed: Any = parse_json("reference_code", body)
    if not isinstance(listed, list):
        raise TypeError("an object where a list is documented")
    found = []
    for item in listed:
        paper = get_field("reference_code", item, "paper", dict)
        get_field("reference_code", paper, "id", str)
        stars = paper.get("githubStars")
        repository = clean_text(paper.get("githubRepo")) or None
        found.append((repository is None, -(stars if isinstance(stars, int) else 0), repository))
    return [repository for *_, repository in sorted(found, key=lambda paper: paper[:2])]


@dataclass(frozen=True)
class Repository:
    """Activity of a repository."""

    name: str
    stars: int
    archived: bool
    pushed: date | None


def read_repository(body: bytes) -> Repository:
    """Read GitHub's description of a repository."""
    answer = parse_json("github", body)
    return Repository(
        name=get_field("github", answer, "full_name", str),
        stars=get_field("github", answer, "stargazers_count", int),
        archived=get_field("github", answer, "archived", bool) if "archived" in answer else False,
        pushed=parse_day(get_field("github", answer, "pushed_at", (str, type(None)))),
    )
