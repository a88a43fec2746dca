"""Networks for nuclei by name on the hub: from the cache alone, and nothing that runs code."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_servers.pathology.nuclei_net.model import shipped_network
from sage.core.errors import InputError
from sage_foundation.hub import find_cached, fingerprint
from tests.mcp_servers.slide_tools import blobs, context, png, run

pytest.importorskip("huggingface_hub")
COMMIT, BLOB = "a" * 40, "b" * 64


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the hub, as its client lays it out, with the shipped network under a name."""
    import huggingface_hub.constants as constants

    network = shipped_network()
    if network is None:
        pytest.skip("PyTorch is not installed")
    root = tmp_path / "hub"
    model = root / "models--lab--nuclei"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(COMMIT)
    (model / "blobs").mkdir()
    snapshot = model / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (model / "blobs" / BLOB).write_bytes(network.read_bytes())
    for name in ("net.safetensors", "net.pt"):
        (snapshot / name).symlink_to(model / "blobs" / BLOB)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(root))
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(root), raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return root


def test_a_cached_network_is_used_by_its_name(cache: Path, tmp_path: Path) -> None:
    png(tmp_path / "a.png", blobs(300, 300))
    ctx = context(tmp_path)
    by_name = run(ctx, "nuclei", slide="a.png", mpp=0.5, hub="lab/nuclei:net.safetensors")
    shipped_one = run(ctx, "nuclei", slide="a.png", mpp=0.5)
    assert by_name["method"] == "learned"
    assert by_name["types"] == shipped_one["types"]
    for name in ("hf-hub:lab/nuclei:net.safetensors", f"lab/nuclei@{COMMIT}:net.safetensors"):
        assert find_cached(name) == find_cached("lab/nuclei:net.safetensors")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lab/nuclei:other.safetensors", "hf download lab/nuclei other.safetensors"),
        ("lab/nuclei:net.pt", "TorchScript module is code"),
        ("lab/nuclei", "OWNER/NAME:FILE"),
        ("resnet50.a1_in1k", "timm names"),
        ("lab/nuclei:../../../etc/passwd.onnx", "does not specify a file"),
        ("../x/y:net.onnx", "does not specify a file"),
    ],
)
def test_what_is_missing_or_no_name_is_said(cache: Path, name: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        find_cached(name)
    assert said in str(error.value)
    assert str(cache) not in str(error.value)


def test_one_of_weights_and_hub(cache: Path, tmp_path: Path) -> None:
    png(tmp_path / "a.png", blobs(300, 300))
    (tmp_path / "b.safetensors").write_bytes(b"x")
    both = {"hub": "lab/nuclei:net.safetensors", "weights": "b.safetensors"}
    for wrong, said in (
        (both, "cannot be combined"),
        ({**both, "method": "classical"}, "does not use weights"),
    ):
        with pytest.raises(InputError, match=said):
            run(context(tmp_path), "nuclei", slide="a.png", mpp=0.5, **wrong)


def test_results_are_kept_by_what_a_name_stands_for(cache: Path) -> None:
    assert fingerprint("lab/nuclei:net.safetensors") == BLOB
    assert fingerprint("lab/nuclei:gone.safetensors") == "absent"
