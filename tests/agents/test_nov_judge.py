"""The judge's rule in numbers: a table over what was read."""

from __future__ import annotations

import pytest

from agents.core.base import Resources
from agents.novelty import judge
from agents.novelty.evidence import NEAR, Nearest, Reading, confidence, score_of
from agents.novelty.types import CriticInput, SpeciousFlag, Turn, VerifierPosition
from kg.lexicon.ontology import Ontology
from kg.literature.types import MissingSource, Record
from tests.agents.nov_helpers import PARTS, expanded

MISSING = MissingSource(name="pubmed", reason="down")


def near(overlap: float, ref: str = "R1") -> Nearest:
    return Nearest(ref, Record(title="A paper", year=2020), overlap, PARTS[:2], "It does not.")


def reading(
    *,
    unseen: int = 2,
    closest: float | None = 0.5,
    several: int = 4,
    denials: tuple[Nearest, ...] = (),
    refutations: tuple[Nearest, ...] = (),
) -> Reading:
    """Of four pairs `unseen` were never seen together; four records weigh as much as the prior."""
    return Reading(
        parts=PARTS,
        pairs=tuple((PARTS[0], f"part {at}") for at in range(4)),
        together=tuple(0 if at < unseen else 3 for at in range(4)),
        degree=(1, 1, 1, 1),
        several=several,
        single=0,
        nearest=() if closest is None else (near(closest),),
        denials=denials,
        refutations=refutations,
    )


def judge_position(
    monkeypatch: pytest.MonkeyPatch, found: Reading, **given: object
) -> judge.JudgePosition:
    monkeypatch.setattr(judge, "count_mentions", lambda *_: found)
    asked = CriticInput.model_validate({"expanded": expanded(), "records": (), **given})
    return judge.synthesize(asked, Resources(ontology=Ontology((), ())))


REFUTED = (near(NEAR, "R9"),)


@pytest.mark.parametrize(
    ("found", "novelty"),
    [
        (reading(), 0.5 * 0.5 + 0.5 * 0.5),
        (reading(unseen=4, closest=None), 1.0),
        (reading(unseen=0, closest=1.0), 0.0),
        (reading(denials=(near(NEAR),)), 0.5 * 0.75),
        (reading(denials=(near(NEAR - 1e-9),)), 0.5),
        (reading(refutations=REFUTED), 0.5 * 0.25),
        (reading(refutations=REFUTED, denials=REFUTED), 0.5 * 0.25),
    ],
)
def test_half_unseen_pairs_half_distance_less_what_denies_it(
    found: Reading, novelty: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = 1 + 9 * (0.5 * novelty + 0.5 * 0.55)
    assert judge_position(monkeypatch, found).score == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize(
    ("several", "refuted", "missing", "expected"),
    [(0, False, 0, 0.1), (0, False, 2, 0.081), (4, False, 0, 0.5), (4, False, 2, 0.405),
     (4, False, 5, 0.2952), (12, False, 0, 0.7), (4, True, 0, 0.8), (36, True, 0, 0.82)],
)  # fmt: skip
def test_it_is_as_sure_as_the_literature_seen_and_surer_of_a_refutation(
    several: int, refuted: bool, missing: int, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = reading(several=several, refutations=REFUTED if refuted else ())
    position = judge_position(monkeypatch, found, missing_sources=(MISSING,) * missing)
    assert position.confidence == pytest.approx(expected)
    assert confidence(reading(several=several), (MISSING,) * missing) <= position.confidence


def test_scores_stay_between_one_and_ten() -> None:
    assert score_of(2.0, 1.0, prior=0.5) == 10.0
    assert score_of(-1.0, 1.0, prior=0.5) == 1.0
    assert score_of(0.9, 0.0, prior=0.5) == pytest.approx(5.5)


def flag(*citations: str, turn: int = 1) -> dict[str, object]:
    flag = SpeciousFlag(claim=f"C{turn}", citations=citations)
    position = VerifierPosition(score=2, confidence=0.5, summary="No.", specious=(flag,))
    return {"debate": (Turn(round=turn, critic="verifier", position=position),), "round": 1}


def test_a_flag_is_upheld_by_what_refutes_and_overruled_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = reading(refutations=REFUTED)
    position = judge_position(monkeypatch, found, **flag("R9"))
    assert (position.upheld, position.overruled) == (("C1",), ())
    position = judge_position(monkeypatch, found, **flag("R2"))
    assert (position.upheld, position.overruled) == ((), ("C1",))
    position = judge_position(monkeypatch, found, **flag("R9", turn=0))
    assert (position.upheld, position.overruled) == ((), ())
