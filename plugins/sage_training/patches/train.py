"""Training of a patch classifier from a pathologist's outlines or sorted images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Method
from mcp_servers.spec import OutputName, Resources, Validity, tool
from sage.core.errors import InputError
from sage_foundation.encoders import encoder_memory
from sage_training.patches.inputs import PatchTrainInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mcp_servers.slides.arrays import F32, AnyArray
    from sage_training.patches.folds import Splits
    from sage_training.patches.gather import Labelled, Patches


class ClassScore(BaseModel):
    """A class's scores on tiles from patients excluded from training in each fold."""

    name: str
    patches: int
    slides: int
    precision: float | None
    recall: float | None
    auc: float | None = Field(description="One-vs-rest AUC of this class")


class PatchTrainResult(BaseModel):
    """The model and its held-out performance; no scores if no patients could be held out."""

    method: Method = "learned"
    encoder: str
    classes: list[ClassScore]
    tumor_classes: list[str]
    patches: int
    slides: int
    patients: int
    folds: int = Field(
        description="Number of folds; 0 if there were too few patients to hold any out"
    )
    accuracy: float | None
    balanced_accuracy: float | None
    model: OutputName = Field(
        description="safetensors file; pass it as model= to tools such as tumor and tls"
    )
    card: OutputName = Field(
        description="The model's card as JSON, also embedded in the model file"
    )
    predictions: OutputName | None = Field(
        description="CSV with the held-out probabilities of each tile"
    )
    warnings: list[str] = Field(default_factory=list)


@tool(
    "patch_train",
    "training",
    "1.1.1",
    "Train a patch classifier (linear head on any encoder) from QuPath outlines or image folders.",
    resources=Resources(
        cpu=2,
        memory_mb=3072,
        memory_note="more with larger encoders, see encode_tiles",
        gpu="optional",
        seconds_per_item=60.0,
    ),
    memory_mb=lambda given: max(3072, encoder_memory(given)),
    validity=Validity(
        stain="as the training slides",
        mpp=(0.2, 4.0),
        organ="as the training slides",
        training_data="the user's own outlines",
        tcga_overlap="that of the encoder and of the training slides",
        known_failures=(
            "outlines of easy regions only: the model has not seen the transitions between them",
            "the handcrafted encoder depends on color: include slides from other labs in training",
            "with fewer than about 10 patients the held-out scores are uncertain",
        ),
        accuracy=(
            "synthetic slides, 3 for training: held-out balanced accuracy 1.00 on uniform tiles; "
            "on 3 others the tumor mask contains 93% of tumor and 13% of stroma nuclei. "
            "One real scan, outlined by eye, left half for training, right half for testing: "
            "70% of the tumor and 18% of the septa area"
        ),
    ),
    title="Train a patch classifier",
)
def patch_train(given: PatchTrainInput, context: ToolContext) -> PatchTrainResult:
    """Encode the tiles, cross-validate by patient, then train on all of them."""
    import json

    import numpy as np

    from sage_foundation.patches import FORMAT, PatchModel, fit_head, tumor_classes
    from sage_training.patches.folds import splits_by_patient, why_none
    from sage_training.patches.gather import gather, gather_labels

    def known(labels: Iterable[str], asked: Sequence[str]) -> tuple[list[str], list[str]]:
        found = sorted(set(labels))
        if len(found) < 2:
            raise InputError(
                f"{given.regions or given.slides}: all tiles have the label {found[0]}; at least "
                "two classes are required"
            )
        return found, tumor_classes(found, asked)

    notes: list[str] = []
    jobs = gather_labels(given, context, notes)
    _, tumor = known((name for job in jobs for name in job.labels), given.tumor_classes)
    patient_of, warnings = _patients(given, jobs, context)
    data = gather(jobs, given, context)
    # a class too small for a tile is missing
    classes, tumor = known(data.labels, [name for name in tumor if name in data.labels])
    y = np.array([classes.index(label) for label in data.labels])
    patients = np.array([patient_of[name] for name in data.slides])
    warnings += [*notes, *data.warnings]
    splits = splits_by_patient(y, patients, given.folds, given.seed)
    folds = len(splits)
    out = _cross_validated(given, data.features, y, splits, len(classes))
    if not folds:
        warnings.append(why_none(y, patients, classes))
    count = len(set(patients.tolist()))
    if folds > 0 and count < 10:
        warnings.append(f"only {count} patients: the held-out scores are uncertain")
    context.progress(0.95, "training")
    head = fit_head(data.features, y, len(classes), given.penalty, given.seed)
    scores = [_score(i, name, y, out, folds, data.slides) for i, name in enumerate(classes)]
    guess = out.argmax(axis=1)
    recalls = [s.recall for s in scores if s.recall is not None]
    accuracy = float((guess == y).mean()) if folds else None
    balanced = float(np.mean(recalls)) if folds else None
    names = {k: f"{given.name}.{k}" for k in ("safetensors", "json", "heldout.csv")}
    card: dict[str, Any] = {
        "format": FORMAT,
        "name": given.name,
        "classes": classes,
        "tumor_classes": tumor,
        "tumor_named": bool(given.tumor_classes),
        "encoder": given.encoder,
        "dimension": int(data.features.shape[1]),
        "tile_px": given.tile_px,
        "at_mpp": given.at_mpp,
        "penalty": given.penalty,
        "seed": given.seed,
        "training_slides": sorted(set(data.slides)),
        "patients": count,
        "patches": {name: int((y == i).sum()) for i, name in enumerate(classes)},
        "held_out": {
            "folds": folds,
            "accuracy": accuracy,
            "balanced_accuracy": balanced,
            "classes": [s.model_dump() for s in scores],
        },
    }
    with context.writing(names["safetensors"]) as path:
        PatchModel(head, card).save(path)
    with context.writing(names["json"]) as path:
        path.write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    if folds:
        _write_predictions(names["heldout.csv"], data, patients, classes, out, context)
    return PatchTrainResult(
        encoder=given.encoder,
        classes=scores,
        tumor_classes=tumor,
        patches=len(y),
        slides=len(set(data.slides)),
        patients=count,
        folds=folds,
        accuracy=accuracy,
        balanced_accuracy=balanced,
        model=names["safetensors"],
        card=names["json"],
        predictions=names["heldout.csv"] if folds else None,
        warnings=warnings,
    )


