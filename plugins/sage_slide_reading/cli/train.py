"""`sage reading train` and `predict`: learn from recorded sessions where readers look."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sage.cli.options import AsJson
from sage.core.printable import count_noun

if TYPE_CHECKING:
    from sage_slide_reading.behavior.model import BehaviorCard


def train_sessions(
    sessions: Annotated[Path, typer.Argument(help="Folder with *.session.jsonl files.")],
    slides: Annotated[Path, typer.Option(help="Folder with the slides used in the sessions.")],
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    patients: Annotated[
        Path | None,
        typer.Option(
            help="CSV with the columns slide and patient; default: the TCGA barcode at the start "
            "of a slide's name, or one patient per slide if there is none."
        ),
    ] = None,
    folds: Annotated[
        int, typer.Option(help="Number of folds, split by patient; 0 skips the evaluation.", min=0)
    ] = 5,
    epochs: Annotated[int, typer.Option(min=1)] = 100,
    thumbnail_px: Annotated[
        int, typer.Option(help="Longer side of the thumbnails.", min=64, max=2048)
    ] = 192,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Train a small detector for the regions that readers visit, with one behavior per task.

    It is first evaluated on held-out patients, next to cellularity and the slide's center, then
    trained on all sessions. The folder contains the weights (safetensors) and the card.

    240 sessions on 30 slides with five folds take five minutes to two hours of processor
    time, depending on the machine; --folds 0 takes a fifth of that. Interrupted training
    cannot be resumed.

    Example: sage reading train recordings --slides slides --folds 0 --out model
    """
    from mcp_servers.workers.cohort import parse_patient
    from sage.cli.console import print_json, print_line
    from sage.core.extras import require_extra
    from sage_slide_reading.behavior.examples import read_examples
    from sage_slide_reading.behavior.model import save
    from sage_slide_reading.behavior.training import TrainSettings, describe_sessions, train

    require_extra("slides", "training on slides")
    require_extra("models", "training a network")
    settings = TrainSettings(folds=folds, epochs=epochs, thumbnail_px=thumbnail_px, seed=seed)
    named = _patients(patients) if patients is not None else {}

    def patient(name: str) -> str:
        return named.get(name) or parse_patient(Path(name))

    examples = read_examples(sessions, slides, thumbnail_px, patient)
    source = describe_sessions(sessions, examples)
    trained = train(examples, settings, source, lambda line: print_line(line, err=True))
    save(out, trained.net.state_dict(), trained.card)
    if as_json:
        print_json(trained.card.model_dump(mode="json"))
        return
    for line in describe_card(trained.card):
        print_line(line)
    print_line(f"{out}: behavior.safetensors, card.json")


def describe_card(card: BehaviorCard) -> list[str]:
    """Format a card as lines for the terminal."""
    lines = [
        f"{card.parameters:,} parameters, {count_noun(card.slides, 'slide')} of "
        f"{count_noun(card.patients, 'patient')}"
    ]
    for behavior in card.behaviors:
        lines.append(
            f"{behavior.task}: {count_noun(behavior.sessions, 'session')}, {behavior.regions:.1f} "
            "regions each"
        )
        own = [score for score in card.scores if score.behavior == behavior.task]
        for metric in dict.fromkeys(score.metric for score in own):
            values = ", ".join(
                f"{score.guide} {score.value:.2f}"
                + (f" ({score.low:.2f} to {score.high:.2f})" if score.guide == "model" else "")
                for score in own
                if score.metric == metric and score.value is not None
            )
            lines.append(f"  {metric}: {values}")
    return lines


def predict_regions(
    slide: Annotated[Path, typer.Argument(help="Slide or image file.")],
    model: Annotated[
        Path | None,
        typer.Option(help="Model folder (sage reading train); default: the bundled model."),
    ] = None,
    behavior: Annotated[
        str | None, typer.Option(help="Task whose behavior to use, if the model has several.")
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            help="Maximum number of regions; default: as many as readers visit.", min=1, max=200
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="GeoJSON for QuPath and the slides page.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict where a reader would look on a slide: boxes, scores, and magnification bins.

    The bundled model learned from scripted readers of simulated lymph nodes; it has a
    behavior for each of four strategies. A proposed region is a place to look at, not a
    finding.

    Example: sage reading predict slide.svs --behavior "find metastatic tumor" --out r.geojson
    """
    from mcp_servers.slides.slide import Slide
    from sage.cli.console import print_json, print_line
    from sage.core.extras import require_extra
    from sage_slide_reading.behavior.model import BehaviorModel, write_regions

    require_extra("slides", "reading slides")
    require_extra("models", "a network")
    loaded = BehaviorModel(model)
    with Slide.open(slide) as opened:
        regions = loaded.predict(opened, behavior, most)
    if out is not None:
        write_regions(regions, out)
    if as_json:
        print_json([region.model_dump(mode="json") for region in regions])
        return
    for number, region in enumerate(regions, 1):
        print_line(
            f"{number}: {region.x:.0f},{region.y:.0f},{region.w:.0f},{region.h:.0f} at "
            f"{region.bin:g}x, score {region.score:.2f}, order {region.order:.2f}"
        )
    if not regions:
        print_line("no region has a sufficient score")


def _patients(path: Path) -> dict[str, str]:
    """Read the patient for each slide from a CSV."""
    import csv

    from sage.core.errors import InputError

    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows: list[dict[str, Any]] = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {error}") from None
    for number, row in enumerate(rows, 2):
        if not row.get("slide") or not row.get("patient"):
            raise InputError(f"{path}: line {number}: columns slide and patient are required")
    return {row["slide"]: row["patient"] for row in rows}
