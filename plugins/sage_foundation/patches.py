"""Patch classifier with a linear head on a tile encoder: its file and its use on slides."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mcp_servers.pathology.tumor import TUMOR, means_tumor
from mcp_servers.slides.arrays import F32, I64, AnyArray, bands
from sage.core.errors import InputError, explain_validation
from sage_foundation.encoders import EncoderName

if TYPE_CHECKING:
    from mcp_servers.context import ToolContext
    from mcp_servers.formats.hdf5 import Grid
    from mcp_servers.pathology.surveying import Surveyed
    from mcp_servers.pathology.tumor import TumorModel
    from mcp_servers.slides.slide import Slide

FORMAT = "sage-patch-1"


@dataclass(frozen=True, slots=True)
class Head:
    """Logistic regression: softmax of (n, d) standardized features times `weights` (d, k)."""

    mean: F32
    sd: F32
    weights: F32
    bias: F32

    def probabilities(self, features: AnyArray) -> F32:
        """Compute (n, k) class probabilities."""
        logits = ((features - self.mean) / self.sd) @ self.weights + self.bias
        logits -= logits.max(axis=1, keepdims=True)
        out = np.exp(logits)
        return np.asarray(out / out.sum(axis=1, keepdims=True), dtype=np.float32)


def fit_head(features: F32, labels: AnyArray, classes: int, penalty: float, seed: int) -> Head:
    """Fit a head by L2-penalized maximum likelihood with balanced classes; `penalty` is 1 / C.

    Parameters
    ----------
    features : (n, d)
    labels : (n,) classes, 0, 1, ...
    penalty : L2 penalty on standardized features
    """
    from sklearn.linear_model import LogisticRegression

    mean = features.mean(axis=0)
    sd = np.maximum(features.std(axis=0), 1e-6)
    model = LogisticRegression(
        C=1.0 / penalty, class_weight="balanced", max_iter=2000, random_state=seed
    )
    model.fit((features - mean) / sd, labels)
    weights, bias = model.coef_.T, model.intercept_
    if classes == 2:  # a single logit: the second class versus the first
        weights = np.concatenate([np.zeros_like(weights), weights], axis=1)
        bias = np.concatenate([np.zeros_like(bias), bias])
    parts = (mean, sd, weights, bias)
    return Head(*(np.asarray(v, dtype=np.float32) for v in parts))


@dataclass(frozen=True, slots=True)
class PatchModel:
    """A head and its card: classes, encoder, tile size, training slides, and held-out metrics."""

    head: Head
    card: dict[str, Any]

    @property
    def classes(self) -> list[str]:
        """Names of the classes, in the order of the probabilities."""
        return [str(name) for name in self.card["classes"]]

    @property
    def tumor(self) -> list[int]:
        """Indices of the tumor classes."""
        return [i for i, name in enumerate(self.classes) if name in self.card["tumor_classes"]]

    def save(self, path: Path) -> None:
        """Write the model as safetensors with its card in the metadata; no code is stored."""
        from safetensors.numpy import save_file

        head = self.head
        tensors = {"mean": head.mean, "sd": head.sd, "weights": head.weights, "bias": head.bias}
        plain = {k: np.ascontiguousarray(v) for k, v in tensors.items()}
        save_file(plain, path, metadata={"card": json.dumps(self.card)})


class HeldOut(BaseModel):
    """Metrics on patients excluded from training in each fold."""

    model_config = ConfigDict(extra="allow", strict=True)

    balanced_accuracy: float | None = Field(default=None, ge=0, le=1)


class ModelCard(BaseModel):
    """Required fields of a model card; other fields are kept."""

    model_config = ConfigDict(extra="allow", strict=True)

    format: Literal["sage-patch-1"]
    name: str = Field(min_length=1, max_length=60)
    classes: list[str] = Field(min_length=2)
    tumor_classes: list[str]
    tumor_named: bool = False
    encoder: EncoderName
    tile_px: int = Field(ge=32, le=1024)
    at_mpp: float = Field(ge=0.2, le=4)
    training_slides: list[str] = Field(default_factory=list)
    held_out: HeldOut = Field(default_factory=HeldOut)

    def wrong(self) -> str:
        """Describe the problem with the model's classes, or return None."""
        if len(set(self.classes)) < len(self.classes):
            return "a class is listed twice in its card"
        if not set(self.tumor_classes) <= set(self.classes):
            return "tumor_classes in its card are not among the classes"
        if set(self.tumor_classes) == set(self.classes):
            return f"all of its classes ({', '.join(self.classes)}) mean tumor; train it again"
        guessed = [] if self.tumor_named else [t for t in self.tumor_classes if not means_tumor(t)]
        if guessed:
            return (
                f'its class "{guessed[0]}" was assumed to be tumor because of a part of its '
                "name; train it again with tumor_classes"
            )
        return ""


