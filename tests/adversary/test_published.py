"""Nothing that a program writes changes what is published; what it adds stands apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents.coding.appendix import TITLE
from tests.adversary.hostile import hostile_run
from tests.adversary.whole_path import (
    Attacked,
    attack,
    program,
    published,
    quarantined,
)

pytestmark = [pytest.mark.bubblewrap, pytest.mark.timeout(900)]
SVG = '<svg xmlns=\\"http://www.w3.org/2000/svg\\"><text>{0}</text></svg>'

# Markers are put together when the program runs, so that its own text (which the report shows)
# does not hold them.
MARKER = 'mark = "-".join(["FORGED", "{0}"])'
ADDED = {
    "figure": f'(out / "kaplan_meier.svg").write_text("{SVG}".format(mark))',
    "external": f'(out / "external_validation.svg").write_text("{SVG}".format(mark))',
    "forest": f'(out / "forest.svg").write_text("{SVG}".format(mark + " HR 0.55, p = 0.0004"))',
    "caption": '(out / "captions.json").write_text(json.dumps({"forest": mark}))',
    "rows": '(out / "rows.csv").write_text(mark + table.head(40).to_csv())',
    "analysis": '(out / "analysis.json").write_text(json.dumps({"tests": [], "notes": [mark], '
    '"figures": {"forged": {"file": "forest.svg", "title": mark, "caption": mark}}}))',
    "model": '(out / "model.json").write_text(json.dumps({"terms": [mark], "slope": 2.32}))',
    "cuts": '(out / "cuts.json").write_text(json.dumps([{"variable": mark, "upper": 0}]))',
    "notes": '(out / "notes.txt").write_text(mark)',
    "versions": '(out / "versions.json").write_text(json.dumps({"python": mark}))',
    "tables": '(out / "tables.json").write_text(json.dumps({"primary": [{"term": mark}]}))',
    "simulated": '(out / "provenance.json").write_text(json.dumps({"simulated": mark}))',
    "results": '(out / "results.json").write_text(json.dumps({"verdict": mark}))',
    "reproduction": '(out / "reproduction").mkdir(); '
    '(out / "reproduction" / "all.json").write_text(json.dumps({"agrees": mark}))',
    "attempt": '(out / "attempt.json").write_text(json.dumps({"accepted": True, "by": mark}))',
    "report": '(out / "report.html").write_text("<h1>" + mark + "</h1>")',
    "contract": '(out / "contract.json").write_text(json.dumps({"sha256": mark}))',
    "ledger": '(out / "ledger.jsonl").write_text(json.dumps({"test": mark}))',
    "name": '(out / (mark + ".csv")).write_text("x")',
    "printed": "print(mark); print(mark, file=sys.stderr)",
}
"""What a program may leave beside its numbers, by the marker that it carries."""


def added(names: dict[str, str]) -> str:
    return "\n".join(f"{MARKER.format(name.upper())}\n{line}" for name, line in names.items())


# Where the reference could lie, if the program could see it. An ending other than 0 tells.
SEARCH = """
seen = [one for top in ("inputs", "work", "output", "tmp", "home", "root")
        for one in Path("/").glob(top + "/**/*")]
names = {one.name for one in seen}
bad = names & {"analysis.json", "results.json", "contract.json", "provenance.json", "all.json"}
if bad or {one.name for one in inputs.iterdir()} != {"task.json", "table.parquet"}:
    raise SystemExit(3)
if "patient" in table.columns or table.index.name == "patient":
    raise SystemExit(4)
"""


TABLES = """
rows = [{"name": "exposed", "values": [30, 0.1234567, 0.5]},
        {"name": "others", "values": [3, 0.7654321, 0.2718281]}]
columns = [{"name": "patients", "kind": "count"}, {"name": "share", "kind": "estimate"},
           {"name": "chance", "kind": "p"}]
given = {"tables": [{"name": "strange_table", "columns": columns, "rows": rows}]}
(out / "exploratory.json").write_text(json.dumps(given))
"""
"""Exploratory tables, which may be shown apart."""
TEXTS = """
x = "</pre><script>alert(1)</script>"
y = '\ue003 0.0004 \ue000'
z = '\x1b[2J\u202e'
"""
"""Texts in a program that would break or escape the place where the report shows it."""
REFUSED_BEFORE = {
    "sage's analysis": "from validation.analysis.analysis import Analysis",
    "sage's statistics": "from validation.statistics.cox import cox",
    "the application": "import sage",
}
FAILED_BEFORE = {
    "by name": "import importlib; importlib.import_module('validation')",
    "by eval": "eval('__imp' + 'ort__(\"validation\")')",
}
"""What the policy does not see: SAGE's own code is not there to be imported."""


@pytest.fixture(scope="module")
def forged(tmp_path_factory: pytest.TempPathFactory) -> Attacked:
    """A round for each program that reaches for SAGE, then one with honest numbers.

    It looks for the reference, and leaves everything of `ADDED` and tables beside its numbers.
    """
    refused = [program(line) for line in (REFUSED_BEFORE | FAILED_BEFORE).values()]
    last = program(SEARCH, TEXTS, added(ADDED), TABLES)
    return attack(tmp_path_factory.mktemp("forged"), *refused, last)


