"""A folder that holds what the examples name: papers, graph, cohorts, slides, all made here."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from sage_literature.tests.catalogs import running
from tests.docs.examples import PAGES, ROOT, blocks
from tests.docs.shell import run
from tests.draws import draw_few
from tests.end_to_end.conftest import finished
from tests.end_to_end.harness import build_once, cache_dir

__all__ = ["finished"]

PUBTATOR = """\
1|t|A.
1|a|FABP5 promotes bladder cancer.
1\t3\t8\tFABP5\tGeneOrGeneProduct\t2171
1\t18\t32\tbladder cancer\tDiseaseOrPhenotypicFeature\tD001749
1\tPositive_Correlation\t2171\tD001749\tNovel

"""
OBO = "format-version: 1.2\n\n[Term]\nid: DOID:1\nname: zebra pox\n"
GENES = "#tax_id\tGeneID\tSymbol\tSynonyms\tdescription\n9606\t2171\tFABP5\tE-FABP\tfatty acid\n"
BIB = (
    "@article{one, title={Tertiary lymphoid structures and survival of bladder cancer}, year=2017,"
    " journal={Cancer Research}, abstract={High CXCL13 expression is associated with longer"
    " survival in bladder cancer histology.}}\n"
)
TEXT = "FABP5 promotes bladder cancer. CXCL13 promotes tertiary lymphoid structures.\n"
MORE_OF_TCGA = """
[endpoints.pN_positive]
kind = "binary"
table = "clinical"
column = "nodes"
positive_values = ["N+"]
negative_values = ["N0"]
missing_values = ["NX"]

[variables.leukocyte_fraction]
table = "imaging"
column = "stroma_fraction"
kind = "continuous"
modality = "immune"

[variables.tls_density_all_slides]
table = "imaging"
column = "tls_density"
kind = "continuous"
modality = "imaging"
"""


@pytest.fixture(scope="package", autouse=True)
def own_settings() -> Iterator[None]:
    """No configuration of the user's, one cache for all examples, a model without weights."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [key for key in os.environ if key.startswith(("SAGE_", "OPENAI_"))]:
            if name not in ("SAGE_SHARED", "SAGE_LEDGER"):
                patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", str(cache_dir() / "config"))
        patch.setenv("SAGE_CACHE_DIR", str(cache_dir()))
        patch.setenv("SAGE_EMBEDDING_MODEL", "hashing")
        patch.setenv("COLUMNS", "200")
        patch.setenv("FEW_DRAWS", "1")
        draw_few(patch)
        yield


@pytest.fixture(scope="package", autouse=True)
def services(own_settings: None) -> Iterator[None]:
    """The literature services, on this machine."""
    with running() as catalogs, pytest.MonkeyPatch.context() as patch:
        for name, value in catalogs.variables().items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="package")
def workplace() -> Path:
    """The folder in which every example could have been typed; examples get a copy of it."""
    return build_once("workplace", fill)


def fill(place: Path) -> None:
    """Make all that examples name."""
    shutil.copytree(ROOT / "docs" / "hypotheses", place / "docs" / "hypotheses")
    literature(place)
    cohorts(place)
    slides(place)
    maps(place)
    (place / "patients.csv").write_text(
        "patient,age,sex,months,status\n"
        + "".join(
            f"P{n},{50 + n % 30},{'MF'[n % 2]},{n % 40 + 2},{('dead', 'alive')[n % 3 > 0]}\n"
            for n in range(60)
        )
    )
    (place / "diagram.txt").write_text("stage -> CXCL13\nstage -> OS\nCXCL13 -> OS\n")
    (place / "token.txt").write_text("0123456789abcdef0123456789abcdef\n")
    for page in PAGES:
        for block in blocks(page, "python"):
            if named := re.match(r"# ([\w/-]+\.py)\n", block):
                (place / named[1]).parent.mkdir(parents=True, exist_ok=True)
                (place / named[1]).write_text(block)
        for name, body in re.findall(
            r"cat > (\S+) <<'END'\n(.*?)\n +END\n", page.read_text(), re.S
        ):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(f"{textwrap.dedent(body)}\n")
    run("sage validate contract claim.json --cohort gbsg2 --out contract.json", place)


@pytest.fixture
def runs(finished: Path, here: Path) -> Path:
    """A runs folder with one finished run, where the examples are typed."""
    return Path(shutil.copytree(finished, here / "runs" / "run")).parent


@pytest.fixture
def here(workplace: Path, tmp_path: Path) -> Path:
    """A copy of it for one example."""
    return Path(shutil.copytree(workplace, tmp_path / "here"))


