"""What reviewing drafted rationales takes, against writing them: a scripted reviewer in Chromium.

    python -m benchmarks.session_review [--slide SLIDE] [--out benchmarks/results/session_review.md]

The reviewer is a script: its clicks and keys are real events on the real page, counted there; its
time is what a person of the stated speeds takes for what the script does, whatever else runs on the
machine. Reading, typing, aiming and looking are assumptions, which decide the result; they are
printed with it. The way to a region is the recorded reader's and counts for the rounds that are
written from scratch alone, as in appendix A.1.1 of Pathology-CoT.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from mcp_servers.slides.slide import Slide
from sage_slide_reading.sessions.drafts import Audit, audit, read_decisions, read_drafts
from sage_slide_reading.sessions.format import Session, SessionHeader, ViewEvent, write_session
from tests.end_to_end.harness import sage
from tests.sage.web.pages import looking, serving, until

WRITTEN = {
    "thumbnail_impression": "One piece of tissue with a pale edge.",
    "why_zoom": "A darker band crosses the paler stroma here.",
    "findings": "Nuclei are crowded and vary in size, without a solid nest. The stroma between "
    "them is loose, with a few lymphocytes and no necrosis.",
}
"""What the reviewer writes from scratch: 40 words for every region."""
ADDED = "Some of the crowded nuclei show small nucleoli."
LOADED = "[...document.querySelectorAll('.pictures img')].filter(i => i.complete && i.naturalWidth)"


@dataclass(frozen=True)
class Speeds:
    """Of the reviewer: words per minute, seconds to aim and click, seconds to look at a region.

    Every `revised`-th draft is revised: a sentence goes, another is written.
    """

    reading: float = 238.0
    typing: float = 40.0
    click: float = 1.2
    look: float = 4.0
    revised: int = 5


def main() -> None:
    """Measure and print, or write, the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--slide", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    text = report(given.slide.resolve(), given.rounds)
    print(text) if given.out is None else given.out.write_text(text, encoding="utf-8")


def report(slide: Path, rounds: int) -> str:
    """The table for one slide, reading at two speeds."""
    typed, skimmed = Speeds(), Speeds(reading=850.0)
    scratch, drafted = (measure(slide, eyes, typed, rounds) for eyes in ("none", "computed"))
    own = fmean(act.seconds(typed) for act in scratch.acts) + (scratch.audit.navigation_s or 0.0)
    lines = [
        f"{rounds} regions of {slide.name}; typing at {typed.typing:g} words a minute, "
        f"{typed.click:g} s a click, {typed.look:g} s to look at a region; every "
        f"{typed.revised}th draft is revised. 238 words a minute is silent reading (Brysbaert, "
        "Journal of Memory and Language, 2019); 850 is what the paper's 10 to 12 s for 150 words "
        "come to.",
        "",
        "| review | s per region | accepted | revised | clicks | keys | saving |",
        "|---|---|---|---|---|---|---|",
        f"| written from scratch | {own:.1f} | – | – | {scratch.audit.clicks:.1f} | "
        f"{scratch.audit.keys:.0f} | 1.0-fold |",
    ]
    for words, speeds in (("read", typed), ("skimmed", skimmed)):
        took = [act.seconds(speeds) for act in drafted.acts]
        accepted = fmean(s for s, act in zip(took, drafted.acts, strict=True) if not act.typed)
        revised = fmean(s for s, act in zip(took, drafted.acts, strict=True) if act.typed)
        lines.append(
            f"| drafts, {words} at {speeds.reading:g} words a minute | {fmean(took):.1f} | "
            f"{accepted:.1f} | {revised:.1f} | {drafted.audit.clicks:.1f} | "
            f"{drafted.audit.keys:.0f} | {own / fmean(took):.1f}-fold |"
        )
    return "\n".join(lines) + "\n"


@dataclass
class Act:
    """What the script did in a round: clicks, and words that it read and typed."""

    clicks: int = 0
    read: int = 0
    typed: int = 0

    def seconds(self, speeds: Speeds) -> float:
        """What that takes a person."""
        words = 60 * (self.read / speeds.reading + self.typed / speeds.typing)
        return speeds.look + self.clicks * speeds.click + words