def _patients(
    given: PatchTrainInput, jobs: list[Labelled], context: ToolContext
) -> tuple[dict[str, str], list[str]]:
    """Find each file's patient by name, and collect warnings."""
    from sage_training.patches.files import read_patients

    if given.patients is None:
        note = "no patients were given: each file counts as a patient"
        return {job.name: job.name for job in jobs}, [note]
    known = read_patients(context.input(given.patients, "file"), given.patients)
    found = {job.name: job.patient(known) for job in jobs}
    missing = sorted(name for name, patient in found.items() if patient is None)
    if missing:
        raise InputError(f"{given.patients}: no patient given for {missing[0]}")
    return {name: patient for name, patient in found.items() if patient is not None}, []


def _cross_validated(
    given: PatchTrainInput, features: F32, y: AnyArray, splits: Splits, classes: int
) -> AnyArray:
    """Compute held-out probabilities (n, k) from models trained without the tile's patient."""
    import numpy as np

    from sage_foundation.patches import fit_head

    out = np.zeros((len(y), classes), dtype=np.float32)
    for train, test in splits:
        head = fit_head(features[train], y[train], classes, given.penalty, given.seed)
        out[test] = head.probabilities(features[test])
    return out


def _score(
    index: int, name: str, y: AnyArray, out: AnyArray, folds: int, slides: list[str]
) -> ClassScore:
    import numpy as np

    from sage_foundation.attention import auc

    own, said = y == index, out.argmax(axis=1) == index
    value = auc(own, out[:, index]) if folds else float("nan")
    return ClassScore(
        name=name,
        patches=int(own.sum()),
        slides=len({s for s, mine in zip(slides, own, strict=True) if mine}),
        precision=float(own[said].mean()) if folds and said.any() else None,
        recall=float(said[own].mean()) if folds else None,
        auc=float(value) if np.isfinite(value) else None,
    )


def _write_predictions(
    name: str, data: Patches, patients: AnyArray, classes: list[str], out: AnyArray, context: Any
) -> None:
    from mcp_servers.formats.tables import write_columns

    columns: dict[str, Any] = {
        "slide": data.slides,
        "patient": patients,
        "x": data.corners[:, 0],
        "y": data.corners[:, 1],
        "label": data.labels,
        "predicted": [classes[i] for i in out.argmax(axis=1)],
    }
    columns |= {f"p_{label}": out[:, i] for i, label in enumerate(classes)}
    with context.writing(name) as path:
        write_columns(path, columns)
