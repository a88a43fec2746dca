"""Comparison of images and tiles to texts, using the user's PLIP or CONCH."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Device
from mcp_servers.spec import InputPath, OutputName, Resources
from sage.core.errors import InputError
from sage_nova.tools import store
from sage_nova.tools.common import KEY, TILES, TISSUES, NovaResult, WsiInput, nova_tool
from sage_nova.tools.roi import read_image
from sage_nova.tools.weights import ModelWeights, TextEncoder, load_text_encoder

TEMPLATE = "An H&E image of {}"
NETWORK = Resources(cpu=2, memory_mb=4096, gpu="optional", seconds_per_item=30.0)


class TextModelInput(ModelWeights):
    """A model that compares images and texts."""

    text_encoder: TextEncoder = "plip"
    device: Device = "auto"


def _check_distinct(classes: list[str]) -> list[str]:
    if len(set(classes)) < len(classes):
        raise ValueError("a class appears twice")
    return classes


Classes = Annotated[list[str], AfterValidator(_check_distinct)]


def _make_texts(classes: list[str], prompts: list[str] | None) -> list[str]:
    """Make a text for each class.

    Raises `InputError` if the numbers of prompts and classes differ.
    """
    if prompts is not None and len(prompts) != len(classes):
        raise InputError(f"got {len(prompts)} prompts for {len(classes)} classes")
    return prompts or [TEMPLATE.format(name) for name in classes]


class ScoreImageInput(TextModelInput):
    """An image and the competing classes."""

    image_path: InputPath = Field(description="PNG, JPEG or TIFF file, not a whole slide")
    classes: Classes = Field(min_length=2, max_length=50)
    prompts: list[str] | None = Field(
        default=None, description='One text per class; default: "An H&E image of CLASS"'
    )
    apply_softmax: bool = True


class ScoreImageResult(NovaResult):
    """A score for each class."""

    predicted_class: str
    similarity_scores: dict[str, float] = Field(
        description="Probabilities (softmax of scaled cosines), or cosines without apply_softmax"
    )


@nova_tool("score_single_histology_image_using_text_tool", NETWORK)
def score_image(given: ScoreImageInput, context: ToolContext) -> ScoreImageResult:
    """Score a histology image based on text-based criteria, and select the best class."""
    from scipy.special import softmax

    texts = _make_texts(given.classes, given.prompts)
    model = load_text_encoder(given.text_encoder, given, context)
    image = read_image(given.image_path, context)
    scores = model.embed_images(image[None]) @ model.embed_texts(texts).T
    if given.apply_softmax:
        scores = softmax(scores * model.scale, axis=1)
    found = {name: float(v) for name, v in zip(given.classes, scores[0], strict=True)}
    best = max(found, key=lambda name: found[name])
    return ScoreImageResult(predicted_class=best, similarity_scores=found)


class TilesByTextInput(WsiInput, TextModelInput):
    """A slide's tiles and a vision-language model."""

    tissue_key: str = Field(default=TISSUES, pattern=KEY)
    tile_key: str = Field(default=TILES, pattern=KEY)
    patch_features_key: str = Field(
        default=f"plip_{TILES}",
        pattern=KEY,
        description="Features from the same model as the texts",
    )


class ScoreTilesInput(TilesByTextInput):
    """A slide's tiles and the texts to score."""

    classes: Classes = Field(min_length=1, max_length=50)
    similarity_metric: Literal["cosine", "dot"] = "cosine"
    apply_softmax: bool = False
    similarity_key_to_add: str | None = Field(default=None, pattern=KEY)


class ScoreTilesResult(NovaResult):
    """A score for each tile and text."""

    similarity_key: str = Field(
        description="Key in obsm of the features; its columns are the classes"
    )
    similarity_scores_csv_save_path: OutputName
    path_to_zarr: OutputName
    mean_scores: dict[str, float]
    tiles: int


def score_texts(
    held: Any, given: TilesByTextInput, texts: list[str], context: ToolContext, *, dot: bool = False
) -> tuple[Any, Any, Any, float]:
    """Score a store's tiles; return tiles, table, (tiles, texts) cosines, and the logit scale.

    With `dot`, the features are not normalized.
    """
    import numpy as np

    tiles = store.get_element(held, "tiles", given.tile_key)
    table = store.get_element(held, "features", given.patch_features_key)
    encoder = str(table.uns.get("encoder", ""))
    if encoder not in (given.text_encoder, "conch_v1" if given.text_encoder == "conch" else "plip"):
        raise InputError(
            f'features "{given.patch_features_key}" come from '
            f"{encoder or 'an unknown encoder'} and texts from {given.text_encoder}, so "
            "they cannot be compared; extract the features with the text encoder's model"
        )
    model = load_text_encoder(given.text_encoder, given, context)
    words, features = model.embed_texts(texts), np.asarray(table.X, dtype=np.float32)
    if words.shape[1] != features.shape[1]:
        raise InputError(
            f"features have dimension {features.shape[1]}, but text embeddings have "
            f"{words.shape[1]}; they come from different weights"
        )
    features = model.project(features)
    if not dot:
        features = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-8)
    return tiles, table, features @ words.T, model.scale


