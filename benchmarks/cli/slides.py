"""`sage bench slides`: questions about slides from public benchmarks, asked of a reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sage.cli.options import AsJson
from sage_slide_reading.cli.read_slide import EyesName

if TYPE_CHECKING:
    from benchmarks.adapters.slide_questions import Asked, Choice, Item, Open
    from sage_slide_reading.reader.eyes import Eyes


def slides(
    questions: Path = typer.Argument(
        ..., help="Questions as WSI-VQA (JSON), SlideBench (CSV) or PathMMU (JSON) have them."
    ),
    folder: Path = typer.Option(
        ..., "--slides", help="Folder of the slides or images that the questions name."
    ),
    eyes: EyesName = typer.Option(EyesName.COMPUTED, help="Who looks, as for `sage reading read`."),
    weights: Path | None = typer.Option(None, help="Folder of a CLIP-type model."),
    mpp: float | None = typer.Option(
        None, min=0.01, help="µm per pixel of files that do not say; for many images they do not."
    ),
    magnification: float = typer.Option(5.0, help="Of the first round."),
    patch_px: int = typer.Option(256, min=64, max=2048, help="Side of a patch."),
    rounds: int = typer.Option(5, min=1, max=20, help="At most."),
    limit: int | None = typer.Option(None, min=1, help="Only the first questions."),
    budget_usd: float | None = typer.Option(None, min=0, help="What a model may cost in all."),
    out: Path = typer.Option(
        Path("bench-slides"), help="Folder of the answers; a run that was cut short goes on there."
    ),
    as_json: AsJson = False,
) -> None:
    """Ask the questions of a benchmark about slides, and score the answers.

    Multiple choice: accuracy with an interval over slides, beside a constant answer. Open answers:
    BLEU, ROUGE-L and METEOR. What cannot be read or answered counts as wrong.

    Example: sage bench slides questions.json --slides slides --mpp 0.5
    """
    from benchmarks.adapters import slide_questions as bench
    from sage.cli.console import counting, print_json
    from sage.cli.console import out as console
    from sage.core.extras import require_extra
    from sage.core.files import write_json

    require_extra("slides", "reading slides")
    form, items = bench.read_questions(questions)
    items = items[:limit]
    if any(not item.options for item in items):
        require_extra("scores", "scoring open answers")
    files = bench.slide_files(folder)
    rows: list[Asked] = []
    with counting("questions", quiet=as_json) as advance:
        for row in _asked(items, files, eyes, weights, magnification, patch_px, rounds, mpp,
                          budget_usd, out):  # fmt: skip
            rows.append(row)
            advance("questions", len(rows), len(items))
    choice, open_ = bench.choices(rows), bench.open_answers(rows)
    result = {
        "format": form,
        "questions": len(rows),
        "slides": len({row.slide for row in rows}),
        "eyes": eyes.value,
        "choice": [row.model_dump() for row in choice],
        "open": open_.model_dump() if open_ else None,
        "failures": {row.number: row.error for row in rows if row.error},
        "seconds": round(sum(row.seconds for row in rows), 1),
        "usd": round(sum(row.usd for row in rows), 6),
        "high_power_share": sum(row.high_power for row in rows) / len(rows),
        "answers": str(out / "answers.jsonl"),
    }
    write_json(out / "scores.json", result)
    if as_json:
        print_json(result)
        return
    for line in _lines(form, rows, choice, open_):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(f"{out}: answers.jsonl, scores.json", markup=False, soft_wrap=True)


def _asked(
    items: list[Item], files: list[Path], eyes: EyesName, weights: Path | None,
    magnification: float, patch_px: int, rounds: int, mpp: float | None,
    budget_usd: float | None, out: Path,
) -> Iterator[Asked]:  # fmt: skip
    from pydantic import ValidationError

    from benchmarks.adapters.slide_questions import ask_all
    from sage.core.errors import InputError
    from sage.core.llm.trace import Trace
    from sage.core.llm.turns import problems_of
    from sage_slide_reading.cli.read_slide import make_eyes
    from sage_slide_reading.reader.types import Options

    try:
        options = Options(magnification=magnification, patch_px=patch_px, rounds=rounds)
    except ValidationError as error:
        raise InputError(f"bench slides: {problems_of(error)}") from None
    traces = out / "traces"
    current = Trace()

    def fresh() -> Eyes:
        nonlocal current
        number = len(list(traces.glob("*.jsonl"))) + 1 if traces.is_dir() else 1
        current = Trace(traces / f"{number:06d}.jsonl" if eyes is EyesName.MODEL else None)
        return make_eyes(eyes, weights, out, budget_usd, current)

    yield from ask_all(
        items, files, fresh, options, out / "answers.jsonl", mpp=mpp, trace=lambda: current
    )


def _lines(form: str, rows: list[Asked], choice: list[Choice], open_: Open | None) -> list[str]:
    """The scores for the terminal."""
    from sage.core.printable import count_noun

    slides = count_noun(len({row.slide for row in rows}), "slide")
    lines = [f"{form}: {count_noun(len(rows), 'question')} on {slides}"]
    lines += [
        f"{row.group}: {row.accuracy:.0%} ({_interval(row)}) of {row.questions};"
        f" {row.floor_answer}: {row.floor:.0%}; abstained {row.abstained:.0%}, failed"
        f" {row.failed:.0%}"
        for row in choice
    ]
    if open_ is not None:
        lines.append(
            f"open, {open_.questions}: BLEU-1 {open_.bleu_1:.1f}, BLEU-4 {open_.bleu_4:.1f},"
            f" ROUGE-L {open_.rouge_l:.1f}, METEOR {open_.meteor:.1f}; always"
            f' "{open_.floor_answer}": BLEU-1 {open_.floor_bleu_1:.1f}; abstained'
            f" {open_.abstained:.0%}, failed {open_.failed:.0%}"
        )
        lines.append(open_.how)
    failed = [row for row in rows if row.error]
    lines += [f"question {row.number}, {row.slide}: {row.error}" for row in failed[:5]]
    if len(failed) > 5:
        lines.append(f"and {len(failed) - 5} more that failed")
    cost = sum(row.usd for row in rows)
    lines.append(f"{sum(row.seconds for row in rows):.0f} s, {cost:.4f} USD")
    return lines


def _interval(row: Choice) -> str:
    """Of an accuracy, over slides; of one slide there is none."""
    return f"{row.low:.0%} to {row.high:.0%}" if row.slides > 1 else "one slide, no interval"
