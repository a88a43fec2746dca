"""Every example that SAGE prints: blocks of the pages, `--help` examples, commands in sentences."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click
import typer

from sage.cli.app import app

ROOT = Path(__file__).parents[2]
BY_ITSELF = ROOT / "docs" / "extending.md"
"""Its commands are those of a plugin that tests/docs/test_extending.py installs."""
PAGES = (
    ROOT / "README.md",
    ROOT / "data" / "README.md",
    ROOT / "kg" / "README.md",
    ROOT / "validation" / "README.md",
    *sorted(
        page
        for page in (ROOT / "docs").rglob("*.md")
        if page.parent.name != "reference" and page != BY_ITSELF
    ),
)
PROGRAMS = (
    "sage", "python", "make", "pytest", "pip", "npx", "claude", "cd", "export", "for", "head",
    "mkdir", "cp",
)  # fmt: skip
"""First words by which a line of a block is known to be a command, and no output."""

NOT_RUN = {
    "sage nova ask": "needs slides and a sandbox",
    "sage nova explore": "needs a model or a program of yours",
    "sage portals fetch": "asks GDC and cBioPortal over the network",
    "sage admin sandbox build": "needs Docker, or debootstrap as root; CI builds the image",
    "sage admin sandbox run": "needs Docker or bubblewrap; tests/sandbox runs it in both",
    "sage admin sandbox clean": "removes what other runs on this machine left",
    "sage programs gate": "needs a sandbox; the plugin's tests run it",
    "sage programs approve": "needs the report of the gate; the same tests run it",
    "sage programs measure": "needs a sandbox; the same tests run it",
    "sage reading measure": "needs slides; the tests of the plugin run it",
    "sage validate gate … --maps read/read_findings": "needs readings; the plugin's tests run it",
    "sage slides measure … --maps read/read_findings": "needs readings; the plugin's tests run it",
    "sage tools run nuclei … weights=hovernet.onnx": "needs a network that has types of nuclei",
    "sage tools run til … cells=typed/nuclei": "needs the table of such a network",
    "sage run … --reasoner chat": "needs a model",
    "sage run … --auto-approve": "a minute each; tests/end_to_end runs the like",
    "sage training train nuclei": "trains for a minute; plugins/sage_training/tests do",
    "sage hospital restore": "needs an empty place; tests/end_to_end/test_backup.py restores",
    "sage validate e5_fabp5_tls.json": "a minute; tests/validation/test_core_tcga.py runs all four",
    "sage exchange r": "needs a validated claim; plugins/sage_exchange/tests exports some",
    "SAGE_LEDGER=": "a minute; tests/validation/test_core_tcga.py runs all four",
    "sage tools run patch_train": "needs outlines; plugins/sage_training/tests paints some",
    "sage tools run tumor": "needs the model of the line before it",
    "sage tools run … --set regions=": "needs a slide; tests/mcp_servers has some",
    "sage tools run measure_maps": "needs maps; tests/mcp_servers/measures/test_part.py makes some",
    "sage tools run … --workers ray": "needs Ray; plugins/sage_ray/tests/test_workers.py runs it",
    "sage kg vocabulary fetch": "downloads; tests/kg/test_in_vocabulary.py serves small files",
    "export": "sets a variable",
    "sage board ask": "needs a model; plugins/sage_tumor_board/tests/test_ask.py plays one",
    "python -m benchmarks": "takes minutes; that file and options exist is checked",
    "make": "sets an environment up; that the target exists is checked",
    "pip": "installs; that the extra exists is checked",
    "pytest": "the tests themselves; that the path exists is checked",
    "sage admin pause": "needs a run under way; tests/sage/web/test_site.py pauses one",
    "npx": "needs Node.js and the network",
    "claude": "another program",
    "sage campaign": "a minute; tests/end_to_end/test_campaign.py",
    "sage literature gather … --limit": "plugins/sage_literature/tests/test_gather.py",
    "sage literature update": "plugins/sage_literature/tests/test_update.py",
    "sage kg build corpus/": "needs what the line before it gathers",
    "sage programs extract": "plugins/sage_programs/tests/test_extract.py",
    "sage reading train": "plugins/sage_slide_reading/tests/test_behavior.py",
    "sage reading predict": "needs the model of the line before it",
    "sage reading read … --agent o3": "needs the same model",
    "sage serve --reviewers": "tests/end_to_end/test_pages.py",
    "sage serve --root": "docs/pages.md serves behind a proxy",
    "sage serve --port": "docs/pages.md serves behind a proxy",
    "sage slides measure … --slides slide": "tests/mcp_servers/measures/test_over_cohort.py",
    "sage slides measure … --define measurements.txt": "tests/mcp_servers/measures/test_over_cohort"
    ".py; docs/measurements.md measures maps too",
    "sage tools run cox … --json": "docs/mcp.md does without --json",
    "sage tools run spatialdata_export": "plugins/sage_exchange/tests/test_spatialdata.py",
    "sage tools run tls … mpp=0.25": "docs/routes/pathologist.md has another resolution",
    "sage tools run tls --input": "docs/routes/pathologist.md does with a folder",
    "sage tools serve all": "tests/mcp_servers serves the suites",
    "sage tools serve oncology": "tests/mcp_servers serves the suites",
    "sage tools serve pathology --root": "tests/mcp_servers serves the suites",
    "sage validate docs/hypotheses/": "tests/validation/test_claims.py drafts and runs such claims",
    "sage validate contract docs/hypotheses/claims/": "tests/validation/test_claims.py drafts it",
    "sage validate run docs/hypotheses/": "docs/routes/statistician.md runs a contract",
    "sage validate e5.json": "docs/routes/statistician.md runs a contract",
}
"""What is held against the command line (or the files it names) and not run, with the reason."""


@dataclass(frozen=True)
class Example:
    """Lines that are typed one after the other, and where they are printed."""

    where: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.where}: {self.lines[0]}"


def why_not_run(line: str) -> str | None:
    """The reason of NOT_RUN that covers a line; "…" in its key stands for anything."""
    for key, reason in NOT_RUN.items():
        if re.match(re.escape(key).replace("…", ".*"), line):
            return reason
    return None


@cache
def commands() -> dict[str, click.Command]:
    """All commands of the command line by their whole name, groups included."""

    def walk(command: Any, name: str, above: click.Context | None) -> Iterator[tuple[str, Any]]:
        context = click.Context(command, info_name=name.rpartition(" ")[2], parent=above)
        yield name, command
        if hasattr(command, "list_commands"):
            for below in command.list_commands(context):
                yield from walk(command.get_command(context, below), f"{name} {below}", context)

    return dict(walk(typer.main.get_command(app), "sage", None))


def blocks(page: Path, language: str | None = None) -> Iterator[str]:
    """Blocks of code of a page: fenced in `language`, or (None) fenced without one and indented."""
    text = page.read_text(encoding="utf-8")
    fenced = re.compile(r"^( *)```([\w-]*)[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
    for found in fenced.finditer(text):
        if found[2] in ((language,) if language else ("", "sh", "console")):
            yield textwrap.dedent(found[3])
    if language is None:
        for found in re.finditer(r"(?:^    .*\n?)+", fenced.sub("", text), re.MULTILINE):
            yield textwrap.dedent(found[0])


def typed(block: str) -> tuple[str, ...]:
    """The command lines of a block, continued lines joined, comments and output left out."""
    lines = re.sub(r"\\\n\s*", "", block).splitlines()
    found = (re.sub(r"\s+# .*", "", line.removeprefix("$ ")).strip() for line in lines)
    return tuple(
        line
        for line in found
        if line.split(" ")[0] in PROGRAMS or re.match(r"[A-Z_]+=\S+ sage ", line)
    )


def of_pages() -> list[Example]:
    """The blocks of commands of all pages."""
    return [
        Example(page.relative_to(ROOT).as_posix(), typed(block))
        for page in PAGES
        for block in blocks(page)
        if typed(block)
    ]


def of_help() -> list[Example]:
    """The examples that `--help` prints, each a line of its own."""
    found = []
    for name, command in commands().items():
        for part in re.split(r"\n\s*\n", command.help or ""):
            text = " ".join(part.replace("\b", "").split())
            line = text.removeprefix("Example:").strip()
            if re.match(r"(sage|[A-Z_]+=\S+ sage) ", line):
                found.append(Example(f"{name} --help", (line,)))
    return found


def in_sentences() -> list[tuple[str, str]]:
    """Where a sentence or a message names a command in backquotes, and the command."""
    sources = [*PAGES, ROOT / "CONTRIBUTING.md"]
    for package in ("sage", "agents", "kg", "validation", "mcp_servers", "sandbox"):
        sources += sorted((ROOT / package).rglob("*.py"))
    found = []
    for source in sources:
        text = re.sub(r'"\s*\n\s*f?"', "", source.read_text(encoding="utf-8"))
        for command in re.findall(r"(?<!`)`(sage [^`\n]+)`", text):
            found.append((source.relative_to(ROOT).as_posix(), command))
    return found


def parse(line: str) -> None:
    """Hold a line that begins with `sage` against the command line: command, options, values.

    Raises
    ------
    click.ClickException
        As the command line would say it.
    """
    words = shlex.split(re.sub(r"^([A-Z_]+=\S+ )+", "", line), comments=True)[1:]
    root = commands()["sage"]
    context = root.make_context("sage", list(words), resilient_parsing=False)
    while isinstance(context.command, click.Group) or hasattr(context.command, "list_commands"):
        below: Any = context.command
        rest = [*context._protected_args, *context.args]
        name, command, rest = below.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
