"""Data sets in BLADE's form: multiple choice, and the columns that answer a question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.adapters.blade import Chosen, read_datasets, score_variables
from sage.core.errors import InputError
from tests.end_to_end.harness import sage
from tests.openai_server import Answer, serve
from tests.sage.choices import chooses, write_blade


def test_rules_choose_by_words_beside_chance(tmp_path: Path) -> None:
    write_blade(tmp_path / "datasets")
    done = sage("bench", "blade", "datasets", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    found = done.json
    assert [row["group"] for row in found["scores"]] == ["all", "variables", "transformations"]
    assert found["scores"][0]["accuracy"]["value"] == 1
    assert found["scores"][0]["chance"] == 0.5
    columns, roles = found["variables"]["columns"], found["variables"]["roles"]
    assert (columns["precision"]["value"], columns["recall"]["count"]) == (1, 2)
    assert columns["f1"] == roles["f1"] == pytest.approx(0.8)
    assert columns["floor_f1"] == pytest.approx(2 * (2 * 3 / 4) / 5)
    assert roles["floor_f1"] == pytest.approx(2 * (1 / 4 + 1 / 4) / 5)
    told = sage("bench", "blade", "datasets/farms", cwd=tmp_path).out
    assert "columns in roles, 1 data sets: F1 0.800" in told


def test_a_model_answers_and_is_told_no_rationale_and_no_answer(tmp_path: Path) -> None:
    write_blade(tmp_path)
    plan = {"outcome": "harvest", "exposures": ["rain"], "covariates": ["acid"]}

    def answer(body: dict[str, Any]) -> Answer:
        if body["response_format"]["json_schema"]["name"] == "Variables":
            wrong = {**plan, "covariates": ["../../etc/passwd"]}
            return Answer(content=json.dumps(wrong if len(body["messages"]) == 2 else plan))
        return chooses("rain that fell|df.'x'. = df.'owner'")(body)

    with serve(answer) as server:
        given = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
        done = sage("bench", "blade", ".", "--agent", "chat", "--json", cwd=tmp_path, **given)
    assert done.code == 0, done.err
    assert done.json["variables"]["roles"]["f1"] == 1
    assert done.json["scores"][0]["accuracy"]["value"] == 1
    users = [body["messages"][1]["content"] for body in server.requests]
    assert any("\n    df['x'] = df['rain']\n    df\n" in text for text in users), "as lines"
    sent = json.dumps(server.requests)
    assert "SECRET-RATIONALE" not in sent
    first = server.requests[0]["messages"]
    assert "etc/passwd" not in json.dumps(first), "data_path is not followed or told"


def test_a_model_that_never_answers_has_chosen_nothing(tmp_path: Path) -> None:
    write_blade(tmp_path)
    with serve(lambda body: Answer(content='{"outcome": "harvest", "expo')) as server:
        given = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
        done = sage("bench", "blade", ".", "--agent", "chat", "--json", cwd=tmp_path, **given)
    assert done.code == 0, done.err
    variables = done.json["variables"]
    assert (variables["unusable"], variables["columns"]["f1"]) == (1, 0)
    assert variables["columns"]["precision"] is None
    assert done.json["scores"][0]["unusable"] == 2
    assert done.json["spent"]["calls"] == len(server.requests) == 9


def test_gold_is_traced_to_columns_and_what_experts_refuse_is_left_out(tmp_path: Path) -> None:
    (item,) = read_datasets(write_blade(tmp_path))
    assert item.gold == {"IV": {"rain"}, "DV": {"harvest"}, "Control": {"acid"}}
    swapped = Chosen(name="farms", roles={"DV": frozenset(["rain"]), "IV": frozenset(["harvest"])})
    scored = score_variables([item], [swapped])
    assert scored.columns.f1 == pytest.approx(0.8) and scored.roles.f1 == 0


def test_transformations_that_make_each_other_end(tmp_path: Path) -> None:
    write_blade(tmp_path)
    path = tmp_path / "farms" / "annotations.csv"
    ring = json.dumps({"input_cols_to_output_col_mapping": [[["b"], "a"], [["a", "rain"], "b"]]})
    concept = json.dumps({"variable_type": "IV", "final_columns_derived": ["🟩 a"]})
    quoted = ['"' + cell.replace('"', '""') + '"' for cell in (concept, ring)]
    path.write_text("conceptual_spec_json,transform_spec_json\n" + ",".join(quoted) + "\n")
    assert read_datasets(tmp_path)[0].gold == {"IV": {"rain"}}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("info.json", "", r"info\.json: cannot be read"),
        ("info.json", "[" * 100_000, r"info\.json: cannot be read"),
        ("info.json", "{}", r"info\.json: not as BLADE has it \(field .data_desc. is missing\)"),
        ("info.json", '{"research_questions": [NaN], "data_desc": {"fields": []}}', "no text"),
        ("mcq_dataset.json", '{"mcqs_cvar": 3}', r"mcq_dataset\.json: not as BLADE has it"),
        ("mcq_dataset.json", '{"mcqs_cvar": [{"mc_type": "select_pos", "options": [],'
         ' "correct_answer": {"cvar_str": "a"}}]}', "none of its options"),
        ("annotations.csv", "", r"annotations\.csv: is no table"),
        ("annotations.csv", "a,b\n1,2\n", "has no column conceptual_spec_json"),
        ("annotations.csv", "conceptual_spec_json\n{\n", "row 1: conceptual_spec_json is not"),
        ("annotations.csv", 'conceptual_spec_json\n"{""variable_type"": ""Z""}"\n', "row 1"),
    ],
)  # fmt: skip
def test_files_of_another_form_are_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    write_blade(tmp_path)
    (tmp_path / "farms" / name).write_text(text)
    with pytest.raises(InputError, match=said):
        read_datasets(tmp_path)


def test_long_texts_many_columns_and_folders_of_nothing_are_refused(tmp_path: Path) -> None:
    write_blade(tmp_path / "sets")
    path = tmp_path / "sets" / "farms" / "info.json"
    held = json.loads(path.read_text())
    field = held["data_desc"]["fields"][0]
    for fields, said in (
        ([field], "has 1 distinct columns"),
        ([field, field], "has 1 distinct columns"),
        ([{**field, "column": f"c{n}"} for n in range(600)], "has 600 distinct columns"),
        ([*held["data_desc"]["fields"],
          {"column": "z", "properties": {"description": "x" * 1_000_000}}], "characters; at most"),
    ):  # fmt: skip
        path.write_text(json.dumps({**held, "data_desc": {"fields": fields}}))
        with pytest.raises(InputError, match=said):
            read_datasets(tmp_path / "sets")
    (tmp_path / "none").mkdir()
    for given, said in (("none", "no folder in it has"), ("absent", "is no folder"),
                        ("sets/farms/info.json", "is no folder")):  # fmt: skip
        done = sage("bench", "blade", given, cwd=tmp_path)
        assert done.code == 2 and said in done.err, done.err


def test_columns_of_a_role_are_told_in_one_order() -> None:
    names = [f"column_{letter}" for letter in "hbgcfdea"]
    told = json.loads(Chosen(name="x", roles={"IV": frozenset(names)}).model_dump_json())
    assert told["roles"]["IV"] == sorted(names)
