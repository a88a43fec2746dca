"""Reviewed sessions as training data: conversations, COCO boxes, and a datasheet."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from sage.core.files import write_text
from sage.core.printable import count_noun
from sage_slide_reading.sessions.actions import Action
from sage_slide_reading.sessions.drafts import Audit, Decision, Drafts, Rationale, audit

FILES = {
    "conversations": "conversations.jsonl",
    "boxes": "boxes.coco.json",
    "datasheet": "datasheet.md",
}


@dataclass(frozen=True)
class Reviewed:
    """A session's drafts and the decisions about them, by round."""

    drafts: Drafts
    decisions: dict[int, Decision]

    def select_kept(self, unreviewed: bool) -> list[tuple[Action, Rationale, str]]:
        """Select rounds that a reviewer kept and, with `unreviewed`, those without a decision."""
        found: list[tuple[Action, Rationale, str]] = []
        for number, round_ in enumerate(self.drafts.rounds):
            decision = self.decisions.get(number)
            if decision is not None and decision.state != "rejected":
                found.append((round_.action, decision.rationale, decision.state))
            elif decision is None and unreviewed:
                found.append((round_.action, round_.rationale, "not reviewed"))
        return found


def export(reviewed: Sequence[Reviewed], folder: Path, *, unreviewed: bool = False) -> list[Path]:
    """Write the conversations, COCO boxes and datasheet, and return their paths."""
    written = {
        "conversations": conversations(reviewed, unreviewed),
        "boxes": json.dumps(coco(reviewed, unreviewed), indent=1, ensure_ascii=False) + "\n",
        "datasheet": datasheet(reviewed, unreviewed),
    }
    paths = []
    for kind, text in written.items():
        write_text(folder / FILES[kind], text)
        paths.append(folder / FILES[kind])
    return paths


def conversations(reviewed: Sequence[Reviewed], unreviewed: bool = False) -> str:
    """Render each session as a line: for each round, the decision to look, then the findings (4.4).

    A round consists of a command with its box from the user's viewer, and the assistant's
    `think` (why) and `answer` (findings). Boxes are x, y, w, h in level-0 pixels.
    """
    lines = []
    for each in reviewed:
        kept = each.select_kept(unreviewed)
        if not kept:
            continue
        header = each.drafts.header
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": "You read a histology slide region by region."},
            {"role": "user", "content": f"Slide {header.slide}, {header.width} x {header.height} "
                                        f"pixels. Task: {header.task or 'not stated'!s}"},
        ]  # fmt: skip
        for number, (action, rationale, _) in enumerate(kept):
            said = [_words(rationale.thumbnail_impression)] if number == 0 else []
            said.append(f"<think>{_words(rationale.why_zoom)}</think>")
            said.append(f"{action.command} {json.dumps(_box(action))}")
            move = "\n".join(filter(None, said))
            if number:  # roles alternate: findings and the next move are one turn
                messages[-1]["content"] += f"\n{move}"
            else:
                messages.append({"role": "assistant", "content": move})
            messages.append({"role": "user", "content": f"The region {json.dumps(_box(action))}."})
            answer = f"<answer>{_words(rationale.findings)}</answer>"
            messages.append({"role": "assistant", "content": answer})
        lines.append(json.dumps({
            "messages": messages, "slide": header.slide, "reader": header.reader,
            "session": each.drafts.session, "review": [state for *_, state in kept],
        }, ensure_ascii=False))  # fmt: skip
    return "".join(f"{line}\n" for line in lines)


MARK = re.compile(r"<\s*(/?\s*(?:think|answer)|[\d.]+x-\w+)\s*>", re.IGNORECASE)


def _words(said: Sequence[str]) -> str:
    """Join sentences into a text without conversation markup."""
    return MARK.sub(r"(\1)", " ".join(said))


def _box(action: Action) -> list[int]:
    return [round(side) for side in (action.x, action.y, action.w, action.h)]


def coco(reviewed: Sequence[Reviewed], unreviewed: bool = False) -> dict[str, Any]:
    """Build COCO annotations, with an image per slide and a category per command."""
    slides = {_slide(each.drafts) for each in reviewed}
    image = {slide: number for number, slide in enumerate(sorted(slides), 1)}
    rows = [
        (each.drafts, action, state)
        for each in reviewed
        for action, _, state in each.select_kept(unreviewed)
    ]
    category = {
        command: number
        for number, command in enumerate(sorted({action.command for _, action, _ in rows}), 1)
    }
    return {
        "info": {"description": "Regions that readers looked at, in level-0 pixels"},
        "images": [
            {"id": number, "file_name": name, "width": width, "height": height}
            for (name, width, height), number in image.items()
        ],
        "categories": [
            {"id": number, "name": command, "supercategory": "action"}
            for command, number in category.items()
        ],
        "annotations": [
            {"id": number, "image_id": image[_slide(drafts)],
             "category_id": category[action.command], "iscrowd": 0,
             "bbox": [action.x, action.y, action.w, action.h], "area": action.area,
             "seconds": round(action.seconds, 3), "start_s": action.start_s,
             "magnification": action.magnification, "reader": drafts.header.reader,
             "review": state}
            for number, (drafts, action, state) in enumerate(rows, 1)
        ],
    }  # fmt: skip


