"""Regions of interest as flat images: vectors, nuclei, and outline shapes."""

from __future__ import annotations

import json
from math import pi, sqrt
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Device, Given
from mcp_servers.pathology.nuclei import NUCLEI_VALIDITY, Scaling
from mcp_servers.spec import InputPath, OutputName, Resources
from sage.core.errors import InputError
from sage_nova.tools import declare as nova
from sage_nova.tools.models import ENCODERS, PatchEncoder, encoder_memory
from sage_nova.tools.slide import fit_ellipse

IMAGES = frozenset([".png", ".jpg", ".jpeg", ".tif", ".tiff"])
SMALL = Resources(memory_mb=64)
USUAL_MPP = 0.5
NO_MPP = f"mpp was not given: {USUAL_MPP} µm per pixel is assumed; sizes and densities depend on it"
Mpp = Annotated[float, Field(gt=0, le=100)]
Pixel = Annotated[float, Field(ge=-1e9, le=1e9)]


class EncodeRoi(nova.NetworkWeights):
    """A patch encoder."""

    histology_roi_encoder_name: PatchEncoder = "conch_v15"


@nova.tool(
    "encode_histology_roi_tool", Resources(memory_mb=4096, gpu="optional", seconds_per_item=1.0),
    memory_mb=encoder_memory,
    embedding_path=nova.described(OutputName, "HDF5 file with the dataset embedding, (1, "
        "dimension)"),
    embedding_dim=int, encoder=str,
)  # fmt: skip
def encode_roi(
    given: EncodeRoi,
    context: ToolContext,
    *,
    img_path: Annotated[InputPath, Field(description="PNG, JPEG or TIFF file")],
    output_dir: nova.Folder = "nova",
    mpp: Annotated[
        float | None,
        Field(gt=0.05, le=2, description=f"µm per pixel, for handcrafted; default: {USUAL_MPP}"),
    ] = None,
) -> nova.Result:
    """Encode histology region of interest into vector representation.

    HDF5, dataset embedding of shape (1, dimension).
    """
    from sage_foundation.models import encoder_for
    from sage_foundation.specs import encoder_spec

    image, model = read_image(img_path, context), given.histology_roi_encoder_name
    spec = encoder_spec(ENCODERS[model])
    own, _ = encoder_for(spec, given.weights, given.device, mpp or USUAL_MPP, context)
    vector = own.encode(own.stack([image])).reshape(1, -1)
    name = f"{output_dir}/{Path(img_path).stem}_{model}_embedding.h5"
    return {
        "embedding_path": nova.write_vectors(context, name, "embedding", vector, model),
        "embedding_dim": vector.shape[1], "encoder": model,
        "operations_log": [f"encoded {image.shape[1]} x {image.shape[0]} px by {model}"],
        "warnings": [NO_MPP] if model == "handcrafted" and mpp is None else [],
    }  # fmt: skip


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


class NucleiOptions(Given):
    """Arguments for the tool `nuclei`."""

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


@nova.tool(
    "segment_and_classify_nuclei_in_histology_roi_tool",
    Resources(cpu=2, memory_mb=2048, gpu="optional", seconds_per_item=5.0),
    validity=NUCLEI_VALIDITY,
    path_to_jsons=nova.described(str, "Folder with one JSON file per image"),
    path_to_default_overlays=str, jsons=list[OutputName], overlays=list[OutputName],
    nuclei=nova.described(dict[str, int], "Number of nuclei per image"), classes=list[str],
    method=str,
)  # fmt: skip
def segment_nuclei(
    given: NucleiOptions, context: ToolContext, *,
    input_dir: Annotated[InputPath, Field(description="Flat folder of images (png, jpg, tif)")],
    output_dir: nova.Folder = "nuclei",
    level0_mpp_of_imgs: Annotated[dict[str, Mpp] | Mpp,
        Field(description="µm per pixel: one number, or one per image name without suffix")],
) -> nova.Result:  # fmt: skip
    """Segment and classify nuclei in histology ROIs.

    JSON per image with nuc[id] = bbox, centroid, contour (pixels), type, type_prob, area,
    perimeter, hull_area, convexity, solidity, circularity, eccentricity. Types are those of the
    network given as weights; without it, Unclassified.
    """
    from mcp_servers.pathology.nuclei import NucleiInput
    from mcp_servers.pathology.nuclei import segment_nuclei as nuclei

    if given.weights is not None:  # a TorchScript file is code
        context.model(given.weights)
    folder, sizes = context.input(input_dir, "folder"), level0_mpp_of_imgs
    images = sorted(p for p in folder.iterdir() if p.suffix.lower() in IMAGES)
    if not images:
        raise InputError(f"{input_dir}: contains no images ({nova.list_choices(sorted(IMAGES))})")
    nova.check_unique([image.stem for image in images], input_dir)
    if isinstance(sizes, dict) and (lack := [p.stem for p in images if p.stem not in sizes]):
        raise InputError(
            f"level0_mpp_of_imgs has no entry for {lack[0]}; give a number for each image"
        )
    counts, classes, methods = dict[str, int](), dict[str, None](), set[str]()
    jsons, overlays, warnings = [], [], []
    options: Any = given.model_dump(include=set(NucleiOptions.model_fields))
    for number, image in enumerate(images):
        mpp, name = sizes[image.stem] if isinstance(sizes, dict) else sizes, image.stem
        with nova.house(context) as own:
            call = NucleiInput(slide=str(image), mpp=mpp, search="everything", **options)
            found, made = nuclei(call, own), own.roots.output
            rows = read_nuclei(made / found.table, made / (found.geojson or ""))
            overlays.append(
                nova.keep_file(own, found.overlay, context, f"{output_dir}/overlay/{name}.png")
            )
        jsons.append(
            nova.write_json(context, f"{output_dir}/json/{name}.json", {"mpp": mpp, "nuc": rows})
        )
        counts[name] = len(rows)
        classes |= {_name_type(kind): None for kind in found.types or ("outside",)}
        methods.add(found.method)
        warnings += [f"{name}: {text}" for text in found.warnings]
        context.progress((number + 1) / len(images), name)
    return {
        "path_to_jsons": f"{output_dir}/json", "path_to_default_overlays": f"{output_dir}/overlay",
        "jsons": jsons, "overlays": overlays, "nuclei": counts, "classes": list(classes),
        "method": ", ".join(sorted(methods)), "warnings": warnings[:50],
    }  # fmt: skip


