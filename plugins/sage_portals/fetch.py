"""Fetching TCGA cohorts from the public APIs of GDC and cBioPortal.

GDC provides clinical rows by case and, on request, STAR counts by file; cBioPortal
provides outcomes from the TCGA Pan-Cancer Clinical Data Resource and expression for
chosen genes. Docs: docs.gdc.cancer.gov/API and cbioportal.org/api. Each fetched file is
recorded in `fetch.json` with its source and hash; a repeated call keeps complete files.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sage.core import egress
from sage.core.errors import FaultError, InputError
from sage.core.files import write_bytes, write_text
from sage.core.hashes import hash_file
from sage.core.http.client import BlockingClient
from sage_portals.description import description_of
from sage_portals.service import Service, field_of, policy
from validation.cohort.derive import signatures

GDC, CBIOPORTAL = egress.SERVICES["gdc"], egress.SERVICES["cbioportal"]
STUDIES = {"tcga-blca": ("TCGA-BLCA", "blca_tcga_pan_can_atlas_2018")}
PAPER_GENES = ("FABP5", "ADRM1", "CXCL13", "FN1", "COL1A1", "COL3A1")
PAGE = 200
CASE_FIELDS = (
    "submitter_id",
    "demographic.gender",
    "demographic.race",
    "demographic.vital_status",
    "demographic.days_to_death",
    "diagnoses.age_at_diagnosis",
    "diagnoses.ajcc_pathologic_stage",
    "diagnoses.ajcc_pathologic_n",
    "diagnoses.ajcc_pathologic_t",
    "diagnoses.tumor_grade",
    "diagnoses.days_to_last_follow_up",
    "diagnoses.classification_of_tumor",
)
FILE_FIELDS = (
    "file_id,file_name,md5sum,file_size,data_type,analysis.workflow_type,"
    "associated_entities.entity_submitter_id,associated_entities.entity_type"
)
Progress = Callable[[str, int, int], None]


def _quiet(stage: str, done: int, total: int) -> None:
    return None


def fetch_cohort(
    name: str,
    out: Path,
    *,
    genes: Sequence[str] = (),
    counts: bool = False,
    gdc: str = GDC,
    cbioportal: str = CBIOPORTAL,
    progress: Progress | None = None,
    pause: float = 1.0,
) -> Path:
    """Fetch a cohort into a folder that `load` can read.

    Parameters
    ----------
    name : "tcga-blca"
    pause : seconds before the first retry of a request; doubles each time

    Raises
    ------
    InputError
        For an unknown cohort or gene.
    FaultError
        If a service cannot be reached or its response has an unexpected form.
    """
    if name not in STUDIES:
        raise InputError(f'unknown study "{name}"; available studies: {", ".join(STUDIES)}')
    project, study = STUDIES[name]
    say = progress or _quiet
    out.mkdir(parents=True, exist_ok=True)
    with BlockingClient(None, policy(pause)) as client:
        portal = Service("cBioPortal", cbioportal, client)
        commons = Service("GDC", gdc, client)
        say("GDC cases", 0, 0)
        _keep(out / "gdc_clinical.csv", lambda: _cases(commons, project, say))
        say("GDC files", 0, 0)
        _keep(out / "gdc_files.csv", lambda: _files(commons, project, say))
        say("cBioPortal clinical", 0, 0)
        _keep(out / "cbioportal_patients.csv", lambda: _clinical(portal, study, say))
        if counts:
            _counts(commons, out, say)
        else:
            of_signatures = [gene for item in signatures().values() for gene in item.genes]
            wanted = sorted({*genes, *PAPER_GENES, *of_signatures})
            _keep(
                out / "expression.csv",
                lambda: _expression(portal, study, wanted, tuple(genes), say),
            )
    write_text(out / "cohort.toml", description_of(name, project, study, out, counts))
    record = {
        "cohort": name,
        "gdc": gdc,
        "cbioportal": cbioportal,
        "project": project,
        "study": study,
        "files": {path.name: hash_file(path) for path in sorted(out.glob("*.csv*"))},
    }
    write_text(out / "fetch.json", json.dumps(record, indent=2, sort_keys=True) + "\n")
    return out


def _keep(path: Path, make: Callable[[], str]) -> None:
    """Make a file unless it exists; it gets its final name only when it is complete."""
    if not path.is_file():
        write_text(path, make())


def _csv(columns: Sequence[str], rows: Iterator[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return buffer.getvalue()


def _pages(service: Service, path: str, body: dict[str, Any], say: Progress) -> list[Any]:
    """Return all hits from a GDC search."""
    hits: list[Any] = []
    while True:
        answer = service.json("POST", path, body={**body, "size": PAGE, "from": len(hits)})
        data = field_of(answer, "data", service.name)
        found = field_of(data, "hits", service.name)
        total = int(field_of(field_of(data, "pagination", service.name), "total", service.name))
        hits += found
        say(f"{service.name} {path}", len(hits), total)
        if len(hits) >= total:
            return hits
        if not found:
            raise FaultError(f"{service.name}: {path} returned {len(hits)} of {total} hits")


def _project_filter(project: str, field: str) -> dict[str, Any]:
    return {"op": "in", "content": {"field": field, "value": [project]}}


def _cases(service: Service, project: str, say: Progress) -> str:
    body = {
        "filters": _project_filter(project, "project.project_id"),
        "fields": ",".join(CASE_FIELDS),
        "format": "JSON",
    }
    hits = _pages(service, "cases", body, say)
    if not hits:
        raise FaultError(f"GDC has no cases for project {project}")
    columns = [field.rsplit(".", 1)[-1] for field in CASE_FIELDS]
    return _csv(columns, (_case(hit, service.name) for hit in hits))


def _case(hit: Any, service: str) -> list[Any]:
    """Build a case's row from the primary diagnosis, or from the first if none is marked."""
    diagnoses = hit.get("diagnoses") or [{}]
    primary = next(
        (
            diagnosis
            for diagnosis in diagnoses
            if diagnosis.get("classification_of_tumor") == "primary"
        ),
        diagnoses[0],
    )
    groups = {"demographic": hit.get("demographic") or {}, "diagnoses": primary}
    row = [field_of(hit, "submitter_id", service)]
    for field in CASE_FIELDS[1:]:
        group, name = field.split(".")
        value = groups[group].get(name)
        row.append("" if value is None else value)
    return row


