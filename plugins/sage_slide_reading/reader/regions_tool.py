"""`predict_regions` for the registry and MCP: predicts where a reader would look on a slide."""

from __future__ import annotations

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import SlideInput, SlideResult, of_slide, open_slide
from mcp_servers.spec import InputPath, OutputName, Resources, Validity, tool


class PredictRegionsInput(SlideInput):
    """A slide and a behavior model."""

    model: InputPath | None = Field(
        default=None,
        description="Folder written by `sage reading train`; None: the bundled model",
    )
    behavior: str | None = Field(
        default=None,
        max_length=500,
        description="Task whose behavior to use, if the model has several",
    )
    most: int | None = Field(
        default=None,
        ge=1,
        le=200,
        description="Maximum number of regions; None: as many as readers visit",
    )


class RegionProposed(BaseModel):
    """A proposed region in level-0 pixels; it may extend beyond the slide."""

    x: float
    y: float
    width: float
    height: float
    score: float = Field(description="0 to 1, for ranking; not a probability of disease")
    magnification: float = Field(description="Standard magnification: 5 is 5x")
    order: float = Field(description="From 0 (looked at first) to 1 (last)")


class PredictRegionsResult(SlideResult):
    """Regions, best first."""

    behavior: str
    behaviors: list[str] = Field(description="All tasks of the model")
    regions: list[RegionProposed]
    use: str = Field(description="What the model is, and its limits")
    trained_on: str
    geojson: OutputName


@tool(
    "predict_regions",
    "reading",
    "1.0.0",
    "Propose where a reader of recorded sessions would look on a slide: boxes, scores, "
    "magnifications.",
    resources=Resources(cpu=1, memory_mb=1024, seconds_per_item=3.0),
    validity=Validity(
        stain="H&E",
        mpp=(0.1, 100.0),
        organ="that of the recorded sessions; for the bundled model: simulated lymph nodes",
        training_data="recorded sessions; for the bundled model: scripted readers of simulated "
        "lymph nodes",
        tcga_overlap="none in the bundled model",
        known_failures=(
            "it learned where readers look, not what disease is",
            "slides that look different from those of its sessions",
        ),
        accuracy="on the model's card, measured in training on slides of other patients; for "
        "the bundled model, against scripted readers of simulated nodes, not against a person",
    ),
    title="Propose where a reader would look",
)
def predict_regions_tool(given: PredictRegionsInput, context: ToolContext) -> PredictRegionsResult:
    """Propose the regions of a behavior on a slide."""
    from sage_slide_reading.behavior.model import BehaviorModel, shipped_model, write_regions

    folder = shipped_model() if given.model is None else context.input(given.model, "folder")
    model = BehaviorModel(folder)
    task = given.behavior
    if task is None and given.model is None:
        task = model.card.behaviors[0].task
    place = model.card.behavior(task)
    slide = open_slide(given, context)
    regions = model.predict(slide, task, given.most)
    name = f"{slide.name}.regions.geojson"
    write_regions(regions, context.output(name))
    return PredictRegionsResult(
        **of_slide(slide),
        method="learned",
        warnings=list(slide.warnings),
        behavior=model.card.behaviors[place].task,
        behaviors=[behavior.task for behavior in model.card.behaviors],
        regions=[
            RegionProposed(x=r.x, y=r.y, width=r.w, height=r.h, score=r.score,
                           magnification=r.bin, order=r.order)
            for r in regions
        ],
        use=model.card.use,
        trained_on=model.card.training_data,
        geojson=name,
    )  # fmt: skip
