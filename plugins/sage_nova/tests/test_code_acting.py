"""The code-acting agent: steps in a real sandbox, tools behind them, models that lie, attacks."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mcp_servers.registry import Registry, load
from sage.core.llm.trace import Trace, read_trace
from sage.core.llm.turns import replay
from sage_nova.code_acting.agent import ask, check_answer
from sage_nova.code_acting.session import DEFAULT_LIMITS, Session, name_inputs
from sage_nova.code_acting.types import Acted, Cell, CodeAnswer, Observation
from sage_nova.code_acting.write import split_cells, write_session
from sage_nova.tests.conftest import Reply, replies
from tests.end_to_end.harness import sage
from tests.openai_server import chat_reasoner, serve
from tests.sandbox.boxes import working

pytestmark = pytest.mark.bubblewrap


@pytest.fixture(scope="module")
def tools() -> Registry:
    return load("nova")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A pink square of 300 x 300 pixels on glass of 600 x 400, in a folder with a secret."""
    pixels = np.full((400, 600, 3), 245, np.uint8)
    grain = np.random.default_rng(0).integers(-20, 20, (300, 300, 1))
    pixels[50:350, 50:350] = (np.array([190, 110, 160]) + grain).clip(0, 255)
    path = tmp_path / "given" / "tissue.png"
    path.parent.mkdir()
    Image.fromarray(pixels).save(path)
    (path.parent / "secret.csv").write_text("name\nJane\n", encoding="utf-8")
    return path


def session(tools: Registry, folder: Path, *data: Path, seconds: float = 20) -> Session:
    limits = DEFAULT_LIMITS.model_copy(
        update={"seconds": seconds, "memory_mb": 1024, "output_mb": 16}
    )
    return Session(name_inputs(data), tools, working("bubblewrap"), folder / "session", limits)


def program(tools: Registry, folder: Path, image: Path, *cells: str, seconds: float = 20) -> Acted:
    made = session(tools, folder, image, seconds=seconds)
    return ask(made, "What is there?", cells, trace=Trace())


def errors(acted: Acted) -> list[str]:
    return [done.observation.error for done in acted.steps]


def test_steps_share_variables_files_and_what_tools_wrote(
    tools: Registry, image: Path, tmp_path: Path
) -> None:
    asked = 'check_tissue_segmentation_key_in_wsi_tool(wsi_path="/inputs/tissue.png", base_mpp=2.0)'
    acted = program(
        tools, tmp_path, image,
        f"before = {asked}['exists']\nfound = extract_tissue_in_wsi_tool("
        "wsi_path='/inputs/tissue.png', base_mpp=2.0)\n"
        "open('note.txt', 'w').write('kept')\ndef area(x):\n    return x\n"
        "import random\nimport numpy as np\nx = (random.random(), float(np.random.rand()))\nx",
        # The same call again, after the tissue was found: a new answer, not the recorded one.
        f"print(before, {asked}['exists'], open('note.txt').read(), x)\nfound['total_area_mm2']",
    )  # fmt: skip
    assert errors(acted) == ["", ""] and acted.outcome == "answered"
    last = acted.steps[1].observation
    # The first step ran again, and drew the same.
    assert last.printed == f"False True kept {acted.steps[0].observation.value}\n"
    assert float(last.value) == pytest.approx(300 * 300 * 4e-6, rel=0.05)
    assert [call.tool for call in acted.steps[0].observation.calls][-1].startswith("extract_tissue")
    assert acted.own_functions == ("area",) and last.files == ("note.txt",)
    write_session(acted, tmp_path / "session")
    kept = (tmp_path / "session" / "analysis.py").read_text(encoding="utf-8")
    assert split_cells(kept) == [done.cell.code for done in acted.steps]


@pytest.mark.parametrize(
    "call",
    [
        "encode_histology_roi_tool(img_path='/inputs/tissue.png', weights='/output/m.pt',"
        " histology_roi_encoder_name='uni_v1')",
        "segment_and_classify_nuclei_in_histology_roi_tool(input_dir='/output',"
        " level0_mpp_of_imgs=0.5, weights='/output/m.pt')",
        "text_score(slide='/inputs/tissue.png', mpp=0.5, texts=['a', 'b'], weights='/output')",
    ],
)
def test_a_model_that_a_program_wrote_is_never_run(
    tools: Registry, image: Path, tmp_path: Path, call: str
) -> None:
    tools = load("pathology") if call.startswith("text") else tools
    acted = program(tools, tmp_path, image, f"open('m.pt', 'w').write('a model')\n{call}")
    assert "not in the output" in errors(acted)[0]


