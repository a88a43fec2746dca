"""Slide classification: a clean label table, folds by case, and cross-validated attention MIL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Device, Given, Seed
from mcp_servers.spec import InputPath, OutputName, Resources, SlidePath
from sage.core.errors import InputError
from sage.core.seeds import generator
from sage_foundation.mil import MIL_VALIDITY, load_bags
from sage_nova.tools import declare as nova
from sage_nova.tools.folder import list_slides

Column = Annotated[str, Field(pattern=r"^[^\n\r]{1,100}$")]
SUFFIX = re.compile(r"\.(svs|tiff?|ndpi|scn|mrxs|bif|czi|png|jpe?g)$", re.IGNORECASE)


class LabelInput(Given):
    """A table's column with the labels."""

    label_column: str = Field(pattern=r"^[A-Za-z0-9_. -]{1,100}$")


def read_table(path: str, context: ToolContext, needed: list[str]) -> Any:
    """Read a CSV with the needed columns; raises `InputError`, which lists existing columns."""
    import pandas as pd

    try:
        table = pd.read_csv(context.input(path, "file"))
    except InputError:  # is a ValueError too
        raise
    except (ValueError, OSError) as error:
        raise InputError(f"{path}: not a readable CSV file: {error}") from error
    if lack := [name for name in needed if name not in table.columns]:
        have = nova.list_choices(table.columns)
        raise InputError(f"{path}: unknown column {lack[0]}; available columns: {have}")
    return table


@nova.tool(
    "prepare_wsi_classification_metadata", Resources(memory_mb=512),
    cleaned_metadata_path=OutputName,
    label_map=nova.described(dict[str, int], "Number of each class in LABEL_cats"),
    class_counts=dict[str, int], n_slides=int, n_cases=int,
    dropped=nova.described(dict[str, int], "Number of dropped rows, by reason"),
)  # fmt: skip
def prepare_metadata(
    given: LabelInput, context: ToolContext, *,
    metadata_path: Annotated[InputPath, Field(description="CSV with one row per slide")],
    slide_id_column: Column = "slide_id",
    case_id_column: Annotated[Column | None,
        Field(description="Column with the patient; default: case_id or patient_id")] = None,
    wsi_source: Annotated[SlidePath | None,
        Field(description="Folder of slides; rows whose slide is not there are dropped")] = None,
    drop_classes_with_fewer_than: Annotated[int,
        Field(ge=1, description="Minimum number of cases per class")] = 1,
    output_dir: nova.Folder = "metadata",
) -> nova.Result:  # fmt: skip
    """Prepare metadata files for WSI classification experiments.

    Columns case_id, slide_id, the label and LABEL_cats (numbers), without rows that lack a value
    or a slide.
    """
    import pandas as pd

    label, asked = given.label_column, [case_id_column] if case_id_column else []
    raw = read_table(metadata_path, context, [slide_id_column, label, *asked])
    known = (name for name in ("case_id", "patient_id") if name in raw.columns)
    case = case_id_column or next(known, None)
    if label in (slide_id_column, case, "case_id", "slide_id"):
        raise InputError(f"{label} identifies slides or cases, so it cannot be used as a label")
    slides = raw[slide_id_column].astype("string").str.replace(SUFFIX, "", regex=True)
    cases = raw[case].astype("string") if case else slides
    table = pd.DataFrame({"case_id": cases, "slide_id": slides, label: raw[label]})
    dropped: dict[str, int] = {}

    def keep(mask: Any, reason: str) -> None:
        nonlocal table
        if lost := int((~mask).sum()):
            dropped[reason] = lost
        table = table[mask]

    keep(table.notna().all(axis=1), "a value is missing")
    keep(~table.duplicated("slide_id"), "the slide appears twice")
    if wsi_source is not None:
        have = {path.stem for path in list_slides(context, wsi_source, True)}
        keep(table["slide_id"].isin(have), "the slide is not in the folder")
    sizes = table.groupby(label)["case_id"].transform("nunique")
    keep(sizes >= drop_classes_with_fewer_than, "its class has too few cases")
    if table.empty:
        raise InputError(f"{metadata_path}: no rows left ({dropped})")
    values = sorted(table[label].unique().tolist(), key=lambda v: (str(type(v)), v))
    if len(values) < 2:
        raise InputError(f"{metadata_path}: all rows have the label {values[0]}")
    numbers = {value: i for i, value in enumerate(values)}
    table = table.assign(**{f"{label}_cats": table[label].map(numbers)})
    name = f"{output_dir}/{Path(metadata_path).stem}_cleaned.csv"
    with context.writing(name) as path:
        table.to_csv(path, index=False)
    counts = table[label].value_counts().to_dict()
    return {
        "cleaned_metadata_path": name, "label_map": {str(k): v for k, v in numbers.items()},
        "class_counts": {str(k): v for k, v in counts.items()}, "n_slides": len(table),
        "n_cases": table["case_id"].nunique(), "dropped": dropped,
        "warnings": [] if case else ["no column with cases: each slide counts as a separate case"],
    }  # fmt: skip


