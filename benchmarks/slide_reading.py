"""How often a reader of slides is right, on painted slides and on real images judged by eye.

    python -m benchmarks.slide_reading [--shared FOLDER] [--seeds 100-125] [--write]

Painted slides have planted truth; the default seeds took no part in
setting thresholds. The questions on real images, with what their answers rest on, stand in
slide_reading_real.json (in view while thresholds were chosen) and slide_reading_held_out.json
(judged later, before any reader was asked); --shared is the folder that holds histology/.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.adapters.slide_questions import FIELD, WHOLE_FIELD_MM2
from benchmarks.adapters.slide_reading import READERS, REPORTED_ON, Answered, Row, ask, table
from mcp_servers.slides.slide import Slide
from sage.core.files import append_line, write_json, write_text
from sage_slide_reading.reader.algorithm import read_slide
from sage_slide_reading.reader.open_eyes import computed_eyes
from sage_slide_reading.reader.scope import Scope
from sage_slide_reading.reader.types import Options, Question

REAL = {
    name: Path(__file__).with_name(f"slide_reading_{name}.json") for name in ("real", "held_out")
}
RESULTS = Path(__file__).parent / "results" / "slide_reading.jsonl"
PAGE = Path(__file__).parents[1] / "docs" / "reading.md"
SLIDE = Options(patch_px=128)


def real(judged: Path, folder: Path) -> list[dict[str, Any]]:
    """Every question of a file of judgments, with the reader's answer."""
    out = []
    for item in json.loads(judged.read_text(encoding="utf-8"))["questions"]:
        with Slide.open(folder / "histology" / item["file"], mpp=item["mpp"]) as slide:
            area = slide.width * slide.height * (slide.need_mpp() / 1000) ** 2
            small = area < WHOLE_FIELD_MM2
            options = FIELD if small else SLIDE
            question = Question(text=item["question"], options=tuple(item["options"]))
            reading = read_slide(Scope(slide, options), computed_eyes(), question, options)
        out.append(item | {
            "answer": reading.answer, "right": reading.answer == item["truth"],
            "because": reading.reasoning, "high_power": reading.read.high_power_share,
        })  # fmt: skip
    return out


def lines(rows: list[Row]) -> list[str]:
    """The table in Markdown."""
    head = (
        "| reader | questions | n | accuracy (95%) | abstained | abstaining as none | guessing |"
        " regions | high power |"
    )
    return [head, "|---|---|---|---|---|---|---|---|---|"] + [
        f"| {row.reader} | {row.kind} | {row.questions} | {row.accuracy:.0%} ({row.low:.0%} to"
        f" {row.high:.0%}) | {row.abstained:.0%} | {row.as_none:.0%} | {row.guessing:.0%} |"
        f" {row.regions:.1f} | {row.high_power:.1%} |"
        for row in rows
    ]


def real_lines(found: list[dict[str, Any]]) -> list[str]:
    """Every answer, then accuracy by question beside always giving its commonest truth."""
    told = []
    for item in found:
        mark = "right" if item["right"] else "abstains" if item["answer"] is None else "WRONG"
        told.append(
            f"{mark:8} {item['file']}: {item['question']} {item['answer']} ({item['truth']})"
        )
    told += ["| question | n | right | commonest truth |", "|---|---|---|---|"]
    for question in sorted({item["question"] for item in found}):
        own = [item for item in found if item["question"] == question]
        told.append(f"| {question} | {len(own)} | {_right(own)} | {_commonest(own)} |")
    guessed = sum(_commonest([i for i in found if i["question"] == q]) for q in
                  {item["question"] for item in found})  # fmt: skip
    return [*told, f"| all | {len(found)} | {_right(found)} | {guessed} |"]


def _right(found: list[dict[str, Any]]) -> int:
    return sum(item["right"] for item in found)


def _commonest(found: list[dict[str, Any]]) -> int:
    truths = [item["truth"] for item in found]
    return max(truths.count(truth) for truth in truths)


def answers_of(path: Path, seeds: range, readers: dict[str, Options]) -> list[Answered]:
    """Answers of the seeds' slides; those that the file has are not asked for again."""
    held = []
    if path.is_file():
        lines = path.read_text(encoding="utf-8").splitlines()
        held = [Answered.model_validate_json(line) for line in lines]
    known = {(answer.reader, answer.seed) for answer in held}
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            missing = {name: o for name, o in readers.items() if (name, seed) not in known}
            for answer in ask([seed], Path(folder), missing) if missing else ():
                held.append(answer)
                append_line(path, answer.model_dump_json())
            print(f"seed {seed}", flush=True)
    return [answer for answer in held if answer.seed in seeds and answer.reader in readers]


def put(page: Path, name: str, table_lines: list[str]) -> None:
    """Write a table between its two marks in a page."""
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    write_text(page, before + begin + "\n".join(table_lines) + "\n" + end + after)


def main() -> None:
    """Run it, print the tables and, with --write, put them into docs/reading.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--shared", type=Path, help="folder that holds histology/")
    parser.add_argument("--seeds", default=f"{REPORTED_ON.start}-{REPORTED_ON.stop - 1}")
    parser.add_argument("--readers", default=",".join(READERS))
    parser.add_argument("--answers", type=Path, default=RESULTS, help="kept and gone on with")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/reading.md")
    given = parser.parse_args()
    if given.seeds:
        first, _, last = given.seeds.partition("-")
        seeds = range(int(first), int(last or first) + 1)
        readers = {name: READERS[name] for name in given.readers.split(",")}
        told = lines(table(answers_of(given.answers, seeds, readers)))
        print("\n".join(told))
        if given.write:
            put(PAGE, "painted slides", told)
    if given.shared is not None:
        for name, judged in REAL.items():
            found = real(judged, given.shared)
            told = real_lines(found)
            print("\n".join(told))
            write_json(RESULTS.with_name(f"slide_reading_{name}.json"), found)
            if given.write:
                put(PAGE, f"real images, {name}", [line for line in told if line[:1] == "|"])


if __name__ == "__main__":
    main()
