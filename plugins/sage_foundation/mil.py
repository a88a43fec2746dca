"""Attention MIL: training on slide labels with splits by patient, evaluation, and maps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import SUITE, Device, Given, Method, Seed
from mcp_servers.spec import InputPath, OutputName, Resources, Validity, tool
from sage.core.errors import InputError

if TYPE_CHECKING:
    from mcp_servers.slides.arrays import F32, I64, AnyArray

MIL_VALIDITY = Validity(
    stain="as the features",
    organ="as the training slides",
    training_data="the user's own slides",
    tcga_overlap="that of the features' encoder and of the training slides",
    known_failures=(
        "with fewer than about 50 patients the interval is wide and the model unstable",
        "if a label correlates with scanner or hospital, the model learns scanner or hospital",
        "attention shows which tiles the model used, not the cause of the label",
    ),
)


class TrainInput(Given):
    """Bags, labels, and training settings."""

    features: InputPath = Field(description="Folder with one HDF5 file of features per slide")
    labels: InputPath = Field(description="CSV with columns slide, label and, optionally, patient")
    name: str = Field(
        default="mil", pattern=r"^[A-Za-z0-9_-]{1,60}$", description="Name of the model"
    )
    folds: int = Field(default=5, ge=2, le=20, description="Number of cross-validation folds")
    epochs: int = Field(default=40, ge=1, le=1000)
    hidden: int = Field(default=128, ge=8, le=1024)
    max_tiles: int = Field(
        default=2048, ge=16, description="Number of tiles drawn from each bag per epoch"
    )
    seed: Seed = 0
    device: Device = "auto"


class MilScores(BaseModel):
    """Classification scores; the AUC is one-vs-rest, averaged over classes."""

    slides: int
    patients: int
    classes: list[str]
    auc: float | None
    auc_low: float | None = Field(
        description="95% interval from resampling patients with replacement"
    )
    auc_high: float | None
    balanced_accuracy: float
    predictions: OutputName
    method: Method = "learned"
    warnings: list[str] = Field(default_factory=list)


class TrainResult(MilScores):
    """Held-out scores from cross-validation, and the model trained on all slides."""

    folds: int
    encoder: str | None
    weights: OutputName = Field(description="Model as a safetensors file")
    card: OutputName = Field(description="JSON with architecture, classes, encoder and scores")


@tool(
    "mil_train",
    SUITE,
    "1.0.0",
    "Train an attention MIL classifier on slide labels, cross-validated by patient.",
    resources=Resources(cpu=2, memory_mb=4096, gpu="optional", seconds_per_item=120.0),
    validity=MIL_VALIDITY,
    title="Train a multiple-instance model",
)
def mil_train(given: TrainInput, context: ToolContext) -> TrainResult:
    """Cross-validate an attention MIL model, then train it on all slides."""
    import json

    import numpy as np
    import torch
    from safetensors.numpy import save_file
    from sklearn.model_selection import StratifiedGroupKFold

    from mcp_servers.pathology.common import choose_device
    from sage_foundation import attention

    torch.set_num_threads(max(1, context.threads))  # small matrices: more threads only wait
    data = load_bags(given.features, given.labels, context)
    classes = sorted(set(data.labels))
    if len(classes) < 2:
        raise InputError(
            f"{given.labels}: all slides have the label {classes[0]}; at least two "
            "labels are needed"
        )
    y = np.array([classes.index(label) for label in data.labels])
    smallest = min(len(set(data.patients[y == c])) for c in range(len(classes)))
    if smallest < given.folds:
        raise InputError(
            f"{given.labels}: the rarest label has {smallest} patients, fewer than the "
            f"{given.folds} folds; use fewer folds or more slides"
        )
    settings = attention.MilSettings(given.hidden, epochs=given.epochs, max_tiles=given.max_tiles)
    device = choose_device(given.device, context.device)
    out = np.zeros((len(y), len(classes)))
    splitter = StratifiedGroupKFold(given.folds, shuffle=True, random_state=given.seed)
    parts = given.folds + 1
    for fold, (train, test) in enumerate(splitter.split(y, y, data.patients)):

        def tick(share: float, fold: int = fold) -> None:
            context.progress((fold + share) / parts, f"fold {fold + 1} of {given.folds}")

        bags = [data.bags[i] for i in train]
        network, mean, sd = attention.fit(
            bags, y[train], len(classes), settings, given.seed + fold, None, device, tick
        )
        for i in test:
            out[i] = attention.predict(network, data.bags[i], mean, sd, device)[0]

    def last(share: float) -> None:
        context.progress((given.folds + share) / parts, "all slides")

    network, mean, sd = attention.fit(
        data.bags, y, len(classes), settings, given.seed, None, device, last
    )
    names = {k: f"{given.name}.{k}" for k in ("safetensors", "json", "predictions.csv")}
    scores = _scores(data, y, classes, out, given.seed, names["predictions.csv"], context)
    state = {k: v.detach().cpu().numpy() for k, v in network.state_dict().items()}
    with context.writing(names["safetensors"]) as path:
        save_file({**state, "feature_mean": mean, "feature_sd": sd}, path)
    card = {
        "format": "sage-mil-1",
        "classes": classes,
        "dimension": int(data.bags[0].shape[1]),
        "encoder": data.encoder,
        "settings": asdict(settings),
        "seed": given.seed,
        "slides": len(y),
        "cross_validated": {"auc": scores.auc, "interval": [scores.auc_low, scores.auc_high]},
    }
    with context.writing(names["json"]) as path:
        path.write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    return TrainResult(
        **scores.model_dump(),
        folds=given.folds,
        encoder=data.encoder,
        weights=names["safetensors"],
        card=names["json"],
    )


class EvaluateInput(Given):
    """A trained model and slides not used to train it."""

    weights: InputPath = Field(
        description="safetensors file from mil_train; its JSON must be in the same folder"
    )
    features: InputPath = Field(description="Folder with one HDF5 file of features per slide")
    labels: InputPath = Field(description="CSV with columns slide, label and, optionally, patient")
    name: str = Field(default="mil", pattern=r"^[A-Za-z0-9_-]{1,60}$")
    attention: bool = Field(
        default=True, description="Write each slide's attention, for the tool heatmap"
    )
    seed: Seed = 0
    device: Device = "auto"


class EvaluateResult(MilScores):
    """Scores on the evaluated slides."""

    attention: list[OutputName] = Field(
        description="One HDF5 file per slide, with coords and attention"
    )


@tool(
    "mil_evaluate",
    SUITE,
    "1.0.0",
    "Evaluate an attention MIL model on other slides; writes predictions and attention maps.",
    resources=Resources(cpu=1, memory_mb=4096, gpu="optional", seconds_per_item=10.0),
    validity=MIL_VALIDITY,
    title="Evaluate a multiple-instance model",
)
def mil_evaluate(given: EvaluateInput, context: ToolContext) -> EvaluateResult:
    """Predict each slide's label and score the predictions."""
    import numpy as np

    from mcp_servers.pathology.common import choose_device
    from sage_foundation import attention
    from sage_foundation.features import write_scores

    network, card, mean, sd = _load_model(given.weights, context)
    data = load_bags(given.features, given.labels, context)
    classes = list(card["classes"])
    foreign = sorted(set(data.labels) - set(classes))
    if foreign:
        raise InputError(
            f"{given.labels}: unknown labels {', '.join(foreign)}; the model was trained with "
            f"{', '.join(classes)}"
        )
    if data.bags[0].shape[1] != card["dimension"]:
        raise InputError(
            f"{given.features}: features have dimension {data.bags[0].shape[1]}, but the model "
            f"was trained with dimension {card['dimension']} ({card['encoder']})"
        )
    device = choose_device(given.device, context.device)
    network = network.to(device)
    y = np.array([classes.index(label) for label in data.labels])
    out = np.zeros((len(y), len(classes)))
    written = []
    for i, bag in enumerate(data.bags):
        out[i], weights = attention.predict(network, bag, mean, sd, device)
        coords = data.coords[i]
        if given.attention and coords is not None:
            name = f"{given.name}.attention/{data.slides[i]}.h5"
            with context.writing(name) as path:
                # times the number of tiles: 1 is a tile's value if all tiles counted equally
                write_scores(
                    path, coords, data.attributes[i], attention=weights.mean(axis=0) * len(bag)
                )
            written.append(name)
        context.progress((i + 1) / len(y), "slides")
    table = f"{given.name}.evaluation.csv"
    scores = _scores(data, y, classes, out, given.seed, table, context)
    if card["encoder"] and data.encoder and card["encoder"] != data.encoder:
        scores.warnings.append(f"trained on {card['encoder']}, but evaluated on {data.encoder}")
    return EvaluateResult(**scores.model_dump(), attention=written)


