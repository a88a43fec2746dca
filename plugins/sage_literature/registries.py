"""Registries that show whether a hypothesis can be tested: data, trials, packages, and code.

The registries are GEO through NCBI E-utilities (3 requests/s, 10 with a key), Genomic
Data Commons, ClinicalTrials.gov version 2, GitHub (60 requests an hour, 5,000 with a
token), the package index through pip, and Hugging Face Papers, the successor to Papers
With Code, for reference implementations.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, ClassVar, TypeVar

from agents.core.types import ExpandedHypothesis
from agents.feasibility.registries import ExternalFact
from agents.feasibility.tool_facts import find_package
from agents.feasibility.types import StepName
from kg.literature.access import Access
from kg.literature.boolean import strip_operators
from kg.literature.reading import clean_text, get_field, parse_day, parse_json
from sage.core import clock
from sage.core.http.client import Limit, Request, ServiceClient

T = TypeVar("T")
PACKAGES = ("lifelines", "statsmodels")
STALE_DAYS = 730
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
"""Primary site in the Genomic Data Commons, by words that indicate a disease."""


class _Registry:
    """Base class for a registry at its own address or a mirror's."""

    name: ClassVar[str]
    limit = Limit(5, 1.0, concurrency=2)
    step: StepName = "data"
    check: ClassVar[str]
    source: ClassVar[str]

    def __init__(self, access: Access, email: str | None = None) -> None:
        self.base_url = access.address(self.name)

    async def fetch(
        self,
        client: ServiceClient,
        path: str,
        read: Callable[[bytes], T],
        params: Mapping[str, str | int] | None = None,
        **more: Any,
    ) -> T:
        """Fetch and parse a response at the rate that the registry allows.

        Raises
        ------
        ServiceError
            If the service cannot be reached or its response has an unexpected form.
        """
        url = f"{self.base_url}/{path}"
        request = Request(self.name, self.limit, url, params=dict(params or {}), **more)
        return await client.fetch(request, read)

    def state(
        self,
        statement: str,
        found: bool | None,
        share: float,
        value: float | None = None,
        url: str | None = None,
    ) -> ExternalFact:
        """Build an external fact attributed to this registry."""
        return ExternalFact(self.step, self.check, statement, self.source, found, share, value, url)


class Geo(_Registry):
    """GEO series with gene expression data."""

    name, source, check = "geo", "GEO", "public data sets"

    def __init__(self, access: Access, email: str | None = None) -> None:
        super().__init__(access, email)
        key = access.key("ncbi")
        self.limit = Limit(10 if key else 3, 1.0, concurrency=2)
        self._secret = {"api_key": key} if key else {}

    async def find_facts(
        self, client: ServiceClient, expanded: ExpandedHypothesis
    ) -> list[ExternalFact]:
        """Count human series on the disease and survival."""
        disease = disease_of(expanded)
        name = strip_operators(disease)
        term = f'("{name}" AND "survival") AND gse[ETYP] AND "Homo sapiens"[Organism]'
        params: dict[str, str | int] = {"db": "gds", "term": term, "retmax": 5, "retmode": "json"}
        total, ids = await self.fetch(
            client, "esearch.fcgi", read_series_ids, params, secret_params=self._secret
        )
        listed: list[tuple[str, int]] = []
        if ids:
            params = {"db": "gds", "id": ",".join(ids), "retmode": "json"}
            listed = await self.fetch(
                client, "esummary.fcgi", read_series, params, secret_params=self._secret
            )
        largest = "; ".join(f"{name} ({samples} samples)" for name, samples in listed[:3])
        statement = f"GEO lists {total} human series on {disease} and survival" + (
            f", including {largest}." if largest else "."
        )
        return [self.state(statement, total > 0, 1.0 if total else 0.0, total)]


class DataCommons(_Registry):
    """Projects in the Genomic Data Commons."""

    name, source, check = "gdc", "GDC", "public data sets"

    async def find_facts(
        self, client: ServiceClient, expanded: ExpandedHypothesis
    ) -> list[ExternalFact]:
        """Count projects and cases for the disease's primary site; nothing if it is unknown."""
        site = site_of((disease_of(expanded), *expanded.parts))
        if site is None:
            return []
        filters = {"op": "in", "content": {"field": "primary_site", "value": [site]}}
        params: dict[str, str | int] = {
            "filters": json.dumps(filters, separators=(",", ":")),
            "fields": "project_id,name,summary.case_count",
            "size": 50,
            "format": "json",
        }
        found = await self.fetch(client, "projects", read_projects, params)
        listed = "; ".join(f"{name} ({cases} cases)" for name, cases in found[:3])
        statement = f"GDC has {len(found)} projects with primary site {site}" + (
            f": {listed}." if listed else "."
        )
        cases = sum(cases for _, cases in found)
        return [self.state(statement, bool(found), 1.0 if found else 0.0, cases)]