def make_score_table(tiles: Any, scores: Any, texts: list[str]) -> dict[str, Any]:
    """Make the CSV columns: tile, corner (level-0 pixels), and a score for each text."""
    import numpy as np

    corners = store.tile_corners(tiles)
    columns: dict[str, Any] = {
        "tile_id": np.arange(len(tiles)),
        "tissue_id": tiles["tissue_id"].to_numpy(),
        "x": corners[:, 0],
        "y": corners[:, 1],
        "side_level0": np.full(len(tiles), store.tile_side(tiles)),
    }
    if taken := sorted(set(texts) & set(columns)):
        raise InputError(f'"{taken[0]}" is already a column in the table; use a different text')
    return columns | {name: scores[:, i].astype(np.float64) for i, name in enumerate(texts)}


@nova_tool("score_tiles_by_text_in_a_wsi_tool", NETWORK)
def score_tiles(given: ScoreTilesInput, context: ToolContext) -> ScoreTilesResult:
    """Score individual tiles in a WSI based on text-based similarity criteria.

    Writes a CSV with one row per tile, and obsm[similarity_key] of the features.
    """
    from scipy.special import softmax

    from mcp_servers.formats.tables import write_columns

    slide, job, held = store.open_store(given, context)
    dot = given.similarity_metric == "dot"
    tiles, table, scores, scale = score_texts(held, given, given.classes, context, dot=dot)
    if given.apply_softmax:
        scores = softmax(scores * scale, axis=1)
    key = given.similarity_key_to_add or f"{given.patch_features_key}_text_similarity"
    table.obsm[key] = scores
    table.uns[f"{key}_classes"] = list(given.classes)
    name = job.out(f"{slide.name}_text_scores.csv")
    with context.writing(name) as path:
        write_columns(path, make_score_table(tiles, scores, given.classes))
    return ScoreTilesResult(
        similarity_key=key,
        similarity_scores_csv_save_path=name,
        path_to_zarr=store.save_store(job, slide, {given.patch_features_key: table}, context),
        mean_scores={n: float(v) for n, v in zip(given.classes, scores.mean(axis=0), strict=True)},
        tiles=len(tiles),
    )


class PromptInput(TilesByTextInput):
    """A text prompt to compare with tiles."""

    prompt_term: str = Field(min_length=1, max_length=500)


class PromptResult(NovaResult):
    """Score map and table."""

    similarity_map_save_path: OutputName
    similarity_scores_csv_save_path: OutputName
    low: float
    high: float


@nova_tool("visualize_text_prompt_similarity_on_wsi_tool", NETWORK)
def visualize_prompt(given: PromptInput, context: ToolContext) -> PromptResult:
    """Visualize text prompt similarity scores overlaid on WSI tissue regions.

    Also writes a CSV with the score (cosine) of each tile.
    """
    from mcp_servers.formats.images import write_png
    from mcp_servers.formats.tables import write_columns
    from sage_nova.tools.jobs import draw_heatmap

    slide, job, held = store.open_store(given, context)
    tiles, _, scores, _ = score_texts(held, given, [given.prompt_term], context)
    names = [job.out(f"{slide.name}_text_similarity.{end}") for end in ("png", "csv")]
    with context.writing(names[0]) as path:
        corners, side = store.tile_corners(tiles), store.tile_side(tiles)
        write_png(path, draw_heatmap(slide, corners, scores[:, 0], side))
    with context.writing(names[1]) as path:
        write_columns(path, make_score_table(tiles, scores, [given.prompt_term]))
    return PromptResult(
        similarity_map_save_path=names[0],
        similarity_scores_csv_save_path=names[1],
        low=float(scores.min()),
        high=float(scores.max()),
    )


class LabelInput(TilesByTextInput):
    """A slide's tiles and the competing classes."""

    classes: Classes = Field(min_length=2, max_length=50)
    prompts: list[str] | None = Field(default=None, description="One text per class")
    top_tiles: int = Field(
        default=50, ge=1, le=100_000, description="Number of tiles whose similarities are averaged"
    )


class LabelResult(NovaResult):
    """A probability for each class."""

    probs_for_classes: dict[str, float]
    predicted_class: str
    method: str


@nova_tool("predict_wsi_label_tool", NETWORK)
def predict_label(given: LabelInput, context: ToolContext) -> LabelResult:
    """Predict WSI-level class labels using text-based zero-shot classification.

    MI-Zero (Lu et al. 2023, CVPR) with PLIP or CONCH features: the mean similarity of the top tiles
    per class. TITAN is not run, since it is published as code.
    """
    import numpy as np
    from scipy.special import softmax

    texts = _make_texts(given.classes, given.prompts)
    _, _, held = store.open_store(given, context)
    tiles, _, scores, scale = score_texts(held, given, texts, context)
    count = min(given.top_tiles, len(tiles))
    best = np.sort(scores, axis=0)[-count:].mean(axis=0)
    chances = softmax(best * scale)
    found = {name: float(v) for name, v in zip(given.classes, chances, strict=True)}
    return LabelResult(
        probs_for_classes=found,
        predicted_class=max(found, key=lambda name: found[name]),
        method=f"mi-zero, mean of the {count} top tiles",
        warnings=["scores depend on wording; they are not calibrated probabilities"],
    )