@nova.tool(
    "create_wsi_classification_splits", Resources(memory_mb=512), split_metadata_path=OutputName,
    n_folds=int,
    fold_columns=Annotated[
        list[str], Field(description='Columns whose values are "train", "val" or "test"')
    ],
    splits_visualization_path=OutputName,
)  # fmt: skip
def create_splits(
    given: LabelInput,
    context: ToolContext,
    *,
    cleaned_metadata_path: Annotated[
        InputPath, Field(description="Table from prepare_wsi_classification_metadata")
    ],
    split_method: Literal["kfold", "stratifiedkfold", "montecarlo"] = "stratifiedkfold",
    n_folds: Annotated[int, Field(ge=2, le=100)] = 5,
    split_ratios: Annotated[
        list[float] | None,
        Field(
            min_length=2, max_length=3,
            description="For montecarlo: shares of train and test, or of train, val and test, "
            "with sum 1",
        ),
    ] = None,
    random_seed: Seed = 42,
    output_dir: nova.Folder = "metadata",
) -> nova.Result:  # fmt: skip
    """Create train/validation/test splits for WSI classification datasets.

    Columns fold_0, fold_1 ... with train, val (montecarlo with three shares) or test; no case is in
    more than one of them. The same seed gives the same folds.
    """
    import numpy as np
    from matplotlib.figure import Figure
    from sklearn.model_selection import GroupKFold, GroupShuffleSplit, StratifiedGroupKFold

    cats = f"{given.label_column}_cats"
    table = read_table(cleaned_metadata_path, context, ["case_id", "slide_id", cats])
    ratios = split_ratios or [0.8, 0.2]
    if min(ratios) <= 0 or abs(sum(ratios) - 1) > 1e-6:
        raise InputError(f"split_ratios must be above 0 and sum to 1, got {ratios}")
    if split_ratios is not None and split_method != "montecarlo":
        raise InputError(f"split_ratios applies to montecarlo, not to {split_method}")
    cases = table["case_id"].astype(str).to_numpy()
    least = int(table.groupby(cats)["case_id"].nunique().min())
    need = len(set(cases)) if split_method != "stratifiedkfold" else least
    if split_method != "montecarlo" and need < n_folds:
        raise InputError(
            f"{cleaned_metadata_path}: the rarest class has only {need} cases for {n_folds} folds"
        )
    kinds: dict[str, Any] = {"kfold": GroupKFold, "stratifiedkfold": StratifiedGroupKFold}
    if split_method == "montecarlo":
        splitter = GroupShuffleSplit(n_folds, test_size=ratios[-1], random_state=random_seed)
    else:
        splitter = kinds[split_method](n_folds, shuffle=True, random_state=random_seed)
    columns = [f"fold_{number}" for number in range(n_folds)]
    for number, (_, test) in enumerate(splitter.split(table, table[cats], cases)):
        part = np.full(len(table), "train", dtype=object)
        part[test] = "test"
        if len(ratios) == 3:
            rest = np.unique(cases[part == "train"])
            size = max(1, round(ratios[1] * len(set(cases))))
            chosen = generator(random_seed, number).permutation(rest)[: min(size, len(rest) - 1)]
            part[np.isin(cases, chosen)] = "val"
        table[columns[number]] = part
    stem = f"{output_dir}/{split_method}splits_{Path(cleaned_metadata_path).stem}"
    with context.writing(f"{stem}.csv") as file:
        table.to_csv(file, index=False)
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.imshow((table[columns] == "test").to_numpy().T, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(columns)), columns)
    axes.set_xlabel("slide (bright: test)")
    with context.writing(f"{stem}.png") as file:
        figure.savefig(file, dpi=100, format="png")
    return {
        "split_metadata_path": f"{stem}.csv", "n_folds": n_folds, "fold_columns": columns,
        "splits_visualization_path": f"{stem}.png",
        "operations_log": [f"{len(set(cases))} cases in {n_folds} folds"],
    }  # fmt: skip