class ClinicalTrials(_Registry):
    """Registered clinical studies."""

    name, source, check = "clinical_trials", "ClinicalTrials.gov", "clinical trials"
    limit = Limit(50, 60.0, concurrency=1)

    async def find_facts(
        self, client: ServiceClient, expanded: ExpandedHypothesis
    ) -> list[ExternalFact]:
        """Count studies on the disease that mention the first other part of the claim."""
        disease = disease_of(expanded)
        term = next((part for part in expanded.parts if part != disease), "")
        params: dict[str, str | int] = {
            "query.cond": strip_operators(disease),
            "pageSize": 5,
            "countTotal": "true",
            "fields": "NCTId,BriefTitle,OverallStatus",
        }
        if term:
            params["query.term"] = strip_operators(term)
        total, listed = await self.fetch(client, "studies", read_trials, params)
        about = f" that mention {term}" if term else ""
        first = f", e.g. {listed[0]}" if listed else ""
        # A claim without a trial can still be tested on a cohort: context only, half credit.
        statement = f"{total} registered studies of {disease}{about}{first}."
        return [self.state(statement, True, 1.0 if total else 0.5, total)]


class Papers(_Registry):
    """Papers with code on Hugging Face Papers."""

    name, source, check = "reference_code", "Hugging Face Papers", "reference implementations"
    step = "tools"
    limit = Limit(1, 1.0, concurrency=1)

    async def find_facts(
        self, client: ServiceClient, expanded: ExpandedHypothesis
    ) -> list[ExternalFact]:
        """Count papers on the method that link to their code."""
        exposures = expanded.hypothesis.exposures
        imaging = any(exposure.variable.startswith("imaging:") for exposure in exposures)
        method = "whole slide image analysis" if imaging else "survival analysis"
        params = {"q": strip_operators(method)[:200]}
        found = (await self.fetch(client, "api/papers/search", read_papers, params))[:5]
        coded = [repository for repository in found if repository]
        statement = f"{len(coded)} of {len(found)} listed papers on {method} link their code" + (
            f", first {coded[0]}." if coded else "."
        )
        share = 1.0 if coded else 0.0
        return [self.state(statement, bool(coded), share, len(coded), coded[0] if coded else None)]


