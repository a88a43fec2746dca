# ruff: noqa: E501
"""Writes the references in docs/reference/ from the code: `python docs/generate.py`.

A test compares what this writes with what is committed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

os.environ.setdefault("COLUMNS", "100")

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
NOTE = "<!-- Written by docs/generate.py; change the code, then run it. -->\n\n"

MEANING = {
    "reasoner": "`rules` (no model), `chat`, or `auto`: `chat` where `base_url` is set",
    "allow_foreign_env": "use other programs' variables (`OPENAI_BASE_URL`, `OPENAI_API_KEY`, `HTTPS_PROXY`, `NAME_API_KEY`) where no setting of SAGE's own names an endpoint",
    "base_url": "address of an OpenAI-compatible server, without user, password or query",
    "api_key": "its key; a key alone chooses no model",
    "api_version": "makes `base_url` an Azure resource, whose deployments are the models",
    "models": "which model serves which role (`nano`, `mini`, `high`), with its prices",
    "structured": "how a schema is asked for; a server without it is asked the next simpler way",
    "vision": "send figures to the interpreter as images",
    "timeout_s": "longest wait for the first token of a reply, seconds",
    "stall_s": "longest silence within a reply, seconds",
    "retries": "how often a request that the server did not take is sent again",
    "concurrency": "calls of models under way at once",
    "requests_per_minute": "calls of models that begin in a minute",
    "repairs": "how often a refused reply goes back to the model with the reason",
    "run": "defaults for the fields of a run, such as `cohort`, `features`, `corpus`, `as_of`",
    "runs_dir": "where `sage run` writes its runs",
    "cache_dir": "vectors, the demonstration graph and cohort, parsed matrices, replies; by default "
    "under `XDG_CACHE_HOME`",
    "checkpoint_url": "PostgreSQL for checkpoints; default: SQLite in the run folder",
    "ledger": "the ledger of what was asked of which patients: a file, or `postgresql://…`",
    "paths": "how many paths go to the ontologist",
    "max_hops": "the longest path, in edges",
    "weights": "weights of logic, relevance, novelty and surprise in a path's score",
    "embedding_model": "`default` (MiniLM, ships), `hashing`, or a sentence-transformers model already on this machine",
    "drafts": "candidates that the scientist drafts, of which the best are debated and tested",
    "tournament": "rank the candidates by comparing them in pairs",
    "novelty_threshold": "below this score a hypothesis goes back to expansion",
    "revisions": "how often it goes back at most",
    "coding_rounds": "how often a model may mend its program",
    "reviewers": "how many different people must agree on a hypothesis, on the page and through commands and tools",
    "min_count": "counts below this are suppressed in prompts and reports",
    "literature": "`local` (no network), or `online`: the six services as well",
    "contact_email": "sent to literature services, which then allow more requests",
    "services": "keys and addresses of outside services: `NAME_key`, as `ncbi_key`, and `NAME_url` of a mirror, as `pubmed_url`",
    "sandbox": "where analysis code runs: `auto`, `docker`, `bubblewrap`, `subprocess`",
    "sandbox_runtime": "the container engine's runtime, such as `runsc`",
    "user_tools": "a folder of your own tools; its code is run",
}


def commands() -> str:
    """All commands with arguments and options."""
    import click
    import typer

    from sage.cli.app import app

    def walk(command: Any, name: str, above: Any) -> Iterator[str]:
        context = click.Context(command, info_name=name.rpartition(" ")[2], parent=above)
        if hasattr(command, "list_commands"):
            for below in command.list_commands(context):
                yield from walk(command.get_command(context, below), f"{name} {below}", context)
            return
        text, _, examples = (command.help or "").partition("Example")
        yield f"## {name}\n\n{text.replace(chr(8), '').strip()}\n"
        shown = [" ".join(part.split()) for part in re.split(r"\n\s*\n|Example:", examples)]
        lines = [line.lstrip(": ") for line in shown if "sage " in line]
        if lines:
            yield "```sh\n" + "\n".join(lines) + "\n```\n"
        rows = [
            f"| `{', '.join(option.opts) if option.opts[0][0] == '-' else (option.metavar or option.name.upper())}`"
            f" | {'needed' if option.required else default_of(option)}"
            f" | {cell(getattr(option, 'help', None) or '')} |"
            for option in command.params
            if option.name != "help"
        ]
        if rows:
            yield "| option | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"

    body = "\n".join(walk(typer.main.get_command(app), "sage", None))
    return f"{NOTE}# Commands\n\nEvery command has `--help` too. Exit code 2 is bad input, 1 a fault.\n\n{body}"


def default_of(option: Any) -> str:
    """Return a default of the command line; that of workers depends on the machine."""
    return "one per processor" if option.name == "workers" else shown_default(option.default)


def shown_default(value: object) -> str:
    """Return a default as a reader would type it; nothing where there is none."""
    if value is None or value is False or value in ("", ()) or callable(value):
        return ""
    if value is True:
        return "yes"
    return f"`{getattr(value, 'value', value)}`" if "Sentinel" not in repr(value) else ""


def cell(text: str) -> str:
    """Text that can stand in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def settings() -> str:
    """All settings with their variable, default and meaning."""
    from sage.settings import Settings

    rows = []
    for name, field in Settings.model_fields.items():
        default = field.default
        if hasattr(default, "model_dump"):
            default = ""
        variable = f"SAGE_{name.upper()}" + (
            "__…" if name in ("models", "weights", "services", "run") else ""
        )
        rows.append(f"| `{name}` | `{variable}` | {shown_default(default)} | {MEANING[name]} |")
    return (
        f"{NOTE}# Settings\n\nRead from `sage.toml` (`$SAGE_CONFIG`, else the working folder, else\n"
        "`~/.config/sage/`), then from the variables, then from the command line. `sage admin config` prints\n"
        "what is in force.\n\n| setting | variable | default | meaning |\n|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n\n## Runs\n\nThe table `[run]` holds defaults of every run; options of `sage run` and"
        " `sage campaign`\noverride them.\n\n| setting | variable | default | meaning |\n|---|---|---|---|\n"
        + "\n".join(run_settings())
        + "\n"
    )


