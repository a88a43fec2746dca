"""Calibration: permuted values keep their distribution and lose their patients."""

from __future__ import annotations

from benchmarks.adapters.calibration import Claim, Permuted, open_cohort, summarize


def test_one_column_is_permuted_and_the_rest_stays() -> None:
    whole = open_cohort("gbsg2")
    permuted = Permuted(whole.spec, whole.root, cache=whole.cache)
    permuted.permuted, permuted.permutation = "clinical:age", 7
    keys = ["clinical:age", "clinical:tumor_size"]
    before, after = (cohort.table(keys, ["RFS"]) for cohort in (whole, permuted))
    assert sorted(before["clinical:age"]) == sorted(after["clinical:age"])
    assert (before["clinical:age"] != after["clinical:age"]).mean() > 0.9
    assert before.drop(columns="clinical:age").equals(after.drop(columns="clinical:age"))


def test_a_refused_claim_counts_as_not_supported() -> None:
    claims = [
        Claim(cohort=name, number=at, variable="v", endpoint="e", verdict=verdict, naive=at == 1)
        for name in ("a", "b")
        for at, verdict in enumerate(["supported", "refused", "not_supported", "inconclusive"])
    ]  # type: ignore[misc]
    report = summarize(claims)
    first, _, every = report.data["rates"]
    assert (first["hits"], first["runs"], every["runs"]) == (1, 4, 8)
    assert report.data["naive"] == 0.25 and report.rows[0].sage.startswith("25.0%")
