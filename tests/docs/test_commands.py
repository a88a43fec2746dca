"""Every command that the pages and `--help` print is typed in a folder that holds what it names."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.docs.examples import (
    NOT_RUN,
    ROOT,
    Example,
    commands,
    in_sentences,
    of_help,
    of_pages,
    parse,
    why_not_run,
)
from tests.docs.shell import run

SHOWN = of_pages()
SEEN = {line for example in SHOWN for line in example.lines}
EXAMPLES = SHOWN + [example for example in of_help() if example.lines[0] not in SEEN]


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_works_as_printed(example: Example, request: pytest.FixtureRequest) -> None:
    if all(why_not_run(line) for line in example.lines):
        for line in example.lines:
            hold_against_what_it_names(line)
        return
    folder = here = request.getfixturevalue("here")
    if any(re.match(r"sage validate ledger (show|verify|export)", x) for x in example.lines):
        run("sage validate ledger merge colleague.jsonl", here)
    if " last" in example.lines[0] or any("--runs runs/" in line for line in example.lines):
        request.getfixturevalue("runs")
    for line in example.lines:
        if " promote " in line:
            program_of_a_model(here / "runs")
        if line.startswith("cd "):
            folder = folder / line.removeprefix("cd ")
            assert folder.is_dir()
        elif why_not_run(line) is None:
            run(line, folder)
        else:
            hold_against_what_it_names(line)


def program_of_a_model(runs: Path) -> None:
    """Put a program that a model could have written into the one run."""
    (results,) = runs.glob("*/hypotheses/h1/results")
    reply = ROOT / "tests" / "agents" / "replies" / "second_try" / "round-2.json"
    (results / "attempt-2").mkdir()
    (results / "attempt-2" / "analysis.py").write_text(json.loads(reply.read_text())["code"])


def hold_against_what_it_names(line: str) -> None:
    """What is not run is a command of this version, or names files and targets that exist."""
    words = shlex.split(line, comments=True)
    if re.match(r"([A-Z_]+=\S+ )*sage ", line):
        parse(line)
        for path in re.findall(r"docs/\S+\.json", line):
            assert (ROOT / path).is_file(), path
    elif words[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in words[1:])
    elif words[0] == "pip":
        extras = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        for extra in re.findall(r"\[(\w+)\]", line):
            assert re.search(rf"^{extra} = \[", extras, re.MULTILINE), extra
    elif words[0] == "pytest":
        assert all((ROOT / path).exists() for path in words[1:])
    elif words[0] == "python":
        name = words[2].replace(".", "/") + ".py" if words[1] == "-m" else words[1]
        path = ROOT / name if (ROOT / name).is_file() else ROOT / name[:-3] / "__init__.py"
        if words[1:4] == ["-m", "benchmarks", "run"]:
            path = ROOT / "benchmarks" / "adapters" / f"{words[4]}.py"
        known = path.read_text() + (ROOT / "benchmarks" / "__main__.py").read_text()
        for option in (word for word in words if word.startswith("--")):
            assert option[2:].replace("-", "_") in known.replace("-", "_"), (path, option)


def test_every_exception_is_needed() -> None:
    lines = [line for example in EXAMPLES for line in example.lines]
    for key, reason in NOT_RUN.items():
        pattern = re.escape(key).replace("…", ".*")
        assert any(re.match(pattern, line) for line in lines), key
        assert all((ROOT / name).exists() for name in re.findall(r"[\w/]+/tests[\w/.]*", reason))


def test_every_command_has_an_example() -> None:
    shown = {example.where for example in of_help()}
    plain = {name for name, command in commands().items() if not hasattr(command, "list_commands")}
    assert {name for name in plain if f"{name} --help" not in shown} == set()


def test_a_command_named_in_a_sentence_exists() -> None:
    wrong = {(where, command): missing(command) for where, command in in_sentences()}
    assert {named: said for named, said in wrong.items() if said} == {}


def missing(command: str) -> list[str]:
    """What this version lacks; capitals, braces and "…" stand for what the reader gives."""
    words = re.sub(r"[\[\]…]", " ", command).split()
    known, name = commands(), "sage"
    if words[1:2] == ["validate"] and f"sage validate {' '.join(words[2:3])}".strip() not in known:
        words.insert(2, "run")
    while len(words) > 1 and f"{name} {words[1]}" in known:
        name = f"{name} {words.pop(1)}"
    found = known[name]
    if hasattr(found, "list_commands") and len(words) > 1 and not words[1].startswith("-"):
        return [words[1]]
    options = {text for given in found.params for text in (*given.opts, *given.secondary_opts)}
    asked = {word.partition("=")[0] for word in words if word.startswith("--")}
    return sorted(asked - options - {"--help"})