class MilInput(LabelInput):
    """Folds, features and training options."""

    splits_path: InputPath = Field(
        description="CSV with slide_id, LABEL_cats, and fold_0, fold_1 ... containing train, val "
        "or test; val is scored if a fold has no test"
    )
    patch_features_path: InputPath = Field(
        description="Folder of SLIDE.h5 files with the dataset features (n, d)"
    )
    job_dir: nova.Folder = "mil"
    n_heads: int = Field(default=1, ge=1, le=64)
    head_dim: int = Field(default=512, ge=1, le=4096)
    hidden_dim: int = Field(default=256, ge=1, le=4096)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    gated: bool = True
    num_epochs: int = Field(default=10, ge=1, le=1000)
    learning_rate: float = Field(default=1e-3, gt=0, le=1)
    num_folds: int = Field(default=5, ge=1, le=100)
    sample_during_training: bool = Field(
        default=False, description="Draw patches at each step instead of using all"
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


@nova.tool(
    "train_test_wsi_classification_mil_model",
    Resources(cpu=2, memory_mb=4096, gpu="optional", seconds_per_item=120.0),
    validity=MIL_VALIDITY, all_fold_results=list[FoldResult], mean_auc=float | None,
    root_save_dir=str, experiment_config_json_path=OutputName, final_metrics_json_path=OutputName,
    attention=nova.described(list[OutputName], "FOLD/attention_scores/SLIDE.h5 with "
        "attention_scores (n,), and attention_scores_per_head (n_heads, n)"),
)  # fmt: skip
def train_test_mil(given: MilInput, context: ToolContext) -> nova.Result:
    """Train and test multiple instance learning models for WSI classification over given folds.

    ABMIL with one or more heads, AdamW, cross-entropy, one bag per step; saves attention.
    """
    import h5py
    import numpy as np
    import pandas as pd
    import torch

    from mcp_servers.pathology.common import choose_device
    from sage_foundation import attention

    cats = f"{given.label_column}_cats"
    folds = [f"fold_{i}" for i in range(given.num_folds)]
    table = read_table(given.splits_path, context, ["slide_id", cats, *folds])
    torch.set_num_threads(max(1, context.threads))
    names = table["slide_id"] = table["slide_id"].astype(str)
    with nova.house(context) as own:
        with own.writing("labels.csv") as path:
            named = {"slide": names, "patient": names, "label": table[cats]}
            pd.DataFrame(named).to_csv(path, index=False)
        data = load_bags(given.patch_features_path, str(own.roots.output / "labels.csv"), own)
    bags, warnings = dict(zip(data.slides, data.bags, strict=True)), data.warnings
    table = table[table["slide_id"].isin(bags)]
    classes = int(table[cats].max()) + 1
    if classes < 2 or not np.array_equal(sorted(table[cats].unique()), np.arange(classes)):
        raise InputError(
            f"{given.splits_path}: {cats} must contain codes 0, 1, ... for two or more classes"
        )
    most = given.num_patches_to_sample if given.sample_during_training else 2**31
    settings = attention.MilSettings(
        hidden=given.hidden_dim, attention=given.head_dim, heads=given.n_heads, gated=given.gated,
        epochs=given.num_epochs, learning_rate=given.learning_rate, dropout=given.dropout,
        max_tiles=most,
    )  # fmt: skip
    device = choose_device(given.device, context.device)
    root = f"{given.job_dir}/{given.label_column}_classification/ABMIL"
    results, written = [], []
    for number, fold in enumerate(folds):
        words = table[fold].astype(str).str.lower()
        if unknown := sorted(set(words) - {"train", "test", "val"}):
            raise InputError(
                f'{given.splits_path}: {fold} has "{unknown[0]}"; expected train, val or test'
            )
        last = "test" if (words == "test").any() else "val"
        train, test = table[words == "train"], table[words == last]
        if train[cats].nunique() < 2 or test.empty:
            raise InputError(f"{given.splits_path}: {fold} has only one class or an empty test set")

        def report(share: float, number: int = number) -> None:
            context.progress((number + share) / len(folds), f"fold {number}")

        network, mean, sd = attention.fit(
            [bags[name] for name in train["slide_id"]], train[cats].to_numpy(), classes,
            settings, given.seed + number, None, device, report,
        )  # fmt: skip
        names, where = (
            test["slide_id"].tolist(),
            f"{root}/fold_{number}/attention_scores",
        )
        chances = np.zeros((len(names), classes))
        for i, name in enumerate(names):
            chances[i], weights = attention.predict(network, bags[name], mean, sd, device)
            with context.writing(f"{where}/{name}.h5") as path, h5py.File(path, "w") as held:
                held.create_dataset("attention_scores_per_head", data=weights)
                held.create_dataset("attention_scores", data=weights.mean(axis=0))
            written.append(f"{where}/{name}.h5")
        results.append(_score_fold(number, names, test[cats].to_numpy(), chances, where))
    config, metrics = f"{root}/experiment_config.json", f"{root}/final_metrics.json"
    nova.write_json(context, config, given.model_dump(mode="json"))
    nova.write_json(context, metrics, [result.model_dump(exclude={"y_prob"}) for result in results])
    known = [result.auc for result in results if result.auc is not None]
    return {
        "all_fold_results": results, "mean_auc": np.mean(known) if known else None,
        "root_save_dir": root, "experiment_config_json_path": config,
        "final_metrics_json_path": metrics, "attention": written, "warnings": warnings,
    }  # fmt: skip


def _score_fold(fold: int, names: list[str], truth: Any, chances: Any, where: str) -> FoldResult:
    import numpy as np
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score

    from sage_foundation.attention import auc

    guess, own = chances.argmax(axis=1), chances[np.arange(len(truth)), truth]
    aucs = [auc(truth == c, chances[:, c]) for c in range(chances.shape[1])]
    return FoldResult(
        fold=fold, slide_ids=names, y_true=truth.tolist(), y_pred=guess.tolist(),
        y_prob=chances.tolist(), loss=float(-np.log(np.clip(own, 1e-12, 1)).mean()),
        accuracy=accuracy_score(truth, guess), bacc=balanced_accuracy_score(truth, guess),
        auc=float(np.mean(aucs)) if np.isfinite(aucs).all() else None,
        f1=f1_score(truth, guess, average="macro"), n_samples=len(truth), attention_save_dir=where,
    )  # fmt: skip