@dataclass(frozen=True)
class Reviewed:
    """What the page counted, and what the script did."""

    audit: Audit
    acts: list[Act]


def measure(slide: Path, eyes: str, speeds: Speeds, rounds: int) -> Reviewed:
    """Record, draft and review in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        kept = place / "kept"
        write_session(kept / "a.session.jsonl", ten_stays(slide, rounds))
        done = sage("reading", "draft", str(kept / "a.session.jsonl"), "--slide", str(slide),
                    "--eyes", eyes, cwd=place)  # fmt: skip
        assert done.code == 0, done.err
        with serving(place, "--root", str(slide.parent), "--sessions", str(kept)) as served:
            acts = review(served, speeds)
        drafts = read_drafts(kept / "a.drafts.json")
        return Reviewed(audit(drafts, read_decisions(kept / "a.drafts.json", drafts)), acts)


def ten_stays(path: Path, rounds: int) -> Session:
    """A reader who stays at places along two rows of the slide, for 3 s each, 4 s apart."""
    with Slide.open(path) as slide:
        header = SessionHeader(
            slide=path.name, width=slide.width, height=slide.height, mpp=slide.mpp,
            objective=slide.objective_power, screen=(1000, 750), reader="script", task="find tumor",
            started="2026-01-01T00:00:00+00:00",
        )  # fmt: skip
    side = 0.12 * header.height
    events = []
    for number in range(rounds):
        x = header.width * (0.3 + 0.5 * (number % 5) / 5)
        y = header.height * (0.35 + 0.3 * (number // 5))
        for t, kind in ((4.0 * number, "zoom"), (4.0 * number + 3, "close")):
            events.append(ViewEvent.model_validate({
                "t": t, "kind": kind, "x": x, "y": y, "w": side, "h": 0.75 * side,
                "magnification": header.magnification(side),
            }))  # fmt: skip
    return Session(header=header, events=tuple(events))


def review(served: Any, speeds: Speeds, name: str = "a") -> list[Act]:
    """Decide on every round of a session's drafts; the page's time passes as for a person."""
    acts: list[Act] = []
    with looking(viewport={"width": 1400, "height": 1100}) as page:
        page.clock.install()
        page.goto(served.address)
        page.wait_for_selector("h1")
        page.goto(f"{served.origin}/sessions?drafts={name}")
        page.wait_for_selector(".review")
        page.fill("#reviewer", "script")
        known: set[str] = set()
        total = page.evaluate("document.querySelector('progress').max")
        for number in range(int(total)):
            page.wait_for_selector(f".review[data-round='{number}']")
            until(lambda: page.evaluate(f"{LOADED}.length") == 3)
            revise = number % speeds.revised == speeds.revised - 1
            acts.append(_decide(page, speeds, known, revise))
            page.wait_for_selector(f".review[data-decided='{number + 1}']")
    return acts


def _decide(page: Any, speeds: Speeds, known: set[str], revise: bool) -> Act:
    act = Act()

    def click(selector: str) -> None:
        act.clicks += 1
        page.click(selector)

    def write(selector: str, text: str) -> None:
        click(selector)
        page.keyboard.press("End")
        page.keyboard.type(text)
        act.typed += len(text.split())

    if page.query_selector("textarea"):
        for name, text in WRITTEN.items():
            write(f"[data-panel={name}] textarea", text)
    else:
        lines = [item.inner_text() for item in page.query_selector_all(".sentences p span")]
        new = [line for line in lines if line not in known]  # what was read before is known
        known.update(lines)
        act.read = sum(len(line.split()) for line in new)
        if revise:
            click("[data-panel=findings] [data-delete='0']")
            click("[data-edit=findings]")
            write("[data-panel=findings] textarea", f" {ADDED}")
    act.clicks += 1
    page.clock.fast_forward(round(1000 * act.seconds(speeds)))
    page.click("#accept")
    return act


if __name__ == "__main__":
    main()
