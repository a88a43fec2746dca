"""Canaries in every identifier and every age of a cohort: none is seen where a row may not be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sage.core.errors import FaultError
from tests.adversary.hostile import CANARIES, hostile_run, identifier
from tests.adversary.whole_path import (
    Attacked,
    attack,
    program,
    published,
)
from tests.openai_server import Answer, chat_reasoner, serve
from tests.sandbox.boxes import BOXES, working

pytestmark = pytest.mark.timeout(900)
AGE = 'ages = table["clinical:age"].tolist()'
LEAKS = {
    "exception": f"{AGE}\nraise ValueError(ages)",
    "known error": f'{AGE}\nraise KeyError("could not convert string to float: " + str(ages[0]))',
    "exception name": f"{AGE}\nname = 'Age' + str(ages[0]).replace('.', 'x') + 'Error'\n"
    "raise type(name, (Exception,), {})(ages[1])",
    "library error": "table['exposure'].astype(float)\npd.Series(table.iloc[0].to_dict()).loc["
    "str(table['clinical:age'].iloc[0])]",
    "warning": f"{AGE}\nimport warnings\nwarnings.warn(str(ages))\nraise SystemExit(2)",
    "exit code": f"{AGE}\nraise SystemExit(int(ages[0]))",
    "printed": f"{AGE}\nprint(table.to_csv()); print(ages, file=sys.stderr)\n"
    "raise SystemExit(str(ages))",
    "unregistered tests": f"{AGE}\n(out / 'numbers.json').write_text(json.dumps("
    "{'numbers': {str(one): {'n': 1} for one in ages[:50]}}))",
    "numbers": f"{AGE}\n(out / 'numbers.json').write_text(json.dumps("
    "{'numbers': {'primary': {'effect': str(ages)}}}))",
    "registered numbers": f"{AGE}\nfor at, name in enumerate(('effect', 'lower', 'upper')):\n"
    "    NUMBERS['primary'][name] = ages[at]\nNUMBERS['primary']['n'] = int(ages[3] * 1e5)\n"
    "(out / 'numbers.json').write_text(json.dumps({'numbers': NUMBERS}))",
}
"""Programs that fail with a patient in their mouth."""
OF_THE_BOX = ("exception", "exit code", "printed")
"""What a sandbox of another kind could tell; what lies behind it is the same for all."""
KEEPS = f"""
{AGE}
for at, one in enumerate(ages[:40]):
    (out / (str(one) + ".csv")).write_text(str(ages))
    (out / ("p" + str(one) + ".png")).write_bytes(str(ages).encode())
(out / "analysis.json").write_text(json.dumps({{"notes": [str(ages)], "tables": ages}}))
(out / "captions.txt").write_text(table.head(40).to_csv())
rows = [{{"name": "exposed", "values": [one]}} for one in ages[:20]]
given = {{"tables": [{{"name": "patients", "columns": [{{"name": "years", "kind": "estimate"}}],
                     "rows": rows}}]}}
