"""Claims dealt anew: what is dealt keeps its values and loses its patients; nothing else moves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.adapters.permuted import Claim, Dealt, opened, summarize
from sage.core.errors import InputError
from tests.end_to_end.harness import sage


def test_one_column_is_dealt_anew_and_the_rest_stays() -> None:
    whole = opened("gbsg2")
    dealt = Dealt(whole.spec, whole.root, cache=whole.cache)
    dealt.dealt, dealt.deal = "clinical:age", 7
    keys = ["clinical:age", "clinical:tumor_size"]
    before, after = (one.table(keys, ["RFS"]) for one in (whole, dealt))
    assert sorted(before["clinical:age"]) == sorted(after["clinical:age"])
    assert (before["clinical:age"] != after["clinical:age"]).mean() > 0.9
    assert before.drop(columns="clinical:age").equals(after.drop(columns="clinical:age"))
    assert after.equals(dealt.table(keys, ["RFS"]))


def test_rates_count_what_was_refused_as_not_supported() -> None:
    claims = [
        Claim(cohort=name, number=at, variable="v", endpoint="e", verdict=verdict, naive=at == 1)
        for name in ("a", "b")
        for at, verdict in enumerate(["supported", "refused", "not_supported", "inconclusive"])
    ]  # type: ignore[misc]
    one, _, every = summarize(claims)
    assert (one.supported, one.claims, one.refused, one.rate) == (1, 4, 1, 0.25)
    assert every.claims == 8 and every.naive == 0.25 and every.lower < 0.25 < every.upper


def test_the_command_goes_on_where_it_was(tmp_path: Path) -> None:
    line = ("bench", "calibration", "gbsg2", "--out", "claims.jsonl", "--json")
    first = sage(*line, "--claims", "1", cwd=tmp_path)
    assert first.code == 0 and first.json[-1]["claims"] == 1, first.err
    kept = (tmp_path / "claims.jsonl").read_text()
    again = sage(*line, "--claims", "1", cwd=tmp_path)
    assert again.json == first.json and (tmp_path / "claims.jsonl").read_text() == kept
    assert json.loads(kept)["verdict"] in ("supported", "not_supported", "inconclusive")


def test_an_unknown_cohort_is_refused() -> None:
    with pytest.raises(InputError):
        opened("no-such-cohort")
