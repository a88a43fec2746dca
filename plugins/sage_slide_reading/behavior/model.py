"""A behavior model stored in a folder (safetensors with its card), and its use on a slide."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from mcp_servers.slides.arrays import F32, U8
from sage.core.data import data_folder
from sage.core.errors import InputError, explain_validation
from sage.core.files import replacing, write_text
from sage.core.models import Strict
from sage_slide_reading.behavior.baselines import APART, tissue_mask
from sage_slide_reading.behavior.examples import thumbnail_of
from sage_slide_reading.behavior.scores import ious
from sage_slide_reading.reader.types import Proposed, rectangle

if TYPE_CHECKING:
    from mcp_servers.slides.slide import Slide

WEIGHTS, CARD = "behavior.safetensors", "card.json"
MAX_BYTES = 256 << 20
LEAST_SCORE = 0.02
MOST = 200


class Behavior(Strict):
    """An entry in the behavior bank: the readers' task, and statistics of their sessions."""

    task: str = Field(min_length=1, max_length=500)
    sessions: int = Field(ge=1)
    slides: int = Field(ge=1)
    regions: float = Field(gt=0, le=10_000, description="Average number of regions per session")
    sides: tuple[Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)], ...] = Field(
        description="Usual side of a box per bin, in slide heights"
    )
    usual_bin: float = Field(gt=0, allow_inf_nan=False, description="Most frequent magnification")


class Score(Strict):
    """A metric for a guide and a behavior on slides not used in training."""

    behavior: str
    guide: str
    metric: str
    value: float | None = Field(description="Mean over slides; None if undefined")
    low: float | None = None
    high: float | None = None


class BehaviorCard(Strict):
    """Description of a behavior model: network, training data, and scores."""

    format: Literal["sage-behavior-1"] = "sage-behavior-1"
    behaviors: tuple[Behavior, ...] = Field(min_length=1, max_length=64)
    bins: tuple[Annotated[float, Field(gt=0, le=400)], ...] = Field(min_length=1, max_length=8)
    widths: tuple[Annotated[int, Field(ge=4, le=512)], ...] = Field(min_length=4, max_length=4)
    thumbnail_px: int = Field(ge=64, le=2048)
    seed: int = Field(ge=0, lt=2**32)
    epochs: int = Field(ge=1)
    slides: int = Field(ge=1)
    patients: int = Field(ge=1)
    data_sha256: str
    parameters: int = Field(ge=1)
    folds: int = Field(ge=0, description="Number of folds; 0 if it was not measured")
    scores: tuple[Score, ...] = ()
    training_data: str = Field(max_length=2000)
    use: str = Field(
        default="Proposes where a reader of these sessions would look. It learned where readers "
        "look, not disease: a proposed region is not a finding, and a region without a proposal "
        "is not necessarily normal. Not for diagnosis.",
        max_length=2000,
    )

    def behavior(self, task: str | None) -> int:
        """Return the index of a behavior in the bank; the name may be omitted for a single entry.

        Raises `InputError` if there is none of this name, or several and none is named.
        """
        tasks = [behavior.task for behavior in self.behaviors]
        if task is None and len(tasks) == 1:
            return 0
        if task not in tasks:
            said = "several behaviors" if task is None else f'no behavior "{task[:80]}"'
            raise InputError(f"the model has {said}; choose one of: {'; '.join(tasks)}")
        return tasks.index(task)


def shipped_model() -> Path:
    """Return the bundled model, trained on scripted readers of simulated lymph nodes.

    Raises `InputError` if this installation lacks it.
    """
    folder = data_folder("models") / "behavior"
    if not (folder / WEIGHTS).is_file():
        raise InputError(
            "this installation has no behavior model; train a model with sage reading train"
        )
    return folder


def save(folder: Path, weights: Mapping[str, Any], card: BehaviorCard) -> None:
    """Write weights at half precision, with the card in their metadata and a separate file."""
    import torch
    from safetensors.torch import save_file

    plain = {
        name: value.to(torch.float16).contiguous() if value.is_floating_point() else value
        for name, value in weights.items()
        if not name.endswith("num_batches_tracked")
    }
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / WEIGHTS) as path:
        save_file(plain, path, metadata={"card": card.model_dump_json()})
    write_text(folder / CARD, card.model_dump_json(indent=1) + "\n")


