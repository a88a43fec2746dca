"""NOVA's tools by their own names: contracts, refusals, and whole pipelines on a painted slide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image
from pyarrow import parquet

from mcp_servers import catalog
from mcp_servers.context import ToolContext
from mcp_servers.registry import load
from mcp_servers.roots import Roots
from sage.core.errors import InputError
from sage_nova.tools.roi import read_nuclei
from sage_nova.tools.slide import fit_ellipse
from tests.clip import write_clip
from validation.simulate.slide import SlideTruth, render_slide

REGISTRY = load("nova")
GRID = {"target_magnification": 20, "patch_size": 128}


@pytest.fixture(scope="module")
def painted_slide(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SlideTruth]:
    """A folder with a painted slide, and its truth."""
    folder = tmp_path_factory.mktemp("slides")
    return folder, render_slide(folder / "a.tiff", seed=5, size_px=1024, mpp=0.5)


@pytest.fixture(scope="module")
def job(
    painted_slide: tuple[Path, SlideTruth], tmp_path_factory: pytest.TempPathFactory
) -> ToolContext:
    """A context that reads the slides and writes a folder of its own, used by several tests."""
    return ToolContext(Roots.resolve([painted_slide[0]], tmp_path_factory.mktemp("job")))


def run(context: ToolContext, name: str, /, **arguments: Any) -> dict[str, Any]:
    return REGISTRY.run(name, arguments, context).result


@pytest.fixture(scope="module")
def slide_store(job: ToolContext) -> dict[str, Any]:
    """Tissue, tiles, handcrafted features, graph and clusters of the slide in its store."""
    slide = {"wsi_path": "a.tiff", "job_dir": "work"}
    made = {"tissue": run(job, "extract_tissue_in_wsi_tool", **slide)}
    made["tiles"] = run(job, "extract_tissue_tiles_in_wsi_tool", tile_px=64, **slide)
    run(job, "extract_patch_features_in_wsi_tool", model="handcrafted", **slide)
    run(job, "reduce_single_wsi_patch_feature_space_tool", **slide)
    made["leiden"] = run(job, "run_leiden_clustering_tool", **slide)
    return made | {"slide": slide}


def test_the_paper_s_tools_are_there_and_other_agents_do_not_see_them() -> None:
    assert len(REGISTRY.tools) == 48 and {spec.suite for spec in REGISTRY} == {"nova"}
    assert "nova" not in catalog.SUITES and not set(REGISTRY.tools) & set(load("all").tools)
    given = REGISTRY.get("dataset_of_wsi_tissue_segmentation_tool").given.model_fields
    assert {
        "job_dir", "wsi_source", "skip_errors", "search_nested", "holes_are_tissue", "overwrite",
        "skip_specific_wsi", "keep_only_these_wsi",
    } <= set(given)  # fmt: skip


def test_a_store_holds_tissue_tiles_features_and_clusters(
    slide_store: dict[str, Any], job: ToolContext, painted_slide: tuple[Path, SlideTruth]
) -> None:
    truth = painted_slide[1]
    assert slide_store["tissue"]["total_area_mm2"] == pytest.approx(truth.tissue_mm2, rel=0.06)
    slide, tiles = slide_store["slide"], slide_store["tiles"]["num_patches"]
    clusters = slide_store["leiden"]["n_leiden_clusters"]
    assert tiles > 50 and clusters > 1
    assert sum(slide_store["leiden"]["tiles_per_cluster"].values()) == tiles
    for check, arguments, count, dimension in (
        ("tissue_segmentation", {}, len(slide_store["tissue"]["tissue_ids"]), None),
        ("tile", {}, tiles, None),
        ("patch_features", {}, tiles, 81),
        ("clustering", {"clustering_key": "leiden_0.75"}, clusters, None),
        ("reduction", {"reduction_key": "X_pca"}, tiles, 50),
    ):
        found = run(job, f"check_{check}_key_in_wsi_tool", **slide, **arguments)
        assert (found["exists"], found["count"], found["dimension"]) == (True, count, dimension)
    absent = run(job, "check_tile_key_in_wsi_tool", tile_key="other", **slide)
    assert not absent["exists"] and absent["available_keys"] == ["tissue_tiles"]
    store = slide_store["tissue"]["wsi_store_path"]
    tree = run(job, "access_zarr_hierarchy", path=store)
    assert {"shapes/tissues", "tables"} <= {node["path"] for node in tree["nodes"]}
    rows = run(job, "read_zarr_data_tool", path=store, key="shapes/tissues")
    assert rows["total_rows"] == len(slide_store["tissue"]["tissue_ids"])
    region = rows["rows"][0]
    assert region["solidity"] * region["convexity"] == pytest.approx(1)
    assert region["geometry"].startswith("POLYGON")
    with pytest.raises(InputError, match='unknown element "none"'):
        run(job, "read_zarr_data_tool", path=store, key="none")


def test_a_job_goes_on_where_each_call_has_a_folder_of_its_own(
    painted_slide: tuple[Path, SlideTruth], tmp_path: Path
) -> None:
    """As over MCP: the folder of a call's files is the next call's job, under its own name."""
    place, log = "work", ""
    for at, (name, more) in enumerate({
        "extract_tissue_in_wsi_tool": {}, "extract_tissue_tiles_in_wsi_tool": {"tile_px": 64},
    }.items()):  # fmt: skip
        call = ToolContext(Roots.resolve([painted_slide[0], tmp_path], tmp_path / f"call{at}"))
        if at:
            with pytest.raises(InputError, match="set job_dir to the folder of its files"):
                run(call, name, wsi_path="a.tiff", job_dir="work", **more)
            log = run(call, "check_tile_key_in_wsi_tool", wsi_path="a.tiff")["operations_log"][0]
        run(call, name, wsi_path="a.tiff", job_dir=place, **more)
        assert {path.name for path in (tmp_path / f"call{at}").iterdir()} == {"work"}
        assert (tmp_path / f"call{at}" / "work" / "a.zarr").is_dir()
        place = f"call{at}/work"
    assert log.endswith("set job_dir to the folder of its files")


def test_pictures_exemplars_regions_and_properties(
    slide_store: dict[str, Any], job: ToolContext
) -> None:
    slide = slide_store["slide"]
    top = run(job, "get_topk_close_patch_coords_to_embedding_space_clusters_tool", top_k=2, **slide)
    assert len(top["closest_patches_coords"]) == slide_store["leiden"]["n_leiden_clusters"]
    assert all(len(found) <= 2 for found in top["closest_patches_coords"].values())
    for made in (
        run(job, "visualize_wsi_tool", add_contours=True, add_tiles=True, **slide),
        run(job, "visualize_morphological_clusters_on_wsi_tool", figure_title=r"$\frac{$", **slide),
    ):
        picture = job.roots.output / made["visualization_save_path"]
        assert picture.read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(InputError, match="no such region"):
        run(job, "visualize_wsi_tool", add_tiles=True, tissue_id=77, **slide)
    got = run(job, "retrieve_properties_from_wsi_tool", **slide)
    assert (got["n_levels"], got["base_width"], got["base_mpp"]) == (3, 1024, 0.5)
    assert got["levels"]["level_1"]["downsample_to_level_wrt_level0"] == pytest.approx(2)
    assert got["base_magnification"] == pytest.approx(20)
    region = {"top_left_x": -10, "top_left_y": 50, "base_width": 64, "base_height": 32}
    image = run(job, "read_rectangle_region_from_wsi_tool", wsi_path="a.tiff", region=region)
    assert image["region_save_path"].endswith("a_region_x-10_y50_H32_W64.png")
    assert "blank" in image["warnings"][0]
    with pytest.raises(InputError, match="is outside"):
        far = region | {"top_left_x": -900}
        run(job, "read_rectangle_region_from_wsi_tool", wsi_path="a.tiff", region=far)


def test_tiles_are_scored_by_texts(
    slide_store: dict[str, Any], painted_slide: tuple[Path, SlideTruth], job: ToolContext
) -> None:
    import pandas as pd

    write_clip(painted_slide[0] / "plip", 224, 512)
    slide = slide_store["slide"] | {"weights": "plip", "device": "cpu"}
    run(job, "extract_patch_features_in_wsi_tool", model="plip", **slide)
    classes = {"classes": ["tumor", "stroma"]}
    made = run(job, "score_tiles_by_text_in_a_wsi_tool", **classes, **slide)
    table = pd.read_csv(job.roots.output / made["similarity_scores_csv_save_path"])
    assert len(table) == slide_store["tiles"]["num_patches"]
    assert table["tumor"].mean() == pytest.approx(made["mean_scores"]["tumor"], abs=1e-5)
    top = table[["tumor", "stroma"]].apply(lambda scores: scores.nlargest(50).mean())
    label = run(job, "predict_wsi_label_tool", **classes, **slide)
    assert label["predicted_class"] == top.idxmax()
    assert sum(label["probs_for_classes"].values()) == pytest.approx(1)
    shown = run(job, "visualize_text_prompt_similarity_on_wsi_tool", prompt_term="tumor", **slide)
    assert (shown["low"], shown["high"]) == pytest.approx(
        (table["tumor"].min(), table["tumor"].max()), abs=1e-5
    )
    # One tile as an image gives the score of that tile.
    place = {"top_left_x": int(table["x"][0]), "top_left_y": int(table["y"][0]), "base_width": 64,
             "base_height": 64}  # fmt: skip
    image = run(job, "read_rectangle_region_from_wsi_tool", wsi_path="a.tiff", region=place)
    own = run(
        job, "score_single_histology_image_using_text_tool", image_path=image["region_save_path"],
        prompts=classes["classes"], apply_softmax=False, weights="plip", device="cpu", **classes,
    )  # fmt: skip
    assert own["similarity_scores"]["tumor"] == pytest.approx(table["tumor"][0], abs=1e-3)
    with pytest.raises(InputError, match='"x" is already a column'):
        run(job, "score_tiles_by_text_in_a_wsi_tool", classes=["x"], **slide)
    with pytest.raises(InputError, match="come from handcrafted"):
        run(job, "predict_wsi_label_tool", patch_features_key="handcrafted_tissue_tiles",
            **classes, **slide)  # fmt: skip


def test_a_folder_of_slides_step_by_step(
    job: ToolContext, painted_slide: tuple[Path, SlideTruth]
) -> None:
    source = {"wsi_source": str(painted_slide[0]), "job_dir": "set"}
    listed = run(job, "dataset_of_wsi_get_valid_slide_paths_tool", wsi_source=str(painted_slide[0]))
    assert listed["slide_names"] == ["a"]
    with pytest.raises(InputError, match="run dataset_of_wsi_tissue_segmentation_tool first"):
        run(job, "dataset_of_wsi_patch_coordinate_extraction_tool", **source, **GRID)
    first = run(job, "dataset_of_wsi_tissue_segmentation_tool", **source)
    again = run(job, "dataset_of_wsi_tissue_segmentation_tool", **source)
    assert (first["processed"], again["found_before"]) == (["a"], ["a"])
    cut = run(
        job, "dataset_of_wsi_patch_coordinate_extraction_tool",
        min_tissue_proportion=0.9, **source, **GRID,
    )  # fmt: skip
    with pytest.raises(InputError, match="encoder conch-v15 needs pretrained weights"):
        run(job, "dataset_of_wsi_patch_features_extraction_tool", **source, **GRID)
    hand = {"patch_encoder_name": "handcrafted"}
    run(job, "dataset_of_wsi_patch_features_extraction_tool", **source, **GRID, **hand)
    mean = {"slide_encoder_name": "mean"}
    run(job, "dataset_of_wsi_slide_features_extraction_tool", **source, **GRID, **hand, **mean)
    names = {"job_dir": "set", "wsis": ["a"]}
    seen = run(job, "dataset_of_wsi_check_tissue_segmentation_exists_tool", **names)
    assert seen["all_exist"] and seen["slides"]["a"]["contour_exists"]
    for check, more in (
        ("patch_coordinates_exist", {}), ("patch_features_exist", hand),
        ("slide_features_exist", mean),
    ):  # fmt: skip
        state = run(job, f"dataset_of_wsi_check_{check}_and_schema_tool", **names, **GRID, **more)
        assert state["all_ok"], state
    assert state["slides"]["a"]["dimension"] == 81
    count = cut["patches"]["a"]
    scores = job.roots.output / "scores"
    scores.mkdir()
    with h5py.File(scores / "a.h5", "w") as file:
        file.create_dataset("attention_scores", data=np.arange(count, dtype=float))
    asked = {"scores_path": "scores", "num_top_patches_to_save": 3, **source, **GRID}
    heat = run(job, "dataset_of_wsi_create_score_heatmap_tool", **asked)["heatmaps_save_paths"]["a"]
    assert heat["topk_scores"] == pytest.approx([(count - 2) / count, (count - 1) / count, 1.0])
    assert (job.roots.output / heat["topk_patches"][-1]).exists()
    with h5py.File(scores / "a.h5", "r+") as file:
        file["attention_scores"][0] = np.nan
    with pytest.raises(InputError, match="attention_scores has values that are not finite"):
        run(job, "dataset_of_wsi_create_score_heatmap_tool", **asked)


def test_nuclei_of_images_with_class_and_shape(job: ToolContext) -> None:
    folder = job.roots.output / "images"
    region = {"top_left_x": 300, "top_left_y": 300, "base_width": 256, "base_height": 256}
    run(
        job, "read_rectangle_region_from_wsi_tool",
        wsi_path="a.tiff", region=region, custom_save_dir="images",
    )  # fmt: skip
    image = next(folder.glob("*.png"))
    nuclei = "segment_and_classify_nuclei_in_histology_roi_tool"
    got = run(
        job, nuclei, input_dir="images", level0_mpp_of_imgs={image.stem: 0.5}, method="classical"
    )
    rows = json.loads((job.roots.output / got["jsons"][0]).read_text())["nuc"]
    assert len(rows) == got["nuclei"][image.stem] > 20
    first = rows["0"]
    assert first["type"] == "Unclassified" and got["classes"] == ["Unclassified"]
    area = run(job, "get_contour_area", contour=first["contour"])["contour_area"]
    assert area == pytest.approx(first["area"]) and 0 < first["solidity"] <= 1
    for mpp, match in (({}, "no entry for"), (-5, "level0_mpp_of_imgs")):
        with pytest.raises(InputError, match=match):
            run(job, nuclei, input_dir="images", level0_mpp_of_imgs=mpp)
    made = run(
        job, "encode_histology_roi_tool",
        img_path=str(image), histology_roi_encoder_name="handcrafted",
    )  # fmt: skip
    with h5py.File(job.roots.output / made["embedding_path"]) as file:
        assert file["embedding"].shape == (1, 81)
    assert "mpp was not given" in made["warnings"][0]


def test_types_of_a_network_reach_nova_s_words(tmp_path: Path) -> None:
    table, outlines = tmp_path / "a.csv", tmp_path / "a.geojson"
    table.write_text("x,y,type,p_dead\n2,2,dead,0.75\n9,9,outside,0.5\n")
    rings = ([[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]], [[8, 8], [10, 8], [10, 10], [8, 8]])
    features = [{"geometry": {"coordinates": [ring]}} for ring in rings]
    outlines.write_text(json.dumps({"features": features}))
    dead, outside = read_nuclei(table, outlines).values()
    assert (dead["type"], dead["type_prob"], dead["area"]) == ("Dead", 0.75, 16)
    assert dead["bbox"] == [[0, 0], [4, 4]] and outside["type"] == "Unclassified"


def test_shapes_worked_out_by_hand(job: ToolContext) -> None:
    ring = [(0, 0), (4, 0), (4, 4), (2, 2), (0, 4), (0, 0)]
    assert run(job, "get_contour_area", contour=ring)["contour_area"] == 12
    around = run(job, "get_contour_perimeter", contour=ring)["contour_perimeter"]
    assert around == pytest.approx(12 + 2 * 8**0.5)
    outer = run(job, "get_contour_convex_hull", contour=ring)
    assert (outer["hull_area"], outer["solidity"]) == (16, 0.75)
    assert outer["convexity"] == pytest.approx(16 / around)
    turn = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    oval = np.stack([1e5 + 10 * np.cos(turn), 5 * np.sin(turn)], axis=1)
    major, minor, _ = fit_ellipse(oval.tolist())
    assert (major, minor) == pytest.approx((20, 10), rel=1e-3)
    with pytest.raises(InputError, match="contour"):
        run(job, "get_contour_area", contour=[(0, 0), (1e308, 0), (1e308, 1e308)])


@pytest.mark.parametrize(
    ("name", "arguments", "match"),
    [
        ("caption_single_histology_image_tool", {"path_to_img": "a.tiff"}, "captioner requires"),
        ("score_single_histology_image_using_text_tool",
         {"image_path": "a.tiff", "classes": ["a", "b"]}, "text encoder plip .*requires its"),
        ("score_single_histology_image_using_text_tool",
         {"image_path": "a.tiff", "classes": ["a", "a"]}, "a class appears twice"),
        ("encode_histology_roi_tool",
         {"img_path": "a.tiff", "histology_roi_encoder_name": "conch_v15"}, "MahmoodLab/TITAN"),
        ("generate_wsi_report_with_prism_tool", {"wsi_path": "a.tiff"}, "PRISM writes its reports"),
        ("extract_tissue_tiles_in_wsi_tool",
         {"wsi_path": "a.tiff", "job_dir": "empty"}, "run extract_tissue_in_wsi_tool"),
        ("extract_tissue_in_wsi_tool", {"wsi_path": "a.tiff", "job_dir": "../x"}, "x"),
    ],
)  # fmt: skip
def test_what_is_absent_is_said_with_the_remedy(
    job: ToolContext, name: str, arguments: dict[str, Any], match: str
) -> None:
    with pytest.raises(InputError, match=match):
        run(job, name, **arguments)


def test_a_question_finds_the_passage_on_an_identifier(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "tiles.py").write_text("def tilePatches(patch_size): ...")
    (tmp_path / "docs" / "readme.md").write_text("Nothing about it. " * 40)
    context = ToolContext(Roots.resolve([tmp_path], tmp_path / "out"))
    with pytest.raises(InputError, match="git clone"):
        run(context, "trident_docs_retriever", query="patch size")
    got = run(context, "trident_docs_retriever", query="size of patches", docs="docs")
    assert [passage["file"] for passage in got["passages"]] == ["tiles.py"]
    assert (got["files"], got["searched"]) == (2, 2)


def test_weights_come_from_no_earlier_call_nor_by_a_link(tmp_path: Path) -> None:
    """As over MCP: output of a call is beside the next call's folder."""
    data, out = tmp_path / "data", tmp_path / "out"
    for folder in (data / "session" / "files", out / "call" / "model"):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"weights")
    context = ToolContext(Roots.resolve([data], out).below("next"))
    Image.fromarray(np.full((64, 64, 3), 200, np.uint8)).save(data / "roi.png")
    (data / "earlier").mkdir()
    (data / "session" / "trace.jsonl").touch()
    (data / "earlier" / "x.bin").symlink_to(out / "call" / "model" / "model.safetensors")
    for weights, match in (
        ("call/model", "not in the output"),
        ("session/files", "in a session or run folder"),
        ("earlier", "not in the output"),
    ):
        with pytest.raises(InputError, match=match):
            run(
                context, "encode_histology_roi_tool",
                img_path="roi.png", histology_roi_encoder_name="phikon", weights=weights,
            )  # fmt: skip
    with pytest.raises(InputError, match="not in the output"):
        run(
            context, "segment_and_classify_nuclei_in_histology_roi_tool",
            input_dir=".", level0_mpp_of_imgs=0.5, weights="call/model/model.safetensors",
        )  # fmt: skip