def _slide(drafts: Drafts) -> tuple[str, int, int]:
    """Return a key that distinguishes slides with the same name in different folders."""
    return drafts.header.slide, drafts.header.width, drafts.header.height


def datasheet(reviewed: Sequence[Reviewed], unreviewed: bool = False) -> str:
    """Render a datasheet on content, authors, method, and limits (after Gebru et al., 2021)."""
    kept = [row for each in reviewed for row in each.select_kept(unreviewed)]
    drafts = [each.drafts for each in reviewed]
    commands = Counter(action.command for action, *_ in kept)
    states = Counter(state for *_, state in kept)
    rejected = sum(
        decision.state == "rejected" for each in reviewed for decision in each.decisions.values()
    )
    readers = sorted({each.header.reader for each in drafts})
    reviewers = sorted({d.reviewer for each in reviewed for d in each.decisions.values()})
    hours = sum(each.rounds[-1].action.end_s if each.rounds else 0.0 for each in drafts) / 3600
    words = [rationale.words for _, rationale, _ in kept]
    settings = sorted({each.settings.model_dump_json() for each in drafts})
    notes = sorted({each.header.note for each in drafts if each.header.note})
    lines = [
        "# Datasheet",
        "",
        "## What",
        "",
        f"- {count_noun(len(drafts), 'session')} on "
        f"{count_noun(len(set(map(_slide, drafts))), 'slide')}, "
        f"{count_noun(len(kept), 'round')}; {hours:.2f} h from the start to the last action.",
        *(f"- {count} × `{command}`" for command, count in sorted(commands.items())),
        f"- {sum(words) / len(words):.0f} words per round." if words else "- No round was kept.",
        f"- Tasks: {_join_names({each.header.task or 'not stated' for each in drafts})}.",
        "- `conversations.jsonl`: one session per line, each round a command with its box, the "
        "reason (`think`) and the findings (`answer`). `boxes.coco.json`: the boxes, level-0 "
        "pixels.",
        "",
        "## Who",
        "",
        f"- Readers (pseudonyms): {_join_names(readers)}.",
        f"- Reviewers: {_join_names(reviewers)}.",
        *(f"- {escape(note, quote=False)}" for note in notes),
        "",
        "## How",
        "",
        "- Views were recorded while the slide was read, and turned into actions by the rules of "
        "Pathology-CoT (stay, pan, peek; overviews removed, similar boxes merged, containing boxes "
        "removed, sizes normalized). Settings:",
        *(f"  `{text}`" for text in settings),
        *(f"- Rationales: {text}" for text in sorted({each.statement for each in drafts})),
        "- Review: "
        f"{', '.join((f'{n} {state}' for state, n in sorted(states.items()))) or 'none'}, "
        f"{rejected} rejected and omitted.",
        *_times([audit(each.drafts, each.decisions) for each in reviewed if each.decisions]),
        "",
        "## Limits",
        "",
        "- A view shows what was on the screen, not where on it the reader looked or what the "
        "reader thought. A rationale was drafted and reviewed afterwards; the first wording can "
        "anchor a reviewer.",
        "- Boxes are normalized in size: they are centered on what was seen and are not outlines.",
        *(
            ["- Rounds marked `not reviewed` were read by nobody; they are not ground truth."]
            if states["not reviewed"]
            else []
        ),
        "- Reading habits depend on task, screen and person; they may not generalize. Not for "
        "diagnosis.",
    ]
    return "\n".join(lines) + "\n"


def _join_names(names: Sequence[str] | set[str]) -> str:
    """Join names and tasks as typed, escaped so that Markdown does not treat them as HTML."""
    return escape(", ".join(sorted(names)), quote=False) or "none"


def _times(audits: Sequence[Audit]) -> list[str]:
    timed = [(each.average_s, each.decided) for each in audits if each.average_s is not None]
    if not timed:
        return ["- The review was not timed."]
    decided = sum(count for _, count in timed)
    average = sum(seconds * count for seconds, count in timed) / decided
    return [
        f"- {average:.1f} s per round from its load to the decision"
        f" ({count_noun(decided, 'round')})."
    ]
