"""Measurements as code: what is refused unread, unrun, unreviewed; what runs is like any other."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely

from mcp_servers.measures.compute import compute
from mcp_servers.measures.edit import drop, half_of, jitter
from mcp_servers.measures.formula import parse
from mcp_servers.measures.gate import gate
from mcp_servers.measures.maps import CellMap, ObjectMap, SlideMaps, multipolygon, write_maps
from sage.core.errors import InputError
from sage_programs import running
from sage_programs.checks import check_values
from sage_programs.contract import Program, check_program
from sage_programs.review import review_path
from sage_programs.running import WHY, default_sandbox, run_program, with_values
from sandbox.types import Sandbox
from tests.mcp_servers.measures.test_over_cohort import rows_of, sage

CONTRACT = """\
MEASUREMENT = {
    "name": "far_neighbor",
    "sentence": "the median distance from a cells to the nearest b cell",
    "unit": "µm",
    "rule": "mean",
    "reads": ["cells"],
    "parameters": {},
}
"""
HONEST = f'''\
"""Distances by hand."""

import numpy as np

{CONTRACT}

def measure(slide):
    if slide.cells is None:
        return None
    xy = np.column_stack([slide.cells.x_um, slide.cells.y_um])
    a, b = xy[slide.cells.types == "a"], xy[slide.cells.types == "b"]
    if len(a) < 10 or not len(b):
        return None
    return np.median([np.hypot(*(b - point).T).min() for point in a])
'''


def body(*lines: str, before: str = "") -> str:
    """A program whose function has these lines."""
    inner = "\n".join(f"    {line}" for line in lines)
    return f"import numpy as np\n{before}\n{CONTRACT}\n\ndef measure(slide):\n{inner}\n"


def hostile(source: str) -> Program:
    """A program as if it had passed the static check."""
    contract = check_program(HONEST).contract
    return Program(contract, source, hashlib.sha256(source.encode()).hexdigest())


@pytest.fixture(scope="module")
def box() -> Sandbox:
    """The sandbox that programs run in; skips where there is none."""
    try:
        return default_sandbox()
    except InputError as error:
        pytest.skip(str(error))


def slides(count: int = 12, seed: int = 0) -> list[SlideMaps]:
    """Squares with clustered a cells, b cells at random, and a few discs as TLS."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        spread, many = rng.uniform(15, 120), rng.integers(20, 200)
        home = rng.uniform(200, 800, (4, 2))
        a = home[rng.integers(0, 4, 80)] + rng.normal(0, spread, (80, 2))
        xy = np.concatenate([a, rng.uniform(0, 1000, (many, 2))])
        codes = np.repeat([0, 1], [80, many])
        discs = [
            shapely.Point(*p).buffer(rng.uniform(20, 90)) for p in rng.uniform(200, 800, (3, 2))
        ]
        shapes = np.array(discs, dtype=object)
        objects = ObjectMap(shapes, ("tls",), np.zeros(3, dtype=np.int64))
        cells = CellMap(xy[:, 0], xy[:, 1], ("a", "b"), codes)
        window = multipolygon([shapely.box(-400, -400, 1400, 1400)])
        found.append(SlideMaps(f"S{number}", f"P{number:02}", window, cells, objects))
    return found


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (body("return open('x')"), "`open` is not allowed"),
        (body("return np.load(slide)"), "`.load` is not allowed"),
        (body("return np.random.default_rng(1).random()"), "`.random` is not allowed"),
        (body("return getattr(np, 'load')(slide)"), "`getattr` is not allowed"),
        (body("return op.attrgetter('cells')(slide)", before="import operator as op"), "`.attr"),
        (body("return 1.0", before="from operator import methodcaller"), "import is not allowed"),
        (body("return float(np.datetime64('today').astype(float))"), "`.datetime64` is not"),
        (
            body("match slide:", "    case object(__class__=kind):", "        return 1.0"),
            "`match` on classes",
        ),
        (body("return len('/data/clinical.csv')"), "looks like a path"),
        (body("return __import__('os')"), "not allowed"),
        (body("return slide.__class__.__subclasses__()"), "not allowed"),
        (body("return 1.0", before="import os"), "import of `os`"),
        (body("return 1.0", before="import scipy.io"), "import is not allowed"),
        (body("return 1.0", before="from numpy import load"), "import is not allowed"),
        (body("return 1.0", before="from numpy.random import default_rng"), "import is not"),
        (body("global seen", "seen = 1", "return 1.0"), "`global`"),
        (body("return 1.0", before="SEEN = [len(str())]"), "besides MEASUREMENT"),
        ("def measure(slide):\n    return 1.0\n", "is missing"),
        (CONTRACT, "one function"),
        (CONTRACT + "\ndef measure(slide, radius_um):\n    return 1.0\n", "must take (slide)"),
        (HONEST.replace('"µm"', '"not a unit!"'), "is not a unit"),
        (HONEST.replace('"mean"', '"pooled"'), "pooled sums"),
        (HONEST.replace('"name": "far_neighbor"', '"name": "Far Neighbor"'), "name"),
        (HONEST.replace("the median", "Median"), "sentence"),
        (HONEST.replace('["cells"]', '["clinical"]'), "reads"),
        (HONEST.replace('"parameters": {}', '"parameters": {"radius_um": 1e999}'), "MEASUREMENT"),
        ("def measure(slide:", "not valid Python"),
        ("#" * 30_000, "longer than"),
    ],
)  # fmt: skip
def test_what_a_program_may_not_say_is_refused_before_it_runs(source: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        check_program(source)
    assert said in str(error.value)


def test_a_program_is_a_measurement_that_is_read_back_from_its_formula() -> None:
    measurement = check_program(HONEST).measurement
    assert parse(measurement.formula) == measurement
    assert measurement.unit == "µm"
    assert measurement.sentence.startswith("The median distance from a cells to the nearest b cell")
    other = check_program(HONEST + "# changed\n").measurement
    assert other.name != measurement.name


def test_disturbed_slides_do_not_keep_the_values_of_undisturbed_ones() -> None:
    maps = replace(slides(1)[0], coded={"x": 1.0})
    rng = np.random.default_rng(0)
    assert not jitter(maps, 1, 1, rng).coded
    assert not drop(maps, 0.1, rng).coded
    assert not half_of([maps], rng)[0].coded


def test_a_program_gives_what_the_formula_gives(box: Sandbox) -> None:
    program = check_program(HONEST)
    formula = parse("mean(nearest(cells.a, cells.b, median))")
    for maps in with_values([program], slides(5), box):
        expected = compute(formula, maps).value
        assert compute(program.measurement, maps).value == pytest.approx(expected, rel=1e-12)


def test_outlines_and_tissue_reach_a_program(box: Sandbox) -> None:
    source = CONTRACT.replace('["cells"]', '["objects.tls", "tissue"]').replace('"µm"', '"1"') + (
        "\n\ndef area(ring):\n"
        "    x, y = ring[:, 0], ring[:, 1]\n"
        "    return abs((x[:-1] * y[1:] - x[1:] * y[:-1]).sum()) / 2\n"
        "\n\ndef measure(slide):\n"
        "    assert slide.cells is None and not slide.regions\n"
        "    rings = [ring for shape in slide.objects['tls'].rings for ring in shape]\n"
        "    return sum(area(ring) for ring in rings) / slide.area_um2\n"
    )
    share = parse("mean(size(objects.tls, total) / area(tissue))")
    program = check_program(source)
    for maps in with_values([program], slides(3), box):
        expected = compute(share, maps).value
        assert compute(program.measurement, maps).value == pytest.approx(expected)


RADIUS = HONEST.replace("def measure(slide)", "def measure(slide, radius_um)").replace(
    '"parameters": {}', '"parameters": {"radius_um": 40.0}'
).replace('"µm"', '"1"').replace(
    "np.median([np.hypot(*(b - point).T).min() for point in a])",
    "np.mean([(np.hypot(*(b - point).T) < radius_um).sum() for point in a])",
)  # fmt: skip


def test_the_unit_is_checked_by_slides_twice_as_large(box: Sandbox) -> None:
    held = slides(3)
    assert check_values(check_program(RADIUS), held, box) == []
    (wrong,) = check_values(check_program(HONEST.replace('"µm"', '"1/mm²"')), held, box)
    assert wrong.startswith("unit 1/mm²: on slides twice as large")
    literal = HONEST.replace(
        "np.hypot(*(b - point).T).min()", "(np.hypot(*(b - point).T) < 40).sum()"
    )
    (hidden,) = check_values(
        check_program(literal.replace('"µm"', '"1"').replace("np.median", "np.mean")), held, box
    )
    assert "a length is in the code" in hidden


def test_the_order_of_cells_must_not_count(box: Sandbox) -> None:
    first = HONEST.replace(
        "np.median([np.hypot(*(b - point).T).min() for point in a])", "float(a[0, 0])"
    )
    (found,) = check_values(check_program(first), slides(3), box)
    assert "order of the cells" in found


NO_NUMBERS = {
    "float('inf')": "finite", "float('nan')": "finite", "[1.0]": "shape", "np.zeros(3)": "shape",
    "'1.0'": "shape", "True": "shape", "1j": "shape", "None": "none", "10 ** 400": "raised",
    "1 / 0": "raised", "died('P07 after 12 days')": "raised",
}  # fmt: skip


def test_what_is_no_finite_number_is_missing_with_a_reason_of_ours(box: Sandbox) -> None:
    cases = [
        f"if len(slide.cells.x_um) == {at}: return {what}" for at, what in enumerate(NO_NUMBERS)
    ]
    held = slides(1)[0]
    assert held.cells is not None
    every = [replace(held, cells=held.cells.take(np.arange(at))) for at in range(len(NO_NUMBERS))]
    reasons = run_program(hostile(body(*cases)), every, box)
    assert reasons == [WHY[why] for why in NO_NUMBERS.values()]


def test_a_hostile_program_reads_no_outcome_and_writes_nothing_outside(
    box: Sandbox, tmp_path: Path
) -> None:
    secret = tmp_path / "clinical.csv"
    secret.write_text("patient,OS\nP00,12\n")
    tmp_path.chmod(0o755)
    names = [str(secret), str(tmp_path), "/inputs/cohort", "/inputs/slides/../../clinical.csv"]
    source = body(
        "found = 0",
        f"for name in {names!r}:",
        "    for mode in ('r', 'w'):",
        "        try:",
        "            open(name, mode).close(); found += 1",
        "        except OSError:",
        "            pass",
        "try:",
        "    socket.create_connection(('1.1.1.1', 80), 2); found += 100",
        "except OSError:",
        "    pass",
        "return float(found)",
        before="import socket",
    )
    assert run_program(hostile(source), slides(1), box) == [0.0]
    assert secret.read_text() == "patient,OS\nP00,12\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clinical.csv"]