class BehaviorModel:
    """A loaded behavior model, which guides Pathologist-o3; bundled model if no folder is given."""

    def __init__(self, folder: Path | None = None) -> None:
        """Load a behavior model from its folder.

        Raises `InputError` if the folder does not contain such a model, or the model is damaged.
        """
        import torch
        from safetensors import SafetensorError, safe_open
        from safetensors.torch import load_file

        from sage_slide_reading.behavior.network import RegionNet

        self.name = "the bundled behavior model"
        if folder is None:
            folder = shipped_model()
        else:
            self.name = f'the behavior model "{folder.resolve().name}"'
        path = folder / WEIGHTS
        if not path.is_file():
            raise InputError(f"{folder}: {WEIGHTS} not found; sage reading train writes it")
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: too large for a behavior model")
        try:
            with safe_open(path, framework="numpy") as file:
                values = json.loads((file.metadata() or {}).get("card", "{}"))
            self.card = BehaviorCard.model_validate(values)
            net = RegionNet(len(self.card.behaviors), len(self.card.bins), self.card.widths)
            tensors = {name: value.float() for name, value in load_file(path).items()}
            if not all(torch.isfinite(value).all() for value in tensors.values()):
                raise InputError(f"{path}: damaged weights: values are not finite")
            missing, unknown = net.load_state_dict(tensors, strict=False)
        except ValidationError as error:
            raise InputError(
                f"{path}: not a SAGE behavior model: {explain_validation(error, limit=5)}"
            ) from error
        except (SafetensorError, OSError, ValueError, RecursionError, RuntimeError) as error:
            raise InputError(f"{path}: not a SAGE behavior model: {error}") from error
        lacking = [name for name in missing if not name.endswith("num_batches_tracked")]
        if lacking or unknown or any(len(b.sides) != len(self.card.bins) for b in
                                     self.card.behaviors):  # fmt: skip
            raise InputError(f"{path}: the weights do not match the card")
        self.net = net.eval()
        self.behaviors = tuple(behavior.task for behavior in self.card.behaviors)

    def predict(self, slide: Slide, task: str | None = None, most: int | None = None
                ) -> list[Proposed]:  # fmt: skip
        """Predict regions a reader would visit, best first; the usual number if `most` is None."""
        thumbnail = thumbnail_of(slide, self.card.thumbnail_px)
        return propose(
            self.net, self.card, thumbnail, (slide.width, slide.height), self.card.behavior(task),
            most,
        )  # fmt: skip


def prepare_thumbnail(thumbnail: U8) -> F32:
    """Compute the network's input (7, H, W): colors, and positions within the tissue."""
    from sage_slide_reading.behavior.network import INPUTS, MULTIPLE

    height, width = thumbnail.shape[:2]
    rows, columns = np.nonzero(tissue_mask(thumbnail))
    if not len(rows):
        rows, columns = np.array([0, height - 1]), np.array([0, width - 1])
    top, left = int(rows.min()), int(columns.min())
    tall, wide = int(rows.max()) + 1 - top, int(columns.max()) + 1 - left
    down, across = height + -height % MULTIPLE, width + -width % MULTIPLE
    out = np.zeros((INPUTS, down, across), dtype=np.float32)
    out[:3] = 1.0
    out[:3, :height, :width] = thumbnail.transpose(2, 0, 1) / 255.0
    y, x = np.mgrid[0:down, 0:across]
    out[3], out[4] = (x + 0.5 - left) / wide, (y + 0.5 - top) / tall
    out[5], out[6] = wide / height, tall / height
    return out


def propose(
    net: Any,
    card: BehaviorCard,
    thumbnail: U8,
    size: tuple[int, int],
    behavior: int,
    most: int | None = None,
) -> list[Proposed]:
    """Propose regions for one behavior, best first.

    The longer side of the RGB thumbnail is `card.thumbnail_px`; `size` is the slide's size in
    level-0 pixels, and `behavior` is an index in the bank. By default, the behavior's usual
    number of regions is proposed.
    """
    import torch

    from sage_slide_reading.behavior.network import STRIDE, decode_outputs

    height, width = thumbnail.shape[:2]
    sides = torch.tensor([b.sides for b in card.behaviors], dtype=torch.float32) * height
    with torch.inference_mode():
        logits, boxes, order = decode_outputs(
            net(torch.from_numpy(prepare_thumbnail(thumbnail))[None]), sides
        )
    chance = torch.sigmoid(logits[0, behavior]).numpy()
    rows, columns = -(-height // STRIDE), -(-width // STRIDE)
    inside = chance[:, :rows, :columns]
    scale = size[0] / width
    found = np.argwhere(inside >= LEAST_SCORE)
    ranked = sorted(found.tolist(), key=lambda at: (-float(chance[tuple(at)]), at))
    own = boxes[0, behavior].numpy()
    late = order[0, behavior].numpy()
    kept: list[Proposed] = []
    corners = np.zeros((0, 4))
    count = max(1, round(card.behaviors[behavior].regions)) if most is None else most
    for bin_, row, column in ranked:
        if len(kept) >= min(count, MOST):
            break
        box = own[bin_, row, column].astype(np.float64) * scale
        if len(kept) and (ious(box[None], corners) > APART).any():
            continue
        corners = np.concatenate((corners, box[None]))
        x, y, w, h = box.tolist()
        kept.append(
            Proposed(
                x=round(x, 1), y=round(y, 1), w=round(w, 1), h=round(h, 1),
                score=round(float(chance[bin_, row, column]), 4), bin=card.bins[bin_],
                order=round(float(late[row, column]), 4),
            )
        )  # fmt: skip
    return kept


def write_regions(regions: Sequence[Proposed], path: Path) -> None:
    """Write proposed regions as GeoJSON annotations for QuPath and the slides page."""
    from mcp_servers.formats.geojson import feature, write_geojson

    with replacing(path) as temporary:
        write_geojson(temporary, (
            feature(
                rectangle(region.x, region.y, region.w, region.h),
                name=f"{number}: {region.bin:g}x", classification="Proposed",
                measurements={"Score": region.score, "Bin": region.bin, "Order": region.order},
            )
            for number, region in enumerate(regions, 1)
        ))  # fmt: skip
