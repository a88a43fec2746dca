"""The web server's application: its pages, their files, and the API they call."""

from __future__ import annotations

import atexit
import base64
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from prometheus_client.core import Metric
from starlette.exceptions import HTTPException

from mcp_servers.servers.health import Watch, make_gauges
from mcp_servers.servers.serve import listen, serve_app
from sage.core.errors import InputError, SageError
from sage.core.extras import explain_absence
from sage.core.plugins import load_first
from sage.web.guard import Guard, Secrets
from sage.web.pages import load_pages
from sage.web.people import COUNTED, OverQuotaError
from sage.web.processes import Commands
from sage.web.reviews import Reviews, open_reviews
from sage.web.routes import cohorts, graph, home, regions, review, run, slides

if TYPE_CHECKING:
    from mcp_servers.servers.listener import BoundedListener
    from mcp_servers.servers.options import HttpOptions
    from sage.web.site import Site

STATIC = Path(__file__).parent / "static"
KINDS = {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
PAGES = ("/", "/runs/{name}", "/review", "/compare", "/slides", "/graph", "/cohorts")


def read_vendored() -> dict[str, Any]:
    """Read the list of vendored modules with name, version, license, file and hash."""
    found: dict[str, Any] = json.loads((STATIC / "vendor" / "vendor.json").read_text("utf-8"))
    return found


def import_map() -> str:
    """Build the page's import map with the address and hash of each module."""
    modules = {name: item for name, item in read_vendored().items() if item["file"].endswith("js")}
    place = {name: f"/static/vendor/{item['file']}" for name, item in modules.items()}
    integrity = {place[name]: item["integrity"] for name, item in modules.items()}
    return json.dumps({"imports": place, "integrity": integrity}, sort_keys=True)


def shell() -> tuple[str, str]:
    """Build the HTML page and the CSP source for its import map."""
    text = (STATIC / "index.html").read_text(encoding="utf-8")
    imports = import_map()
    digest = base64.b64encode(hashlib.sha256(imports.encode()).digest()).decode()
    return text.replace("{imports}", imports), f"'sha256-{digest}'"


def create_app(site: Site, options: HttpOptions, listener: BoundedListener | None = None) -> Guard:
    """Create the application behind its guard.

    Parameters
    ----------
    options : address and token for serving the application; the port is the port actually
        bound
    """
    assert options.token is not None
    app = FastAPI(title="SAGE", openapi_url=None, docs_url=None, redoc_url=None)
    app.state.site = site
    app.state.commands = Commands(site.settings.runs_dir)
    app.state.tiles = slides.Tiles()
    app.state.maps = {}
    app.state.csrf = Secrets(options.token).csrf
    app.state.reviews = _reviews(site)
    app.state.deciding = threading.Lock()
    pages = app.state.pages = load_pages()
    page, imports = shell()

    @app.exception_handler(SageError)
    def answer_refusal(request: Request, error: SageError) -> JSONResponse:
        entry = request.scope["state"].get("logged")
        if entry is not None and (isinstance(error, OverQuotaError) or entry.what in COUNTED):
            site.people.cancel(entry)  # a request that did not start does not count
        status = 422 if isinstance(error, InputError) else 500
        if isinstance(error, OverQuotaError):
            status = 429  # understood by proxies; the message says when to retry
        return JSONResponse({"error": str(error)}, status)

    @app.exception_handler(Exception)
    @app.exception_handler(ValueError)
    @app.exception_handler(HTTPException)
    def answer_unexpected(request: Request, error: Exception) -> JSONResponse:
        """Respond to unhandled errors without charging quotas; a bad value is a client error."""
        entry = request.scope["state"].get("logged")
        if entry is not None and entry.what in COUNTED:
            site.people.cancel(entry)
        if isinstance(error, HTTPException):
            return JSONResponse({"error": str(error.detail)}, error.status_code)
        if isinstance(error, ValueError):
            return JSONResponse({"error": "the request holds a value that cannot be used"}, 400)
        return JSONResponse({"error": "unexpected error; see the server's log"}, 500)

    @app.exception_handler(ModuleNotFoundError)
    def answer_absence(request: Request, error: ModuleNotFoundError) -> JSONResponse:
        said = explain_absence(error)
        return JSONResponse({"error": str(said or error)}, 422 if said else 500)

    @app.exception_handler(RequestValidationError)
    def answer_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        entry = request.scope["state"].get("logged")
        if entry is not None and entry.what in COUNTED:
            site.people.cancel(entry)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "request"
        return JSONResponse({"error": f"{where}: {first['msg']}"}, 422)

    def send_page() -> HTMLResponse:
        return HTMLResponse(page)

    for path in (*PAGES, *(added.path for added in pages.values())):
        app.get(path)(send_page)

    @app.get("/static/{name:path}")
    def static(name: str) -> FileResponse:
        root, file = STATIC, name
        if name.startswith("plugins/"):
            plugin, _, file = name.removeprefix("plugins/").partition("/")
            root = pages[plugin].scripts.resolve() if plugin in pages else STATIC / "none"
        path = (root / file).resolve()
        if not path.is_relative_to(root) or path.suffix not in KINDS or not path.is_file():
            raise InputError("file not found")
        lasting = name.startswith("vendor/")
        keep = "max-age=31536000, immutable" if lasting else "no-cache"
        return FileResponse(
            path, media_type=KINDS[path.suffix], headers={"cache-control": f"private, {keep}"}
        )

    routers = [part.router for part in (home, run, review, slides, regions, graph, cohorts)]
    routers += [added.router for added in pages.values() if added.router]
    for router in routers:
        app.include_router(router, prefix="/api")
    watch = Watch(lambda: collect_metrics(site))
    rules = tuple(rule for added in pages.values() for rule in added.rules)
    return Guard(app, options, imports, site.people, listener, watch, rules)


def _reviews(site: Site) -> Reviews:
    """Open the reviewers' comments and votes, which stay open until the process ends."""
    kept = ExitStack()
    atexit.register(kept.close)
    return kept.enter_context(open_reviews(site.settings))


def run_server(site: Site, options: HttpOptions, started: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; `started` is called with the address that contains the token.

    Raises
    ------
    InputError
        If the address cannot be bound, or the certificate cannot be used.
    """
    bound = listen(options)
    options = replace(options, port=bound.getsockname()[1])
    app = create_app(site, options, bound)
    serve_app(app, bound, options, lambda address: started(f"{address}/?token={options.token}"))


def collect_metrics(site: Site) -> list[Metric]:
    """Collect metrics for the runs on this machine and a plugin's database."""
    here = Counter(str(run.manifest().status) for _, run in site.runs())
    found = [make_gauges("sage_runs", "Runs in this server's folder by status.", "status", here)]
    if (hooks := load_first("sage.hooks")) is not None:
        found += hooks.collect_metrics(site.settings)
    return found
