"""Screening: a score with parts, and a reason for each paper that is dropped."""

from __future__ import annotations

from kg.corpus.screen import ScreenOptions, screen
from kg.embedding.embed import HashingEmbedder
from kg.types import Document

ON = Document(
    id="a" * 64, path="on.md", title="Tertiary lymphoid structures and survival in bladder cancer",
    text="Immune infiltration in muscle-invasive bladder cancer on whole-slide images of H&E "
    "histology. Expression of chemokines, stroma and macrophages. Survival, recurrence and "
    "response to immunotherapy in this cohort. " * 4, venue="European Urology", year=2022,
)  # fmt: skip
OFF = Document(
    id="b" * 64, path="off.md", title="Marine heatwaves",
    text="Ocean temperature extremes have consequences for fisheries and kelp forests. " * 12,
)  # fmt: skip
RETRACTED = ON.model_copy(update={"id": "c" * 64, "retracted": True})


def test_off_topic_papers_are_dropped_with_the_reason_and_the_parts() -> None:
    on, off, retracted = screen([ON, OFF, RETRACTED], None, HashingEmbedder())
    assert on.kept
    assert set(on.parts) == {"keywords", "semantic", "venue", "substance"}
    assert not off.kept
    assert "below 0.35" in (off.reason or "")
    assert "no keyword of" in (off.reason or "")
    assert retracted.reason == "retracted"
    assert on.score > off.score


def test_without_a_model_the_semantic_part_is_absent_not_zero() -> None:
    (result,) = screen([ON])
    assert "semantic" not in result.parts
    assert result.kept


def test_the_threshold_decides() -> None:
    assert not screen([ON], ScreenOptions(threshold=1.0))[0].kept
    assert screen([OFF], ScreenOptions(threshold=0.0))[0].kept
