"""Tile encoding with the handcrafted encoder or a foundation model with local weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import SUITE, Device, SlideResult, of_slide, open_slide
from mcp_servers.pathology.tiles import TilesInput
from mcp_servers.spec import InputPath, OutputName, Resources, Validity, tool
from sage.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp_servers.slides.arrays import F32, U8

EncoderName = Literal[
    "handcrafted", "phikon", "phikon-v2", "uni", "uni2", "conch", "conch-v15", "virchow",
    "virchow2", "gigapath", "h-optimus-0", "h-optimus-1", "plip",
]  # fmt: skip


class EncodeInput(TilesInput):
    """The encoder and the tiles to encode."""

    encoder: EncoderName = "handcrafted"
    weights: InputPath | None = Field(
        default=None,
        description="Folder with the encoder's weights, or its graph (ONNX, TorchScript); not "
        "needed for handcrafted",
    )
    coords: InputPath | None = Field(
        default=None,
        description="HDF5 with coordinates (Trident, CLAM); default: tiles are cut from the tissue",
    )
    device: Device = "auto"
    normalize: Literal["none", "macenko", "reinhard"] = "none"


class EncodeResult(SlideResult):
    """Features of a slide's tiles."""

    tiles: int
    encoder: str
    dimension: int
    device: str
    precision: str = Field(
        description="Precision of the computation: float32, or autocast on a GPU"
    )
    at_mpp: float
    license: str = Field(description="License of the encoder's weights")
    tcga_overlap: str = Field(description="True if the encoder was trained on TCGA")
    features: OutputName = Field(description="HDF5 with features and coords (Trident, CLAM)")


class UsesEncoder(Protocol):
    """Mixin with the arguments that select an encoder."""

    encoder: EncoderName


def encoder_memory(given: UsesEncoder) -> int:
    """Estimate the memory in MiB needed by the encoder that the arguments name."""
    from sage_foundation.specs import encoder_spec

    return encoder_spec(given.encoder).memory_mb


def choose_batch(mb_per_patch: float, device: str, memory_mb: int) -> int:
    """Compute how many patches of `mb_per_patch` MiB fit in half the planned or free memory.

    The result is at most 16 on a CPU and 256 on a GPU.
    """
    if device == "cpu":
        return max(1, min(16, int(memory_mb / 2 / mb_per_patch)))
    import torch

    free_mb = torch.cuda.mem_get_info(device)[0] / 2**20
    return max(1, min(256, int(free_mb / 2 / mb_per_patch)))


@tool(
    "encode_tiles",
    SUITE,
    "1.3.0",
    "Encode a slide's tiles: handcrafted features, or UNI, CONCH, Virchow, H-optimus, Phikon.",
    resources=Resources(
        cpu=2,
        memory_mb=1024,
        memory_note="handcrafted; 2,048 to 6,144 with a foundation model, depending on its size",
        gpu="optional",
        seconds_per_item=60.0,
    ),
    memory_mb=encoder_memory,
    validity=Validity(
        stain="H&E",
        mpp=(0.2, 1.05),
        organ="any",
        training_data="handcrafted: none; others: see tcga_overlap and license in the result",
        tcga_overlap="handcrafted: none; Phikon was trained on TCGA",
        known_failures=(
            "handcrafted features depend on color: normalize before combining labs",
            "handcrafted features cannot match a foundation model on subtle morphology",
        ),
    ),
    license="the encoder's own; handcrafted: Apache-2.0",
    title="Compute tile features with an encoder",
)
def encode_tiles(given: EncodeInput, context: ToolContext) -> EncodeResult:
    """Encode a slide's tiles."""
    from mcp_servers.formats.hdf5 import Grid, stored_level
    from mcp_servers.pathology.tiles import tile_grid
    from mcp_servers.pathology.tissue import slide_tissue
    from sage_foundation.batches import batches, tiles
    from sage_foundation.features import read_coords, write_features
    from sage_foundation.models import encoder_for
    from sage_foundation.specs import encoder_spec
    from sage_stains.separation import Normalizer

    if given.coords is not None and given.regions is not None:
        raise InputError("coords and regions cannot be combined: all tiles in coords are encoded")
    spec = encoder_spec(given.encoder)
    slide = open_slide(given, context)
    warnings = list(slide.warnings)
    if given.coords is not None:
        corners, attributes = read_coords(context.input(given.coords, "file"))
        size = int(attributes.get("patch_size_level0", 0))
        patch = int(attributes.get("patch_size", given.tile_px))
        if not 16 <= size <= 65536 or not 16 <= patch <= 4096:
            raise InputError(
                f"{given.coords}: the attributes patch_size_level0 and patch_size are required"
            )
        outside = (corners < 0).any() or (corners > [slide.width, slide.height]).any()
        if outside:
            raise InputError(f"{given.coords}: some coordinates are outside this slide")
        base = slide.need_mpp()
        level = stored_level(slide.levels, patch, size)
        grid = Grid(
            slide.name, patch, size, base * size / patch, base, 0, slide.width, slide.height, level
        )
    else:
        found, view = slide_tissue(slide)
        corners, _, grid, notes = tile_grid(slide, found.mask, view.scale, given, context)
        warnings += notes
    if len(corners) == 0:
        raise InputError(f"{slide.path}: no tiles to encode; see the tile_slide tool")
    if not 0.6 <= grid.mpp / spec.mpp <= 1.7:
        warnings.append(
            f"{spec.name} expects about {spec.mpp:g} µm per pixel, but the tiles have "
            f"{grid.mpp:.3g}"
        )
    encoder, device = encoder_for(spec, given.weights, given.device, grid.mpp, context)
    recolor = None if given.normalize == "none" else Normalizer(slide, given.normalize)
    source: Iterator[U8] = tiles(slide, corners, grid)
    if recolor is not None:
        source = map(recolor, source)
    size = choose_batch(encoder.mb_per_patch, device, context.memory_mb)

    def parts() -> Iterator[F32]:
        for done, batch in batches(source, size, encoder.stack):
            yield encoder.encode(batch)
            context.progress(done / len(corners), "encoding")

    name = f"{slide.name}.{spec.name}.h5"
    with context.writing(name) as path:
        dimension = write_features(path, corners, parts(), grid, spec.name)
    return EncodeResult(
        **of_slide(slide),
        method="classical" if spec.loader == "handcrafted" else "learned",
        warnings=warnings,
        tiles=len(corners),
        encoder=spec.name,
        dimension=dimension,
        device=device,
        precision=encoder.precision,
        at_mpp=grid.mpp,
        license=spec.license,
        tcga_overlap=spec.tcga_overlap,
        features=name,
    )
