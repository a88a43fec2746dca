"""Twins: their programs may run, their truths are reached in the sandbox, wrong answers are not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from benchmarks.adapters.slidequest import CATEGORIES, capability_of
from benchmarks.adapters.slidequest_twins import field, images, zero_shot
from benchmarks.adapters.slidequest_twins.programs import TWINS, WRITE
from benchmarks.adapters.slidequest_twins.scoring import Solved, cover, needs_of, solve
from benchmarks.adapters.slidequest_twins.twin import Row, Twin
from mcp_servers.registry import load
from sage.core.errors import InputError
from sage.core.llm.trace import Trace
from sage.core.seeds import generator
from sage_nova.code_acting.agent import ask
from sage_nova.code_acting.session import IMPORTS, Session
from sandbox import policy
from tests.end_to_end.harness import sage
from tests.sandbox.boxes import working


def test_programs_may_run_and_capabilities_stand_once() -> None:
    names = [twin.capability for twin in TWINS]
    assert len(set(names)) == len(names) >= 30
    for twin in TWINS:
        assert policy.check(WRITE + twin.program, IMPORTS) == [], twin.capability


def runner() -> Callable[[Path, Path, str], tuple[float, str]]:
    """Runs a program in the sandbox, as `sage bench slidequest --twins` does."""
    tools, box = load("nova"), working("bubblewrap")

    def run(data: Path, place: Path, program: str) -> tuple[float, str]:
        acted = ask(Session({"data": data}, tools, box, place), "twin", [program], trace=Trace())
        return acted.seconds, acted.steps[0].observation.error

    return run


def test_an_unknown_capability_is_answered_with_those_there_are(tmp_path: Path) -> None:
    ended = sage("bench", "slidequest", ".", "--twins", "--only", "mind reading", cwd=tmp_path)
    assert ended.code == 2 and "morphometry, multiple-instance learning" in ended.err


def test_a_folder_that_is_no_slidequest_is_refused_before_any_program(tmp_path: Path) -> None:
    ended = sage("bench", "slidequest", "absent", "--twins", cwd=tmp_path)
    assert ended.code == 2 and "notes.csv: not SlideQuest's notes" in ended.err
    assert "1.00" not in ended.out  # no twin was solved


def twin_of(capability: str) -> Twin:
    (twin,) = (one for one in TWINS if one.capability == capability)
    return twin


@pytest.mark.bubblewrap
def test_a_program_reaches_the_truth_and_a_wrong_answer_does_not(tmp_path: Path) -> None:
    run, twin = runner(), twin_of("WSI reading")
    right = solve(twin, 0, tmp_path / "right", run)
    assert right.score == 1 and right.problem == ""
    lie = Twin(twin.capability, twin.make, "answer(red=1, green=2, blue=3)\n")
    wrong = solve(lie, 0, tmp_path / "wrong", run)
    assert wrong.score == 0 and "planted" in wrong.problem
    broken = Twin(twin.capability, twin.make, "1 / 0\n")
    assert "ZeroDivisionError" in solve(broken, 0, tmp_path / "broken", run).problem


@pytest.mark.bubblewrap
@pytest.mark.slow
@pytest.mark.parametrize(
    ("capability", "make"),
    [
        ("zero-shot multi-patch interpretation", zero_shot.patients_to_name),
        ("zero-shot WSI interpretation", zero_shot.slides_to_name),
        ("nuclei cell type classification", images.nuclear_types),
    ],
)
def test_tissue_and_nuclei_are_named_with_trained_weights_and_not_with_others(
    tmp_path: Path, capability: str, make: Callable[..., Row]
) -> None:
    twin, run = twin_of(capability), runner()
    untrained = Twin(capability, partial(make, steps=0), twin.program)
    guessed = solve(untrained, 0, tmp_path / "untrained", run)
    assert guessed.score < 1 and "planted" in guessed.problem
    assert solve(twin, 0, tmp_path / "trained", run).score == 1


def test_the_field_shows_the_nuclei_that_it_counts() -> None:
    made = field.paint(400, generator(5))
    image, counts = made.image, made.counts
    dark_um2 = (image.mean(axis=2) < 80).sum() * field.MPP**2
    each = 3.14 / 4 * 7.6 * 7.2  # only lymphocytes are so dark
    assert counts["inflammatory"] > 20 and min(counts.values()) > 10
    assert dark_um2 == pytest.approx(counts["inflammatory"] * each, rel=0.15)


def test_a_question_counts_only_with_all_it_needs(tmp_path: Path) -> None:
    for category in CATEGORIES:
        (tmp_path / category).mkdir()
        (tmp_path / category / "notes.csv").write_text(
            '\ufeff"short_question","capabilities"\n"a","one, two (neoplastic)"\n"b","one"\n',
            encoding="utf-8",
        )
    solved = [
        Solved(capability="one", variant=0, score=1),
        Solved(capability="two", variant=0, score=1),
        Solved(capability="two", variant=1, score=0.5),
    ]
    row = cover(needs_of(tmp_path, {"one", "two"}), solved)[0]
    assert (row.questions, row.covered, row.missing) == (2, 1, {"two": 1})
    assert row.without_weights == 1
    with pytest.raises(InputError, match="no twin for 'two'"):
        needs_of(tmp_path, {"one"})
    assert capability_of("nuclei types (immune/neoplastic)") == "nuclei types"
