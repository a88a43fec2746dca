"""Text scores for tiles, from a vision-language model that the user supplies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import SUITE, Device, SlideResult, of_slide, open_slide
from mcp_servers.pathology.tiles import TilesInput
from mcp_servers.spec import InputPath, OutputName, Resources, Validity, tool
from sage.core.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from mcp_servers.slides.arrays import U8


class TextScoreInput(TilesInput):
    """Texts to compare and the model to use."""

    texts: list[str] = Field(
        min_length=2, max_length=50, description="Two or more texts that compete for each tile"
    )
    weights: InputPath | None = Field(
        default=None,
        description="Folder with a CLIP-type pathology model in the transformers layout, e.g. PLIP",
    )
    device: Device = "auto"


class TextScore(BaseModel):
    """A text and its scores across the slide."""

    text: str
    mean_probability: float
    share_of_tiles: float = Field(description="Number of tiles for which this text scored highest")


class TextScoreResult(SlideResult):
    """Scores per text; the table has one row per tile, for use by the heatmap tool."""

    tiles: int
    texts: list[TextScore]
    table: OutputName


@tool(
    "text_score",
    SUITE,
    "1.0.3",
    "Score a slide's tiles against texts, zero-shot, with a vision-language model.",
    resources=Resources(cpu=2, memory_mb=4096, gpu="optional", seconds_per_item=120.0),
    validity=Validity(
        stain="as the model",
        organ="as the model",
        training_data="the model's own",
        tcga_overlap="the model's own",
        known_failures=(
            "there is no classical substitute: without a model the tool fails",
            "scores depend on wording; compare texts within one slide, not scores across slides",
        ),
    ),
    license="the model's own",
    title="Score tiles by a text description",
)
def text_score(given: TextScoreInput, context: ToolContext) -> TextScoreResult:
    """Score a slide's tiles against texts, zero-shot."""
    import numpy as np

    from mcp_servers.formats.tables import write_columns
    from mcp_servers.pathology.common import choose_device
    from mcp_servers.pathology.tiles import tile_grid
    from mcp_servers.pathology.tissue import slide_tissue
    from sage_foundation.batches import batches, tiles
    from sage_foundation.networks import check_weights

    if given.weights is None:
        raise InputError(
            "text_score requires a vision-language model; set weights=... to the folder of a "
            "CLIP-style pathology model in transformers format (for example PLIP)"
        )
    folder = context.model(given.weights, "folder")  # a tokenizer's settings may refer to any file
    stamp = check_weights(folder, context)
    device = choose_device(given.device, context.device)
    model, tokens, side = context.share_handle(
        ("text", str(folder), stamp, device), lambda: load_clip(folder, device)
    )
    slide = open_slide(given, context)
    found, view = slide_tissue(slide)
    corners, _, grid, notes = tile_grid(slide, found.mask, view.scale, given, context)
    if len(corners) == 0:
        raise InputError(f"{slide.path}: no tile contains enough tissue; see the tile_slide tool")
    words = embed_texts(model, tokens, given.texts, device)
    parts = []
    for done, batch in batches(tiles(slide, corners, grid), 16, np.stack):
        parts.append(_score(model, batch, words, side, device))
        context.progress(done / len(corners), "scoring")
    probability = np.concatenate(parts)
    name = f"{slide.name}.text_scores.csv"
    columns = {"x": corners[:, 0], "y": corners[:, 1]}
    with context.writing(name) as path:
        scored = {text: probability[:, i] for i, text in enumerate(given.texts)}
        write_columns(path, columns | scored)
    best = probability.argmax(axis=1)
    return TextScoreResult(
        **of_slide(slide),
        method="learned",
        warnings=[*slide.warnings, *notes],
        tiles=len(corners),
        texts=[
            TextScore(
                text=text,
                mean_probability=float(probability[:, i].mean()),
                share_of_tiles=float((best == i).mean()),
            )
            for i, text in enumerate(given.texts)
        ],
        table=name,
    )


def load_clip(folder: Path, device: str) -> tuple[Any, Any, int]:
    """Load the model, tokenizer, and image input size from a CLIP-type model's folder."""
    from transformers import CLIPModel

    from sage_foundation.networks import from_folder

    model, tokens = from_folder(CLIPModel, folder, "clip"), load_tokenizer(folder)
    return model.eval().to(device), tokens, int(model.config.vision_config.image_size)


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer in a model's folder, without running code from it."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise InputError(f"{folder}: the tokenizer cannot be loaded: {error}") from error


def embed_texts(model: Any, tokens: Any, texts: list[str], device: str) -> Any:
    """Embed texts as (texts, dimension) unit vectors.

    Parameters
    ----------
    texts : truncated to the model's maximum length
    """
    import torch

    limit = int(model.config.text_config.max_position_embeddings)
    encoded = tokens(texts, padding=True, truncation=True, max_length=limit, return_tensors="pt")
    with torch.inference_mode():
        out = model.text_model(**{k: v.to(device) for k, v in encoded.items()})
        vectors = model.text_projection(out.pooler_output)
    return torch.nn.functional.normalize(vectors, dim=-1)


def embed_images(model: Any, patches: U8, side: int, device: str) -> Any:
    """Embed images as (patches, dimension) unit vectors.

    Parameters
    ----------
    patches : (patches, height, width, 3)
    side : side of the model's input images, in pixels
    """
    import torch

    from sage_foundation.models import resize_patches
    from sage_foundation.specs import CLIP

    mean, sd = (torch.tensor(part, device=device)[None, :, None, None] for part in CLIP)
    pixels = resize_patches(patches, side, "bicubic").to(device).float().div_(255)
    pixels = (pixels - mean) / sd
    with torch.inference_mode():
        out = model.vision_model(pixel_values=pixels)
        images = model.visual_projection(out.pooler_output)
        return torch.nn.functional.normalize(images, dim=-1)


def _score(model: Any, patches: U8, words: Any, side: int, device: str) -> Any:
    """Compute (n, texts) probabilities as a softmax of scaled cosine similarities."""
    import torch

    images = embed_images(model, patches, side, device)
    with torch.inference_mode():
        logits = model.logit_scale.exp() * images @ words.T
        return torch.softmax(logits, dim=-1).cpu().numpy()
