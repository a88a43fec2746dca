"""The board's tools, each once for real: a small model, a stained image, a service that speaks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sage.core.errors import InputError
from sage.settings import Settings
from sage_tumor_board.board import BINS, Board, Desk, Named, Options, Query
from sage_tumor_board.case import BoardQuestion, Case, CaseFile, Stage
from sage_tumor_board.desk import RETRIEVED, make_desk
from tests.clip import write_clip
from tests.core.http_server import Answer, as_json, serving
from tests.mcp_servers.slide_tools import blobs

PLACE = os.environ.get("SAGE_SHARED", Path(__file__).parents[3].parent / "shared")
STAINED = Path(PLACE) / "data" / "histology" / "ihc_skimage" / "ihc.png"


def board(desk: Desk, path: Path | None = None, name: str = "PrimaryTumor_HE_1.png") -> Board:
    """A question about one image."""
    question = BoardQuestion(number=1, stage=0, text="What is it?", options={"A": "a"})
    case = Case(id="1", stages=(Stage(context="", listed=(name,)),),
                files=(CaseFile(name=name, path=path),), questions=(question,))  # fmt: skip
    return Board(case, 1, desk)


def test_an_image_resembles_one_of_the_options_with_a_bin_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_clip(tmp_path / "clip")
    (tmp_path / "patient").mkdir()
    monkeypatch.chdir(tmp_path)  # paths are given as a user does, from where they are
    image = Path("patient") / "he.png"
    Image.fromarray(blobs(700, 700)).save(image)
    with pytest.raises(InputError, match="--weights other: folder not found"):
        make_desk(Settings(), drugs={}, weights=Path("other"))
    desk = make_desk(Settings(), drugs={}, weights=Path("clip"), mpp=0.5)
    asked = board(desk, image)
    assert "he_zero_shot" in [tool.name for tool in asked.tools()]
    found = asked.he_zero_shot(Options(name="PrimaryTumor_HE_1.png", options=("tumor", "stroma")))
    assert set(found) == {"resembles", "confidence"}
    assert found["resembles"] in ("tumor", "stroma")
    assert found["confidence"] in BINS


def test_tools_that_are_not_there_say_what_they_need(tmp_path: Path) -> None:
    image = tmp_path / "he.png"
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(image)
    asked = board(make_desk(Settings(), drugs={}), image)
    assert [tool.name for tool in asked.tools()] == ["request_files", "ihc_percent_positive"]
    with pytest.raises(InputError, match="--weights FOLDER"):
        asked.he_zero_shot(Options(name="PrimaryTumor_HE_1.png", options=("a", "b")))
    with pytest.raises(InputError, match="--pubmed"):
        asked.pubmed(Query(query="any"))
    with pytest.raises(InputError, match="--drugs"):
        asked.drug_description(Named(name="aspirin"))
    said = asked.ihc_percent_positive(Named(name="PrimaryTumor_HE_1.png"))
    assert said.percent_positive is None
    assert "without color" in said.by


@pytest.mark.shared
@pytest.mark.skipif(not STAINED.is_file(), reason="the shared images are not here")
def test_a_stained_image_is_measured() -> None:
    asked = board(make_desk(Settings(), drugs={}, mpp=0.5), STAINED, "TMA_IHC_x.png")
    said = asked.ihc_percent_positive(Named(name="TMA_IHC_x.png"))
    assert said.by == "measured"
    assert 10 < (said.percent_positive or 0) < 100


def medline(pmids: list[str]) -> bytes:
    """Records of which the twentieth alone is about the query."""
    lines = []
    for number, pmid in enumerate(pmids, 1):
        about = "larynx salvage surgery" if number == 20 else f"soil bacteria {number}"
        lines += [f"PMID- {pmid}", "DP  - 2020", f"TI  - On {about}.", f"AB  - We saw {about}.", ""]
    return "\n".join(lines).encode()


def test_thirty_abstracts_are_ranked_again_and_three_are_kept(tmp_path: Path) -> None:
    pmids = [str(90_000_000 + n) for n in range(RETRIEVED)]
    with serving() as services:
        found: dict[str, Any] = {"esearchresult": {"count": "30", "idlist": pmids}}
        services.routes["/esearch.fcgi"] = as_json(found)
        services.routes["/efetch.fcgi"] = Answer(medline(pmids))
        settings = Settings.model_validate({
            "contact_email": "a@example.org", "cache_dir": tmp_path,
            "services": {"pubmed_url": services.url},
        })  # fmt: skip
        papers = board(make_desk(settings, drugs={}, pubmed=True)).pubmed(
            Query(query="salvage surgery of the larynx")
        )
        asked = services.to("/esearch.fcgi")[0].params
        board(make_desk(settings, drugs={}, pubmed=True)).pubmed(Query(query="larynx OR tongue"))
        either = services.to("/esearch.fcgi")[1].params["term"]
    assert asked["retmax"] == str(RETRIEVED)
    assert either == "(larynx[tiab]) OR (tongue[tiab])"
    assert len(papers) == 3
    assert papers[0].pmid == pmids[19]
    assert "larynx" in json.dumps([paper.model_dump() for paper in papers])
