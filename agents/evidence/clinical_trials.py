"""ClinicalTrials.gov, API version 2.

Rate: kept at 50 requests per minute. Docs: clinicaltrials.gov/data-api/api.
"""

from __future__ import annotations

from dataclasses import dataclass

from kg.literature.boolean import plain
from kg.literature.reading import as_json, field, text
from sage.core.http.client import Limit, Request, ServiceClient

BASE = "https://clinicaltrials.gov/api/v2"


@dataclass(frozen=True)
class Trial:
    """One registered study."""

    nct: str
    title: str
    status: str


@dataclass(frozen=True)
class TrialsFound:
    """How many studies fit, and the first of them."""

    total: int
    listed: tuple[Trial, ...]


class ClinicalTrials:
    """Registered studies of a condition and a term."""

    name = "clinical_trials"
    limit = Limit(50, 60.0, concurrency=1)

    def __init__(self, *, base_url: str = BASE) -> None:
        self.base_url = base_url.rstrip("/")

    async def trials(
        self, client: ServiceClient, condition: str, term: str = "", k: int = 5
    ) -> TrialsFound:
        """Studies of `condition` that mention `term`.

        Parameters
        ----------
        client : the shared client, which keeps the service's rate
        condition : disease or setting; signs of the query language are taken out
        term : a word that the study has to mention anywhere; empty for none
        k : most studies that are listed

        Returns
        -------
        How many studies fit in all, and the first `k` with their NCT number, title and status.

        Raises
        ------
        ServiceError
            If the service cannot be reached or answers in another form.
        """
        params: dict[str, str | int] = {
            "query.cond": plain(condition),
            "pageSize": k,
            "countTotal": "true",
            "fields": "NCTId,BriefTitle,OverallStatus",
        }
        if term:
            params["query.term"] = plain(term)
        request = Request(self.name, self.limit, f"{self.base_url}/studies", params=params)
        return await client.fetch(request, self._read)

    def _read(self, body: bytes) -> TrialsFound:
        answer = as_json(self.name, body)
        listed = []
        for item in field(self.name, answer, "studies", list):
            identity = field(self.name, item, "protocolSection.identificationModule", dict)
            status = item["protocolSection"].get("statusModule") or {}
            listed.append(
                Trial(
                    nct=field(self.name, identity, "nctId", str),
                    title=text(identity.get("briefTitle")),
                    status=text(status.get("overallStatus")),
                )
            )
        return TrialsFound(field(self.name, answer, "totalCount", int), tuple(listed))
