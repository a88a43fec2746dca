"""Allowlist of addresses that SAGE may contact; the process refuses every other connection.

`confine` restricts a command's process: telemetry in dependencies is switched off
regardless of the environment, and connections are allowed only to hosts that one of
SAGE's own clients has named with `permit`, which are the services below, their mirrors,
and the model's endpoint. Variables for other programs that redirect traffic or hold keys
(`FOREIGN`) are used only with `allow_foreign_env = true`.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator

OPENAI = "https://api.openai.com/v1"
SERVICES: Mapping[str, str] = {
    "arxiv": "https://export.arxiv.org/api",
    "biorxiv": "https://api.biorxiv.org",
    "cbioportal": "https://www.cbioportal.org/api",
    "cell_ontology": "https://raw.githubusercontent.com/obophenotype/cell-ontology/master",
    "cellosaurus": "https://ftp.expasy.org/databases/cellosaurus",
    "chebi": "https://ftp.ebi.ac.uk/pub/databases/chebi/ontology",
    "clinical_trials": "https://clinicaltrials.gov/api/v2",
    "crossref": "https://api.crossref.org",
    "disease_ontology": "https://raw.githubusercontent.com/DiseaseOntology"
    "/HumanDiseaseOntology/main/src/ontology",
    "europe_pmc": "https://www.ebi.ac.uk/europepmc/webservices/rest",
    "gdc": "https://api.gdc.cancer.gov",
    "gene_ontology": "https://current.geneontology.org/ontology",
    "geo": "https://eutils.ncbi.nlm.nih.gov/entrez/eutils",
    "github": "https://api.github.com",
    "mesh": "https://nlmpubs.nlm.nih.gov/projects/mesh/MESH_FILES/asciimesh",
    "ncbi_files": "https://ftp.ncbi.nlm.nih.gov",
    "package_index": "https://pypi.org/simple",
    "openalex": "https://api.openalex.org",
    "pubmed": "https://eutils.ncbi.nlm.nih.gov/entrez/eutils",
    "reference_code": "https://huggingface.co",
    "semantic_scholar": "https://api.semanticscholar.org/graph/v1",
}
"""Public services; the `services` setting may name a mirror for each."""
OFF: Mapping[str, str] = {
    "LANGSMITH_TRACING": "false", "LANGSMITH_TRACING_V2": "false",
    "LANGCHAIN_TRACING": "false", "LANGCHAIN_TRACING_V2": "false",
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0", "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "1",
    "OTEL_SDK_DISABLED": "true", "WANDB_MODE": "disabled", "GRADIO_ANALYTICS_ENABLED": "False",
    "ANONYMIZED_TELEMETRY": "False", "POSTHOG_DISABLED": "1", "SCARF_NO_ANALYTICS": "true",
}  # fmt: skip
"""Environment variables that disable dependencies' telemetry, set before any import of them."""
FOREIGN = (
    "OPENAI_", "AZURE_OPENAI_", "LANGSMITH_", "LANGCHAIN_", "MLFLOW_", "SENTRY_", "HF_ENDPOINT",
    "OTEL_EXPORTER", "WANDB_BASE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "DOCKER_HOST",
    "DOCKER_CONTEXT", "PIP_INDEX", "PIP_EXTRA_INDEX", "PGHOST", "PGSERVICE", "RAY_ADDRESS",
)  # fmt: skip
"""Name prefixes of environment variables by which other programs redirect traffic."""


def _check_address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the address must start with https:// or http://")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(
            "the address must not contain a user, password, query or fragment; set a key "
            "separately, such as with SAGE_API_KEY"
        )
    return value.rstrip("/")


Address = Annotated[str, AfterValidator(_check_address)]
"""An address without credentials, which may be printed and stored."""

_allowed = False
_hosts: set[str] | None = None
_resolved: set[str] = set()
_removed: dict[str, str] = {}


def allow_foreign(allow: bool) -> None:
    """Apply the `allow_foreign_env` setting to this process."""
    global _allowed
    _allowed = allow
    if allow:
        os.environ.update({**_removed, **OFF} if _hosts is not None else {})
        for name, value in _removed.items():
            if name.upper().endswith("_PROXY"):
                permit(value)


def foreign(name: str) -> str | None:
    """Return another program's environment variable, or None unless these are allowed."""
    return os.environ.get(name) or None if _allowed else None


def trust_environment() -> bool:
    """Check whether proxies from the environment may be used."""
    return _allowed


def permit(url: str) -> None:
    """Permit connections to the host of an address named by the user or in `SERVICES`."""
    if _hosts is not None and (host := urlsplit(url).hostname):
        _hosts.add(host)


def confine() -> None:
    """Disable telemetry, and refuse connections to all hosts that are not permitted."""
    global _hosts
    for name, value in list(os.environ.items()):
        if name.upper().startswith(FOREIGN) and not value.startswith("unix://"):
            _removed[name] = os.environ.pop(name)
    os.environ.update(OFF)
    if _hosts is not None:
        return
    _hosts = set()
    resolve = socket.getaddrinfo

    def resolve_permitted(host: Any, *rest: Any, **options: Any) -> Any:
        if not options.get("flags", 0) & socket.AI_PASSIVE:  # not an address to listen at
            _require(host)
        found = resolve(host, *rest, **options)
        _resolved.update(str(entry[4][0]) for entry in found)
        return found

    socket.getaddrinfo = resolve_permitted
    sys.addaudithook(_refuse)


def _refuse(event: str, given: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg") and isinstance(
        given[-1], tuple
    ):
        _require(given[-1][0])


def _require(host: Any) -> None:
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host or "")
    if name not in _resolved and name not in (_hosts or ()):
        raise PermissionError(f"{name} is not an address that SAGE may contact")