class GitHub(_Registry):
    """Activity in the analysis packages' repositories."""

    name, source, check = "github", "GitHub", "maintenance"
    step = "tools"

    def __init__(self, access: Access, email: str | None = None) -> None:
        super().__init__(access, email)
        token = access.key("github")
        self.limit = Limit(5000 if token else 60, 3600.0, concurrency=2)
        self._secret = {"Authorization": f"Bearer {token}"} if token else {}

    async def find_facts(
        self, client: ServiceClient, expanded: ExpandedHypothesis
    ) -> list[ExternalFact]:
        """Compute the days since the last push to each package's repository."""
        named = [(find_package(name)) for name in PACKAGES]
        repositories = [repository_of(package.repository or "") for package in named if package]
        return list(
            await asyncio.gather(*(self.describe(client, name) for name in repositories if name))
        )

    async def describe(self, client: ServiceClient, repository: str) -> ExternalFact:
        """Describe a repository's activity; the name has the form owner/name.

        Raises
        ------
        ValueError
            If the name has another form.
        """
        if not re.fullmatch(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", repository) or ".." in repository:
            raise ValueError(f'"{repository}" is not owner/name')
        found = await self.fetch(
            client,
            f"repos/{repository}",
            read_repository,
            headers={"Accept": "application/vnd.github+json"},
            secret_headers=self._secret,
        )
        idle = (clock.now().date() - found.pushed).days if found.pushed else None
        alive = not found.archived and idle is not None and idle <= STALE_DAYS
        state = "archived" if found.archived else f"last push {idle} days ago"
        statement = f"{found.name}: {state}, {found.stars} stars."
        return self.state(statement, alive, 1.0 if alive else 0.2, idle)


class PackageIndex(_Registry):
    """Releases of the analysis packages, through pip."""

    name, source, check = "package_index", "package index", "maturity"
    step = "tools"

    async def find_facts(
        self, client: ServiceClient, expanded: ExpandedHypothesis
    ) -> list[ExternalFact]:
        """Count each package's releases."""
        known = await asyncio.gather(*(asyncio.to_thread(find_releases, name) for name in PACKAGES))
        return [
            self.state(
                f"{name}: {found.count} releases, the latest {found.latest}.",
                True,
                min(1.0, 0.5 + found.count / 20.0),
                found.count,
            )
            if found
            else self.state(f"The package index did not answer for {name}.", None, 0.0)
            for name, found in zip(PACKAGES, known, strict=True)
        ]


def disease_of(expanded: ExpandedHypothesis) -> str:
    """Return the concept that names a disease, or else the population description."""
    return next(
        (part for part in expanded.parts if any(word in part.lower() for word in _DISEASE)),
        expanded.hypothesis.population.description,
    )


def site_of(concepts: tuple[str, ...]) -> str | None:
    """Return the primary site that the concepts name, or None."""
    joined = " ".join(concepts).lower()
    return next((site for word, site in SITES.items() if word in joined), None)


def repository_of(url: str) -> str | None:
    """Extract "owner/name" from a repository's address."""
    match = _REPOSITORY.search(url)
    return f"{match[1]}/{match[2].removesuffix('.git')}" if match else None


def read_series_ids(body: bytes) -> tuple[int, list[str]]:
    """Read the number of matching GEO series and the identifiers of the first few."""
    answer = get_field("geo", parse_json("geo", body), "esearchresult", dict)
    total = int(get_field("geo", answer, "count", str))
    return total, [str(item) for item in get_field("geo", answer, "idlist", list)]


def read_series(body: bytes) -> list[tuple[str, int]]:
    """Read each GEO series' accession and number of samples, largest first."""
    result = get_field("geo", parse_json("geo", body), "result", dict)
    found = []
    for uid in get_field("geo", result, "uids", list):
        series = get_field("geo", result, str(uid), dict)
        samples = series.get("n_samples")
        count = samples if isinstance(samples, int) else len(series.get("samples") or [])
        found.append((str(get_field("geo", series, "accession", str)), count))
    return sorted(found, key=lambda series: -series[1])


def read_projects(body: bytes) -> list[tuple[str, int]]:
    """Read each GDC project's identifier and number of cases, largest first."""
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
    """Read the number of matching studies and the NCT numbers of the first few."""
    name = "clinical_trials"
    answer = parse_json(name, body)
    path = "protocolSection.identificationModule.nctId"
    listed = [get_field(name, item, path, str) for item in get_field(name, answer, "studies", list)]
    return get_field(name, answer, "totalCount", int), listed


def read_papers(body: bytes) -> list[str | None]:
    """Read each paper's repository, or None; most stars first, papers without a repository last."""
    listed: Any = parse_json("reference_code", body)
    if not isinstance(listed, list):
        raise TypeError("the response contains an object where the documentation specifies a list")
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
    """Activity of a package's repository."""

    name: str
    stars: int
    archived: bool
    pushed: date | None


def read_repository(body: bytes) -> Repository:
    """Read GitHub's response that describes a repository."""
    answer = parse_json("github", body)
    return Repository(
        name=get_field("github", answer, "full_name", str),
        stars=get_field("github", answer, "stargazers_count", int),
        archived=get_field("github", answer, "archived", bool) if "archived" in answer else False,
        pushed=parse_day(get_field("github", answer, "pushed_at", (str, type(None)))),
    )


@dataclass(frozen=True)
class Releases:
    """Releases of a package in the index."""

    name: str
    latest: str
    count: int


def find_releases(
    name: str, *, seconds: float = 20.0, environment: Mapping[str, str] | None = None
) -> Releases | None:
    """List releases of `name` through pip, which uses its configured index.

    Returns None if pip, the index, or the package is unavailable.

    Raises
    ------
    ValueError
        If `name` is not a valid package name.
    """
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?", name):
        raise ValueError(f'"{name}" is not the name of a package')
    command = [
        sys.executable,
        *("-m", "pip", "index", "versions", name, "--json"),
        *("--disable-pip-version-check", "--no-input", "--retries", "0"),
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env=dict(environment) if environment is not None else None,
        )
        answer = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    if not isinstance(answer, dict) or not isinstance(answer.get("versions"), list):
        return None
    versions = [str(version) for version in answer["versions"]]
    return Releases(name, versions[0], len(versions)) if versions else None
