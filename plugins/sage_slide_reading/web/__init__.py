"""Page for recorded sessions and their review, and panels for recording and reading slides."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter

from sage.web.pages import Page
from sage.web.people import SLIDE, Role, Rule
from sage_slide_reading.web import drafts, readings, sessions

router = APIRouter()
for part in (sessions, drafts, readings):
    router.include_router(part.router)

page = Page(
    path="/sessions",
    title="Sessions",
    scripts=Path(__file__).parent / "static",
    script="drafts.js",
    panels=("readings.js", "sessions.js"),
    router=router,
    rules=(
        Rule(r"/api/drafts/[^/]+/decisions", Role.REVIEW),
        Rule(r"/api/sessions/[^/]+/events", Role.REVIEW, ""),
        Rule(r"/api/sessions(?:/[^/]+/delete)?", Role.REVIEW),
        Rule(r"/api/slides/readings", Role.RUN, SLIDE),
        Rule(r"/api/slides/readings/stop", Role.RUN),
        Rule(r"/api/slides/readings/say", Role.REVIEW),
    ),
)
