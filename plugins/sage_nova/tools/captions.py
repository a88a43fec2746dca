"""Descriptions of images and slides from the user's captioner (BLIP, transformers layout)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.spec import InputPath, OutputName
from sage.core.errors import InputError
from sage_nova.tools import store
from sage_nova.tools.common import FEATURES, KEY, TILES, NovaResult, WsiInput, nova_tool
from sage_nova.tools.roi import read_image
from sage_nova.tools.space import find_clusters, rank_exemplars
from sage_nova.tools.text import NETWORK
from sage_nova.tools.weights import ModelWeights, find_weights, stamp_files


def describe_image(image: Any, given: ModelWeights, context: ToolContext) -> dict[str, str]:
    """Describe an image (height, width, 3) with the captioner that the arguments name."""
    source = "the hub (a BLIP captioner of histology, model_type blip)"
    path = find_weights(given, "a captioner", source, context)
    write = context.share_handle(("nova caption", stamp_files(path)), lambda: _load_blip(path))
    return {"description": write(image)}


def _load_blip(path: Any) -> Any:
    import torch
    from transformers import AutoTokenizer, BlipForConditionalGeneration

    from sage_foundation.models import resize_patches
    from sage_foundation.networks import from_folder
    from sage_foundation.specs import CLIP

    model = from_folder(BlipForConditionalGeneration, path, "blip").eval()
    try:
        tokens = AutoTokenizer.from_pretrained(
            str(path), local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise InputError(f"{path}: the tokenizer cannot be loaded: {error}") from error
    side = int(model.config.vision_config.image_size)
    mean, sd = (torch.tensor(part)[None, :, None, None] for part in CLIP)

    def write(image: Any) -> str:
        pixels = (resize_patches(image[None], side, "bicubic").float().div_(255) - mean) / sd
        with torch.inference_mode():
            made = model.generate(pixel_values=pixels, max_new_tokens=80, do_sample=False)
        return str(tokens.decode(made[0], skip_special_tokens=True)).strip()

    return write


class CaptionInput(ModelWeights):
    """An image to caption."""

    path_to_img: InputPath = Field(description="PNG, JPEG or TIFF file")


class CaptionResult(NovaResult):
    """Description of an image."""

    histology_image_description: dict[str, str]


@nova_tool("caption_single_histology_image_tool", NETWORK)
def caption_image(given: CaptionInput, context: ToolContext) -> CaptionResult:
    """Generate a descriptive caption for a single histology image."""
    image = read_image(given.path_to_img, context)
    return CaptionResult(histology_image_description=describe_image(image, given, context))


class CaptionSetInput(ModelWeights):
    """Images to caption."""

    list_of_img_paths: list[InputPath] = Field(min_length=1, max_length=500)
    summary: bool = True


class CaptionSetResult(NovaResult):
    """A description of each image, and their most frequent parts."""

    dense_description: dict[str, dict[str, str]] = Field(description="Description of each image")
    one_sentence_summary: str | None
    cluster_name: str | None = Field(description="Most frequent part of the descriptions")


def summarize_captions(descriptions: list[dict[str, str]]) -> tuple[str, str]:
    """Summarize descriptions by their most frequent parts; return a sentence and the first part.

    Equally frequent parts keep their order.
    """
    counts: Counter[str] = Counter()
    for description in descriptions:
        parts = [part.strip() for text in description.values() for part in text.split(",")]
        counts.update(dict.fromkeys(parts).keys())
    most = counts.most_common(4)
    listed = "; ".join(f"{part} ({n} of {len(descriptions)})" for part, n in most)
    return f"Most frequent: {listed}.", most[0][0]


@nova_tool("caption_and_summarize_set_of_histology_images_tool", NETWORK)
def caption_images(given: CaptionSetInput, context: ToolContext) -> CaptionSetResult:
    """Caption multiple histology images and provide a summary of their common parts."""
    found = {}
    for number, path in enumerate(given.list_of_img_paths):
        found[path] = describe_image(read_image(path, context), given, context)
        context.progress((number + 1) / len(given.list_of_img_paths), path)
    sentence, name = summarize_captions(list(found.values())) if given.summary else (None, None)
    return CaptionSetResult(
        dense_description=found, one_sentence_summary=sentence, cluster_name=name
    )


class CaptionWsiInput(WsiInput, ModelWeights):
    """A slide whose tiles are clustered."""

    clustering_key: str = Field(pattern=KEY, description="Key of the clusters, e.g. leiden_0.75")
    tile_key: str = Field(default=TILES, pattern=KEY)
    patch_features_key: str = Field(default=FEATURES, pattern=KEY)
    n_tiles_to_select: int = Field(
        default=10, ge=1, le=200, description="Number of tiles per cluster"
    )


class CaptionWsiResult(NovaResult):
    """Report on a slide."""

    report: str
    clusters: dict[str, str] = Field(description="One sentence per cluster")
    report_path: OutputName


@nova_tool("caption_single_wsi_tool", NETWORK)
def caption_wsi(given: CaptionWsiInput, context: ToolContext) -> CaptionWsiResult:
    """Generate descriptive captions for a single WSI by clustering and summarizing.

    Each cluster is described by the tiles nearest to its center.
    """
    slide, job, held = store.open_store(given, context)
    table = store.get_element(held, "features", given.patch_features_key)
    tiles = store.get_element(held, "tiles", given.tile_key)
    key = find_clusters(table, given.clustering_key, 0.75)
    corners, side = store.tile_corners(tiles), store.tile_side(tiles)
    clusters = {}
    for name, near in rank_exemplars(table, key).items():
        described = [
            describe_image(
                slide.read(int(corners[i, 0]), int(corners[i, 1]), side, side), given, context
            )
            for i in near[: given.n_tiles_to_select]
        ]
        share = len(near) / len(corners)
        clusters[name] = f"{share:.0%} of the tiles. {summarize_captions(described)[0]}"
        context.check_cancelled()
    report = "\n".join(f"Cluster {name}: {text}" for name, text in clusters.items())
    out = job.out(f"{slide.name}_caption.txt")
    with context.writing(out) as path:
        path.write_text(report + "\n", encoding="utf-8")
    return CaptionWsiResult(report=report, clusters=clusters, report_path=out)


class PrismInput(WsiInput):
    """A slide to report on."""

    prompt: list[str] = Field(default_factory=list, max_length=20)


@nova_tool("generate_wsi_report_with_prism_tool", NETWORK)
def prism_report(given: PrismInput, context: ToolContext) -> CaptionWsiResult:
    """Generate a pathology report for a WSI using the PRISM model (not available).

    PRISM is published as code, which is not run.
    """
    raise InputError(
        "PRISM writes its reports with Python code from its model folder, which SAGE does not "
        "run; caption_single_wsi_tool describes the clusters on a slide"
    )