def literature(place: Path) -> None:
    """Papers, a graph of them, vocabularies, a corpus with answers."""
    shutil.copytree(ROOT / "data" / "corpus", place / "papers")
    (place / "articles").mkdir()
    (place / "articles" / "one.txt").write_text(TEXT)
    (place / "refs.bib").write_text(BIB)
    (place / "roles.toml").write_text('default = "read"\n')
    (place / "doid.obo").write_text(OBO)
    with gzip.open(place / "Homo_sapiens.gene_info.gz", "wt") as file:
        file.write(GENES)
    (place / "BioRED").mkdir()
    (place / "BioRED" / "Dev.PubTator").write_text(PUBTATOR)
    (place / "trrust.tsv").write_text("FABP5\tCXCL13\tActivation\t11200000\n")
    run("sage kg build papers/ --out graph/", place)


def cohorts(place: Path) -> None:
    """Simulated cohorts under the names of real ones, a frozen contract, results, an old ledger."""
    from validation.simulate import write_world

    for seed, name in enumerate(("tcga-blca", "gse13507"), 1):
        write_world(place / "cohorts" / name, seed=seed, patients=160)
        with (place / "cohorts" / name / "cohort.toml").open("a") as file:
            file.write(MORE_OF_TCGA)
    for line in (
        "sage validate contract docs/hypotheses/e5_fabp5_tls.json --cohort cohorts/tcga-blca"
        " --out e5.json",
        "sage validate ledger export colleague.jsonl",
    ):
        run(line, place)
    (place / "sage-validation").mkdir()


def slides(place: Path) -> None:
    """Two painted slides of two patients, one of them alone as well, labelled tiles, a picture."""
    import numpy as np
    from PIL import Image

    from validation.simulate import render_slide

    (place / "slides").mkdir()
    for number in (1, 2):
        render_slide(place / "slides" / f"P{number}.s1.tif", seed=number, size_px=1024)
    shutil.copy(place / "slides" / "P1.s1.tif", place / "slide.svs")
    sessions(place)
    (place / "tiles").mkdir()
    for number in range(5):
        labels = np.zeros((96, 96), np.uint16)
        labels[20:34, 10 + 8 * number : 24 + 8 * number] = 1
        labels[60:72, 30:44] = 2
        picture = np.where(labels[..., None] > 0, (85, 60, 135), (225, 165, 200)).astype(np.uint8)
        Image.fromarray(picture).save(place / "tiles" / f"t{number}.png")
        Image.fromarray(labels).save(place / "tiles" / f"t{number}_labels.png")
    (place / "pictures").mkdir()
    Image.new("RGB", (32, 32), (200, 10, 10)).save(place / "picture.png")


def sessions(place: Path) -> None:
    """A recorded session on the slide, the same from another viewer, and reviewed drafts of it."""
    box = {"width": 0.2, "height": 0.15}
    views = [
        {"timestamp": 1500 * n, "bounds": {"x": 0.2 * n, "y": 0.1 * n, **box}} for n in range(4)
    ]
    (place / "log.json").write_text(json.dumps(views))
    for name in ("reading", "drafted"):
        run(f"sage reading import log.json --slide slide.svs --reader r1"
            f" --out {name}.session.jsonl", place)  # fmt: skip
    run("sage reading draft drafted.session.jsonl --slide slide.svs --eyes none", place)
    run("sage reading review drafted.drafts.json --accept 1 --reviewer ana", place)


def maps(place: Path) -> None:
    """Maps of 24 patients of a small cohort, measurements, and what other programs wrote."""
    from sage_slide_reading.tests.test_slide_maps import reading
    from tests.mcp_servers.measures.test_over_cohort import simulated, write_all
    from tests.mcp_servers.test_mcp_oncology import small_cohort

    patients = [f"P{number}" for number in range(1, 25)]
    write_all(place / "maps", [simulated(who, who, n, 80 + n) for n, who in enumerate(patients)])
    small_cohort(
        place / "my-cohort",
        [(who, "ab"[n % 2], 200 + 30 * n, int(n % 3 > 0)) for n, who in enumerate(patients)],
    )
    (place / "measurements.txt").write_text(
        "# one formula a line\n"
        "pooled(density(cells.lymphoid))\n"
        "mean(nearest(cells.lymphoid, cells.other, median))\n"
    )
    ring = [[0, 0], [40, 0], [40, 40], [0, 40], [0, 0]]
    cell = {"centroid": [20, 20], "contour": ring, "type": 1, "type_prob": 0.9}
    (place / "cells.json").write_text(
        json.dumps({"cells": [cell], "type_map": {"1": "Neoplastic"}})
    )
    found = {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [ring]},
        "properties": {"objectType": "annotation", "classification": {"name": "TLS"}},
    }
    (place / "slide.geojson").write_text(
        json.dumps({"type": "FeatureCollection", "features": [found]})
    )
    (place / "reading").mkdir()
    seen = reading("other", [(0, 0)], mitoses=2)
    (place / "reading" / "reading.json").write_text(seen.model_dump_json())
    (place / "cells.csv").write_text("x,y,kind\n1,2,CD8+\n30,4,CD4+\n5,60,other\n")
    (place / "columns.toml").write_text('x = "x"\ny = "y"\nunit = "um"\ntype = "kind"\n')