@dataclass
class Bags:
    """Slides with features and labels, in the order of the table."""

    slides: list[str]
    patients: AnyArray
    labels: list[str]
    bags: list[F32]
    coords: list[I64 | None]
    attributes: list[dict[str, Any]]
    encoder: str | None
    warnings: list[str]


def load_bags(features: str, labels: str, context: ToolContext) -> Bags:
    """Load the features of the slides in a table; raises `InputError` for unlike features."""
    import numpy as np
    import pandas as pd

    from sage_foundation.features import read_features

    path = context.input(labels, "file")
    try:
        table = pd.read_csv(path, dtype=str)
    except (ValueError, OSError) as error:
        raise InputError(f"{labels}: not a readable CSV file: {error}") from error
    if not {"slide", "label"} <= set(table.columns):
        raise InputError(
            f"{labels}: columns slide and label are required. Columns: {', '.join(table.columns)}"
        )
    doubled = table["slide"][table["slide"].duplicated()].tolist()
    if doubled:
        raise InputError(f"{labels}: slide {doubled[0]} is listed twice")
    table = table.dropna(subset=["slide", "label"])
    folder = context.input(features, "folder")
    found: dict[str, Path] = {}
    for file in sorted(folder.glob("*.h5")):
        found.setdefault(file.name.split(".")[0], file)
        found.setdefault(file.stem, file)
    missing = [name for name in table["slide"] if _file(found, name) is None]
    if len(missing) == len(table) or table.empty:
        raise InputError(f"{features}: no features (.h5) found for the slides in {labels}")
    warnings = (
        [] if "patient" in table.columns else ["no patient column: each slide counts as a patient"]
    )
    if missing:
        warnings.append(f"{len(missing)} slides have no features, e.g. {missing[0]}")
    have = table[~table["slide"].isin(missing)]
    bags: list[F32] = []
    coords: list[I64 | None] = []
    attributes: list[dict[str, Any]] = []
    for name in have["slide"]:
        file = context.input(_file(found, name) or "", "file")
        bag, where, attrs = read_features(file)
        if bags and bag.shape[1] != bags[0].shape[1]:
            raise InputError(
                f"{file}: features have dimension {bag.shape[1]}, but those of other slides have "
                f"{bags[0].shape[1]}"
            )
        bags.append(bag)
        coords.append(where)
        attributes.append(attrs)
    encoders = {str(a["encoder"]) for a in attributes if "encoder" in a}
    if len(encoders) > 1:
        raise InputError(
            f"{features}: features come from different encoders: {', '.join(sorted(encoders))}"
        )
    patients = have["patient"] if "patient" in have.columns else have["slide"]
    return Bags(
        slides=list(have["slide"]),
        patients=np.asarray(patients.fillna(have["slide"]), dtype=str),
        labels=list(have["label"]),
        bags=bags,
        coords=coords,
        attributes=attributes,
        encoder=encoders.pop() if encoders else None,
        warnings=warnings,
    )


