"""`sage bench slidequest`: answers to SlideQuest's questions, scored by two scorers."""

from __future__ import annotations

from pathlib import Path

import typer

from sage.cli.options import AsJson


def slidequest(
    benchmark: Path = typer.Argument(
        ..., help="SlideQuest's folder: data_qa, cellular_qa, patch_qa, slide_qa."
    ),
    answers: list[Path] | None = typer.Option(
        None,
        help="Folder of CATEGORY/question_N/answer.json; once per repeat. Default: the truth is "
        "held against itself.",
    ),
    as_json: AsJson = False,
) -> None:
    """Score answers to SlideQuest: the published scorer's rules beside repaired ones.

    The published rules score the truth itself below 1 on some questions; without --answers they
    are listed. Answers come from folders; nothing is asked here.

    Example: sage bench slidequest slidequest --answers run1 --answers run2 --answers run3
    """
    from sage.bench import slidequest as bench
    from sage.console import out as console
    from sage.console import print_json
    from sage.core.errors import InputError

    questions, total = bench.read_questions(benchmark)
    if not questions:
        raise InputError(f"{benchmark}: holds no ground_truth/question_N/answer.json to score with")
    for folder in answers or []:
        if not folder.is_dir():
            raise InputError(f"--answers {folder}: is not a folder")
    folders: list[Path | None] = [*(answers or [])] or [None]
    repeats = [bench.score_folder(questions, folder) for folder in folders]
    rows = bench.summarize(repeats)
    below = [row for part in repeats for row in part if row.original != row.repaired]
    if as_json:
        print_json(
            {
                "questions": total,
                "with_truth": len(questions),
                "repeats": len(repeats),
                "answers": [str(folder) for folder in answers or []],
                "summary": [row.model_dump() for row in rows],
                "scored": [[row.model_dump() for row in part] for part in repeats],
            }
        )
        return
    console.print(f"{len(questions)} of {total} questions have their truth here")
    for row in rows:
        errors = (row.original_error, row.repaired_error)
        a, b = ("" if error is None else f" ± {error:.3f}" for error in errors)
        console.print(
            f"{row.category:12} n={row.questions:3}  published {row.original:.3f}{a}  "
            f"repaired {row.repaired:.3f}{b}  failed {row.failure_rate:.1%}"
        )
    for item in below:
        console.print(
            f"{item.question}: published {item.original:.3f}, repaired {item.repaired:.3f}"
        )