def run_settings() -> list[str]:
    """Rows of the table `[run]`."""
    from sage.settings import RunOptions

    return [
        f"| `run.{name}` | `SAGE_RUN__{name.upper()}` | {shown_default(field.default)} |"
        f" {field.description} |"
        for name, field in RunOptions.model_fields.items()
    ]


def tools() -> str:
    """All tools with what they take and return."""
    from mcp_servers.describe import describe_limits, describe_validity, type_word
    from mcp_servers.registry import load

    parts = []
    for spec in sorted(load("all").all(), key=lambda spec: (spec.suite, spec.name)):
        parts.append(f"## {spec.name}\n\n{spec.summary} ({spec.suite}, {spec.version})\n")
        parts.append(
            "\n".join(
                f"- {cell(line)}" for line in (describe_limits(spec), *describe_validity(spec))
            )
        )
        for title, schema in (("takes", spec.input_schema), ("returns", spec.output_schema)):
            needed = set(schema.get("required", ()))
            rows = [
                f"| `{name}` | {cell(type_word(field))} |"
                f" {'needed' if title == 'takes' and name in needed else ''} |"
                f" {cell(str(field.get('description', '')))} |"
                for name, field in schema.get("properties", {}).items()
            ]
            parts.append(f"\n| {title} | type | | meaning |\n|---|---|---|---|\n" + "\n".join(rows))
        parts.append("")
    return (
        f"{NOTE}# Tools\n\nWhat `sage tools`, the MCP servers and the coding agent offer.\n\n"
        + ("\n".join(parts))
    )


def verdicts() -> str:
    """Return the decision table, which a test holds against `validation/verdict/verdict.py`."""
    readme = (ROOT / "validation" / "README.md").read_text(encoding="utf-8")
    table = re.search(r"^\| what is found \| associated .*?\n\n", readme, re.DOTALL | re.MULTILINE)
    assert table is not None
    return (
        f"{NOTE}# How a verdict is reached\n\nThe rules (`validation/verdict/verdict.py`) answer three"
        " questions: is the exposure associated with the\noutcome, independently of the covariates,"
        " and is the effect large enough to matter? Controls may\nobject. A row for each way:\n\n"
        + table[0]
    )


def architecture() -> str:
    """Return the page of the picture."""
    return (
        f"{NOTE}# Architecture\n\nThe steps of a run, as the state machine (`sage/run/graph.py`)"
        " joins them. Each reads only what\nits input schema names; each is checkpointed.\n\n"
        "![Steps of a run, from path generation to the report](run.svg)\n\n"
        "| package | what it holds | imports |\n|---|---|---|\n" + packages()
    )


