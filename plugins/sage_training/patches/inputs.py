"""Training inputs for a patch classifier."""

from __future__ import annotations

from pydantic import Field

from mcp_servers.pathology.common import Device, Given, Seed
from mcp_servers.spec import InputPath, SlidePath
from sage_foundation.encoders import EncoderName


class PatchTrainInput(Given):
    """Labeled regions or images, the encoder, and the tiling options."""

    slides: SlidePath = Field(
        description="Folder of slides (or one slide) that `regions` outline; without regions, a "
        "folder with one subfolder of images per class"
    )
    regions: InputPath | None = Field(
        default=None,
        description="Folder of QuPath GeoJSON files with the slides' names (or one file); each "
        "outline's class is its label, and unclassified or Ignore* outlines are "
        "skipped",
    )
    patients: InputPath | None = Field(
        default=None,
        description="CSV with columns slide and patient; default: each slide is its own patient",
    )
    encoder: EncoderName = "handcrafted"
    weights: InputPath | None = Field(default=None, description="Folder of the encoder's weights")
    tile_px: int = Field(default=128, ge=32, le=1024, description="Tile side in pixels, at at_mpp")
    at_mpp: float = Field(default=0.5, ge=0.2, le=4, description="µm per pixel of the tiles")
    mpp: float | None = Field(
        default=None,
        gt=0,
        le=100,
        description="µm per level-0 pixel, overriding the value in every file",
    )
    min_in_region: float = Field(
        default=0.75, gt=0, le=1, description="Minimum share of a tile inside outlines of its class"
    )
    max_patches: int = Field(
        default=2000,
        ge=1,
        description="Maximum number of tiles per class and slide, drawn at random",
    )
    tumor_classes: list[str] = Field(
        default_factory=list,
        description="Classes that mean tumor; default: classes called exactly tumor, tumour, "
        "carcinoma, cancer, neoplasm or malignant, in any case",
    )
    name: str = Field(
        default="patch", pattern=r"^[A-Za-z0-9_-]{1,60}$", description="Name of the model"
    )
    folds: int = Field(
        default=5, ge=2, le=20, description="Number of cross-validation folds, split by patient"
    )
    penalty: float = Field(default=1.0, gt=0, description="Strength of the L2 penalty")
    seed: Seed = 0
    device: Device = "auto"