def test_what_a_program_may_not_do_is_said_and_leaves_nothing(
    tools: Registry, image: Path, tmp_path: Path
) -> None:
    made = session(tools, tmp_path, image, seconds=3)

    def run(code: str) -> Observation:
        return made.act(Cell(code=code))

    assert run("x = 1").error == ""
    assert "there is no network" in run("import socket").error
    looping = run("x = 2\nwhile True:\n    pass")
    assert looping.undone and "exceeded its time limit" in looping.error
    # A step that was undone is not run again, and changed nothing.
    assert run("x").value == "1"
    paths = ["/inputs/secret.csv", "/inputs/tissue.png/../secret.csv",
             str(image.parent / "secret.csv"), "/etc/passwd"]  # fmt: skip
    said = run(
        f"r = call_together([('retrieve_properties_from_wsi_tool', {{'wsi_path': p}})"
        f" for p in {paths!r}])\nfrom pathlib import Path\n"
        "[*map(str, r), *(p.name for p in Path('/inputs').rglob('*') if p.is_file())]"
    )
    *refusals, inside = ast.literal_eval(said.value)
    assert inside == "tissue.png" and len(refusals) == 4
    assert all("outside" in text or "not found" in text for text in refusals), refusals
    # What a program leaves is read as hostile: forged requests, links, floods.
    forged = run(
        "from pathlib import Path\nPath('_sage').mkdir(exist_ok=True)\n"
        "Path('_sage/request.json').write_text('[[\"nova\", 3]]')"
    )
    assert forged.undone and "expected a call as (tool," in forged.error
    flood = run("print('y' * 100000)\nPath('link').symlink_to('/etc/passwd')")
    assert flood.files == () and len(flood.printed) < 10_000
    assert "characters omitted" in flood.printed


def by_model(
    tools: Registry,
    image: Path,
    folder: Path,
    said: Sequence[Reply],
    steps: int = 20,
) -> tuple[Acted, list[dict[str, Any]]]:
    with serve(replies(*said)) as server:
        trace = Trace(folder / "trace.jsonl")
        reasoner = chat_reasoner(server.url, folder)
        reasoner.trace = trace
        made = session(tools, folder, image)
        acted = ask(made, "How large is the image?", reasoner, trace=trace, steps=steps)
    return acted, server.requests


def test_a_model_sees_what_its_programs_gave_and_cannot_invent_a_number(
    tools: Registry, image: Path, tmp_path: Path
) -> None:
    answer = {"answer": "It is 600 pixels wide.", "values": {"width": 600}, "files": ["a.txt"]}
    acted, requests = by_model(
        tools, image, tmp_path,
        [
            "1 / 0",
            "import numpy as np\nfrom PIL import Image\nopen('a.txt', 'w').write('x')\n"
            "print(np.asarray(Image.open('/inputs/tissue.png')).shape)",
            answer | {"answer": "It is 600 pixels wide and 0.52 mm of it are tissue."},
            answer | {"files": ["b.txt"]},
            answer,
        ],
    )  # fmt: skip
    assert acted.outcome == "answered" and acted.answer is not None
    assert acted.answer.values == {"width": 600}
    said = [message["content"] for message in requests[-1]["messages"]]
    assert any("ZeroDivisionError" in text for text in said)
    assert any("0.52 does not appear" in text for text in said)
    assert any("'b.txt'" in text for text in said)
    assert "segment_and_classify_nuclei_in_histology_roi_tool" in said[1]
    lines = read_trace(tmp_path / "trace.jsonl")
    again = replay(lines, CodeAnswer)
    assert again == acted.answer


