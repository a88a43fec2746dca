"""Weights that are not what they should be: each is refused by name, and no code of theirs runs."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mcp_servers.registry import load
from sage.core.errors import InputError
from sage_foundation import networks
from sage_foundation.features import read_features
from sage_foundation.tests.test_encoders import encode, phikon
from tests.mcp_servers.slide_tools import blobs, context, pyramid, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("weights")
    pyramid(place / "s.svs", blobs(700, 700))
    return place


class Malice:
    """Writes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return (os.system, (f"touch {self.target}",))


def test_a_pickle_that_runs_code_is_refused_and_does_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    old, new = tmp_path / "old.bin", tmp_path / "new.bin"
    old.write_bytes(pickle.dumps({"cls_token": Malice(marker)}, protocol=2))
    torch.save({"cls_token": torch.zeros(1), "extra": Malice(marker)}, new)
    for file in (old, new):
        with pytest.raises(InputError, match="besides tensors"):
            networks.read_tensors(file)
    assert not marker.exists()
    pickle.loads(old.read_bytes())
    assert marker.exists(), "the test's own payload does nothing"


def whole(place: Path) -> Path:
    save_file({"a": torch.arange(4096.0)}, place / "model.safetensors")
    torch.save({"a": torch.arange(4096.0)}, place / "pytorch_model.bin")
    return place


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("left", [0, 100, 0.99])
def test_files_cut_short_are_named(tmp_path: Path, name: str, left: float) -> None:
    file = whole(tmp_path) / name
    data = file.read_bytes()
    file.write_bytes(data[: int(left if left == 0 or left > 1 else left * len(data))])
    with pytest.raises(InputError, match=r"truncated|not a PyTorch file") as caught:
        networks.read_tensors(file)
    assert name in str(caught.value)


def test_a_folder_without_weights_and_a_file_without_tensors_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither model\.safetensors nor"):
        networks.weights_file(tmp_path)
    torch.save([1, 2], tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="not a table of named tensors"):
        networks.read_tensors(networks.weights_file(tmp_path))


def test_weights_that_do_not_fill_phikon_are_refused(folder: Path) -> None:
    place = folder / "bad-phikon"
    phikon(place)
    options = {"encoder": "phikon", "weights": "bad-phikon"}
    file = place / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="cannot be loaded"):
        encode(folder, **options)
    save_file({"layer.weight": torch.zeros(3)}, file, {"format": "pt"})
    with pytest.raises(InputError, match="tensors are missing"):
        encode(folder, **options)
    file.unlink()
    torch.save({"layer.weight": torch.zeros(3)}, place / "pytorch_model.bin")
    with pytest.raises(InputError, match="safetensors"):
        encode(folder, **options)
    phikon(place, width=64)
    with pytest.raises(InputError, match=r"64 features.*768.*another model"):
        encode(folder, **options)
    (folder / "nothing").mkdir(exist_ok=True)
    with pytest.raises(InputError, match=r"config\.json"):
        encode(folder, encoder="phikon", weights="nothing")
    assert not list((folder / "out").glob("*.part*"))


def test_weights_outside_the_roots_are_refused(folder: Path, tmp_path: Path) -> None:
    phikon(tmp_path / "outside")
    linked = folder / "linked"
    linked.mkdir()
    for name in ("config.json", "model.safetensors"):
        (linked / name).symlink_to(tmp_path / "outside" / name)
    for weights in (str(tmp_path / "outside"), "../outside", "linked"):
        with pytest.raises(InputError, match="outside the allowed folders"):
            encode(folder, encoder="phikon", weights=weights)


def sharded(place: Path, outside: Path, shard: str) -> None:
    """A folder whose config is in place and whose index names `shard` for every tensor."""
    phikon(outside)
    place.mkdir()
    shutil.copy(outside / "config.json", place)
    names = load_file(outside / "model.safetensors")
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, shard)}
    (place / "model.safetensors.index.json").write_text(json.dumps(index))


