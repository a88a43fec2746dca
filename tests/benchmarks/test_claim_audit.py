"""Statements are drawn the same again; readings are scored as public libraries would."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.adapters.claim_audit import (
    SHARES,
    Kind,
    Reading,
    Statement,
    draw,
    kappa,
    load_readings,
    score,
)
from sage.core.errors import InputError
from sage.core.seeds import generator

VERDICTS = ("supported", "refuted", "not_checkable")


def statement(report: str, line: int, kind: Kind, text: str = "") -> Statement:
    return Statement(
        run=report, reasoner="rules", report=f"/r/{report}/report.md", hypothesis="h1",
        section="Reasons", line=line, kind=kind,
        statement=text or f"{report} {kind} {line}", files=(),
    )  # fmt: skip


POOL = [
    statement(report, line, kind)
    for report, count in (("small", 6), ("middle", 20), ("large", 200))
    for kind in SHARES
    for line in range(count)
]


def readings(sample: list[Statement], seed: int) -> dict[str, Reading]:
    """Readings that are mostly but not always in favor."""
    drawn = generator(seed).choice(3, size=len(sample), p=[0.8, 0.15, 0.05])
    return {
        item.id: Reading(id=item.id, verdict=VERDICTS[at], reason="looked")
        for item, at in zip(sample, drawn, strict=True)
    }


def test_the_same_seed_draws_the_same_whatever_the_order_of_the_runs() -> None:
    sample = draw(POOL, 100)
    assert draw(POOL[::-1], 100) == sample
    assert draw(POOL, 100, seed=1) != sample
    assert [item.id for item in sample] == [f"s{number:03d}" for number in range(1, 101)]
    assert Counter(item.kind for item in sample) == {
        "data": 40, "literature": 30, "interpretive": 30,
    }  # fmt: skip


def test_words_that_every_report_has_are_drawn_once_and_too_few_are_said() -> None:
    same = [statement(report, 1, "interpretive", "One cohort only.") for report in "abc"]
    others = [statement("a", line, kind) for kind in ("data", "literature") for line in range(9)]
    with pytest.raises(InputError, match="interpretive"):
        draw(same + others, 10)
    more = [statement("a", line, "interpretive") for line in range(2, 4)]
    words = [item.statement for item in draw(same + others + more, 10)]
    assert words.count("One cohort only.") == 1


def test_share_and_kappa_agree_with_public_libraries() -> None:
    from sklearn.metrics import cohen_kappa_score
    from statsmodels.stats.proportion import proportion_confint

    sample = draw(POOL, 100)
    first, second = readings(sample, 1), readings(sample, 2)
    rows = score(sample, first, second).rows
    both = [[given[item.id].verdict for item in sample] for given in (first, second)]
    assert kappa(*both) == pytest.approx(cohen_kappa_score(*both))
    assert f"kappa {cohen_kappa_score(*both):.2f}" in rows[0].notes[0]
    agreed = sum(a == b == "supported" for a, b in zip(*both, strict=True))
    low, high = proportion_confint(agreed, 100, method="wilson")
    assert rows[0].sage == f"{agreed}.0% ({low:.1%} to {high:.1%})"
    assert [row.measured[:3].strip() for row in rows] == ["100", "40", "30", "30"]
    assert kappa(["supported"] * 3, ["supported"] * 3) is None


def test_a_third_reader_decides_and_what_is_open_does_not_count() -> None:
    sample = draw(POOL, 10)
    yes = {item.id: Reading(id=item.id, verdict="supported", reason="same") for item in sample}
    no = yes | {
        name: Reading(id=name, verdict="refuted", reason="another number")
        for name in ("s001", "s002")
    }
    assert Counter(score(sample, yes, no).data.values()) == {"supported": 8, "open": 2}
    scored = score(sample, yes, no, {"s001": no["s001"]})
    assert Counter(scored.data.values()) == {"supported": 8, "refuted": 1, "open": 1}
    assert scored.rows[0].sage.startswith("80.0%")
    with pytest.raises(InputError, match="s003"):
        score(sample, yes, no, {"s003": yes["s003"]})
    with pytest.raises(InputError, match="s010"):
        score(sample, {name: item for name, item in yes.items() if name != "s010"}, no)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ('{"id": "s001", "verdict": "true", "reason": "x"}\n', "line 1"),
        ('{"id": "s001", "verdict": "supported", "reason": ""}\n', "line 1"),
        ('{"id": "s999", "verdict": "supported", "reason": "x"}\n', 'line 1: "s999"'),
        ('{"id": "s001", "verdict": "supported", "reason": "x"}\n' * 2, 'line 2: "s001"'),
    ],
)
def test_a_reading_that_is_wrong_is_refused_with_its_line(
    rows: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "first.jsonl"
    path.write_text(rows)
    with pytest.raises(InputError, match=message):
        load_readings(path, draw(POOL, 10))
