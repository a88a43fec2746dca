"""Regions of interest as flat images: vectors, nuclei, and outline shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Device, Given
from mcp_servers.pathology.nuclei import NUCLEI_VALIDITY, Scaling
from mcp_servers.spec import InputPath, OutputName, Resources
from sage.core.errors import InputError
from sage_nova.tools import contours
from sage_nova.tools.common import (
    NovaResult,
    check_unique,
    nova_tool,
    subfolder,
    write_json_output,
)
from sage_nova.tools.weights import (
    ModelWeights,
    PatchEncoder,
    encoder_memory,
    load_patch_encoder,
)

IMAGES = frozenset([".png", ".jpg", ".jpeg", ".tif", ".tiff"])
USUAL_MPP = 0.5
NO_MPP = f"mpp was not given: {USUAL_MPP} µm per pixel is assumed; sizes and densities depend on it"
CLASSES = {
    "neoplastic": "Neoplastic", "lymphoid": "Inflammatory", "stromal": "Connective",
    "other": "Other", "outside": "Unclassified",
}  # fmt: skip
"""NOVA's names for SAGE's types.

Only a user's network distinguishes necrosis and non-neoplastic epithelium.
"""
NUCLEI_OPTIONS = {"method", "weights", "weights_types", "scaling", "weights_mpp", "device"}


Mpp = Annotated[float, Field(gt=0, le=100)]
Pixel = Annotated[float, Field(ge=-1e9, le=1e9)]


class EncodeRoiInput(ModelWeights):
    """An image and the encoder to use."""

    img_path: InputPath = Field(description="PNG, JPEG or TIFF file")
    output_dir: str = Field(
        default="nova", max_length=500, description="Folder in the output folder"
    )
    histology_roi_encoder_name: PatchEncoder = Field(
        default="conch_v15",
        description="Name of the encoder; handcrafted, which needs no "
        "weights, is used only on request",
    )
    mpp: float | None = Field(
        default=None,
        gt=0.05,
        le=2,
        description=f"µm per pixel, used by handcrafted; default: {USUAL_MPP}",
    )
    device: Device = "auto"


class EncodeRoiResult(NovaResult):
    """Vector that represents the image."""

    embedding_path: OutputName = Field(
        description="HDF5 file with the dataset embedding of shape (1, dimension)"
    )
    embedding_dim: int
    encoder: str


@nova_tool(
    "encode_histology_roi_tool",
    Resources(memory_mb=4096, gpu="optional", seconds_per_item=1.0),
    memory_mb=encoder_memory,
)
def encode_roi(given: EncodeRoiInput, context: ToolContext) -> EncodeRoiResult:
    """Encode histology region of interest into vector representation.

    HDF5, dataset embedding of shape (1, dimension).
    """
    import h5py
    import numpy as np

    image = read_image(given.img_path, context)
    model = given.histology_roi_encoder_name
    encode = load_patch_encoder(model, given, given.mpp or USUAL_MPP, context)
    vector = np.asarray(encode(image[None]), dtype=np.float32).reshape(1, -1)
    name = f"{given.output_dir}/{Path(given.img_path).stem}_{model}_embedding.h5"
    with context.writing(name) as path, h5py.File(path, "w") as file:
        file.create_dataset("embedding", data=vector).attrs["encoder"] = model
    return EncodeRoiResult(
        embedding_path=name,
        embedding_dim=vector.shape[1],
        encoder=model,
        operations_log=[f"encoded {image.shape[1]} x {image.shape[0]} px by {model}"],
        warnings=[NO_MPP] if model == "handcrafted" and given.mpp is None else [],
    )


def read_image(path: str, context: ToolContext) -> Any:
    """Read a flat image (height, width, 3)."""
    from mcp_servers.slides.slide import Slide

    with Slide.open(context.input(path, "file")) as slide:
        if slide.width * slide.height > 64_000_000:
            raise InputError(
                f"{path}: {slide.width} x {slide.height} px is too large for a region of interest; "
                "extract a smaller part with read_rectangle_region_from_wsi_tool"
            )
        return slide.read(0, 0, slide.width, slide.height)


class NucleiInput(Given):
    """A folder of images and their pixel size."""

    input_dir: InputPath = Field(description="Flat folder of images (png, jpg, tif)")
    output_dir: str = Field(
        default="nuclei", max_length=500, description="Folder in the output folder"
    )
    level0_mpp_of_imgs: dict[str, Mpp] | Mpp = Field(
        description="µm per pixel: one number, or one per image name without suffix"
    )
    weights: InputPath | None = Field(
        default=None, description="Network provided by the user, as for the tool nuclei"
    )
    weights_types: list[str] | None = Field(
        default=None,
        max_length=20,
        description="Types that the network predicts, if its file does not list them",
    )
    scaling: Scaling = "percentile"
    weights_mpp: float | None = Field(default=None, ge=0.1, le=2.0)
    method: str = Field(default="auto", pattern="^(auto|learned|classical)$")
    device: Device = "auto"


class NucleiResult(NovaResult):
    """Nuclei in each image."""

    path_to_jsons: str = Field(
        description="Folder in the output folder, with one JSON file per image"
    )
    path_to_default_overlays: str = Field(description="Folder of overlays in the output folder")
    jsons: list[OutputName]
    overlays: list[OutputName]
    nuclei: dict[str, int] = Field(description="Number of nuclei per image")
    classes: list[str]
    method: str


@nova_tool(
    "segment_and_classify_nuclei_in_histology_roi_tool",
    Resources(cpu=2, memory_mb=2048, gpu="optional", seconds_per_item=5.0),
    validity=NUCLEI_VALIDITY,
)
def segment_nuclei(given: NucleiInput, context: ToolContext) -> NucleiResult:
    """Segment and classify nuclei in histology ROIs.

    JSON per image with nuc[id] = bbox, centroid, contour (pixels), type, type_prob, area,
    perimeter, hull_area, convexity, solidity, circularity, eccentricity. Types: Neoplastic,
    Inflammatory, Connective, Other, Unclassified; with weights=, those of the network.
    """
    from mcp_servers.pathology.nuclei import NucleiInput as SlideNucleiInput
    from mcp_servers.pathology.nuclei import segment_nuclei as nuclei

    if given.weights is not None:  # a TorchScript file is code
        context.model(given.weights)
    folder = context.input(given.input_dir, "folder")
    images = sorted(p for p in folder.iterdir() if p.suffix.lower() in IMAGES)
    if not images:
        raise InputError(f"{given.input_dir}: contains no images ({', '.join(sorted(IMAGES))})")
    check_unique([image.stem for image in images], given.input_dir)
    sizes = given.level0_mpp_of_imgs
    if isinstance(sizes, dict) and (lack := [p.stem for p in images if p.stem not in sizes]):
        raise InputError(
            f"level0_mpp_of_imgs has no entry for {lack[0]}; give a number for each image"
        )
    counts: dict[str, int] = {}
    classes: dict[str, None] = {}
    jsons, overlays, warnings, methods = [], [], [], set()
    for number, image in enumerate(images):
        mpp = sizes[image.stem] if isinstance(sizes, dict) else sizes
        with subfolder(context, f"{given.output_dir}/overlay") as own:
            options: Any = given.model_dump(include=NUCLEI_OPTIONS)
            call = SlideNucleiInput(slide=str(image), mpp=mpp, search="everything", **options)
            found = nuclei(call, own)
            made = own.roots.output
            rows = read_nuclei(made / found.table, made / (found.geojson or ""))
            (made / found.overlay).rename(made / f"{image.stem}.png")
            for left in (found.table, found.geojson):
                (made / str(left)).unlink(missing_ok=True)
            own.written[:] = [f"{image.stem}.png"]
        name = f"{given.output_dir}/json/{image.stem}.json"
        jsons.append(write_json_output(context, name, {"mpp": mpp, "nuc": rows}))
        overlays.append(f"{given.output_dir}/overlay/{image.stem}.png")
        counts[image.stem] = len(rows)
        classes |= {CLASSES.get(kind, kind.title()): None for kind in found.types or ("outside",)}
        methods.add(found.method)
        warnings += [f"{image.stem}: {text}" for text in found.warnings]
        context.progress((number + 1) / len(images), image.stem)
    return NucleiResult(
        path_to_jsons=f"{given.output_dir}/json",
        path_to_default_overlays=f"{given.output_dir}/overlay",
        jsons=jsons,
        overlays=overlays,
        nuclei=counts,
        classes=list(classes),
        method=", ".join(sorted(methods)),
        warnings=warnings[:50],
    )


def read_nuclei(table: Path, outlines: Path) -> dict[str, dict[str, Any]]:
    """Read nuclei, keyed by number, from the output files of the nuclei tool, in pixels."""
    import pandas as pd

    frame = pd.read_csv(table)
    shapes: list[Any] = []
    if outlines.is_file():
        features = json.loads(outlines.read_text(encoding="utf-8"))["features"]
        shapes = [feature["geometry"]["coordinates"][0] for feature in features]
    if len(shapes) != len(frame):
        raise InputError(f"{table.name}: {len(frame)} nuclei but {len(shapes)} outlines")
    rows: dict[str, dict[str, Any]] = {}
    for number, (row, ring) in enumerate(zip(frame.to_dict("records"), shapes, strict=True)):
        kind = str(row.get("type", "outside"))
        xs, ys = [p[0] for p in ring], [p[1] for p in ring]
        rows[str(number)] = {
            "bbox": [[min(xs), min(ys)], [max(xs), max(ys)]],
            "centroid": [row["x"], row["y"]],
            "contour": ring,
            "type": CLASSES.get(kind, kind.title()),
            "type_prob": float(row.get(f"p_{kind}", 0.0)),
            **contours.measure_shape(ring),
        }
    return rows


class ContourInput(Given):
    """An object's outline."""

    contour: list[tuple[Pixel, Pixel]] = Field(
        min_length=1,
        max_length=200_000,
        description="Corners [x, y] in order; the contour is closed automatically",
    )