def _files(service: Service, project: str, say: Progress) -> str:
    wanted = [
        ("cases.project.project_id", project),
        ("data_type", "Gene Expression Quantification"),
        ("analysis.workflow_type", "STAR - Counts"),
        ("access", "open"),
    ]
    body = {
        "filters": {
            "op": "and",
            "content": [_project_filter(value, field) for field, value in wanted],
        },
        "fields": FILE_FIELDS,
        "format": "JSON",
    }
    rows = []
    for hit in _pages(service, "files", body, say):
        entities = field_of(hit, "associated_entities", service.name)
        aliquot = next(
            (entity for entity in entities if entity.get("entity_type") == "aliquot"), None
        )
        if aliquot is None:
            continue
        barcode = field_of(aliquot, "entity_submitter_id", service.name)
        parts = [field_of(hit, name, service.name) for name in ("file_id", "file_name", "md5sum")]
        rows.append([barcode[:16], barcode, *parts])
    rows.sort()
    return _csv(["sample", "aliquot", "file_id", "file_name", "md5sum"], iter(rows))


def _clinical(service: Service, study: str, say: Progress) -> str:
    """Convert cBioPortal's long clinical table to a row per patient."""
    service.json("GET", f"studies/{study}")
    rows: dict[str, dict[str, str]] = {}
    columns: set[str] = set()
    page = 0
    while True:
        found = service.json(
            "GET",
            f"studies/{study}/clinical-data",
            params={
                "clinicalDataType": "PATIENT",
                "projection": "SUMMARY",
                "pageSize": 10_000,
                "pageNumber": page,
            },
        )
        for item in found:
            patient = field_of(item, "patientId", service.name)
            attribute = field_of(item, "clinicalAttributeId", service.name)
            rows.setdefault(patient, {})[attribute] = str(field_of(item, "value", service.name))
            columns.add(attribute)
        say("cBioPortal clinical", len(rows), 0)
        if len(found) < 10_000:
            break
        page += 1
    if not rows:
        raise FaultError(f"cBioPortal has no clinical data for study {study}")
    order = sorted(columns)
    return _csv(
        ["PATIENT_ID", *order],
        ([patient, *(rows[patient].get(name, "") for name in order)] for patient in sorted(rows)),
    )