def load_model(path: Path) -> PatchModel:
    """Load a model written by `PatchModel.save`; raises `InputError` if it is invalid."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            card = json.loads((file.metadata() or {}).get("card", "{}"))
            if not isinstance(card, dict) or card.get("format") != FORMAT:
                raise InputError(f"{path}: not a patch_train model")
            parts = [np.asarray(file.get_tensor(k)) for k in ("mean", "sd", "weights", "bias")]
    except (SafetensorError, OSError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: not a patch_train model: {error}") from error
    try:
        known = ModelCard.model_validate(card)
    except ValidationError as error:
        raise InputError(
            f"{path}: invalid model card: {explain_validation(error, limit=5)}"
        ) from error
    if known.wrong():
        raise InputError(f"{path}: {known.wrong()}")
    wide, classes = parts[0].size, len(known.classes)
    shapes = [(wide,), (wide,), (wide, classes), (classes,)]
    if [v.shape for v in parts] != shapes or any(v.dtype != np.float32 for v in parts):
        raise InputError(f"{path}: the weights do not match the card ({classes} classes)")
    if not all(np.isfinite(v).all() for v in parts) or not (parts[1] > 0).all():
        raise InputError(
            f"{path}: damaged weights: values are not finite, or a standard deviation is 0"
        )
    return PatchModel(Head(*parts), known.model_dump())


def encode_corners(
    slide: Slide,
    corners: I64,
    grid: Grid,
    encoder: str,
    weights: str | None,
    device: str,
    context: ToolContext,
    span: tuple[float, float] = (0.0, 1.0),
) -> Iterator[F32]:
    """Yield tile features (up to 32, d) batch by batch, using a registered encoder.

    Parameters
    ----------
    corners : (n, 2) upper left corners, level-0 pixels
    grid : size and magnification of the tiles
    span : start and end of this step's portion of the progress

    Raises
    ------
    InputError
        If the encoder needs weights that were not given, or they do not fit.
    """
    from sage_foundation.batches import batches, tiles
    from sage_foundation.models import encoder_for
    from sage_foundation.specs import encoder_spec

    loaded, _ = encoder_for(encoder_spec(encoder), weights, device, grid.mpp, context)
    for done, batch in batches(tiles(slide, corners, grid), 32, loaded.stack):
        yield np.asarray(loaded.encode(batch), dtype=np.float32)
        context.progress(span[0] + (span[1] - span[0]) * done / len(corners), "encoding")


def predict_tumor(
    slide: Slide, surveyed: Surveyed, context: ToolContext, given: TumorModel
) -> tuple[F32, list[str]]:
    """Predict the tumor probability on the survey's grid, and collect warnings.

    Raises
    ------
    InputError
        If none of the model's classes is tumor, or for the reasons given in
        `tumor_probability`.
    """
    model = load_model(context.input(given.model or "", "file"))
    if not model.tumor:
        raise InputError(
            f"{given.model}: none of its classes ({', '.join(model.classes)}) is marked as tumor; "
            "train it with tumor_classes"
        )
    figure = model.card.get("held_out", {}).get("balanced_accuracy")
    accuracy = (
        f"held-out balanced accuracy {figure:.2f}" if figure else "never tested on held-out data"
    )
    warnings = [f"tumor was detected by the model {model.card['name']} ({accuracy})"]
    if slide.name in model.card.get("training_slides", []):
        warnings.append(
            "the model was trained on this slide, so this mask does not show how it "
            "performs on others"
        )
    return tumor_probability(slide, surveyed, context, given, model), warnings


def tumor_probability(
    slide: Slide, surveyed: Surveyed, context: ToolContext, given: TumorModel, model: PatchModel
) -> F32:
    """Compute the tumor probability on the survey's grid, 0 outside the tissue.

    Adjacent tiles of the training size are classified, and the probability is interpolated
    between their centers.

    Raises
    ------
    InputError
        If the scan is coarser than the model's tiles, no such tile fits on the tissue, or the
        encoder's weights do not fit the model.
    """
    import cv2

    from mcp_servers.pathology.tiles import TilesInput, tile_grid

    card = model.card
    tissue, scale = surveyed.survey.tissue, surveyed.scale(slide)
    base = slide.need_mpp()
    if card["at_mpp"] < 0.95 * base:
        raise InputError(
            f"{slide.path}: the model {card['name']} was trained at {card['at_mpp']:g} µm per "
            f"pixel, but this scan has {base:g}; use a finer scan, or train a model with "
            f"patch_train at at_mpp {base:g} or more"
        )
    wanted = TilesInput(
        slide=str(slide.path), tile_px=card["tile_px"], at_mpp=card["at_mpp"], min_tissue=0.25
    )
    corners, _, grid, _ = tile_grid(slide, tissue, scale, wanted, context)
    if not len(corners):
        if not tissue.any():
            return np.zeros(tissue.shape, dtype=np.float32)
        raise InputError(
            f"{slide.path}: the model {card['name']} requires tiles of {card['tile_px']} px at "
            f"{card['at_mpp']:g} µm per pixel, but none fit on the tissue; train a model "
            "with smaller tiles, or give outlines"
        )
    parts = []
    for features in encode_corners(
        slide, corners, grid, str(card["encoder"]), given.weights, given.device, context, (0.5, 0.9)
    ):
        if features.shape[1] != len(model.head.mean):
            raise InputError(
                f"{card['name']}: trained on {len(model.head.mean)} features from "
                f"{card['encoder']}, but these weights produce {features.shape[1]}"
            )
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            parts.append(model.head.probabilities(features)[:, model.tumor].sum(axis=1))
    probability = np.concatenate(parts)
    if not np.isfinite(probability).all():
        raise InputError(
            f"{card['name']}: returned no finite probabilities; the model file is damaged"
        )
    size = grid.patch_size_level0
    at = np.round(corners / size).astype(int)
    rows, columns = at.max(axis=0)[::-1] + 1
    values = np.zeros((rows, columns), dtype=np.float32)
    known = np.zeros((rows, columns), dtype=np.float32)
    values[at[:, 1], at[:, 0]] = probability
    known[at[:, 1], at[:, 0]] = 1.0
    ratio = scale / size
    out = np.zeros(tissue.shape, dtype=np.float32)
    for band in bands(tissue.shape[0]):
        # centers of the cells in units of tiles
        first = ratio * band.start + ratio / 2 - 0.5
        move = np.array([[ratio, 0, ratio / 2 - 0.5], [0, ratio, first]], dtype=np.float64)
        near, sums = (
            cv2.warpAffine(
                layer,
                move,
                (tissue.shape[1], band.stop - band.start),
                flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
                borderMode=cv2.BORDER_REPLICATE,
            )
            for layer in (known, values)
        )
        np.divide(sums, np.maximum(near, 1e-3), out=out[band], where=near > 0.05)
    return out


def tumor_classes(classes: Sequence[str], asked: Sequence[str]) -> list[str]:
    """Choose the tumor classes: requested classes, or else those named tumor (`means_tumor`).

    Raises
    ------
    InputError
        If a requested class is unknown, no class matches, or all classes are tumor.
    """
    named = ", ".join(classes)
    foreign = sorted(set(asked) - set(classes))
    if foreign:
        raise InputError(f"tumor_classes: {', '.join(foreign)} are not among the labels ({named})")
    found = [name for name in classes if (name in asked if asked else means_tumor(name))]
    if not found:
        raise InputError(
            f"no class ({named}) is named {', '.join(sorted(TUMOR))}; list the tumor classes in "
            "tumor_classes"
        )
    if len(found) == len(classes):
        raise InputError(
            f"all classes ({named}) mean tumor, so all tissue would be classified as tumor; label "
            "other tissue as well, or list fewer classes in tumor_classes"
        )
    return found
