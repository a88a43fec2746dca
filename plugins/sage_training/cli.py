"""`sage training`: train bundled networks or your own on labeled tiles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sage.cli.options import AsJson, Mpp

app = typer.Typer(
    add_completion=False,
    name="training",
    help="Train networks on your own data, score them, and show their cards.",
    no_args_is_help=True,
)
Kind = Annotated[Literal["nuclei"], typer.Argument(help="Kind of network.")]
Weights = Annotated[
    Path | None,
    typer.Option(help="Network written by `sage training train`; default: the bundled network."),
]


@app.command()
def show(kind: Kind, weights: Weights = None, as_json: AsJson = False) -> None:
    """Show a network's card: its data, seed and scores.

    Example: sage training show nuclei
    """
    from mcp_servers.pathology.nuclei_net.model import read_card
    from sage.cli.console import out as console
    from sage.cli.console import print_json, print_line

    card = read_card(weights or _find_shipped()).model_dump()
    if as_json:
        print_json(card)
        return
    for name, value in card.items():
        console.print(f"[bold]{name}[/]: ", end="")
        print_line(str(value))


@app.command()
def train(
    kind: Kind,
    tiles: Annotated[Path, typer.Option(help="Folder with NAME.png and NAME_labels.png.")],
    out: Annotated[Path, typer.Option(help="Path of the safetensors file to write.")],
    mpp: Mpp = None,
    steps: Annotated[
        int, typer.Option(min=1, help="Number of training steps, with 12 examples each.")
    ] = 700,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 17,
    license: Annotated[str, typer.Option(help="License of the data, for the card.")] = "not stated",
    checkpoints: Annotated[
        Path | None,
        typer.Option(help="Folder for checkpoints, from which interrupted training resumes."),
    ] = None,
) -> None:
    """Train a network on labeled tiles, and score it on held-out tiles.

    Label images have 8 or 16 bits: 0 outside nuclei, and a different number for each nucleus.
    Similar tiles are held out together.

    Example: sage training train nuclei --tiles tiles --out own.safetensors --steps 2
    """
    from sage.cli.console import print_json, print_line
    from sage_training.nuclei.training import train_network

    card = train_network(
        tiles,
        out,
        name=out.stem,
        steps=steps,
        seed=seed,
        mpp=mpp,
        license=license,
        checkpoints=checkpoints,
        say=lambda line: print_line(line),
    )
    print_json(card.held_out.model_dump())


@app.command()
def score(
    kind: Kind,
    tiles: Annotated[Path, typer.Argument(help="Folder with NAME.png and NAME_labels.png.")],
    mpp: Mpp = None,
    weights: Weights = None,
    as_json: AsJson = False,
) -> None:
    """Score a network on labeled tiles, per organ, next to Otsu + watershed.

    F1 at an overlap of half, Dice, AJI and PQ are means over tiles. Without a pixel size, the
    median nucleus in each tile is assumed to be 40 µm². Organs are read from TCGA barcodes.

    Example: sage training score nuclei tiles --mpp 0.5
    """
    from mcp_servers.pathology.nuclei_net.model import WORKING_MPP, NucleiNetwork
    from sage.cli.console import print_json
    from sage_training.nuclei.examples import read_tiles
    from sage_training.nuclei.scoring import (
        below_baseline,
        by_organ,
        means,
        megapixels_per_cpu_second,
        own_methods,
        score_tiles,
    )

    network = NucleiNetwork(weights or _find_shipped())
    labelled = read_tiles(tiles, mpp)

    def segment(image: Any) -> Any:
        return network.labels(image, WORKING_MPP)

    scored = score_tiles(labelled, {"network": segment} | own_methods())
    methods = tuple(scored[0].methods)
    below = below_baseline(scored, "network")
    answer = {
        "data": str(tiles),
        "organs": {
            organ: {"tiles": len(group), "nuclei": sum(t.methods["network"].truth for t in group)}
            | {method: means(group, method) for method in methods}
            for organ, group in by_organ(scored).items()
        },
        "below_otsu_watershed": below,
        "megapixels_per_cpu_second": round(megapixels_per_cpu_second(segment, labelled), 2),
    }
    if as_json:
        print_json(answer)
        return
    from rich.table import Table

    from sage.cli.console import out as console

    table = Table("organ", "tiles", "nuclei", "method", "F1", "Dice", "AJI", "PQ")
    for organ, group in by_organ(scored).items():
        nuclei = sum(tile.methods["network"].truth for tile in group)
        for method in methods:
            figures = [f"{value:.3f}" for value in means(group, method).values()]
            table.add_row(organ, str(len(group)), str(nuclei), method.replace("_", " + "), *figures)
    console.print(table)
    console.print(f"tiles with F1 below Otsu + watershed: {', '.join(below) or 'none'}")
    console.print(f"megapixels per CPU second: {answer['megapixels_per_cpu_second']}")


def _find_shipped() -> Path:
    from mcp_servers.pathology.nuclei_net.model import shipped_network
    from sage.core.errors import InputError

    path = shipped_network()
    if path is None:
        raise InputError(
            'the network requires PyTorch: pip install "sage-pathology[models]"; without it, '
            "nuclei are segmented by the classical method"
        )
    return path