def test_names_of_slides_and_patients_do_not_reach_a_program(box: Sandbox) -> None:
    source = body(
        "held = repr(slide) + ' '.join(os.listdir('/inputs/slides')) + str(dict(os.environ))",
        "held += open('/inputs/slides/jobs.json').read()",
        "return float('P00' in held or 'S0' in held)",
        before="import os",
    )
    assert run_program(hostile(source), slides(1), box) == [0.0]


def test_an_endless_program_ends_and_gives_nothing(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "SECONDS", 2.0)
    monkeypatch.setattr(running, "SECONDS_PER_SLIDE", 0.0)
    endless = hostile(body("while True:", "    pass"))
    (maps,) = with_values([endless], slides(1), box)
    assert "did not finish" in str(maps.coded[endless.digest])


@pytest.mark.parametrize(
    "left",
    [
        '[{"value": 1e999}]', '[{"value": 1.0}, {"value": 2.0}]', '[{"why": "P07 died"}]',
    ],
)  # fmt: skip
def test_a_table_of_values_that_the_program_forged_is_refused(box: Sandbox, left: str) -> None:
    source = body(
        f"open('/output/values.json', 'w').write({left!r})", "os._exit(0)", before="import os"
    )
    with pytest.raises(InputError, match="far_neighbor"):
        run_program(hostile(source), slides(1), box)