class AreaResult(NovaResult):
    """Area, in the squared unit of the corners."""

    contour_area: float


class PerimeterResult(NovaResult):
    """Length, in the unit of the corners."""

    contour_perimeter: float


class HullResult(NovaResult):
    """Convex hull and its relation to the outline."""

    contour_convex_hull: list[tuple[float, float]]
    hull_area: float
    hull_perimeter: float
    solidity: float = Field(description="Area divided by the hull's area")
    convexity: float = Field(description="The hull's perimeter divided by the outline's")


SMALL = Resources(memory_mb=64)


@nova_tool("get_contour_area", SMALL)
def contour_area(given: ContourInput, context: ToolContext) -> AreaResult:
    """Calculate the area of a contour."""
    return AreaResult(contour_area=contours.shape_area(given.contour))


@nova_tool("get_contour_perimeter", SMALL)
def contour_perimeter(given: ContourInput, context: ToolContext) -> PerimeterResult:
    """Calculate the perimeter of a contour."""
    return PerimeterResult(contour_perimeter=contours.make_polygon(given.contour).length)


@nova_tool("get_contour_convex_hull", SMALL)
def contour_hull(given: ContourInput, context: ToolContext) -> HullResult:
    """Calculate the convex hull of a contour."""
    shape = contours.measure_shape(given.contour)
    keys = ("hull_area", "hull_perimeter", "solidity", "convexity")
    return HullResult(
        contour_convex_hull=[(float(x), float(y)) for x, y in contours.hull_corners(given.contour)],
        **{key: shape[key] for key in keys},
    )
