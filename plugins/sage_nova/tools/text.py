"""Images, tiles and texts: scores with the user's PLIP, captions with the user's BLIP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from mcp_servers.context import ToolContext
from mcp_servers.spec import InputPath, OutputName, Resources
from sage.core.errors import InputError
from sage_nova.tools import declare as nova
from sage_nova.tools.models import load_captioner, load_clip
from sage_nova.tools.roi import read_image
from sage_nova.tools.space import find_clusters, rank_exemplars
from sage_nova.tools.store import Store, measure_tiles

NETWORK = Resources(cpu=2, memory_mb=4096, gpu="optional", seconds_per_item=30.0)
Image = Annotated[InputPath, Field(description="PNG, JPEG or TIFF file, not a whole slide")]
Probabilities = dict[str, float]


def _check_distinct(classes: list[str]) -> list[str]:
    if len(set(classes)) < len(classes):
        raise ValueError("a class appears twice")
    return classes


Classes = Annotated[list[str], AfterValidator(_check_distinct), Field(min_length=2, max_length=50)]
Texts = Annotated[list[str], AfterValidator(_check_distinct), Field(min_length=1, max_length=50)]
Prompts = Annotated[
    list[str] | None, Field(description='One text per class; default: "An H&E image of CLASS"')
]


class TextInput(nova.NetworkWeights):
    """A model that compares images and texts."""

    text_encoder: Literal["plip"] = "plip"


class TilesByText(nova.WsiInput, TextInput):
    """A slide's tiles and a vision-language model."""

    tissue_key: nova.Key = nova.TISSUES
    tile_key: nova.Key = nova.TILES
    patch_features_key: Annotated[
        nova.Key, Field(description="Features from the same model as the texts")
    ] = f"plip_{nova.TILES}"


def _make_texts(classes: list[str], prompts: list[str] | None) -> list[str]:
    """Make a text per class; raises `InputError` if there are not as many prompts as classes."""
    if prompts is not None and len(prompts) != len(classes):
        raise InputError(f"got {len(prompts)} prompts for {len(classes)} classes")
    return prompts or [f"An H&E image of {name}" for name in classes]


def _name_scores(classes: list[str], scores: Any) -> tuple[Probabilities, str]:
    """Return the scores by class, and the best class."""
    found = {name: float(v) for name, v in zip(classes, scores, strict=True)}
    return found, max(found, key=lambda name: found[name])


@nova.tool(
    "score_single_histology_image_using_text_tool", NETWORK, predicted_class=str,
    similarity_scores=nova.described(Probabilities, "Probabilities (softmax of scaled cosines), "
        "or cosines without apply_softmax"),
)  # fmt: skip
def score_image(
    given: TextInput, context: ToolContext, *, image_path: Image, classes: Classes,
    prompts: Prompts = None, apply_softmax: bool = True,
) -> nova.Result:  # fmt: skip
    """Score a histology image based on text-based criteria, and select the best class."""
    from scipy.special import softmax

    from sage_foundation.zeroshot import embed_images, embed_texts

    texts = _make_texts(classes, prompts)
    model, tokens, side, device = load_clip(given, context)
    image = embed_images(model, read_image(image_path, context)[None], side, device)
    scores = (image @ embed_texts(model, tokens, texts, device).T)[0].float().cpu().numpy()
    scale = float(model.logit_scale.detach().exp())
    found, best = _name_scores(classes, softmax(scores * scale) if apply_softmax else scores)
    return {"predicted_class": best, "similarity_scores": found}


def score_texts(
    store: Store, given: TilesByText, texts: list[str], context: ToolContext, *, dot: bool = False,
) -> tuple[Any, Any, float]:  # fmt: skip
    """Score a store's tiles; return their features, (tiles, texts) cosines, and the logit scale.

    With `dot`, the features are not normalized.
    """
    import numpy as np

    from sage_foundation.zeroshot import embed_texts

    store.get("tiles", given.tile_key)
    table = store.get("features", given.patch_features_key)
    encoder = str(table.uns.get("encoder", ""))
    if encoder != given.text_encoder:
        raise InputError(
            f'features "{given.patch_features_key}" come from '
            f"{encoder or 'an unknown encoder'} and texts from {given.text_encoder}, so "
            "they cannot be compared; extract the features with the text encoder's model"
        )
    model, tokens, _, device = load_clip(given, context)
    words = embed_texts(model, tokens, texts, device).float().cpu().numpy()
    features = np.asarray(table.X, dtype=np.float32)
    if words.shape[1] != features.shape[1]:
        raise InputError(
            f"features have dimension {features.shape[1]}, but text embeddings have "
            f"{words.shape[1]}; they come from different weights"
        )
    if not dot:
        features = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-8)
    return table, features @ words.T, float(model.logit_scale.detach().exp())