def test_a_program_stands_the_same_gate(box: Sandbox) -> None:
    held = slides(14)
    program = check_program(HONEST)
    asked = [program.measurement, parse("mean(nearest(cells.a, cells.b, median))")]
    report, measured = gate(asked, held, coded=lambda maps: with_values([program], maps, box))
    by_program, by_formula = report.measurements
    for what, agreement in by_formula.stability.items():
        assert by_program.stability[what].icc == pytest.approx(agreement.icc, rel=1e-9)
        assert agreement.icc is not None and agreement.icc < 1.0
    assert np.allclose(measured.table[:, 0], measured.table[:, 1], rtol=1e-12)
    assert sum(gated.passed for gated in report.measurements) <= 1


def test_gate_approval_and_measurement_from_the_command_line(box: Sandbox, tmp_path: Path) -> None:
    for maps in slides(12, seed=3):
        write_maps(maps, tmp_path / "maps" / maps.slide)
    file = tmp_path / "far.py"
    file.write_text(HONEST)
    measure = ("programs", "measure", "-", "--maps", "maps", "--define", "far.py", "--out", "out",
               "--workers", "1")  # fmt: skip
    assert "nobody has approved this program" in sage(*measure, cwd=tmp_path, code=2)
    approve = ("programs", "approve", "far.py", "--by", "A. Reader")
    assert "gate report not found" in sage(*approve, cwd=tmp_path, code=2)
    sage("programs", "gate", "-", "--maps", "maps", "--define", "far.py", cwd=tmp_path)
    report = json.loads((tmp_path / "gate" / "gate.json").read_text())
    (noted,) = [n for n in report["measurements"][0]["notes"] if "unit" in n]
    assert "checked on 12 of 12 slides" in noted and "constant factor" in noted
    assert report["measurements"][0]["passed"], report["measurements"][0]["reasons"]
    assert "approved" in sage(*approve, cwd=tmp_path)
    record = json.loads(review_path(file).read_text())
    assert record["approved_by"] == "A. Reader"
    sage(*measure, cwd=tmp_path)
    rows = rows_of(tmp_path / "out" / "measured.csv")
    formula = parse("mean(nearest(cells.a, cells.b, median))")
    name = check_program(HONEST).measurement.name
    for maps in slides(12, seed=3):
        expected = compute(formula, maps).value
        assert expected is not None
        assert math.isclose(float(rows[maps.patient][name]), expected, rel_tol=1e-9)
    assert f"[variables.{name}]" in (tmp_path / "out" / "measured.toml").read_text()
    file.write_text(HONEST + "# one more line\n")
    assert "changed since it was approved" in sage(*measure, cwd=tmp_path, code=2)
    assert "is for another version of far.py" in sage(*approve, cwd=tmp_path, code=2)
