"""Slide classification: a clean label table, folds by case, and cross-validated attention MIL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Device, Given, Seed
from mcp_servers.spec import InputPath, OutputName, Resources, SlidePath
from sage.core.errors import InputError
from sage.core.seeds import generator
from sage_foundation.mil import MIL_VALIDITY
from sage_nova.tools.common import NovaResult, nova_tool, write_json_output
from sage_nova.tools.datasets import list_slides

COLUMN = r"^[^\n\r]{1,100}$"
LABEL = r"^[A-Za-z0-9_. -]{1,100}$"


def read_table(path: str, context: ToolContext, needed: list[str]) -> Any:
    """Read a CSV with the needed columns; raises `InputError`, which lists existing columns."""
    import pandas as pd

    file = context.input(path, "file")
    try:
        table = pd.read_csv(file)
    except (ValueError, OSError) as error:
        raise InputError(f"{path}: not a readable CSV file: {error}") from error
    if lack := [name for name in needed if name not in table.columns]:
        have = ", ".join(map(str, table.columns[:30]))
        raise InputError(f"{path}: unknown column {lack[0]}; available columns: {have}")
    return table


class MetadataInput(Given):
    """A table with slides and labels."""

    metadata_path: InputPath = Field(description="CSV with one row per slide")
    slide_id_column: str = Field(default="slide_id", pattern=COLUMN)
    case_id_column: str | None = Field(
        default=None,
        pattern=COLUMN,
        description="Column with the patient; default: case_id or patient_id",
    )
    label_column: str = Field(pattern=LABEL)
    wsi_source: SlidePath | None = Field(
        default=None, description="Folder of slides; rows whose slide is not there are dropped"
    )
    drop_classes_with_fewer_than: int = Field(
        default=1, ge=1, description="Minimum number of cases per class"
    )
    output_dir: str = Field(
        default="metadata", max_length=500, description="Path in the output folder"
    )


class MetadataResult(NovaResult):
    """Table to be used with create_wsi_classification_splits."""

    cleaned_metadata_path: OutputName
    label_map: dict[str, int] = Field(description="Number of each class in LABEL_cats")
    class_counts: dict[str, int]
    n_slides: int
    n_cases: int
    dropped: dict[str, int] = Field(description="Number of dropped rows, by reason")


@nova_tool("prepare_wsi_classification_metadata", Resources(memory_mb=512))
def prepare_metadata(given: MetadataInput, context: ToolContext) -> MetadataResult:
    """Prepare metadata files for WSI classification experiments.

    Columns case_id, slide_id, the label and LABEL_cats (numbers), without rows that lack a value
    or a slide.
    """
    import pandas as pd

    raw = read_table(given.metadata_path, context, [given.slide_id_column, given.label_column])
    case = given.case_id_column
    if case is None:
        case = next((name for name in ("case_id", "patient_id") if name in raw.columns), None)
    elif case not in raw.columns:
        raise InputError(f"{given.metadata_path}: column {case} not found")
    if given.label_column in (given.slide_id_column, case, "case_id", "slide_id"):
        raise InputError(
            f"{given.label_column} identifies slides or cases, so it cannot be used as a label"
        )
    warnings = [] if case else ["no column with cases: each slide counts as a separate case"]
    suffix = re.compile(r"\.(svs|tiff?|ndpi|scn|mrxs|bif|czi|png|jpe?g)$", re.IGNORECASE)
    slides = raw[given.slide_id_column].astype("string").str.replace(suffix, "", regex=True)
    table = pd.DataFrame(
        {
            "case_id": raw[case].astype("string") if case else slides,
            "slide_id": slides,
            given.label_column: raw[given.label_column],
        }
    )
    dropped: dict[str, int] = {}

    def keep(mask: Any, reason: str) -> None:
        nonlocal table
        if lost := int((~mask).sum()):
            dropped[reason] = lost
        table = table[mask]

    keep(table.notna().all(axis=1), "a value is missing")
    keep(~table.duplicated("slide_id"), "the slide appears twice")
    if given.wsi_source is not None:
        have = {path.stem for path in list_slides(context, given.wsi_source, True)}
        keep(table["slide_id"].isin(have), "the slide is not in the folder")
    cases = table.groupby(given.label_column)["case_id"].nunique()
    rare = cases[cases < given.drop_classes_with_fewer_than].index
    keep(~table[given.label_column].isin(rare), "its class has too few cases")
    if table.empty:
        raise InputError(f"{given.metadata_path}: no rows left ({dropped})")
    values = sorted(table[given.label_column].unique().tolist(), key=lambda v: (str(type(v)), v))
    if len(values) < 2:
        raise InputError(f"{given.metadata_path}: all rows have the label {values[0]}")
    numbers = {value: i for i, value in enumerate(values)}
    table[f"{given.label_column}_cats"] = table[given.label_column].map(numbers)
    name = f"{given.output_dir}/{Path(given.metadata_path).stem}_cleaned.csv"
    with context.writing(name) as path:
        table.to_csv(path, index=False)
    counts = table[given.label_column].value_counts()
    return MetadataResult(
        cleaned_metadata_path=name,
        label_map={str(k): v for k, v in numbers.items()},
        class_counts={str(k): int(v) for k, v in counts.items()},
        n_slides=len(table),
        n_cases=int(table["case_id"].nunique()),
        dropped=dropped,
        warnings=warnings,
    )


class SplitsInput(Given):
    """Options for assigning cases to folds."""

    cleaned_metadata_path: InputPath = Field(
        description="Table from prepare_wsi_classification_metadata"
    )
    label_column: str = Field(pattern=LABEL)
    split_method: Literal["kfold", "stratifiedkfold", "montecarlo"] = "stratifiedkfold"
    n_folds: int = Field(default=5, ge=2, le=100)
    split_ratios: list[float] | None = Field(
        default=None,
        min_length=2,
        max_length=3,
        description="For montecarlo: shares of train and test, or of train, val and test, with "
        "sum 1",
    )
    random_seed: Seed = 42
    output_dir: str = Field(
        default="metadata", max_length=500, description="Path in the output folder"
    )


class SplitsResult(NovaResult):
    """Table with one column per fold."""

    split_metadata_path: OutputName
    n_folds: int
    fold_columns: list[str] = Field(description='Columns whose values are "train", "val" or "test"')
    splits_visualization_path: OutputName


@nova_tool("create_wsi_classification_splits", Resources(memory_mb=512))
def create_splits(given: SplitsInput, context: ToolContext) -> SplitsResult:
    """Create train/validation/test splits for WSI classification datasets.

    Columns fold_0, fold_1 ... with train, val (montecarlo with three shares) or test; no case is in
    more than one of them. The same seed gives the same folds.
    """
    import numpy as np
    from sklearn.model_selection import GroupKFold, GroupShuffleSplit, StratifiedGroupKFold

    cats = f"{given.label_column}_cats"
    path = given.cleaned_metadata_path
    table = read_table(path, context, ["case_id", "slide_id", cats])
    ratios = given.split_ratios or [0.8, 0.2]
    if min(ratios) <= 0 or abs(sum(ratios) - 1) > 1e-6:
        raise InputError(f"split_ratios must be above 0 and sum to 1, got {ratios}")
    if given.split_ratios is not None and given.split_method != "montecarlo":
        raise InputError(f"split_ratios applies to montecarlo, not to {given.split_method}")
    cases = table["case_id"].astype(str).to_numpy()
    least = int(table.groupby(cats)["case_id"].nunique().min())
    need = len(set(cases)) if given.split_method != "stratifiedkfold" else least
    if given.split_method != "montecarlo" and need < given.n_folds:
        raise InputError(
            f"{path}: the rarest class has only {need} cases for {given.n_folds} folds"
        )
    seed, count = given.random_seed, given.n_folds
    splitter: Any = {
        "kfold": lambda: GroupKFold(count, shuffle=True, random_state=seed),
        "stratifiedkfold": lambda: StratifiedGroupKFold(count, shuffle=True, random_state=seed),
        "montecarlo": lambda: GroupShuffleSplit(count, test_size=ratios[-1], random_state=seed),
    }[given.split_method]()
    columns = []
    for number, (_, test) in enumerate(splitter.split(table, table[cats], cases)):
        part = np.full(len(table), "train", dtype=object)
        part[test] = "test"
        if len(ratios) == 3:
            rest = np.unique(cases[part == "train"])
            size = max(1, round(ratios[1] * len(set(cases))))
            chosen = generator(seed, number).permutation(rest)[: min(size, len(rest) - 1)]
            part[np.isin(cases, chosen)] = "val"
        table[f"fold_{number}"] = part
        columns.append(f"fold_{number}")
    stem = f"{given.output_dir}/{given.split_method}splits_{Path(path).stem}"
    with context.writing(f"{stem}.csv") as file:
        table.to_csv(file, index=False)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.imshow((table[columns] == "test").to_numpy().T, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(columns)), columns)
    axes.set_xlabel("slide (bright: test)")
    with context.writing(f"{stem}.png") as file:
        figure.savefig(file, dpi=100, format="png")
    return SplitsResult(
        split_metadata_path=f"{stem}.csv",
        n_folds=len(columns),
        fold_columns=columns,
        splits_visualization_path=f"{stem}.png",
        operations_log=[f"{len(set(cases))} cases in {len(columns)} folds"],
    )


class MilInput(Given):
    """Folds, features and training options."""

    splits_path: InputPath = Field(
        description="CSV with slide_id, LABEL_cats, and fold_0, fold_1 ... containing train, val "
        "or test; val is scored if a fold has no test"
    )
    patch_features_path: InputPath = Field(
        description="Folder of SLIDE.h5 files with the dataset features (n, d)"
    )
    label_column: str = Field(pattern=LABEL)
    job_dir: str = Field(default="mil", max_length=500, description="Folder in the output folder")
    n_heads: int = Field(default=1, ge=1, le=64)
    head_dim: int = Field(default=512, ge=1, le=4096)
    hidden_dim: int = Field(default=256, ge=1, le=4096)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    gated: bool = True
    num_epochs: int = Field(default=10, ge=1, le=1000)
    learning_rate: float = Field(default=1e-3, gt=0, le=1)
    num_folds: int = Field(default=5, ge=1, le=100)
    sample_during_training: bool = Field(
        default=False, description="Number of patches drawn at each step"
    )
    num_patches_to_sample: int = Field(default=2048, ge=1)
    seed: Seed = 42
    device: Device = "auto"


class FoldResult(BaseModel):
    """Scores for a fold's test slides, in the order of `slide_ids`."""

    fold: int
    slide_ids: list[str]
    y_true: list[int]
    y_pred: list[int]
    y_prob: list[list[float]]
    loss: float
    accuracy: float
    bacc: float
    auc: float | None = Field(
        description="One-vs-rest AUC, averaged over classes if there are more than two"
    )
    f1: float = Field(description="Macro average")
    n_samples: int
    attention_save_dir: str