def _file(found: dict[str, Path], slide: str) -> Path | None:
    return found.get(slide) or found.get(Path(slide).stem)


def _scores(
    data: Bags,
    y: AnyArray,
    classes: list[str],
    out: AnyArray,
    seed: int,
    name: str,
    context: ToolContext,
) -> MilScores:
    """Write a model's predictions to a file and score them."""
    import numpy as np
    from sklearn.metrics import balanced_accuracy_score

    from mcp_servers.formats.tables import write_columns
    from sage_foundation import attention

    guess = out.argmax(axis=1)
    columns: dict[str, Any] = {
        "slide": data.slides,
        "patient": data.patients,
        "label": data.labels,
        "predicted": [classes[i] for i in guess],
    }
    for index, label in enumerate(classes):
        columns[f"p_{label}"] = out[:, index]
    with context.writing(name) as path:
        write_columns(path, columns)
    if len(classes) == 2:
        value = attention.auc(y == 1, out[:, 1])
        low, high = attention.auc_interval(y == 1, out[:, 1], data.patients, seed)
    else:
        each = [attention.auc(y == c, out[:, c]) for c in range(len(classes))]
        value, low, high = float(np.mean(each)), float("nan"), float("nan")
    warnings = list(data.warnings)
    patients = len(set(data.patients.tolist()))
    if patients < 50:
        warnings.append(f"only {patients} patients: the scores are uncertain")

    def drop_nan(number: float) -> float | None:
        return number if np.isfinite(number) else None

    return MilScores(
        slides=len(y),
        patients=patients,
        classes=classes,
        auc=drop_nan(value),
        auc_low=drop_nan(low),
        auc_high=drop_nan(high),
        balanced_accuracy=float(balanced_accuracy_score(y, guess)),
        predictions=name,
        warnings=warnings,
    )


def _load_model(weights: str, context: ToolContext) -> tuple[Any, dict[str, Any], F32, F32]:
    import json

    import torch
    from safetensors.numpy import load_file

    from sage_foundation import attention

    path = context.input(weights, "file")
    card_path = context.input(path.with_suffix(".json"), "file")
    try:
        card = json.loads(card_path.read_text(encoding="utf-8"))
        if card.get("format") != "sage-mil-1":
            raise InputError(f"{card_path}: not a mil_train model card")
        state = load_file(path)
        mean, sd = state.pop("feature_mean"), state.pop("feature_sd")
        settings = attention.MilSettings(**card["settings"])
        network = attention.build(int(card["dimension"]), len(card["classes"]), settings)
        network.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
    except InputError:
        raise
    except Exception as error:  # safetensors and json raise exceptions of their own
        raise InputError(f"{path}: not a mil_train model: {error}") from error
    return network.eval(), card, mean, sd
