"""Small files in the form of published benchmarks, and a model that answers them. All made up."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.openai_server import Answer


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    """JSON lines, as LAB-Bench's."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def lab_row(id: str = "q1", **more: Any) -> dict[str, Any]:
    """A question in LAB-Bench's form."""
    return {
        "id": id, "question": "Which organelle makes most ATP?", "ideal": "Mitochondrion",
        "distractors": ["Ribosome", "Golgi", "Nucleus"], "canary": "CANARY-OURS",
        "key-passage": "SECRET-PASSAGE", **more,
    }  # fmt: skip


def chooses(words: str):  # type: ignore[no-untyped-def]
    """A model that chooses the option with these words; "" is a reply that is no JSON."""

    def answer(body: dict[str, Any]) -> Answer:
        text = next(m for m in body["messages"] if m["role"] == "user")["content"]
        found = (
            re.search(rf"^- ([A-Z])\) \s*\"?.*?(?:{words})", text, re.MULTILINE) if words else None
        )
        said = json.dumps({"answer": found[1], "reason": "as asked"}) if found else "perhaps B"
        return Answer(content=said)

    return answer


INFO = {
    "rain": "Rain that fell in a year", "acid": "Acidity of the soil",
    "harvest": "Grain harvested per hectare", "owner": "Name of the owner",
}  # fmt: skip


def blade_option(**words: str) -> dict[str, Any]:
    """An option as BLADE has it, with a rationale that nobody may be told."""
    return {**words, "rationale": "SECRET-RATIONALE", "is_llm_generated": False}


def write_blade(folder: Path) -> Path:
    """One data set in BLADE's form: farms."""
    place = folder / "farms"
    place.mkdir(parents=True)
    fields = [{"column": name, "properties": {"dtype": "number", "description": said}}
              for name, said in INFO.items()]  # fmt: skip
    info = {
        "research_questions": ["Does more rain raise the grain that is harvested?"],
        "data_desc": {"dataset_description": "Farms.", "fields": fields},
        "data_path": "../../../../etc/passwd",
    }
    (place / "info.json").write_text(json.dumps(info))
    right, other = "IV: rain that fell", "IV: tractors of a neighbor"
    rain, owner = "df['x'] = df['rain']\ndf", "df['x'] = df['owner']"
    choices = {
        "mcqs_cvar": [{
            "mc_type": "select_pos", "correct_answer": blade_option(cvar_str=right),
            "options": [blade_option(cvar_str=right), blade_option(cvar_str=other)],
        }],
        "mcqs_transform": {"Yearly rain": [{
            "mc_type": "select_neg", "correct_answer": blade_option(code=owner),
            "options": [blade_option(code=rain), blade_option(code=owner)],
        }]},
    }  # fmt: skip
    (place / "mcq_dataset.json").write_text(json.dumps(choices))

    def concept(role: str, **more: Any) -> str:
        held = {"variable_type": role, "concept": "c", "interaction": False, "rationale": "r"}
        return json.dumps({**held, **more})

    made = {"spec_name": "log", "input_cols_to_output_col_mapping": [[["rain"], "log_rain"]]}
    rows = [
        ("", json.dumps(made)),
        (concept("IV", final_columns_derived=["🟩 log_rain"]), ""),
        (concept("DV", final_columns_orig=["harvest"]), ""),
        (concept("Control", final_columns_orig=["acid"]), ""),
        (concept("Control", final_columns_orig=["owner"], is_negative=True), ""),
    ]
    lines = ["conceptual_spec_json,transform_spec_json"]
    lines += [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    (place / "annotations.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def pair(x: str, y: str, relation: str, labels: str = "") -> str:
    """A row in TruthHypo's form; labels as its questions list them."""

    def said(end: str) -> str:
        kind, concept = end.split("|")
        return f"{kind} N{concept} ({concept})"

    offered = f" The final hypothesis can be one of [{labels}]." if labels else ""
    return f"{x}\t{y}\t{relation}\tWhat of {said(x)} and {said(y)}?{offered}"


THREE = "'positive_correlate', 'negative_correlate', 'no_relation'"


def write_table(path: Path, rows: list[str], head: str = "x_id\ty_id\trelation\tquestion") -> Path:
    """A table of questions, or of edges with another head."""
    path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    return path