class MilResult(NovaResult):
    """Scores for every fold."""

    all_fold_results: list[FoldResult]
    mean_auc: float | None
    root_save_dir: str
    experiment_config_json_path: OutputName
    final_metrics_json_path: OutputName
    attention: list[OutputName] = Field(
        description="Folder with FOLD/attention_scores/SLIDE.h5, each (n_heads, n)"
    )


@nova_tool(
    "train_test_wsi_classification_mil_model",
    Resources(cpu=2, memory_mb=4096, gpu="optional", seconds_per_item=120.0),
    validity=MIL_VALIDITY,
)
def train_test_mil(given: MilInput, context: ToolContext) -> MilResult:
    """Train and test multiple instance learning models for WSI classification over given folds.

    ABMIL with one or more heads, AdamW, cross-entropy, one bag per step; saves attention.
    """
    import h5py
    import numpy as np
    import torch

    from mcp_servers.pathology.common import choose_device
    from sage_nova.tools.abmil import predict, train_network

    cats = f"{given.label_column}_cats"
    folds = [f"fold_{i}" for i in range(given.num_folds)]
    table = read_table(given.splits_path, context, ["slide_id", cats, *folds])
    torch.set_num_threads(max(1, context.threads))
    bags, warnings = _load_bags(given, table, context)
    table = table[table["slide_id"].astype(str).isin(bags)]
    classes = int(table[cats].max()) + 1
    if classes < 2 or not np.array_equal(sorted(table[cats].unique()), np.arange(classes)):
        raise InputError(
            f"{given.splits_path}: {cats} must contain codes 0, 1, ... for two or more classes"
        )
    device = choose_device(given.device, context.device)
    root = f"{given.job_dir}/{given.label_column}_classification/ABMIL"
    results, attention = [], []
    for number, fold in enumerate(folds):
        words = table[fold].astype(str).str.lower()
        if unknown := sorted(set(words) - {"train", "test", "val"}):
            raise InputError(
                f'{given.splits_path}: {fold} has "{unknown[0]}"; expected train, val or test'
            )
        last = "test" if (words == "test").any() else "val"
        parts = [table[words == "train"], table[words == last]]
        if parts[0][cats].nunique() < 2 or parts[1].empty:
            raise InputError(f"{given.splits_path}: {fold} has only one class or an empty test set")
        names, labels = parts[0]["slide_id"].astype(str).tolist(), parts[0][cats].tolist()

        def report(share: float, number: int = number) -> None:
            context.progress((number + share) / len(folds), f"fold {number}")

        network = train_network(
            [bags[n] for n in names], labels, classes, given, given.seed + number, device, report
        )
        test, truth = parts[1]["slide_id"].astype(str).tolist(), parts[1][cats].tolist()
        chances = np.zeros((len(test), classes))
        for i, name in enumerate(test):
            chances[i], weights = predict(network, bags[name], device)
            file = f"{root}/fold_{number}/attention_scores/{name}.h5"
            with context.writing(file) as path, h5py.File(path, "w") as held:
                held.create_dataset("attention_scores_per_head", data=weights)
                held.create_dataset("attention_scores", data=weights.mean(axis=0))
            attention.append(file)
        where = f"{root}/fold_{number}/attention_scores"
        results.append(_score_fold(number, test, np.array(truth), chances, where))
    config, metrics = f"{root}/experiment_config.json", f"{root}/final_metrics.json"
    write_json_output(context, config, given.model_dump(mode="json"))
    plain = [result.model_dump(exclude={"y_prob"}) for result in results]
    write_json_output(context, metrics, plain)
    known = [result.auc for result in results if result.auc is not None]
    return MilResult(
        all_fold_results=results,
        mean_auc=float(np.mean(known)) if known else None,
        root_save_dir=root,
        experiment_config_json_path=config,
        final_metrics_json_path=metrics,
        attention=attention,
        warnings=warnings,
    )


