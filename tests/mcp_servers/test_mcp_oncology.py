"""Oncology tools: the textbook's figures, and never a patient or a small group."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from lifelines import CoxPHFitter
from lifelines.statistics import multivariate_logrank_test

from mcp_servers.context import ToolContext
from mcp_servers.registry import Registry, load
from sage.core.errors import InputError
from validation.cohort import load as load_cohort

GROUPED = {"cohort": "gbsg2", "endpoint": "RFS", "group": "clinical:hormonal_therapy"}


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load("oncology")


@pytest.fixture(scope="module")
def gbsg2() -> Any:
    keys = ["clinical:age", "clinical:positive_nodes", "clinical:hormonal_therapy"]
    return load_cohort("gbsg2").table(keys, ["RFS"])


def small_cohort(folder: Path, rows: list[tuple[str, str, int, int]]) -> str:
    """A cohort of `id, arm, days, dead` rows."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["id,arm,days,dead", *(",".join(map(str, row)) for row in rows)]
    (folder / "clinical.csv").write_text("\n".join(lines) + "\n")
    (folder / "cohort.toml").write_text(
        'id = "small"\ntitle = "Small"\nmin_level = 1\n'
        'patient = { table = "clinical" }\n'
        'tables.clinical = { file = "clinical.csv", key = "id" }\n'
        '[variables]\narm = { table = "clinical", column = "arm", kind = "categorical" }\n'
        '[endpoints.OS]\nkind = "survival"\ntable = "clinical"\ntime = "days"\n'
        'time_unit = "days"\nevent = "dead"\nevent_values = [1]\ncensored_values = [0]\n'
    )
    return str(folder)


def test_logrank_and_cox_agree_with_lifelines(
    registry: Registry, context: ToolContext, gbsg2: Any
) -> None:
    test = registry.run("logrank", GROUPED, context).result
    peer = multivariate_logrank_test(
        gbsg2["RFS.time"], gbsg2["clinical:hormonal_therapy"], gbsg2["RFS.event"]
    )
    assert test["statistic"] == pytest.approx(peer.test_statistic, rel=0.05)
    covariates = ["clinical:age", "clinical:positive_nodes"]
    given = {"cohort": "gbsg2", "endpoint": "RFS", "covariates": covariates}
    model = registry.run("cox", given, context).result
    frame = gbsg2[[*covariates, "RFS.time", "RFS.event"]]
    fitted = CoxPHFitter().fit(frame, "RFS.time", "RFS.event")
    for term in model["terms"]:
        ratio = fitted.hazard_ratios_[term["name"]]
        error = ratio * fitted.summary.loc[term["name"], "se(coef)"]
        assert term["hazard_ratio"] == pytest.approx(ratio, abs=error / 2)
        assert term["p"] == pytest.approx(fitted.summary.loc[term["name"], "p"], rel=0.05)
    assert model["concordance"] == pytest.approx(fitted.concordance_index_, abs=0.005)


def test_screen_ranks_a_list_of_features(registry: Registry, context: ToolContext) -> None:
    features = ["clinical:positive_nodes", "clinical:age", "clinical:progesterone_receptor"]
    run = registry.run(
        "screen", {"cohort": "gbsg2", "endpoint": "RFS", "features": features}, context
    )
    assert run.result["tested"] == 3
    assert run.result["top"][0]["name"] == "clinical:positive_nodes"
    table = (context.roots.output / "screen.csv").read_text().splitlines()
    assert len(table) == 4