def test_a_check_tells_nothing_of_files_outside_the_roots(tmp_path: Path) -> None:
    for folder in ("data", "patches", "out/nova"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "patches" / "s_patches.h5").touch()
    context = ToolContext(Roots.resolve([tmp_path / "data"], tmp_path / "out"))
    found = run(
        context, "dataset_of_wsi_check_patch_coordinates_exist_and_schema_tool",
        wsis=["s"], job_dir="nova", saveto_folder="../..",
    )  # fmt: skip
    assert not found["slides"]["s"]["path_exists"]


def test_labels_folds_and_attention_mil(tmp_path: Path) -> None:
    import pandas as pd

    rng = np.random.default_rng(3)
    features = tmp_path / "data" / "features"
    features.mkdir(parents=True)
    rows = ["slide_id,patient_id,status"]
    for i in range(24):
        bag = rng.normal(size=(12, 6)).astype(np.float32)
        if i % 2:
            bag[:3, 0] += 6  # three of the tiles separate the classes
        with h5py.File(features / f"s{i}.h5", "w") as file:
            file.create_dataset("features", data=bag)
        rows.append(f"s{i}.svs,p{i // 2 if i < 4 else i},{'mut' if i % 2 else 'wt'}")
    rows += ["s0.svs,p0,wt", "lost,p99,"]
    (tmp_path / "data" / "labels.csv").write_text("\n".join(rows))
    context = ToolContext(Roots.resolve([tmp_path / "data"], tmp_path / "out"))
    clean = run(
        context, "prepare_wsi_classification_metadata",
        metadata_path="labels.csv", label_column="status",
    )  # fmt: skip
    assert clean["n_slides"] == 24 and clean["label_map"] == {"mut": 0, "wt": 1}
    assert clean["dropped"] == {"a value is missing": 1, "the slide appears twice": 1}
    split = run(
        context, "create_wsi_classification_splits",
        cleaned_metadata_path=clean["cleaned_metadata_path"], label_column="status", n_folds=3,
    )  # fmt: skip
    table = pd.read_csv(tmp_path / "out" / split["split_metadata_path"])
    for fold in split["fold_columns"]:
        parts = [set(table[table[fold] == part]["case_id"]) for part in ("train", "test")]
        assert not parts[0] & parts[1]
    made = run(
        context, "train_test_wsi_classification_mil_model",
        splits_path=split["split_metadata_path"], patch_features_path="features",
        label_column="status", num_folds=3, n_heads=2, head_dim=16, hidden_dim=16, num_epochs=12,
        learning_rate=5e-3, device="cpu",
    )  # fmt: skip
    assert made["mean_auc"] > 0.9
    with h5py.File(tmp_path / "out" / made["attention"][0]) as file:
        assert file["attention_scores_per_head"].shape == (2, 12)
        assert file["attention_scores"][()].sum() == pytest.approx(1, abs=1e-5)


def test_points_of_another_file_are_not_read_through_a_store(tmp_path: Path) -> None:
    import pandas as pd
    import spatialdata
    from spatialdata.models import PointsModel

    secret, store = tmp_path / "secret.parquet", tmp_path / "data" / "s.zarr"
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0], "patient": ["a", "b"]})
    points = PointsModel.parse(frame, coordinates={"x": "x", "y": "y"})
    spatialdata.SpatialData.init_from_elements({"cells": points}).write(store)
    parts = store / "points" / "cells" / "points.parquet"
    context = ToolContext(Roots.resolve([tmp_path / "data"], tmp_path / "out"))
    arguments = {"path": "s.zarr", "key": "cells"}
    assert run(context, "read_zarr_data_tool", **arguments)["total_rows"] == 2
    (parts / "part.0.parquet").rename(secret)
    index = parquet.read_metadata(secret)
    index.set_file_path("../" * 5 + "secret.parquet")
    index.write_metadata_file(parts / "_metadata")
    with pytest.raises(InputError, match="does not follow Parquet index"):
        run(context, "read_zarr_data_tool", **arguments)