def packages() -> str:
    """Return the packages with their size and which of the others they import."""
    import grimp

    what = {
        "sage": "command line, state machine, run folders, report; `sage.core` is the core package",
        "agents": "one module or folder per agent: what it reads, its schema, prompt and rule",
        "mcp_servers": "the tool registry, the servers, the workers",
        "kg": "literature to graph to scored paths",
        "validation": "contracts, cohorts, statistics, controls, verdicts, ledger",
        "sandbox": "where analysis code runs",
    }
    graph = grimp.build_graph(*what, cache_dir=None)
    rows = []
    for name, text in what.items():
        modules = [m for m in graph.modules if m.split(".")[0] == name]
        imported = {
            "sage.core" if target.startswith("sage.core") else target.split(".")[0]
            for module in modules
            for target in graph.find_modules_directly_imported_by(module)
        } - {name, "sage.core" if name == "sage" else ""}
        rows.append(f"| `{name}` | {text} | {', '.join(f'`{n}`' for n in sorted(imported))} |")
    return "\n".join(rows) + "\n"


BOX, GAP, ROW = 190, 40, 64


def picture() -> str:
    """Return the steps of a run as SVG: one row a step, side branches to the right."""
    from sage.run.graph import build

    services: Any = None
    drawn = build(services).compile().get_graph(xray=True)
    onward: dict[str, list[str]] = {key: [] for key in drawn.nodes}
    for edge in drawn.edges:
        onward[edge.source].append(edge.target)

    def real(key: str) -> str:
        """Return a step; the start of a part stands for its first step."""
        return real(onward[key][0]) if key.endswith("__start__") else key

    edges = sorted(
        {
            (edge.source, real(edge.target), bool(edge.conditional))
            for edge in drawn.edges
            if not edge.source.endswith("__start__") and not edge.target.endswith("__end__")
        }
    )
    done: list[str] = []

    def visit(key: str, seen: set[str]) -> None:
        """Depth first; what comes after a step is done before it."""
        if key not in seen:
            seen.add(key)
            for _, target, _ in (edge for edge in edges if edge[0] == key):
                visit(target, seen)
            done.append(key)

    visit(real("__start__"), set())
    place = {key: row for row, key in enumerate(reversed(done))}
    names = {key: key.rpartition(":")[2].replace("_", " ") for key in place}
    height = len(place) * ROW + 20
    shapes = []
    for source, target, conditional in edges:
        a, b = place[source], place[target]
        x, y1, y2 = 20 + BOX / 2, 20 + a * ROW + 36, 20 + b * ROW
        dash = ' stroke-dasharray="4 3"' if conditional else ""
        if b == a + 1:
            path = f"M{x:g} {y1} L{x:g} {y2 - 3}"
        else:
            side = 20 + BOX
            bend = side + 14 + 13 * min(abs(b - a), 12)
            path = f"M{side} {y1 - 18} C{bend} {y1 - 18} {bend} {y2 + 18} {side + 4} {y2 + 18}"
        shapes.append(f'<path d="{path}"{dash} marker-end="url(#a)"/>')
    for key, row in place.items():
        y = 20 + row * ROW
        shapes.append(f'<rect x="20" y="{y}" width="{BOX}" height="36" rx="6"/>')
        label = escape(names[key])
        shapes.append(f'<text x="{20 + BOX / 2:g}" y="{y + 23}">{label}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 420 {height}" width="420"'
        f' height="{height}" font-family="sans-serif" font-size="14" role="img"'
        ' aria-label="Steps of a run"><style>rect{fill:#eef3f8;stroke:#31587a}'
        "path{fill:none;stroke:#555}text{text-anchor:middle;fill:#222}</style>"
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        ' orient="auto"><path d="M0 0 L8 4 L0 8 z" style="fill:#555"/></marker></defs>\n'
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


PAGES = {
    "commands.md": commands,
    "settings.md": settings,
    "tools.md": tools,
    "verdicts.md": verdicts,
    "architecture.md": architecture,
    "run.svg": picture,
}


def main() -> None:
    """Write all references."""
    REFERENCE.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (REFERENCE / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