def test_several_programs_in_one_reply_are_a_step_each(
    tools: Registry, image: Path, tmp_path: Path
) -> None:
    said: list[Reply] = [["1", "2", "3", "4"], {"answer": None, "reason": "None."}]
    acted, requests = by_model(tools, image, tmp_path, said, steps=3)
    assert [done.observation.value for done in acted.steps] == ["1", "2", "3"]
    contents = [message["content"] for message in requests[-1]["messages"]]
    assert any("the session's limit of 3 steps is reached; answer now" in text for text in contents)
    assert acted.outcome == "abstained"


@pytest.mark.parametrize(
    ("answer", "shown", "taken"),
    [
        ("The area is 0.37 mm².", "0.3571", False),
        ("36% of it.", "0.3571", True),
        ("About 1,204 nuclei.", "1204", True),
        ("Two of 3 slides.", "nothing", True),
        ("p = 1.3e-5", "1.23e-05", False),
        ("Slide TCGA-05-4244 has none.", "nothing", True),
        ("It fell by 0.5.", "-0.5", True),
        ("rho .777", "0.350", False),
    ],
)
def test_numbers_of_an_answer_stand_in_what_was_shown(answer: str, shown: str, taken: bool) -> None:
    seen = [Observation(step=1, printed=shown)]
    assert (not check_answer("", seen, CodeAnswer(answer=answer))) is taken


def test_a_reason_tells_no_number_that_nothing_showed() -> None:
    seen = [Observation(step=1, printed="mpp 0.25")]
    invented = CodeAnswer(answer=None, reason="The hazard ratio is 0.31.", values={"hr": 0.31})
    assert [finding.partition(":")[0] for finding in check_answer("", seen, invented)] == [
        "0.31", "values.hr",
    ]  # fmt: skip
    assert check_answer("", seen, CodeAnswer(answer=None, reason="At 0.25 alone.")) == []


def test_an_answer_without_a_step_goes_back() -> None:
    sure = CodeAnswer(answer="The tissue is malignant.")
    assert "no step has run" in check_answer("", [], sure)[0]
    assert "no step has run" in check_answer("", [Observation(step=1, undone=True)], sure)[0]
    assert check_answer("", [Observation(step=1)], sure) == []


def test_the_command_runs_a_program_and_refuses_what_it_cannot(image: Path, tmp_path: Path) -> None:
    working("bubblewrap")
    square = "get_contour_area(contour=[(0, 0), (6, 0), (6, 7), (0, 7)])"
    cells = f"# %% one\nx = {square}\n# %% two\nprint(x['contour_area'])\n"
    (tmp_path / "p.py").write_text(cells, encoding="utf-8")
    line = ("nova", "ask", "What is x?", str(image), "--program", "p.py", "--sandbox",
            "bubblewrap")  # fmt: skip
    done = sage(*line, "--out", "o", "--json", cwd=tmp_path)
    assert done.code == 0 and done.json["answer"]["answer"] == "42.0", done.err
    assert {path.name for path in (tmp_path / "o").iterdir()} >= {
        "session.json", "analysis.py", "trace.jsonl", "files",
    }  # fmt: skip
    again = sage(*line, "--out", "o", cwd=tmp_path)
    assert again.code == 2 and "--replace" in again.err
    missing = sage("nova", "ask", "What?", "absent.svs", "--program", "p.py", cwd=tmp_path)
    assert missing.code == 2 and 'absent.svs" does not exist' in missing.err


def test_a_session_with_a_failed_step_runs_again_as_a_program(
    tools: Registry, image: Path, tmp_path: Path
) -> None:
    steps = ["x = 4\n1 / 0", "import socket", "print(x * 10)", {"answer": "40 in all."}]
    acted, _ = by_model(tools, image, tmp_path, steps)
    assert acted.outcome == "answered", acted.error
    write_session(acted, tmp_path / "session")
    kept = (tmp_path / "session" / "analysis.py").read_text(encoding="utf-8")
    assert "import socket" not in kept and kept.count("ended with an error") == 1
    again = program(tools, tmp_path / "again", image, *split_cells(kept))
    assert again.outcome == "answered" and again.steps[-1].observation.printed == "40\n"
    assert again.steps[0].cell.code.strip() == steps[0]
    last = program(tools, tmp_path / "last", image, split_cells(kept)[0])
    assert last.outcome == "abstained"
