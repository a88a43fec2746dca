"""`sage portals fetch` against a local server that answers as the public APIs were recorded."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sage.core.errors import FaultError
from sage.core.http.client import Limit
from sage_portals import service
from sage_portals.fetch import fetch_cohort
from tests.validation.core_help import shared
from validation import cohort as cohorts
from validation.cohort.findings import check_cohort

STUDY = "blca_tcga_pan_can_atlas_2018"
PATIENTS = [f"TCGA-BT-A3{at:02d}" for at in range(60)]
STAR = (
    "# gene-model: GENCODE v36\ngene_id\tgene_name\tgene_type\tunstranded\n"
    "N_unmapped\t\t\t500\nENSG00000164687.11\tFABP5\tprotein_coding\t{a}\n"
    "ENSG00000130706.13\tADRM1\tprotein_coding\t{b}\nENSG1.1\tLNC\tlncRNA\t7\n"
)


class Api:
    """Answers of both services. Shapes follow the recorded responses; see the tests at the end."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.broken: str | None = None
        self.counts = {
            f"file-{at}": STAR.format(a=100 + at, b=300 - at).encode() for at in range(60)
        }

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        self.requests.append(path)
        if self.broken == path:
            return 200, {"data": {"hits": []}}
        route = path.split("?")[0]
        if route == "/gdc/cases":
            return 200, self.page([self.case(at) for at in range(60)], body)
        if route == "/gdc/files":
            return 200, self.page([self.file(at) for at in range(60)], body)
        if route.startswith("/gdc/data/"):
            return 200, self.counts[route.rsplit("/", 1)[1]]
        if route == f"/cb/studies/{STUDY}":
            return 200, {"studyId": STUDY, "sequencedSampleCount": 60}
        if route == f"/cb/studies/{STUDY}/clinical-data":
            return 200, [item for at in range(60) for item in self.clinical(at)]
        if route == "/cb/genes/fetch":
            known = {"FABP5": 2171, "ADRM1": 11047, "CXCL13": 10563}
            return 200, [
                {"entrezGeneId": known[item], "hugoGeneSymbol": item, "type": "protein-coding"}
                for item in body
                if item in known
            ]
        if route.endswith("/molecular-data/fetch"):
            return 200, [
                {"sampleId": f"{patient}-01", "entrezGeneId": gene, "value": 10.0 * at + gene % 7}
                for gene in body["entrezGeneIds"]
                for at, patient in enumerate(PATIENTS)
            ]
        return 404, {"message": "not found"}

    @staticmethod
    def page(hits: list[Any], body: Any) -> Any:
        start = int(body["from"])
        return {
            "data": {
                "hits": hits[start : start + 25],
                "pagination": {"total": len(hits), "from": start, "size": 25},
            },
            "warnings": {},
        }

    @staticmethod
    def case(at: int) -> Any:
        return {
            "id": f"case-{at}",
            "submitter_id": PATIENTS[at],
            "demographic": {"gender": "male" if at % 3 else "female", "vital_status": "Alive"},
            "diagnoses": [
                {"classification_of_tumor": "metastasis", "ajcc_pathologic_stage": "Stage I"},
                {
                    "classification_of_tumor": "primary",
                    "ajcc_pathologic_stage": f"Stage {['II', 'III', 'IV'][at % 3]}",
                    "ajcc_pathologic_n": ["N0", "N1", "NX"][at % 3],
                },
            ],
        }

    def file(self, at: int) -> Any:
        return {
            "file_id": f"file-{at}",
            "file_name": f"{at}.rna_seq.augmented_star_gene_counts.tsv",
            "md5sum": hashlib.md5(self.counts[f"file-{at}"]).hexdigest(),
            "associated_entities": [
                {"entity_submitter_id": f"{PATIENTS[at]}-01A-11R-A220-07", "entity_type": "aliquot"}
            ],
        }

    @staticmethod
    def clinical(at: int) -> list[Any]:
        values = {
            "OS_STATUS": "1:DECEASED" if at % 2 else "0:LIVING",
            "OS_MONTHS": str(5.0 + at),
            "AGE": str(50 + at % 30),
        }
        return [
            {"patientId": PATIENTS[at], "clinicalAttributeId": key, "value": value}
            for key, value in values.items()
        ]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Api, str]]:
    monkeypatch.setattr(service, "LIMIT", Limit(10_000, 1.0))
    state = Api()

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            status, value = state.answer(self.path, json.loads(raw) if raw else None)
            payload = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST = reply

        def log_message(self, *_: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield state, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def get(api: tuple[Api, str], out: Path, **options: Any) -> Path:
    _, base = api
    return fetch_cohort(
        "tcga-blca", out, gdc=f"{base}/gdc", cbioportal=f"{base}/cb", pause=0.01, **options
    )


def test_a_fetched_cohort_can_be_loaded_and_is_sound(api: tuple[Api, str], tmp_path: Path) -> None:
    cohort = cohorts.load(get(api, tmp_path / "blca"))
    dictionary = cohort.dictionary()
    endpoint = dictionary.endpoint("OS")
    assert endpoint is not None
    assert (endpoint.n, endpoint.events) == (60, 30)
    assert set(dictionary.expression) == {"ADRM1", "CXCL13", "FABP5"}
    assert dictionary.has_variable("clinical:stage")
    stage = next(variable for variable in dictionary.variables if variable.key == "clinical:stage")
    assert "1" not in stage.levels
    assert not [item for item in check_cohort(cohort) if item.severity == "error"]


def test_a_repeated_call_asks_only_for_what_is_missing(
    api: tuple[Api, str], tmp_path: Path
) -> None:
    folder = get(api, tmp_path / "blca")
    before = (folder / "fetch.json").read_text()
    (folder / "expression.csv").unlink()
    api[0].requests.clear()
    get(api, folder)
    assert all("/cb/" in request and "clinical-data" not in request for request in api[0].requests)
    assert (folder / "fetch.json").read_text() == before


def test_counts_are_checked_and_become_a_matrix(api: tuple[Api, str], tmp_path: Path) -> None:
    cohort = cohorts.load(get(api, tmp_path / "blca", counts=True))
    assert cohort.expression is not None
    assert cohort.expression.genes == ["ADRM1", "FABP5"]
    assert len(cohort.expression.patients) == 60


def test_a_damaged_file_is_refused_and_what_came_before_is_kept(
    api: tuple[Api, str], tmp_path: Path
) -> None:
    folder = get(api, tmp_path / "blca")
    api[0].counts["file-40"] = b"cut short"
    with pytest.raises(FaultError, match="was damaged"):
        get(api, folder, counts=True)
    assert not (folder / "counts.csv.gz").exists()
    assert len(list((folder / "star_counts").glob("*.tsv"))) >= 1


def test_a_changed_answer_names_the_field(api: tuple[Api, str], tmp_path: Path) -> None:
    api[0].broken = "/gdc/cases"
    with pytest.raises(
        FaultError, match='GDC has changed: the field "pagination" is missing from its response'
    ):
        get(api, tmp_path / "blca")
    assert not list((tmp_path / "blca").glob("*.csv"))


@pytest.mark.shared
def test_recorded_gdc_cases_are_read_by_the_same_code() -> None:
    from sage_portals.fetch import _case

    text = (shared("api_fixtures") / "gdc_docs" / "Search_and_Retrieval.md").read_text()
    blocks = re.findall(r"```\w*[^\n]*\n(\{.*?\n\})\n```", text, flags=re.S)
    cases = []
    for block in blocks:
        try:
            data = json.loads(block)["data"]
        except (json.JSONDecodeError, KeyError):
            continue
        for hit in data.get("hits", [data]):
            if str(hit.get("submitter_id", "")).startswith("TCGA-"):
                cases.append(hit)
    assert cases
    rows = [_case(case, "GDC") for case in cases]
    assert all(row[0].startswith("TCGA-") and len(row) == 12 for row in rows)
