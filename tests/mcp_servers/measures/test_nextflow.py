"""The Nextflow pipeline: its processes' scripts run as Nextflow would fill them in.

Nextflow itself is on no package registry of Python, R, Node or Debian (what PyPI has is a launcher
that downloads it from its own site): it is not run here.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.mcp_servers.measures.test_over_cohort import rows_of
from tests.mcp_servers.slide_tools import ROOT, environment
from tests.warm import HERE, run_warm
from validation.simulate.slide import render_slide

FOLDER = ROOT / "deploy" / "nextflow"
MODULE = (FOLDER / "modules" / "sage.nf").read_text(encoding="utf-8")
MAIN = (FOLDER / "main.nf").read_text(encoding="utf-8")
CONFIG = (FOLDER / "nextflow.config").read_text(encoding="utf-8")
SCRIPTS = dict(re.findall(r'process (\w+) \{.*?"""\n(.*?)"""', MODULE, re.DOTALL))


def run(process: str, place: Path, **filled: str) -> subprocess.CompletedProcess[str]:
    """The script of a process, its one `sage` warm, the rest as `bash -ue`, `${...}` filled in."""
    script = SCRIPTS[process]
    for name, value in filled.items():
        script = script.replace("${" + FILLED[name] + "}", value)
    assert not re.search(r"(?<!\\)\$\{", script), script
    (words,) = re.findall(r"^ *sage (.*)$", script, re.MULTILINE)
    done = run_warm(shlex.split(words), cwd=place, env={**environment(), HERE: "1"}, timeout=240)
    ended = re.sub(r"^ *sage .*$", f"(exit {done.returncode})", script, flags=re.MULTILINE)
    shell = ["bash", "-ue", "-c", ended.replace("\\$", "$")]
    rest = subprocess.run(shell, cwd=place, capture_output=True, text=True, timeout=60)
    return subprocess.CompletedProcess(words, rest.returncode, "", done.stderr + rest.stderr)


FILLED = {
    "slide": "slide", "name": "slide.baseName", "memory": "task.memory.toMega()",
    "cpus": "task.cpus", "cohort": "cohort ? 'cohort' : '-'", "slides": "slides.join(' ')",
}  # fmt: skip


@pytest.mark.slow
def test_slides_become_maps_and_variables_and_a_bad_slide_is_named_missing(tmp_path: Path) -> None:
    good, bad, joined = (tmp_path / name for name in ("good", "bad", "all"))
    for folder in (good, bad, joined, tmp_path / "slides"):
        folder.mkdir()
    slide = tmp_path / "slides" / "P1.s1.tiff"
    render_slide(slide, seed=0, size_px=512, aggregates=0)
    (good / slide.name).symlink_to(slide)  # as Nextflow stages a file
    (bad / "P2.s1.tiff").write_bytes(b"II*\0 no slide")
    for folder, name in ((good, "P1.s1"), (bad, "P2.s1")):
        given = {"slide": f"{name}.tiff", "name": name, "memory": "4096"}
        done = run("MAPS", folder, **given)
        assert (done.returncode == 0) == (name == "P1.s1"), done.stderr
        assert (folder / "maps" / name / "maps.json").is_file() == (name == "P1.s1")
    assert not (bad / "maps").exists()
    assert "P2.s1" in done.stderr

    assert "stageInMode 'copy'" in MODULE.partition("process VARIABLES")[2]
    shutil.copytree(good / "maps", joined / "maps")
    (joined / "formulas.txt").write_text("pooled(density(cells))")
    done = run("VARIABLES", joined, cpus="1", cohort="-", slides="P1.s1 P2.s1")
    assert done.returncode == 0, done.stderr
    (row,) = rows_of(joined / "measured" / "measured.csv").values()
    assert row["patient"] == "P1"
    assert float(row["pooled_density_cells"]) > 0
    assert (joined / "measured" / "missing_slides.txt").read_text() == "P2.s1\n"


def test_what_the_pipeline_names_is_there() -> None:
    """Included processes, parameters, and the processes that the configuration speaks of."""
    (included,) = re.findall(r"include \{ (.*?) \} from './modules/sage'", MAIN)
    assert set(included.split("; ")) == set(SCRIPTS) == {"MAPS", "VARIABLES"}
    assert set(re.findall(r"withName: (\w+)", CONFIG)) == set(SCRIPTS)
    (block,) = re.findall(r"^params \{\n(.*?)^\}", CONFIG, re.DOTALL | re.MULTILINE)
    declared = set(re.findall(r"^ +(\w+) +=", block, re.MULTILINE))
    used = set(re.findall(r"params\.(\w+)", MAIN + MODULE + CONFIG))
    assert used == declared
    for text in (MAIN, MODULE, CONFIG):
        code = re.sub(r"//.*", "", text)
        assert all(code.count(a) == code.count(b) for a, b in ("{}", "()", "[]"))


def test_a_name_that_a_shell_would_read_is_refused() -> None:
    (pattern,) = re.findall(r"==~ /(.*?)/\)", MAIN)
    for name in ("a b.svs", "$(touch x).svs", "-rf.svs", "a;b.svs", "..", "a`b`"):
        assert re.fullmatch(pattern, name) is None
    assert re.fullmatch(pattern, "TCGA-2F-A9KO-01Z-00-DX1.195576CF.svs")