def _expression(
    service: Service, study: str, wanted: Sequence[str], asked: Sequence[str], say: Progress
) -> str:
    """Fetch RSEM values for chosen genes, with a row per sample."""
    found = service.json(
        "POST",
        "genes/fetch",
        params={"geneIdType": "HUGO_GENE_SYMBOL", "projection": "SUMMARY"},
        body=list(wanted),
    )
    symbols = {
        int(field_of(item, "entrezGeneId", service.name)): field_of(
            item, "hugoGeneSymbol", service.name
        )
        for item in found
    }
    unknown = sorted(set(asked) - set(symbols.values()))
    if unknown:
        raise InputError(f"cBioPortal has no gene {', '.join(unknown)}; use HGNC symbols")
    profile = f"{study}_rna_seq_v2_mrna"
    values: dict[str, dict[str, str]] = {}
    identifiers = sorted(symbols)
    for start in range(0, len(identifiers), 20):
        part = identifiers[start : start + 20]
        answer = service.json(
            "POST",
            f"molecular-profiles/{profile}/molecular-data/fetch",
            params={"projection": "SUMMARY"},
            body={"entrezGeneIds": part, "sampleListId": profile},
        )
        for entry in answer:
            sample = field_of(entry, "sampleId", service.name)
            gene = symbols[int(field_of(entry, "entrezGeneId", service.name))]
            values.setdefault(sample, {})[gene] = str(field_of(entry, "value", service.name))
        say("cBioPortal expression", start + len(part), len(identifiers))
    genes = sorted({gene for row in values.values() for gene in row})
    if not genes:
        raise FaultError(f"cBioPortal returned no expression for {profile}")
    rows = (
        [sample, *(values[sample].get(gene, "") for gene in genes)] for sample in sorted(values)
    )
    return _csv(["SAMPLE_ID", *genes], rows)


def _counts(service: Service, out: Path, say: Progress) -> None:
    """Fetch STAR counts for every listed file, verify GDC's MD5, and build a matrix."""
    target = out / "counts.csv.gz"
    if target.is_file():
        return
    with (out / "gdc_files.csv").open(encoding="utf-8", newline="") as handle:
        listed = list(csv.DictReader(handle))
    folder = out / "star_counts"
    genes: list[tuple[str, str]] = []
    columns = []
    for done, item in enumerate(listed):
        path = folder / f"{item['file_id']}.tsv"
        if not path.is_file():
            body = service.call("GET", f"data/{item['file_id']}", bytes)
            if hashlib.md5(body, usedforsecurity=False).hexdigest() != item["md5sum"]:
                raise FaultError(
                    f"GDC file {item['file_id']} was damaged in transfer; run the command again"
                )
            write_bytes(path, body)
        names, column = _star(path)
        if genes and names != genes:
            raise FaultError(f"{path}: the genes differ from those in earlier files")
        genes = names
        columns.append(column)
        say("GDC counts", done + 1, len(listed))
    matrix = np.asarray(columns, dtype=np.int64).T
    text = _csv(
        ["ensembl_id", "symbol", *(row["aliquot"] for row in listed)],
        ([*gene, *row.tolist()] for gene, row in zip(genes, matrix, strict=True)),
    )
    write_bytes(target, gzip.compress(text.encode(), mtime=0))


def _star(path: Path) -> tuple[list[tuple[str, str]], list[int]]:
    """Read protein-coding genes and their unstranded counts from a STAR file."""
    names, column = [], []
    with path.open(encoding="utf-8", newline="") as handle:
        rows = csv.reader((line for line in handle if not line.startswith("#")), delimiter="\t")
        header = next(rows)
        at = {name: place for place, name in enumerate(header)}
        missing = {"gene_id", "gene_name", "gene_type", "unstranded"} - set(at)
        if missing:
            raise FaultError(
                f"{path}: column {', '.join(sorted(missing))} not found; the file format has "
                "changed"
            )
        for row in rows:
            if row[at["gene_type"]] == "protein_coding":
                names.append((row[at["gene_id"]].split(".")[0], row[at["gene_name"]]))
                column.append(int(row[at["unstranded"]]))
    return names, column
