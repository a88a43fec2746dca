"""Descriptions of images and slides: written by a model, chosen among phrases, or measured.

`model` writes with the user's captioner (BLIP in the transformers layout). `phrases` picks among
given phrases with PLIP or CONCH. `measured` states what SAGE's own tools count; it is no model of
language, and is used only where it is named.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.spec import InputPath, OutputName
from sage.core.errors import InputError
from sage_nova.tools import store
from sage_nova.tools.common import FEATURES, KEY, TILES, Job, NovaResult, WsiInput, nova_tool
from sage_nova.tools.common import slide_of as open_wsi
from sage_nova.tools.roi import NO_MPP, USUAL_MPP, read_image
from sage_nova.tools.space import cluster_key
from sage_nova.tools.text import NETWORK, ModelInput, opened
from sage_nova.tools.weights import stamp, weights_path

PHRASES = {
    "cell_types": [
        "carcinoma cells", "lymphocytes", "plasma cells", "fibroblasts", "adipocytes",
        "macrophages", "red blood cells",
    ],
    "nuclear_features": [
        "small round uniform nuclei", "enlarged pleomorphic nuclei", "spindle-shaped nuclei",
        "hyperchromatic nuclei", "prominent nucleoli",
    ],
    "tissue_architecture": [
        "glands and tubules", "solid sheets of cells", "single files of cells", "papillary fronds",
        "fibrous stroma", "fat tissue", "necrosis",
    ],
}  # fmt: skip
"""Phrases that compete where a call gives none."""
TOP = 3


class Captioner(ModelInput):
    """How the description is made."""

    captioner: Literal["model", "phrases", "measured"] = Field(
        default="model",
        description="model: weights of a BLIP captioner; phrases: weights of PLIP or CONCH choose "
        "among phrases; measured: counts of SAGE's own tools, no model",
    )
    phrases: dict[str, Annotated[list[str], Field(min_length=1)]] | None = Field(
        default=None, min_length=1, description="phrases: for each aspect the phrases that compete"
    )
    mpp: float | None = Field(
        default=None, gt=0.05, le=2, description=f"measured: µm per pixel; else {USUAL_MPP}"
    )


def describe(image: Any, given: Captioner, context: ToolContext) -> dict[str, str]:
    """A description of an image (height, width, 3) by aspect."""
    if given.captioner == "measured":
        return _measured(image, given.mpp or USUAL_MPP)
    if given.captioner == "phrases":
        return _chosen(image, given, context)
    what, source = "a captioner", "the hub (a BLIP captioner of histology, model_type blip)"
    path = weights_path(given.weights, given.hub, what, source, context)
    key = ("nova caption", stamp(path))
    write = context.shared(key, lambda: _blip(path))
    return {"description": write(image)}


def _blip(path: Any) -> Any:
    import torch
    from transformers import AutoTokenizer, BlipForConditionalGeneration

    from mcp_servers.pathology.encoder_specs import CLIP
    from mcp_servers.pathology.models import resize_patches
    from mcp_servers.pathology.networks import from_folder

    model = from_folder(BlipForConditionalGeneration, path, "blip").eval()
    try:
        tokens = AutoTokenizer.from_pretrained(
            str(path), local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise InputError(f"{path}: its tokenizer cannot be loaded: {error}") from error
    side = int(model.config.vision_config.image_size)
    mean, sd = (torch.tensor(part)[None, :, None, None] for part in CLIP)

    def write(image: Any) -> str:
        pixels = (resize_patches(image[None], side, "bicubic").float().div_(255) - mean) / sd
        with torch.inference_mode():
            made = model.generate(pixel_values=pixels, max_new_tokens=80, do_sample=False)
        return str(tokens.decode(made[0], skip_special_tokens=True)).strip()

    return write


def _chosen(image: Any, given: Captioner, context: ToolContext) -> dict[str, str]:
    """The best phrases of each aspect, by the cosine of image and phrase."""
    import numpy as np

    model, out = opened(given, context), {}
    vector = model.images(image[None])[0]
    for aspect, phrases in (given.phrases or PHRASES).items():
        scores = model.texts([f"An H&E image of {phrase}" for phrase in phrases]) @ vector
        best = np.argsort(-scores, kind="stable")[: min(TOP, max(1, len(phrases) // 2))]
        out[aspect] = ", ".join(phrases[i] for i in best)
    return out


def _measured(image: Any, mpp: float) -> dict[str, str]:
    """Nuclei and stain of an image in words and numbers."""
    import numpy as np

    from mcp_servers.pathology.compute.nuclei import COLUMNS, lymphocyte_like, segment
    from mcp_servers.pathology.compute.stain import concentrations, fixed_matrix
    from mcp_servers.pathology.compute.tissue import optical_density

    nuclei = segment(image, mpp)
    table, mm2 = nuclei.table, image.shape[0] * image.shape[1] * (mpp / 1000) ** 2
    dyes = np.maximum(concentrations(optical_density(image), fixed_matrix("he")), 0).mean((0, 1))
    gap = float((image.min(axis=2) > 220).mean())
    out = {
        "cell_types": f"{len(table)} nuclei ({len(table) / mm2:.0f} per mm²)",
        "other_notable_features": f"hematoxylin {dyes[0]:.3f}, eosin {dyes[1]:.3f} mean optical "
        f"density; {gap:.0%} unstained",
    }
    if len(table):
        small = float(lymphocyte_like(table).mean())
        area = float(np.median(table[:, COLUMNS.index("area_um2")]))
        long = float(np.median(table[:, COLUMNS.index("eccentricity")]))
        out["cell_types"] += f", {small:.0%} of them small, round and dark"
        out["nuclear_features"] = f"median area {area:.1f} µm², median eccentricity {long:.2f}"
    return out


STAND_IN = "captioner=measured: numbers of SAGE's own tools in words, not a model's reading"


def _warnings(given: Captioner) -> list[str]:
    if given.captioner != "measured":
        return []
    return [STAND_IN] if given.mpp is not None else [STAND_IN, NO_MPP]


class CaptionInput(Captioner):
    """An image."""

    path_to_img: InputPath = Field(description="PNG, JPEG or TIFF")


class CaptionResult(NovaResult):
    """The description."""

    histology_image_description: dict[str, str]
    captioner: str


@nova_tool(
    "caption_single_histology_image_tool",
    version="1.0.0",
    summary="Generate a descriptive caption for a single histology image.",
    resources=NETWORK,
)
def caption_image(given: CaptionInput, context: ToolContext) -> CaptionResult:
    """One image in words."""
    image = read_image(given.path_to_img, context)
    return CaptionResult(
        histology_image_description=describe(image, given, context),
        captioner=given.captioner,
        warnings=_warnings(given),
    )


class CaptionSetInput(Captioner):
    """Several images."""

    list_of_img_paths: list[InputPath] = Field(min_length=1, max_length=500)
    summary: bool = True


class CaptionSetResult(NovaResult):
    """A description per image, and what most of them share."""

    dense_description: dict[str, dict[str, str]] = Field(description="By image")
    one_sentence_summary: str | None
    cluster_name: str | None = Field(description="The most frequent part of the first aspect")
    captioner: str


def shared_words(descriptions: list[dict[str, str]]) -> tuple[str, str]:
    """A sentence with the parts that most descriptions share, and the first aspect's most frequent
    part. Of parts that are as frequent the first that was said comes first."""
    from collections import Counter

    counts: Counter[str] = Counter()
    first: Counter[str] = Counter()
    for description in descriptions:
        said = [[part.strip() for part in text.split(",")] for text in description.values()]
        counts.update(dict.fromkeys(part for parts in said for part in parts).keys())
        first.update(dict.fromkeys(said[0]).keys())
    most = counts.most_common(4)
    told = "; ".join(f"{part} ({n} of {len(descriptions)})" for part, n in most)
    return f"Most frequent: {told}.", first.most_common(1)[0][0]


@nova_tool(
    "caption_and_summarize_set_of_histology_images_tool",
    version="1.0.0",
    summary="Caption multiple histology images and provide a summary: what most of them share.",
    resources=NETWORK,
)
def caption_images(given: CaptionSetInput, context: ToolContext) -> CaptionSetResult:
    """Several images in words."""
    found = {}
    for number, path in enumerate(given.list_of_img_paths):
        found[path] = describe(read_image(path, context), given, context)
        context.progress((number + 1) / len(given.list_of_img_paths), path)
    sentence, name = shared_words(list(found.values())) if given.summary else (None, None)
    return CaptionSetResult(
        dense_description=found,
        one_sentence_summary=sentence,
        cluster_name=name,
        captioner=given.captioner,
        warnings=_warnings(given),
    )


class CaptionWsiInput(WsiInput, Captioner):
    """A slide whose tiles are clustered."""

    clustering_key: str = Field(pattern=KEY, description="E.g. leiden_0.75")
    tile_key: str = Field(default=TILES, pattern=KEY)
    patch_features_key: str = Field(default=FEATURES, pattern=KEY)
    n_tiles_to_select: int = Field(default=10, ge=1, le=200, description="Of each cluster")


class CaptionWsiResult(NovaResult):
    """The report."""

    report: str
    clusters: dict[str, str] = Field(description="A sentence per cluster")
    report_path: OutputName
    captioner: str


def cluster_sentences(given: CaptionWsiInput, context: ToolContext) -> dict[str, str]:
    """For each cluster its share of the tiles and what the tiles nearest to its center show."""
    import numpy as np

    slide, job = open_wsi(given, context), Job(given.job_dir, context)
    held = store.load_store(job, slide)
    table = store.features_of(held, given.patch_features_key)
    key = cluster_key(table, given.clustering_key, 0.75)
    tiles = store.tiles_of(held, given.tile_key)
    features, labels = np.asarray(table.X, dtype=np.float64), table.obs[key].astype(str).to_numpy()
    corners, side = store.corners(tiles), store.side_of(tiles)
    out = {}
    at_mpp = given.model_copy(update={"mpp": slide.need_mpp()})
    for name in table.obs[key].cat.categories:
        own = np.flatnonzero(labels == str(name))
        away = np.linalg.norm(features[own] - features[own].mean(axis=0), axis=1)
        near = own[np.argsort(away, kind="stable")[: given.n_tiles_to_select]]
        described = [
            describe(
                slide.read(int(corners[i, 0]), int(corners[i, 1]), side, side), at_mpp, context
            )
            for i in near
        ]
        sentence, _ = shared_words(described)
        if given.captioner == "measured":
            sentence = "Nearest to its center: " + "; ".join(described[0].values()) + "."
        out[str(name)] = f"{len(own) / len(labels):.0%} of the tiles. {sentence}"
        context.check_cancelled()
    return out


@nova_tool(
    "caption_single_wsi_tool",
    version="1.0.0",
    summary="Generate descriptive captions for a single WSI by clustering and summarizing: each "
    "cluster is described by the tiles nearest to its center.",
    resources=NETWORK,
)
def caption_wsi(given: CaptionWsiInput, context: ToolContext) -> CaptionWsiResult:
    """A slide in words, cluster by cluster."""
    slide, job = open_wsi(given, context), Job(given.job_dir, context)
    clusters = cluster_sentences(given, context)
    report = "\n".join(f"Cluster {name}: {text}" for name, text in clusters.items())
    name = job.out(f"{slide.name}_caption.txt")
    with context.writing(name) as path:
        path.write_text(report + "\n", encoding="utf-8")
    return CaptionWsiResult(
        report=report,
        clusters=clusters,
        report_path=name,
        captioner=given.captioner,
        warnings=[STAND_IN] if given.captioner == "measured" else [],
    )


class PrismInput(CaptionWsiInput):
    """The stand-in of PRISM, where one is asked for."""

    prompt: list[str] = Field(default_factory=list, max_length=20)
    stand_in: bool = Field(
        default=False, description="Write the report of caption_single_wsi_tool instead"
    )


@nova_tool(
    "generate_wsi_report_with_prism_tool",
    version="1.0.0",
    summary="Generate a pathology report for a WSI using the PRISM model. PRISM is published as "
    "code, which is not run; with stand_in=true the clusters are captioned instead.",
    resources=NETWORK,
)
def prism_report(given: PrismInput, context: ToolContext) -> CaptionWsiResult:
    """Refuses, or writes what another tool writes and says so."""
    if not given.stand_in:
        raise InputError(
            "PRISM writes its reports with Python code of its own folder, which is not run here; "
            "stand_in=true gives the report of caption_single_wsi_tool (captioner=model, phrases "
            "or measured)"
        )
    result = caption_wsi(given, context)
    result.warnings.append("not PRISM: the report of caption_single_wsi_tool")
    return result
