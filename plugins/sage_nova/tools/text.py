"""Images and tiles against texts, with a vision-language model of the user: PLIP or CONCH."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Device, Given
from mcp_servers.spec import InputPath, OutputName, Resources
from sage.core.errors import InputError
from sage_nova.tools import store
from sage_nova.tools.common import (
    KEY,
    TILES,
    TISSUES,
    Job,
    NovaResult,
    WsiInput,
    nova_tool,
    slide_of,
)
from sage_nova.tools.roi import read_image
from sage_nova.tools.weights import TextEncoder, Texts, text_encoder

TEMPLATE = "An H&E image of {}"
NETWORK = Resources(cpu=2, memory_mb=4096, gpu="optional", seconds_per_item=30.0)
SIMILARITY = "_text_similarity"


class ModelInput(Given):
    """Which model compares images and texts."""

    text_encoder: TextEncoder = "plip"
    weights: InputPath | None = Field(
        default=None, description="Folder of its weights (PLIP: a CLIP in the transformers layout)"
    )
    hub: str | None = Field(default=None, max_length=200, description="OWNER/NAME in hub's cache")
    device: Device = "auto"


def opened(given: ModelInput, context: ToolContext) -> Texts:
    """The model of the arguments; there is no classical substitute."""
    return text_encoder(given.text_encoder, given.weights, given.hub, given.device, context)


def softmax(logits: Any) -> Any:
    """Rows that sum to 1."""
    import numpy as np

    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def _distinct(classes: list[str]) -> list[str]:
    if len(set(classes)) < len(classes):
        raise ValueError("a class stands there twice")
    return classes


Classes = Annotated[list[str], AfterValidator(_distinct)]


class ScoreImageInput(ModelInput):
    """An image and the classes that compete for it."""

    image_path: InputPath = Field(description="PNG, JPEG or TIFF; not a whole slide")
    classes: Classes = Field(min_length=2, max_length=50)
    prompts: list[str] | None = Field(
        default=None, description='A text per class; "An H&E image of CLASS" when absent'
    )
    apply_softmax: bool = True


class ScoreImageResult(NovaResult):
    """A score per class."""

    predicted_class: str
    similarity_scores: dict[str, float] = Field(
        description="Probabilities (softmax of scaled cosines), or cosines without apply_softmax"
    )


@nova_tool(
    "score_single_histology_image_using_text_tool",
    version="1.0.0",
    summary="Score a histology image based on text-based criteria: which of the classes fits best.",
    resources=NETWORK,
)
def score_image(given: ScoreImageInput, context: ToolContext) -> ScoreImageResult:
    """One image against the classes."""
    if given.prompts is not None and len(given.prompts) != len(given.classes):
        raise InputError(f"{len(given.prompts)} prompts for {len(given.classes)} classes")
    model = opened(given, context)
    image = read_image(given.image_path, context)
    words = model.texts(given.prompts or [TEMPLATE.format(name) for name in given.classes])
    scores = model.images(image[None]) @ words.T
    if given.apply_softmax:
        scores = softmax(scores * model.scale)
    found = {name: float(v) for name, v in zip(given.classes, scores[0], strict=True)}
    return ScoreImageResult(
        predicted_class=max(found, key=lambda name: found[name]), similarity_scores=found
    )


class TilesByTextInput(WsiInput, ModelInput):
    """The tiles of a slide and the texts."""

    tissue_key: str = Field(default=TISSUES, pattern=KEY)
    tile_key: str = Field(default=TILES, pattern=KEY)
    patch_features_key: str = Field(
        default=f"plip_{TILES}", pattern=KEY, description="Features by the same model as the texts"
    )


class ScoreTilesInput(TilesByTextInput):
    """Which texts."""

    classes: Classes = Field(min_length=1, max_length=50)
    similarity_metric: Literal["cosine", "dot"] = "cosine"
    apply_softmax: bool = False
    similarity_key_to_add: str | None = Field(default=None, pattern=KEY)


class ScoreTilesResult(NovaResult):
    """A score per tile and text."""

    similarity_key: str = Field(description="In obsm of the features; columns as classes")
    similarity_scores_csv_save_path: OutputName
    path_to_zarr: OutputName
    mean_scores: dict[str, float]
    tiles: int


def similarities(
    given: TilesByTextInput, classes: list[str], metric: str, chances: bool, context: ToolContext
) -> tuple[Any, Any, Any, Any]:
    """Slide, tiles, table and (tiles, classes) scores.

    Parameters
    ----------
    given : slide, keys, model
    classes : the texts
    metric : "cosine" or "dot"
    chances : softmax over the texts of each tile
    context : roots
    """
    import numpy as np

    slide, job = slide_of(given, context), Job(given.job_dir, context)
    held = store.load_store(job, slide)
    tiles = store.tiles_of(held, given.tile_key)
    table = store.features_of(held, given.patch_features_key)
    made_by = str(table.uns.get("encoder", ""))
    if made_by not in (given.text_encoder, "conch_v1" if given.text_encoder == "conch" else "plip"):
        raise InputError(
            f'features "{given.patch_features_key}" are of {made_by or "an unknown encoder"}, '
            f"texts of {given.text_encoder}: they cannot be compared; extract the features with "
            f"the same model"
        )
    model = opened(given, context)
    words, features = model.texts(classes), np.asarray(table.X, dtype=np.float32)
    if words.shape[1] != features.shape[1]:
        raise InputError(
            f"features have {features.shape[1]} numbers, texts {words.shape[1]}: other weights"
        )
    features = model.projected(features)
    if metric == "cosine":
        features = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-8)
    scores = features @ words.T
    return slide, tiles, table, softmax(scores * model.scale) if chances else scores


def score_table(tiles: Any, scores: Any, classes: list[str]) -> dict[str, Any]:
    """Columns of the CSV: the tile, its corner (level-0 pixels), a score per text."""
    import numpy as np

    corners = store.corners(tiles)
    columns: dict[str, Any] = {
        "tile_id": np.arange(len(tiles)),
        "tissue_id": tiles["tissue_id"].to_numpy(),
        "x": corners[:, 0],
        "y": corners[:, 1],
        "side_level0": np.full(len(tiles), store.side_of(tiles)),
    }
    if taken := sorted(set(classes) & set(columns)):
        raise InputError(f'"{taken[0]}" is a column of the table; word the text differently')
    return columns | {name: scores[:, i].astype(np.float64) for i, name in enumerate(classes)}


@nova_tool(
    "score_tiles_by_text_in_a_wsi_tool",
    version="1.0.0",
    summary="Score individual tiles in a WSI based on text-based similarity criteria; a CSV row "
    "per tile, and obsm[similarity_key] of the features.",
    resources=NETWORK,
)
def score_tiles(given: ScoreTilesInput, context: ToolContext) -> ScoreTilesResult:
    """Every tile against every text."""
    from mcp_servers.formats.tables import write_columns

    slide, tiles, table, scores = similarities(
        given, given.classes, given.similarity_metric, given.apply_softmax, context
    )
    job = Job(given.job_dir, context)
    key = given.similarity_key_to_add or f"{given.patch_features_key}{SIMILARITY}"
    table.obsm[key] = scores
    table.uns[f"{key}_classes"] = list(given.classes)
    name = job.out(f"{slide.name}_text_scores.csv")
    with context.writing(name) as path:
        write_columns(path, score_table(tiles, scores, given.classes))
    return ScoreTilesResult(
        similarity_key=key,
        similarity_scores_csv_save_path=name,
        path_to_zarr=store.save(
            job, slide, {given.patch_features_key: table}, context, fresh=False
        ),
        mean_scores={n: float(v) for n, v in zip(given.classes, scores.mean(axis=0), strict=True)},
        tiles=len(tiles),
    )


class PromptInput(TilesByTextInput):
    """One text."""

    prompt_term: str = Field(min_length=1, max_length=500)


class PromptResult(NovaResult):
    """Map and table."""

    similarity_map_save_path: OutputName
    similarity_scores_csv_save_path: OutputName
    low: float
    high: float


@nova_tool(
    "visualize_text_prompt_similarity_on_wsi_tool",
    version="1.0.0",
    summary="Visualize text prompt similarity scores overlaid on WSI tissue regions, with a CSV of "
    "the score (cosine) of each tile.",
    resources=NETWORK,
)
def visualize_prompt(given: PromptInput, context: ToolContext) -> PromptResult:
    """Cosine of each tile with the text, drawn over the slide."""
    from mcp_servers.formats.images import write_png
    from mcp_servers.formats.tables import write_columns
    from sage_nova.tools.jobs import heat_picture

    slide, tiles, _, scores = similarities(given, [given.prompt_term], "cosine", False, context)
    job = Job(given.job_dir, context)
    names = [job.out(f"{slide.name}_text_similarity.{end}") for end in ("png", "csv")]
    with context.writing(names[0]) as path:
        corners, side = store.corners(tiles), store.side_of(tiles)
        write_png(path, heat_picture(slide, corners, scores[:, 0], side))
    with context.writing(names[1]) as path:
        write_columns(path, score_table(tiles, scores, [given.prompt_term]))
    return PromptResult(
        similarity_map_save_path=names[0],
        similarity_scores_csv_save_path=names[1],
        low=float(scores.min()),
        high=float(scores.max()),
    )


class LabelInput(TilesByTextInput):
    """Which classes."""

    classes: Classes = Field(min_length=2, max_length=50)
    prompts: list[str] | None = Field(default=None, description="A text per class")
    method: Literal["mi-zero", "titan"] = Field(
        default="mi-zero", description="mi-zero: mean of the best tiles' similarities per class"
    )
    top_tiles: int = Field(
        default=50, ge=1, le=100_000, description="mi-zero: tiles whose similarities are averaged"
    )


class LabelResult(NovaResult):
    """A probability per class."""

    probs_for_classes: dict[str, float]
    predicted_class: str
    method: str


@nova_tool(
    "predict_wsi_label_tool",
    version="1.0.0",
    summary="Predict WSI-level class labels using text-based zero-shot classification (MI-Zero "
    "with PLIP or CONCH features; TITAN is not run, as it is published as code).",
    resources=NETWORK,
)
def predict_label(given: LabelInput, context: ToolContext) -> LabelResult:
    """MI-Zero (Lu et al. 2023, CVPR): the best tiles of each class decide."""
    import numpy as np

    if given.method == "titan":
        raise InputError(
            "method=titan: TITAN is published as Python code in its folder, which is not run here; "
            "method=mi-zero works with PLIP or CONCH features and weights"
        )
    if given.prompts is not None and len(given.prompts) != len(given.classes):
        raise InputError(f"{len(given.prompts)} prompts for {len(given.classes)} classes")
    texts = given.prompts or [TEMPLATE.format(name) for name in given.classes]
    _, tiles, _, scores = similarities(given, texts, "cosine", False, context)
    count = min(given.top_tiles, len(tiles))
    best = np.sort(scores, axis=0)[-count:].mean(axis=0)
    chances = softmax((best * opened(given, context).scale)[None])[0]
    found = {name: float(v) for name, v in zip(given.classes, chances, strict=True)}
    return LabelResult(
        probs_for_classes=found,
        predicted_class=max(found, key=lambda name: found[name]),
        method=f"mi-zero, mean of the {count} best tiles",
        warnings=["scores depend on wording; they are no calibrated probabilities"],
    )