(out / "exploratory.json").write_text(json.dumps(given))
print(table.to_csv())
"""
"""A program that ends well and leaves rows in everything that it can write."""


def leaked(found: Attacked) -> dict[str, list[str]]:
    """Canaries by the place where they were seen: prompts, and all that is no input."""
    places = {**found.read_by_people(), "prompts": "\n".join(found.prompts)}
    seen = {
        where: [canary for canary in CANARIES if canary in text] for where, text in places.items()
    }
    return {where: canaries for where, canaries in seen.items() if canaries}


@pytest.mark.parametrize("name", BOXES[:2])
def test_no_canary_leaves_the_sandbox_in_any_field_that_a_program_can_reach(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    working(name)
    ways = list(OF_THE_BOX if name == "docker" else LEAKS)
    programs = [*(program(LEAKS[way]) for way in ways), program(KEEPS)]
    found = attack(tmp_path_factory.mktemp("leaks"), *programs, sandbox=name)

    assert found.status == "done"
    assert len(found.attempts) == len(programs) and found.attempts[-1]["accepted"]
    assert leaked(found) == {}
    fed = [" ".join(attempt["feedback"]) for attempt in found.attempts[: len(ways)]]
    for words, said in zip(ways, fed, strict=True):
        known = ("ended with an error", "numbers.json", "outside the tolerance")
        assert any(word in said for word in known), (words, said)
    # The exit code tells nothing: 77 years and 1 read alike.
    assert {attempt["result"]["exit_code"] for attempt in found.attempts} == {0, 1}
    assert "withheld" in (found.home / "appendix" / "all.json").read_text()
    # The inputs, which stay, do hold them: the search finds what is there to be found.
    table = (found.home / "inputs" / "printed" / f"attempt-{len(programs)}.stdout.txt").read_text()
    assert [canary for canary in CANARIES if canary in table]


def test_no_canary_is_in_a_run_with_rules() -> None:
    found = Attacked(hostile_run(), "done", [])
    assert leaked(found) == {}


def test_no_canary_is_sent_to_a_model(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The chat reasoner over HTTP: what the server was sent, with a program that leaks."""
    working("bubblewrap")
    outputs = hostile_run() / "outputs"
    replies = {"Interpretation": "interpreter-h1"}
    texts = {
        schema: json.dumps(json.loads((outputs / f"{name}.json").read_text())["output"])
        for schema, name in replies.items()
    }
    programs = [program(LEAKS["exception name"]), program(KEEPS)]

    def answer(body: dict[str, Any]) -> Answer:
        schema = body["response_format"]["json_schema"]["name"]
        if schema == "Program":
            return Answer(json.dumps({"code": programs.pop(0), "note": ""}))
        return Answer(texts[schema])

    with serve(answer) as server:
        place = tmp_path_factory.mktemp("chat")

        def chat(services: Any) -> Any:
            withheld = lambda: services.patient_identifiers  # noqa: E731
            return chat_reasoner(server.url, place / "run", withheld=withheld)

        found = attack(place, "1", "2", reasoner=chat)
        sent = json.dumps(server.requests)
    assert found.status == "done" and len(found.attempts) == 2
    assert "Round 2 of 2" in sent
    assert not [canary for canary in CANARIES if canary in sent]
    assert leaked(found) == {}
    assert published(found.run) == published(hostile_run())


def test_a_prompt_that_names_a_patient_is_not_sent(tmp_path_factory: Any) -> None:
    """The last gate: an identifier that got as far as the instructions stops the run."""
    from agents.core.base import View
    from agents.core.disclosure import identifiers, require_disclosable

    class Given(View):
        tasks: tuple[str, ...]

    withheld = identifiers([identifier(3), "P0003", "12"])
    for text in (identifier(3), f"look at ({identifier(3)}).", "P0003,P0004"):
        given = Given(tasks=(text,))
        with pytest.raises(FaultError) as caught:
            require_disclosable("agent", given, text, withheld)
        assert identifier(3) not in str(caught.value) and "P0003" not in str(caught.value)
    require_disclosable("agent", Given(tasks=()), "12 patients, P00031", withheld)


def test_a_field_that_repeats_per_patient_is_not_sent() -> None:
    from pydantic import BaseModel

    from agents.core.disclosure import require_disclosable

    class Wide(BaseModel):
        values: list[float] = []
        text: str = ""

    require_disclosable("x", Wide(values=[1.0] * 20), "", frozenset())
    for given in (Wide(values=[float(at) for at in range(160)]), Wide(text="7 " * 100_000)):
        with pytest.raises(FaultError):
            require_disclosable("x", given, "", frozenset())


@pytest.mark.parametrize(
    ("counts", "hidden"),
    [
        ({"a.events": 4}, {"a.events"}),
        ({"a.events": 5}, set()),
        ({"a.events": 0}, set()),
        ({"a.exposed.events": 2, "a.reference.events": 60, "a.events": 62},
         {"a.exposed.events", "a.reference.events"}),
        ({"a.reference.n": 3, "a.exposed.n": 50}, {"a.reference.n", "a.exposed.n"}),
    ],
)  # fmt: skip
def test_small_counts_are_suppressed_with_the_partner_that_gives_them_away(
    counts: dict[str, int], hidden: set[str]
) -> None:
    from validation.disclosure import suppressed_counts

    assert suppressed_counts(counts, 5) == hidden


def test_the_interpreter_reads_no_small_count(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Through the view that the interpreter's prompt is made of."""
    import shutil

    from sage.run.validating import results_view

    place = tmp_path_factory.mktemp("view")
    shutil.copytree(hostile_run() / "hypotheses/h1/results", place / "results")
    shutil.copy(hostile_run() / "hypotheses/h1/contract.json", place)
    path = place / "results/results.json"
    found = json.loads(path.read_text())
    found["numbers"]["primary.events"] = {"value": 3, "unit": "events", "text": "3"}
    path.write_text(json.dumps(found))
    shown = {number.key: number.text for number in results_view(place).numbers}
    assert "suppressed" in shown["primary.events"]