def _load_bags(
    given: MilInput, table: Any, context: ToolContext
) -> tuple[dict[str, Any], list[str]]:
    from sage_foundation.features import read_features

    folder = context.input(given.patch_features_path, "folder")
    bags: dict[str, Any] = {}
    missing = []
    for name in table["slide_id"].astype(str):
        file = folder / f"{name}.h5"
        if not context.roots.allows(file.resolve()) or not file.is_file():
            missing.append(name)
            continue
        bags[name] = read_features(file)[0]
    if not bags:
        raise InputError(
            f"{given.patch_features_path}: contains no SLIDE.h5 for the slides in the table"
        )
    sizes = {bag.shape[1] for bag in bags.values()}
    if len(sizes) > 1:
        raise InputError(
            f"{given.patch_features_path}: features have different dimensions: {sorted(sizes)}"
        )
    note = f"{len(missing)} slides have no features, e.g. {missing[0]}" if missing else ""
    return bags, [note] if note else []


def _score_fold(fold: int, names: list[str], truth: Any, chances: Any, where: str) -> FoldResult:
    import numpy as np
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, roc_auc_score

    guess, classes = chances.argmax(axis=1), chances.shape[1]
    auc = None
    if len(np.unique(truth)) == classes:
        auc = float(
            roc_auc_score(truth, chances[:, 1])
            if classes == 2
            else roc_auc_score(truth, chances, multi_class="ovr")
        )
    own = np.clip(chances[np.arange(len(truth)), truth], 1e-12, 1)
    return FoldResult(
        fold=fold,
        slide_ids=names,
        y_true=[int(v) for v in truth],
        y_pred=[int(v) for v in guess],
        y_prob=[[float(v) for v in row] for row in chances],
        loss=float(-np.log(own).mean()),
        accuracy=float(accuracy_score(truth, guess)),
        bacc=float(balanced_accuracy_score(truth, guess)),
        auc=auc,
        f1=float(f1_score(truth, guess, average="macro")),
        n_samples=len(truth),
        attention_save_dir=where,
    )