def test_data_that_cannot_bear_a_model_are_an_input_error(
    registry: Registry, context: ToolContext
) -> None:
    rows = [(f"p{i}", "ab"[i % 2], 100 + i, 0) for i in range(40)]
    cohort = small_cohort(context.roots.inputs[0] / "c", rows)
    given = {"cohort": cohort, "endpoint": "OS"}
    with pytest.raises(InputError, match="fewer than 5"):
        registry.run("cox", given | {"covariates": ["clinical:arm"]}, context)
    rows = [(f"p{i}", "ab"[i % 2], 100 + i, (0, 2)[i // 2 % 2]) for i in range(40)]
    given["cohort"] = deaths(context.roots.inputs[0] / "none", rows)
    with pytest.raises(InputError, match="fewer than 5"):
        registry.run("competing_risks", given | {"group": "clinical:arm"}, context)


def test_groups_under_five_are_not_reported(registry: Registry, context: ToolContext) -> None:
    rows = [(f"p{i}", "a" if i < 20 else "b", 100 + i, i % 2) for i in range(40)]
    rows += [(f"q{i}", "rare", 900 + i, 1) for i in range(3)]
    cohort = small_cohort(context.roots.inputs[0] / "small", rows)
    book = registry.run("describe_cohort", {"cohort": cohort}, context).result
    # Three hidden patients would be what is missing from the sum.
    assert book["variables"][0]["levels"] == {"a": 20, "b": 20}
    assert book["variables"][0]["n"] in (40, 43)
    with pytest.raises(InputError, match="5 patients"):
        given = {"cohort": cohort, "endpoint": "OS", "group": "clinical:arm"}
        registry.run("logrank", given, context)
    everybody = {"cohort": cohort, "endpoint": "OS", "every": 1}
    run = registry.run("kaplan_meier", everybody, context)
    assert min(point["at_risk"] for point in run.result["curves"][0]["points"]) >= 5


@pytest.mark.parametrize("events", [0, 3, 36, 40])
def test_few_with_or_without_an_event_are_not_described(
    events: int, registry: Registry, context: ToolContext
) -> None:
    rows = [(f"p{i}", "ab"[i % 2], 100 + i, int(i < events)) for i in range(40)]
    cohort = small_cohort(context.roots.inputs[0] / "few", rows)
    with pytest.raises(InputError, match="fewer than 5"):
        registry.run("kaplan_meier", {"cohort": cohort, "endpoint": "OS"}, context)


def test_a_cohort_that_reaches_outside_the_roots_is_refused(
    registry: Registry, context: ToolContext, tmp_path: Path
) -> None:
    rows = [(f"p{i}", "ab"[i % 2], 100 + i, i % 2) for i in range(40)]
    outside = Path(small_cohort(tmp_path / "outside", rows))
    inside = context.roots.inputs[0] / "c"
    inside.mkdir()
    text = (outside / "cohort.toml").read_text()
    (inside / "cohort.toml").write_text(f'root = "{outside}"\n' + text)
    with pytest.raises(InputError, match="outside the allowed folders"):
        registry.run("describe_cohort", {"cohort": str(inside)}, context)
    (inside / "cohort.toml").write_text(text)
    (inside / "clinical.csv").symlink_to(outside / "clinical.csv")
    with pytest.raises(InputError, match="outside the allowed folders"):
        registry.run("describe_cohort", {"cohort": str(inside)}, context)


def test_a_changed_cohort_is_read_again(registry: Registry, context: ToolContext) -> None:
    rows = [(f"p{i}", "ab"[i % 2], 100 + i, i % 2) for i in range(40)]
    folder = context.roots.inputs[0] / "c"
    cohort = small_cohort(folder, rows)
    first = registry.run("describe_cohort", {"cohort": cohort}, context).result
    small_cohort(folder, rows[:30])
    second = registry.run("describe_cohort", {"cohort": cohort}, context).result
    assert (first["n_patients"], second["n_patients"]) == (40, 30)


def deaths(folder: Path, rows: Any) -> str:
    """A cohort of `id, arm, days, dead` rows in which dead = 2 competes."""
    folder = Path(small_cohort(folder, rows))
    text = (folder / "cohort.toml").read_text()
    text = text.replace('kind = "survival"', 'kind = "competing"\ncompeting_values = [2]')
    (folder / "cohort.toml").write_text(text)
    return str(folder)


def test_competing_risks_agree_with_r(registry: Registry, context: ToolContext) -> None:
    reference = Path(__file__).parents[1] / "validation" / "competing_reference"
    peer = json.loads((reference / "reference.json").read_text())
    rows = pd.read_csv(reference / "patients.csv")
    cohort = deaths(
        context.roots.inputs[0] / "r",
        [
            (f"p{at}", "high" if row.exposed else "low", round(row.time * 1e4), row.status)
            for at, row in enumerate(rows.itertuples())
        ],
    )
    path = Path(cohort) / "clinical.csv"
    path.write_text(pd.read_csv(path).assign(age=rows["age"]).to_csv(index=False))
    toml = Path(cohort) / "cohort.toml"
    age = '[variables]\nage = { table = "clinical", column = "age", kind = "continuous" }\n'
    text = toml.read_text().replace("[variables]\n", age)
    toml.write_text(text + "max_months = 20000\n")
    given = {"cohort": cohort, "endpoint": "OS", "group": "clinical:arm"}
    run = registry.run("competing_risks", given | {"covariates": ["clinical:age"]}, context)
    found = run.result
    printed = peer["gray.time.exposed"]
    assert [item["statistic"] for item in found["gray"]] == pytest.approx(
        [printed[0], printed[3]], rel=0.05
    )
    assert [item["p"] for item in found["gray"]] == pytest.approx(
        [printed[1], printed[4]], rel=0.05
    )
    assert [term["name"] for term in found["terms"]] == ["clinical:arm=high", "clinical:age"]
    for at, term in enumerate(found["terms"]):
        for part, key in (("subdistribution_hr", "crr"), ("cause_specific_hr", "cause_specific")):
            error = peer["crr.se.time.1"][at]
            assert math.log(term[part]) == pytest.approx(
                peer[f"{key}.coef.time.1"][at], abs=0.6 * error
            )
    assert run.outputs[0].mime == "image/png"
    assert "low" in found["notes"][0]


def test_competing_risks_name_the_kinds_of_endpoints(
    registry: Registry, context: ToolContext
) -> None:
    rows = [(f"a{i}", "ab"[i % 2], 100 + 7 * i, (1, 2, 0)[i % 3]) for i in range(60)]
    cohort = deaths(context.roots.inputs[0] / "one", rows)
    given = {"cohort": cohort, "endpoint": "OS", "group": "clinical:arm"}
    with pytest.raises(InputError, match="survival"):
        registry.run("kaplan_meier", given, context)
    with pytest.raises(InputError, match="competing"):
        registry.run("competing_risks", GROUPED, context)


def test_a_few_events_are_not_counted_in_a_finding(
    registry: Registry, context: ToolContext
) -> None:
    for events in (3, 7):
        rows = [(f"p{i}", "ab"[i % 2], 100 + i, int(i < events)) for i in range(40)]
        cohort = small_cohort(context.roots.inputs[0] / f"c{events}", rows)
        book = registry.run("describe_cohort", {"cohort": cohort}, context).result
        (few,) = [row for row in book["findings"] if row["code"] == "few_events"]
        assert str(events) not in few["message"]
        assert book["endpoints"][0]["events"] == (5 if events >= 5 else None)
