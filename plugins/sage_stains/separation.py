"""Stain separation and normalization of a region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import SUITE, SlideInput, SlideResult, of_slide, open_slide
from mcp_servers.spec import OutputName, Resources, Validity, tool
from sage.core.errors import InputError

if TYPE_CHECKING:
    from mcp_servers.slides.arrays import U8
    from mcp_servers.slides.slide import Slide

MAX_PIXELS = 36_000_000


class FieldInput(SlideInput):
    """A rectangle, or the whole slide if no size is given."""

    x: int = Field(default=0, description="Left edge, in level-0 pixels")
    y: int = Field(default=0, description="Top edge, in level-0 pixels")
    width_um: float | None = Field(
        default=None, gt=0, description="Width in level-0 pixels; default: the whole width"
    )
    height_um: float | None = Field(
        default=None, gt=0, description="Height in level-0 pixels; default: the whole height"
    )
    at_mpp: float = Field(default=1.0, gt=0, description="µm per pixel of the output images")


def read_field(slide: Slide, given: FieldInput) -> U8:
    """Read a rectangle as RGB; raises `InputError` if it is too large."""
    base = slide.need_mpp()
    view = slide.view(max(given.at_mpp, base))
    width = given.width_um or (slide.width - given.x) * base
    height = given.height_um or (slide.height - given.y) * base
    columns, rows = round(width / view.mpp), round(height / view.mpp)
    if columns < 1 or rows < 1:
        raise InputError("the region is smaller than one pixel; decrease at_mpp")
    if columns * rows > MAX_PIXELS:
        raise InputError(
            f"the region would be {columns} x {rows} px; increase at_mpp or select a smaller region"
        )
    return view.read(round(given.x / view.scale), round(given.y / view.scale), columns, rows)


class SeparateInput(FieldInput):
    """Field to separate and choice of dyes."""

    stain: Literal["he", "hdab"] = "he"
    vectors: Literal["fixed", "macenko"] = Field(
        default="fixed",
        description="Stain vectors: fixed (Ruifrok and Johnston) or macenko (fitted to this slide)",
    )


class SeparateResult(SlideResult):
    """A density image for each dye, and the stain vectors used (red, green, blue)."""

    hematoxylin: OutputName
    second: OutputName = Field(description="Density of eosin or DAB")
    hematoxylin_vector: list[float]
    second_vector: list[float]
    mean_hematoxylin: float
    mean_second: float


STAIN_VALIDITY = Validity(
    stain="H&E; H-DAB with fixed vectors",
    mpp=(0.1, 12.0),
    organ="any",
    training_data="none",
    tcga_overlap="none",
    known_failures=(
        "Macenko's method fails if one dye is nearly absent, or with ink or blood in the field",
        "DAB scatters light, so its density is not proportional to its amount",
    ),
)


@tool(
    "stain_separate",
    SUITE,
    "1.0.1",
    "Separate hematoxylin from eosin or DAB (color deconvolution) in a region of a slide.",
    resources=Resources(memory_mb=1024, seconds_per_item=2.0),
    validity=STAIN_VALIDITY,
    title="Separate the stains",
)
def stain_separate(given: SeparateInput, context: ToolContext) -> SeparateResult:
    """Separate the dyes in a region."""
    import numpy as np

    from mcp_servers.formats.images import write_png
    from mcp_servers.pathology.compute.tissue import background_color, optical_density
    from sage_stains import dyes

    slide = open_slide(given, context)
    image = read_field(slide, given)
    if given.vectors == "macenko":
        if given.stain == "hdab":
            raise InputError(
                "Macenko's method works only for H&E; with stain=hdab, use vectors=fixed"
            )
        fitted = dyes.macenko(dyes.natural_density(image[::2, ::2]))
        matrix = np.vstack([fitted.vectors, np.cross(*fitted.vectors)])
    else:
        matrix = dyes.fixed_matrix(given.stain)
    density = optical_density(image, background_color(image))
    amounts = np.maximum(dyes.concentrations(density, matrix), 0.0)
    second = "eosin" if given.stain == "he" else "dab"
    names = [f"{slide.name}.{dye}.png" for dye in ("hematoxylin", second)]
    for index, name in enumerate(names):
        gray = 255 - np.clip(amounts[:, :, index] * 170, 0, 255)
        with context.writing(name) as path:
            write_png(path, gray.astype(np.uint8))
    return SeparateResult(
        **of_slide(slide),
        warnings=list(slide.warnings),
        hematoxylin=names[0],
        second=names[1],
        hematoxylin_vector=[round(float(v), 4) for v in matrix[0]],
        second_vector=[round(float(v), 4) for v in matrix[1]],
        mean_hematoxylin=float(amounts[:, :, 0].mean()),
        mean_second=float(amounts[:, :, 1].mean()),
    )


class NormalizeInput(FieldInput):
    """Field to normalize and the color normalization method."""

    how: Literal["macenko", "reinhard"] = "macenko"


class NormalizeResult(SlideResult):
    """The region in the reference colors."""

    image: OutputName
    width_px: int
    height_px: int


@tool(
    "stain_normalize",
    SUITE,
    "1.0.1",
    "Normalize the H&E colors of a region (Macenko or Reinhard), fitted on the whole slide.",
    resources=Resources(memory_mb=1536, seconds_per_item=3.0),
    validity=STAIN_VALIDITY,
    title="Normalize the stain",
)
def stain_normalize(given: NormalizeInput, context: ToolContext) -> NormalizeResult:
    """Normalize a region, with parameters fitted to the whole slide's tissue."""
    from mcp_servers.formats.images import write_png

    slide = open_slide(given, context)
    image = read_field(slide, given)
    out = Normalizer(slide, given.how)(image)
    name = f"{slide.name}.{given.how}.png"
    with context.writing(name) as path:
        write_png(path, out)
    return NormalizeResult(
        **of_slide(slide),
        warnings=list(slide.warnings),
        image=name,
        width_px=out.shape[1],
        height_px=out.shape[0],
    )


class Normalizer:
    """Color normalizer for tiles, fitted once per slide."""

    def __init__(self, slide: Slide, how: Literal["macenko", "reinhard"]) -> None:
        """Fit the normalizer on patches spread over the slide's tissue.

        Raises `InputError` if there is too little stained tissue.
        """
        import numpy as np

        from mcp_servers.pathology.surveying import sample_tissue
        from mcp_servers.pathology.tissue import slide_tissue
        from sage_stains import dyes

        found, view = slide_tissue(slide)
        at = max(1.0, slide.need_mpp())
        samples = sample_tissue(slide, found.mask, view.scale, at)
        if not samples:
            raise InputError(f"{slide.path}: no tissue found for fitting the stain normalization")
        self.how = how
        pixels = np.concatenate([sample[::2, ::2].reshape(-1, 3) for sample in samples])
        if how == "macenko":
            self.stains = dyes.macenko(dyes.natural_density(pixels))
        else:
            tissue = pixels[pixels.min(axis=1) < 215]
            if len(tissue) < 200:
                raise InputError(
                    f"{slide.path}: too little stained tissue for fitting the normalization"
                )
            lab = dyes.to_lab(tissue[None])[0]
            self.mean, self.sd = lab.mean(axis=0), lab.std(axis=0)

    def __call__(self, image: U8) -> U8:
        """Return an image in reference colors."""
        from sage_stains import dyes

        if self.how == "macenko":
            return dyes.normalize_macenko(image, self.stains)
        return dyes.normalize_reinhard(image, self.mean, self.sd)