def test_programs_that_call_sage_are_refused_and_honest_numbers_count(forged: Attacked) -> None:
    """The honest program ended well, so it read neither reference nor identifiers anywhere."""
    *refused, last = forged.attempts
    expected = ["policy"] * len(REFUSED_BEFORE) + ["error"] * len(FAILED_BEFORE)
    assert [attempt["result"]["reason"] for attempt in refused] == expected
    assert all(attempt["feedback"] for attempt in refused)
    assert forged.status == "done" and last["accepted"], last["feedback"]
    assert {"differs", "missing"}.isdisjoint(forged.states.values())


def test_what_a_program_leaves_beside_its_numbers_reaches_nobody(forged: Attacked) -> None:
    shown = {**forged.read_by_people(), "prompts": "\n".join(forged.prompts)}
    markers = [f"FORGED-{name.upper()}" for name in ADDED]
    found = [
        (where, marker) for where, text in shown.items() for marker in markers if marker in text
    ]
    assert found == []


def test_every_published_number_figure_table_note_and_cut_is_the_reference_computation(
    forged: Attacked,
) -> None:
    assert published(forged.run) == published(hostile_run())
    for path in (hostile_run() / "hypotheses/h1/results/figures").iterdir():
        assert (forged.home / "figures" / path.name).read_bytes() == path.read_bytes()


LYING = {
    "another effect": 'dict(NUMBERS, primary=dict(NUMBERS["primary"], effect=0.55))',
    "all but one limit": 'dict(NUMBERS, adjusted={k: v for k, v in NUMBERS["adjusted"].items() '
    'if k != "upper"})',
}


@pytest.mark.parametrize("lie", LYING)
def test_numbers_that_are_wrong_or_missing_block_support_and_are_shown(
    lie: str, tmp_path: Path
) -> None:
    claim = '(out / "reproduction.json").write_text(json.dumps({"state": "reproduced"}))'
    found = attack(tmp_path, program(claim, numbers=LYING[lie]))

    assert found.status == "done"
    assert published(found.run) == published(hostile_run())
    verdict = found.results.verdict
    assert verdict.verdict != "supported"
    assert "not independently reproduced" in verdict.qualifiers
    assert {"differs", "missing"} & set(found.states.values())
    assert "second implementation differs" in found.html or "not reproduced" in found.html


def test_a_reproduction_that_differs_is_missing_or_was_removed_objects() -> None:
    from validation.contracts.contract import FrozenContract
    from validation.reproduction.compare import weigh
    from validation.results.results import AnalysisResult, Reproduction, Results

    run = hostile_run() / "hypotheses/h1"
    contract = FrozenContract.load(run / "contract.json")
    analysis = AnalysisResult.model_validate_json(
        (run / "results/analysis/all/analysis.json").read_text()
    )
    (honest,) = Results.load(run / "results/results.json").reproduction
    lying = [
        entry.model_copy(update={"state": "differs"}) if entry.test == "primary" else entry
        for entry in honest.compared
    ]
    cases: dict[str, tuple[Reproduction, ...]] = {
        "differs": (honest.model_copy(update={"compared": tuple(lying)}),),
        "did not run": (honest.model_copy(update={"ran": False, "compared": ()}),),
        "was removed": (),
    }
    assert weigh(contract.contract, analysis, (honest,)).objections == ()
    for name, found in cases.items():
        weighed = weigh(contract.contract, analysis, found)
        assert [objection.because for objection in weighed.objections] == ["reproduction"], name
        assert weighed.qualifiers == ("not independently reproduced",)


def test_behind_the_policy_the_packages_are_not_there_either(tmp_path: Path) -> None:
    from sandbox.types import Job
    from tests.sandbox.boxes import working

    code = "import importlib\n"
    code += "for one in ('validation.analysis.analysis', 'sage.core', 'agents.coding'):\n"
    code += "    try:\n        importlib.import_module(one)\n"
    code += "    except ModuleNotFoundError:\n        continue\n    raise SystemExit(7)\n"
    for name in ("bubblewrap", "docker"):
        try:
            box = working(name)
        except pytest.skip.Exception:
            continue
        job = Job(
            files={"analysis.py": code}, command=("python", "-P", "-s", "analysis.py"),
            output=tmp_path / name, offers_sage=False,
        )  # fmt: skip
        ended = box.run(job)
        assert ended.ok, (name, ended.message, ended.stderr_tail)


def test_the_text_of_a_program_cannot_break_or_escape_its_place_in_the_report(
    forged: Attacked,
) -> None:
    assert "script&gt;alert" in forged.html
    assert "<script>alert" not in forged.html
    assert not set("\ue000\ue001\ue002\ue003\x1b\u202e") & set(forged.html)


def test_what_a_program_adds_stands_under_its_own_title_and_nowhere_else(forged: Attacked) -> None:
    apart = quarantined(forged.html)
    assert "strange table" in apart and "&lt;5" in apart and ">0.123<" in apart
    # What was estimated from a suppressed count is withheld with it.
    assert ">0.765<" not in forged.html and ">0.272<" not in apart
    assert forged.html.count("strange table") == 1
    assert not [prompt for prompt in forged.prompts if "strange" in prompt]
    assert "strange" not in json.dumps(published(forged.run)) and TITLE in forged.html