def test_an_index_of_shards_is_not_followed_out_of_the_roots(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    up = os.path.relpath(outside / "model.safetensors", folder / "climbs")
    sharded(folder / "climbs", outside, up)
    with pytest.raises(InputError, match=r"sharded weights.*save_pretrained"):
        encode(folder, encoder="phikon", weights="climbs")
    index = folder / "climbs" / "model.safetensors.index.json"
    index.rename(folder / "climbs" / "other.safetensors.index.json")
    config = json.loads((outside / "config.json").read_text())
    config["transformers_weights"] = "other.safetensors.index.json"
    (folder / "climbs" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="sharded weights"):
        encode(folder, encoder="phikon", weights="climbs")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("adapter_config.json", {"base_model_name_or_path": "../outside"}, "adapters"),
        ("config.json", {"transformers_weights": "a.safetensors"}, "transformers_weights"),
        ("config.json", {"_attn_implementation": "someone/kernel"}, "_attn_implementation"),
        ("config.json", {"model_type": "bert"}, r'model_type "bert", but "vit" is required'),
        ("config.json", {"quantization_config": {"quant_method": "gptq"}}, "cannot be loaded"),
        ("config.json", [], "not a JSON object"),
        ("tokenizer_config.json", {"fast_tokenizer_files": ["../t.json"]}, "fast_tokenizer_files"),
    ],
)  # fmt: skip
def test_a_folder_that_leads_elsewhere_or_is_another_model_is_refused(
    folder: Path, tmp_path: Path, name: str, content: Any, words: str
) -> None:
    place = folder / f"odd-{tmp_path.name}"
    phikon(place)
    if name == "config.json" and content:
        content = json.loads((place / name).read_text()) | content
    (place / name).write_text(json.dumps(content))
    with pytest.raises(InputError, match=words):
        encode(folder, encoder="phikon", weights=place.name)


def test_what_a_link_within_the_roots_leads_to_is_in_the_provenance(folder: Path) -> None:
    phikon(folder / "blobs")
    linked = folder / "snapshot"
    linked.mkdir()
    for name in ("config.json", "model.safetensors"):
        (linked / name).symlink_to(f"../blobs/{name}")
    got = load("pathology").run(
        "encode_tiles",
        {"slide": "s.svs", "encoder": "phikon", "weights": "snapshot", "device": "cpu",
         "tile_px": 224},
        context(folder),
    )  # fmt: skip
    read = got.provenance.inputs
    for name in ("config.json", "model.safetensors"):
        file = folder / "blobs" / name
        assert read[str(file)] == hashlib.sha256(file.read_bytes()).hexdigest()


def test_an_encoder_is_loaded_once_for_all_pixel_sizes_and_again_when_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []
    original = networks.load_network

    def counted(spec: Any, weights: Path) -> Any:
        loads.append(spec.name)
        return original(spec, weights)

    monkeypatch.setattr(networks, "load_network", counted)
    phikon(folder / "kept")
    ctx = context(folder)

    def features(mpp: float) -> Any:
        got = run(ctx, "encode_tiles", slide="s.svs", mpp=mpp, at_mpp=0.6, tile_px=128,
                  encoder="phikon", weights="kept", device="cpu")  # fmt: skip
        return read_features(folder / "out" / got["features"])[0]

    before = features(0.494)
    features(0.506)
    features(0.55)
    assert loads == ["phikon"]
    file = folder / "kept" / "model.safetensors"
    tensors = load_file(file)
    save_file({k: v + 0.5 for k, v in tensors.items()}, file, {"format": "pt"})
    after = features(0.494)
    assert loads == ["phikon", "phikon"]
    assert abs(after - before).max() > 0.01


def test_a_link_that_leads_to_other_weights_changes_the_hash(tmp_path: Path) -> None:
    from mcp_servers.results_cache import hash_input

    place = tmp_path / "snapshot"
    place.mkdir()
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    link = place / "model.safetensors"
    link.symlink_to("../one")
    first = hash_input(place)
    link.unlink()
    link.symlink_to("../two")
    assert hash_input(place) != first