def make_score_table(tiles: Any, scores: Any, texts: list[str]) -> dict[str, Any]:
    """Make the CSV columns: tile, corner (level-0 pixels), and a score for each text."""
    import numpy as np

    corners, side = measure_tiles(tiles)
    columns: dict[str, Any] = {
        "tile_id": np.arange(len(tiles)), "tissue_id": tiles["tissue_id"].to_numpy(),
        "x": corners[:, 0], "y": corners[:, 1], "side_level0": np.full(len(tiles), side),
    }  # fmt: skip
    if taken := sorted(set(texts) & set(columns)):
        raise InputError(f'"{taken[0]}" is already a column in the table; use a different text')
    return columns | {name: scores[:, i].astype(np.float64) for i, name in enumerate(texts)}


def _write_scores(
    store: Store, given: TilesByText, scores: Any, texts: list[str], ending: str
) -> str:
    from mcp_servers.formats.tables import write_columns

    with store.context.writing(name := store.out(ending)) as path:
        write_columns(path, make_score_table(store.get("tiles", given.tile_key), scores, texts))
    return name


@nova.tool(
    "score_tiles_by_text_in_a_wsi_tool", NETWORK,
    similarity_key=nova.described(str, "Key in obsm of the features; its columns are the classes"),
    similarity_scores_csv_save_path=OutputName, path_to_zarr=OutputName,
    mean_scores=dict[str, float], tiles=int,
)  # fmt: skip
def score_tiles(
    given: TilesByText, context: ToolContext, *, classes: Texts,
    similarity_metric: Literal["cosine", "dot"] = "cosine", apply_softmax: bool = False,
    similarity_key_to_add: nova.Key | None = None,
) -> nova.Result:  # fmt: skip
    """Score individual tiles in a WSI based on text-based similarity criteria.

    Writes a CSV with one row per tile, and obsm[similarity_key] of the features.
    """
    from scipy.special import softmax

    store, dot = Store(given, context), similarity_metric == "dot"
    table, scores, scale = score_texts(store, given, classes, context, dot=dot)
    if apply_softmax:
        scores = softmax(scores * scale, axis=1)
    key = similarity_key_to_add or f"{given.patch_features_key}_text_similarity"
    table.obsm[key], table.uns[f"{key}_classes"] = scores, list(classes)
    return {
        "similarity_scores_csv_save_path": _write_scores(
            store, given, scores, classes, "_text_scores.csv"
        ),
        "similarity_key": key, "path_to_zarr": store.save(**{given.patch_features_key: table}),
        "mean_scores": _name_scores(classes, scores.mean(axis=0))[0], "tiles": len(scores),
    }  # fmt: skip


@nova.tool(
    "visualize_text_prompt_similarity_on_wsi_tool", NETWORK, similarity_map_save_path=OutputName,
    similarity_scores_csv_save_path=OutputName, low=float, high=float,
)  # fmt: skip
def visualize_prompt(
    given: TilesByText, context: ToolContext, *,
    prompt_term: Annotated[str, Field(min_length=1, max_length=500)],
) -> nova.Result:  # fmt: skip
    """Visualize text prompt similarity scores overlaid on WSI tissue regions.

    Also writes a CSV with the score (cosine) of each tile.
    """
    from sage_nova.tools.folder import draw_scores

    store = Store(given, context)
    _, scores, _ = score_texts(store, given, [prompt_term], context)
    _, corners, side = store.tiles(given.tile_key)
    return {
        "similarity_map_save_path": draw_scores(
            store.slide, corners, scores[:, 0], side, context, store.out("_text_similarity.png")
        ),
        "similarity_scores_csv_save_path": _write_scores(
            store, given, scores, [prompt_term], "_text_similarity.csv"
        ),
        "low": scores.min(), "high": scores.max(),
    }  # fmt: skip


@nova.tool(
    "predict_wsi_label_tool", NETWORK, probs_for_classes=Probabilities, predicted_class=str,
    method=str,
)  # fmt: skip
def predict_label(
    given: TilesByText,
    context: ToolContext,
    *,
    classes: Classes,
    prompts: Prompts = None,
    top_tiles: Annotated[
        int,
        Field(ge=1, le=100_000, description="Number of tiles whose similarities are averaged"),
    ] = 50,
) -> nova.Result:
    """Predict WSI-level class labels using text-based zero-shot classification.

    MI-Zero (Lu et al. 2023, CVPR) with PLIP features: the mean similarity of the top tiles
    per class. TITAN is not run, since it is published as code.
    """
    import numpy as np
    from scipy.special import softmax

    texts = _make_texts(classes, prompts)
    _, scores, scale = score_texts(Store(given, context), given, texts, context)
    count = min(top_tiles, len(scores))
    means = np.sort(scores, axis=0)[-count:].mean(axis=0)
    found, best = _name_scores(classes, softmax(means * scale))
    return {
        "probs_for_classes": found, "predicted_class": best,
        "method": f"mi-zero, mean of the {count} top tiles",
        "warnings": ["scores depend on wording; they are not calibrated probabilities"],
    }  # fmt: skip


