"""Reviewed sessions as training data: conversations and COCO boxes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sage.core.files import write_json, write_text
from sage_slide_reading.sessions.actions import Action
from sage_slide_reading.sessions.drafts import Decision, Drafts

CONVERSATIONS, BOXES = "conversations.jsonl", "boxes.coco.json"


@dataclass(frozen=True)
class Reviewed:
    """A session's drafts and the decisions about them, by round."""

    drafts: Drafts
    decisions: dict[int, Decision]

    def select_kept(self) -> Iterator[tuple[Action, Decision]]:
        """Yield the rounds that a reviewer kept."""
        for number, round_ in enumerate(self.drafts.rounds):
            decision = self.decisions.get(number)
            if decision is not None and decision.state != "rejected":
                yield round_.action, decision


def export(reviewed: Sequence[Reviewed], folder: Path) -> None:
    """Write the conversations and COCO boxes."""
    write_text(folder / CONVERSATIONS, conversations(reviewed))
    write_json(folder / BOXES, coco(reviewed))


def conversations(reviewed: Sequence[Reviewed]) -> str:
    """Render each session as a line: for each round, the decision to look, then the findings (4.4).

    A round consists of a command with its box from the user's viewer, and the assistant's
    `think` (why) and `answer` (findings). Boxes are x, y, w, h in level-0 pixels.
    """
    lines = []
    for each in reviewed:
        kept = list(each.select_kept())
        if not kept:
            continue
        header = each.drafts.header
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": "You read a histology slide region by region."},
            {"role": "user", "content": f"Slide {header.slide}, {header.width} x {header.height} "
                                        f"pixels. Task: {header.task or 'not stated'!s}"},
        ]  # fmt: skip
        for number, (action, decision) in enumerate(kept):
            rationale = decision.rationale
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
            "session": each.drafts.session, "review": [decision.state for _, decision in kept],
        }, ensure_ascii=False))  # fmt: skip
    return "".join(f"{line}\n" for line in lines)


MARK = re.compile(r"<\s*(/?\s*(?:think|answer)|[\d.]+x-\w+)\s*>", re.IGNORECASE)


def _words(said: Sequence[str]) -> str:
    """Join sentences into a text without conversation markup."""
    return MARK.sub(r"(\1)", " ".join(said))


def _box(action: Action) -> list[int]:
    return [round(side) for side in (action.x, action.y, action.w, action.h)]


def coco(reviewed: Sequence[Reviewed]) -> dict[str, Any]:
    """Build COCO annotations, with an image per slide and a category per command."""
    slides = {_slide(each.drafts) for each in reviewed}
    image = {slide: number for number, slide in enumerate(sorted(slides), 1)}
    rows = [(each.drafts, *kept) for each in reviewed for kept in each.select_kept()]
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
             "review": decision.state}
            for number, (drafts, action, decision) in enumerate(rows, 1)
        ],
    }  # fmt: skip


def _slide(drafts: Drafts) -> tuple[str, int, int]:
    """Return a key that distinguishes slides with the same name in different folders."""
    return drafts.header.slide, drafts.header.width, drafts.header.height
