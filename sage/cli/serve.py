"""`sage serve`: serve the web pages for asking questions, following runs and reviewing."""

from __future__ import annotations

from pathlib import Path

import typer

from sage.cli.options import GraphPath
from sage.core.errors import InputError


def serve(
    host: str = typer.Option("127.0.0.1", help="Address to listen on."),
    port: int = typer.Option(8766, min=0, max=65535, help="Port; 0 for any free port."),
    root: list[Path] | None = typer.Option(
        None, help="Folder from which cohorts and slides may be shown; repeatable."
    ),
    kg: GraphPath = None,
    reviewers: int = typer.Option(
        1, min=1, max=5, help="Number of different people who must agree on a hypothesis."
    ),
    trust_header: str = typer.Option(
        "", help="Header in which a reverse proxy identifies the person, e.g. X-Forwarded-User."
    ),
    trust_proxy: list[str] | None = typer.Option(
        None, help="Address or network of that proxy; default: this machine. Repeatable."
    ),
    roles: Path | None = typer.Option(
        None, help="TOML file with roles and quotas; requires --trust-header."
    ),
    token_file: Path | None = typer.Option(
        None, help="File whose first line is the token; default: a new token, printed at startup."
    ),
    allowed_host: list[str] | None = typer.Option(
        None, help="Accepted Host header, if not on loopback or behind a proxy; repeatable."
    ),
    tls_cert: Path | None = typer.Option(None, help="Certificate chain (PEM), to serve over TLS."),
    tls_key: Path | None = typer.Option(None, help="Key of the certificate (PEM)."),
    browser: bool = typer.Option(False, "--open", help="Open the page in the browser."),
) -> None:
    """Serve the pages until Ctrl-C: ask a question, watch a run, review, read reports.

    Open the address that is printed: it contains the token, without which every request is
    refused. Runs are processes of their own and continue when the server ends.

    Example: sage serve --port 8766 --root cohorts
    """
    from mcp_servers.servers.options import HttpOptions
    from sage.cli.console import print_line
    from sage.cli.mcp import read_token
    from sage.settings import load
    from sage.web.people import open_people
    from sage.web.serve import run_server
    from sage.web.site import Site

    settings = load()
    people = open_people(settings, trust_header, trust_proxy or [], roles)
    folders = tuple(folder.resolve() for folder in root or ())
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"--root {folder}: folder not found")
    token, made = read_token(None, token_file, none=False)
    options = HttpOptions(
        host,
        port,
        token,
        tuple(allowed_host or ()),
        certificate=str(tls_cert) if tls_cert else None,
        key=str(tls_key) if tls_key else None,
    )
    site = Site(settings, folders, kg.resolve() if kg else None, reviewers, people)

    def announce(address: str) -> None:
        shown = address if made else f"{address.partition('=')[0]}= and the token of {token_file}"
        print_line(f"open {shown}", err=True)
        if browser:
            typer.launch(address)

    run_server(site, options, announce)