def _name_type(kind: str) -> str:
    return "Unclassified" if kind == "outside" else kind.title()


def read_nuclei(table: Path, outlines: Path) -> dict[str, dict[str, Any]]:
    """Read nuclei, keyed by number, from the output files of the nuclei tool, in pixels."""
    import pandas as pd

    frame, shapes = pd.read_csv(table), list[Any]()
    if outlines.is_file():
        features = json.loads(outlines.read_text(encoding="utf-8"))["features"]
        shapes = [feature["geometry"]["coordinates"][0] for feature in features]
    if len(shapes) != len(frame):
        raise InputError(f"{table.name}: {len(frame)} nuclei but {len(shapes)} outlines")
    rows: dict[str, dict[str, Any]] = {}
    for number, (row, ring) in enumerate(zip(frame.to_dict("records"), shapes, strict=True)):
        kind = str(row.get("type", "outside"))
        xs, ys = zip(*ring, strict=True)
        rows[str(number)] = {
            "bbox": [[min(xs), min(ys)], [max(xs), max(ys)]],
            "centroid": [row["x"], row["y"]],
            "contour": ring,
            "type": _name_type(kind),
            "type_prob": float(row.get(f"p_{kind}", 0.0)),
            **measure_shape(ring),
        }
    return rows


def measure_shape(points: Any) -> dict[str, float]:
    """Measure an outline in the unit of its corners.

    `circularity` is 4 pi area / perimeter², `solidity` is the area divided by the hull's
    area, and `convexity` is the hull's perimeter divided by the outline's.
    """
    shape = make_polygon(points)
    area, around, outer = abs(shape.area), shape.length, shape.convex_hull
    outer_around = outer.length if outer.area else 2 * outer.length
    major, minor, _ = fit_ellipse(points)
    return {
        "area": area,
        "perimeter": around,
        "hull_area": outer.area,
        "hull_perimeter": outer_around,
        "solidity": area / outer.area if outer.area else 0.0,
        "convexity": outer_around / around if around else 0.0,
        "circularity": 4 * pi * area / around**2 if around else 0.0,
        "eccentricity": sqrt(max(0.0, 1 - (minor / major) ** 2)) if major else 0.0,
        "major_axis_length": major,
        "minor_axis_length": minor,
    }


def make_polygon(points: Any) -> Any:
    """Make a polygon from the corners, or points if there are fewer than three."""
    import shapely

    return shapely.Polygon(points) if len(points) > 2 else shapely.MultiPoint(points)


class ContourInput(Given):
    """An object's outline."""

    contour: list[tuple[Pixel, Pixel]] = Field(
        min_length=1,
        max_length=200_000,
        description="Corners [x, y] in order; the contour is closed automatically",
    )


@nova.tool("get_contour_area", SMALL, contour_area=float)
def contour_area(given: ContourInput, context: ToolContext) -> nova.Result:
    """Calculate the area of a contour."""
    return {"contour_area": measure_shape(given.contour)["area"]}


@nova.tool("get_contour_perimeter", SMALL, contour_perimeter=float)
def contour_perimeter(given: ContourInput, context: ToolContext) -> nova.Result:
    """Calculate the perimeter of a contour."""
    return {"contour_perimeter": measure_shape(given.contour)["perimeter"]}


@nova.tool(
    "get_contour_convex_hull", SMALL, contour_convex_hull=list[tuple[float, float]],
    hull_area=float, hull_perimeter=float,
    solidity=nova.described(float, "Area divided by the hull's area"),
    convexity=nova.described(float, "The hull's perimeter divided by the outline's"),
)  # fmt: skip
def contour_hull(given: ContourInput, context: ToolContext) -> nova.Result:
    """Calculate the convex hull of a contour."""
    hull, shape = make_polygon(given.contour).convex_hull, measure_shape(given.contour)
    ring = hull.exterior.coords[:-1] if hull.geom_type == "Polygon" else hull.coords
    keys = ("hull_area", "hull_perimeter", "solidity", "convexity")
    return {"contour_convex_hull": list(ring), **{key: shape[key] for key in keys}}
