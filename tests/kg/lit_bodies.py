"""Minimal answers in the sources' documented formats, about two papers of the demo corpus."""

from __future__ import annotations

from tests.core.http_server import Answer, FakeServices, Seen, as_json

TITLE = (
    "Concomitant decrease of E- and A-FABP expression predicts worse survival in urothelial "
    "bladder cancer patients"
)
DOI = "10.1038/s41598-024-65972-8"
PMID = "38965292"
RETRACTED_DOI = "10.3892/etm.2015.2633"
PREPRINT_DOI = "/".join(("10.1101", "made.up.for.tests"))
RETRACTED_TITLE = "microRNA-195 inhibits cell proliferation in bladder cancer"

MEDLINE = f"""
PMID- {PMID}
DP  - 2024 Jul 4
TI  - Concomitant decrease of E- and A-FABP expression predicts worse survival in
      urothelial bladder cancer patients.
LID - {DOI} [doi]
AB  - Low FABP5 expression is associated with metastasis.
FAU - First, Author
FAU - Second, Author
PT  - Journal Article
JT  - Scientific reports

PMID- 99999999
DP  - 2015
TI  - {RETRACTED_TITLE}.
PT  - Journal Article
PT  - Retracted Publication
RIN - Exp Ther Med. 2018 Mar 2;15(3):1. doi: none
JT  - Experimental and therapeutic medicine
"""

ESEARCH = {"esearchresult": {"count": "2", "idlist": [PMID, "99999999"]}}

EUROPE_PMC = {
    "hitCount": 2,
    "resultList": {
        "result": [
            {"id": PMID, "source": "MED", "pmid": PMID, "doi": DOI, "title": TITLE + ".",
             "authorString": "First A, Second A.",
             "journalInfo": {"journal": {"title": "Scientific reports"}}, "pubYear": "2024",
             "abstractText": "<h4>Background</h4>Low FABP5 expression is associated with "
             "lymph-node metastasis in bladder cancer.",
             "pubTypeList": {"pubType": ["research-article", "Journal Article"]},
             "firstPublicationDate": "2024-07-04"},
            {"id": "2", "source": "MED", "doi": RETRACTED_DOI, "title": RETRACTED_TITLE + ".",
             "pubYear": "2015", "pubTypeList": {"pubType": ["Retracted Publication"]},
             "firstPublicationDate": "2015-07-01"},
        ]
    },
}  # fmt: skip

PREPRINTS = {
    "resultList": {
        "result": [
            {
                "id": "PPR1",
                "source": "PPR",
                "title": "Withdrawn idea on urothelial lymphoid follicles",
                "doi": PREPRINT_DOI,
                "pubYear": "2025",
                "bookOrReportDetails": {"publisher": "medRxiv"},
                "pubTypeList": {"pubType": ["Preprint"]},
                "firstPublicationDate": "2025-01-20",
            }
        ]
    }
}

DETAILS = {
    "collection": [
        {"version": "1", "type": "new results", "date": "2025-01-20"},
        {"version": "2", "type": "withdrawn", "date": "2025-03-02"},
    ]
}

SEMANTIC = {
    "total": 1,
    "data": [
        {
            "paperId": "p1",
            "externalIds": {"DOI": DOI.upper(), "PubMed": PMID},
            "title": TITLE,
            "abstract": None,
            "year": 2024,
            "venue": "Scientific Reports",
            "publicationDate": "2024-07-04",
            "publicationTypes": ["JournalArticle"],
            "authors": [{"name": "A First"}],
        }
    ],
}

ATOM = """<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xmlns:arxiv="http://arxiv.org/schemas/atom">
  <entry>
    <id>http://arxiv.org/abs/0000.00001v1</id>
    <title>Finding lymphoid follicles in
      bladder slides</title>
    <summary>A detector of tertiary lymphoid structures.</summary>
    <published>2022-02-24T15:05:19Z</published>
    <author><name>First Author</name></author>
  </entry>
</feed>"""

CROSSREF = {
    "status": "ok",
    "message": {
        "items": [
            {"DOI": DOI, "type": "journal-article", "title": [TITLE],
             "abstract": "<jats:p>Low FABP5.</jats:p>", "container-title": ["Scientific Reports"],
             "author": [{"family": "First", "given": "A."}],
             "published": {"date-parts": [[2024, 7, 4]]}},
            {"DOI": RETRACTED_DOI, "type": "journal-article", "title": [RETRACTED_TITLE],
             "published": {"date-parts": [[2015]]},
             "updated-by": [{"type": "retraction", "updated": {"date-parts": [[2018, 3, 2]]}}]},
            {"DOI": DOI + "/f1", "type": "component"},
        ]
    },
}  # fmt: skip

OPENALEX = {
    "results": [
        {"doi": f"https://doi.org/{DOI}", "is_retracted": False},
        {"doi": f"https://doi.org/{RETRACTED_DOI}", "is_retracted": True},
    ]
}


def europe_pmc(seen: Seen) -> Answer:
    return as_json(PREPRINTS if "SRC:PPR" in seen.params["query"] else EUROPE_PMC)


def all_answering(services: FakeServices) -> None:
    """Every source answers with its usual body."""
    services.routes |= {
        "/pubmed/esearch.fcgi": as_json(ESEARCH),
        "/pubmed/efetch.fcgi": Answer(MEDLINE.encode()),
        "/epmc/search": europe_pmc,
        "/biorxiv/details": as_json(DETAILS),
        "/s2/paper/search": as_json(SEMANTIC),
        "/arxiv/query": Answer(ATOM.encode()),
        "/crossref/works": as_json(CROSSREF),
        "/openalex/works": as_json(OPENALEX),
    }