@nova.tool(
    "caption_single_histology_image_tool", NETWORK, histology_image_description=dict[str, str],
)  # fmt: skip
def caption_image(
    given: nova.ModelWeights, context: ToolContext, *, path_to_img: Image,
) -> nova.Result:  # fmt: skip
    """Generate a descriptive caption for a single histology image."""
    image = read_image(path_to_img, context)
    text = load_captioner(given, context)(image)
    return {"histology_image_description": {"description": text}}


def summarize_captions(texts: Sequence[str]) -> tuple[str, str]:
    """Summarize descriptions by their most frequent parts; return a sentence and the first part.

    Equally frequent parts keep their order.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(dict.fromkeys(part.strip() for part in text.split(",")).keys())
    most = counts.most_common(4)
    listed = "; ".join(f"{part} ({n} of {len(texts)})" for part, n in most)
    return f"Most frequent: {listed}.", most[0][0]


@nova.tool(
    "caption_and_summarize_set_of_histology_images_tool", NETWORK,
    dense_description=nova.described(dict[str, dict[str, str]], "Description of each image"),
    one_sentence_summary=str | None,
    cluster_name=nova.described(str | None, "Most frequent part of the descriptions"),
)  # fmt: skip
def caption_images(
    given: nova.ModelWeights, context: ToolContext, *,
    list_of_img_paths: Annotated[list[InputPath], Field(min_length=1, max_length=500)],
    summary: bool = True,
) -> nova.Result:  # fmt: skip
    """Caption multiple histology images and provide a summary of their common parts."""
    describe, found = load_captioner(given, context), {}
    for number, path in enumerate(list_of_img_paths):
        found[path] = describe(read_image(path, context))
        context.progress((number + 1) / len(list_of_img_paths), path)
    sentence, name = summarize_captions(list(found.values())) if summary else (None, None)
    return {
        "dense_description": {path: {"description": text} for path, text in found.items()},
        "one_sentence_summary": sentence, "cluster_name": name,
    }  # fmt: skip


class CaptionWsi(nova.WsiInput, nova.ModelWeights):
    """A slide and a captioner."""


REPORT: dict[str, Any] = {
    "report": str, "report_path": OutputName,
    "clusters": Annotated[dict[str, str], Field(description="One sentence per cluster")],
}  # fmt: skip


@nova.tool("caption_single_wsi_tool", NETWORK, **REPORT)
def caption_wsi(
    given: CaptionWsi, context: ToolContext, *,
    clustering_key: Annotated[nova.Key, Field(description="Key of the clusters, e.g. leiden_0.75")],
    tile_key: nova.Key = nova.TILES, patch_features_key: nova.Key = nova.FEATURES,
    n_tiles_to_select: Annotated[int,
        Field(ge=1, le=200, description="Number of tiles per cluster")] = 10,
) -> nova.Result:  # fmt: skip
    """Generate descriptive captions for a single WSI by clustering and summarizing.

    Each cluster is described by the tiles nearest to its center.
    """
    store = Store(given, context)
    table = store.get("features", patch_features_key)
    _, corners, side = store.tiles(tile_key)
    clusters, describe = {}, load_captioner(given, context)
    for name, near in rank_exemplars(table, find_clusters(table, clustering_key, 0)).items():
        places = corners[near[:n_tiles_to_select]].tolist()
        texts = [describe(store.slide.read(x, y, side, side)) for x, y in places]
        share = len(near) / len(corners)
        clusters[name] = f"{share:.0%} of the tiles. {summarize_captions(texts)[0]}"
        context.check_cancelled()
    report = "\n".join(f"Cluster {name}: {text}" for name, text in clusters.items())
    with context.writing(name := store.out("_caption.txt")) as path:
        path.write_text(report + "\n", encoding="utf-8")
    return {"report": report, "clusters": clusters, "report_path": name}


@nova.tool("generate_wsi_report_with_prism_tool", NETWORK, **REPORT)
def prism_report(
    given: nova.WsiInput, context: ToolContext, *,
    prompt: Annotated[Sequence[str], Field(max_length=20)] = (),
) -> nova.Result:  # fmt: skip
    """Generate a pathology report for a WSI using the PRISM model (not available).

    PRISM is published as code, which is not run.
    """
    raise InputError(
        "PRISM writes its reports with Python code from its model folder, which SAGE does not "
        "run; caption_single_wsi_tool describes the clusters on a slide"
    )
