"""Nuclei by a TorchScript network: labels or probabilities, tiles, refusals.

Annotations are evaluated here, as TorchScript reads them.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sage.core.errors import InputError
from tests.mcp_servers.slide_tools import Image, context, png, run

torch = pytest.importorskip("torch")
PINK, NUCLEUS = (225, 165, 200), (85, 60, 135)


class Probability(torch.nn.Module):  # type: ignore[misc]
    """Dark in red: a probability of nucleus."""

    pixel_size: float

    def __init__(self, pixel_size: float = 0.5) -> None:
        super().__init__()
        self.pixel_size = pixel_size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(1, 3, H, W) to (1, 1, H, W)."""
        return torch.sigmoid((0.45 - x[:, 0:1]) * 20.0)


class Labels(Probability):
    """The same as a label image, nuclei in the first of two channels as for cells and nuclei."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(1, 3, H, W) to (1, 2, H, W)."""
        inside = (x[:, 0:1] < 0.45).float()
        count = inside.shape[-1] * inside.shape[-2]
        label = torch.arange(1.0, count + 1.0).reshape(inside.shape) * inside
        for _ in range(20):
            label = torch.nn.functional.max_pool2d(label, 3, 1, 1) * inside
        return torch.cat([label, label * 0.0], dim=1)


class Logits(torch.nn.Module):  # type: ignore[misc]
    """Values below 0: neither labels nor probabilities."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(1, 3, H, W) to (1, 1, H, W)."""
        return x[:, 0:1] * 10.0 - 5.0


class Vector(torch.nn.Module):  # type: ignore[misc]
    """Not an image at all."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(1, 3, H, W) to (1, 3)."""
        return x.mean(dim=[2, 3])


class Smaller(torch.nn.Module):  # type: ignore[misc]
    """An image of half the size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(1, 3, H, W) to (1, 1, H / 2, W / 2)."""
        return torch.nn.functional.avg_pool2d(x[:, 0:1], 2)


class Failing(torch.nn.Module):  # type: ignore[misc]
    """Wants five channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(5, 1, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(1, 5, H, W) to (1, 1, H, W)."""
        out: torch.Tensor = self.first(x)
        return out


def save(module: Any, path: Path) -> Path:
    """Script and save."""
    torch.jit.script(module).save(str(path))
    return path


def field(step: int = 31, side: int = 900) -> tuple[Image, Any]:
    """Round nuclei on a grid at 0.5 µm per pixel, and their centers."""
    import cv2

    image = np.full((side, side, 3), PINK, np.uint8)
    points = [(x, y) for y in range(20, side - 12, step) for x in range(20, side - 12, step)]
    for at in points:
        cv2.circle(image, at, 7, NUCLEUS, -1, cv2.LINE_AA)
    return image, np.array(points)


def save_onnx(path: Path, pixel_size: str = "0.5") -> Path:
    """A graph that calls dark pixels nucleus: a step at the middle of red."""
    import onnx
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [
            helper.make_node("Slice", ["image", "from", "to", "axis"], ["red"]),
            helper.make_node("Less", ["red", "middle"], ["dark"]),
            helper.make_node("Cast", ["dark"], ["nucleus"], to=TensorProto.FLOAT),
        ],
        "dark",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, "h", "w"])],
        [helper.make_tensor_value_info("nucleus", TensorProto.FLOAT, [1, 1, "h", "w"])],
        [
            helper.make_tensor("from", TensorProto.INT64, [1], [0]),
            helper.make_tensor("to", TensorProto.INT64, [1], [1]),
            helper.make_tensor("axis", TensorProto.INT64, [1], [1]),
            helper.make_tensor("middle", TensorProto.FLOAT, [1], [0.5]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, {"pixel_size": pixel_size} if pixel_size else {})
    onnx.save(model, str(path))
    return path


@pytest.mark.parametrize("kind", [Probability, Labels, None])
def test_a_network_finds_each_nucleus_once(tmp_path: Path, kind: Any) -> None:
    image, points = field()
    png(tmp_path / "a.png", image)
    name = "net.pt" if kind else "net.onnx"
    if kind:
        save(kind(), tmp_path / name)
    else:
        save_onnx(tmp_path / name)
    got = run(context(tmp_path), "nuclei", slide="a.png", weights=name, mpp=0.5)
    assert (got["method"], got["model"], got["at_mpp"]) == ("learned", name, 0.5)
    assert got["nuclei"] == len(points)
    table = pd.read_csv(tmp_path / "out" / got["table"])
    from scipy.spatial import cKDTree

    away, index = cKDTree(points).query(table[["x", "y"]].to_numpy())
    assert away.max() < 1.5 and len(set(index)) == len(points)
    assert got["median_area_um2"] == pytest.approx(np.pi * 3.75**2, rel=0.1)


def test_an_onnx_file_states_its_pixel_size_or_is_refused(tmp_path: Path) -> None:
    image, _ = field(side=300)
    png(tmp_path / "a.png", image)
    save_onnx(tmp_path / "fine.onnx", "0.75")
    assert run(context(tmp_path), "nuclei", slide="a.png", weights="fine.onnx", mpp=0.5)[
        "at_mpp"
    ] == pytest.approx(0.75)
    save_onnx(tmp_path / "mute.onnx", "")
    answer = run(context(tmp_path), "nuclei", slide="a.png", weights="mute.onnx", mpp=0.5)
    assert any("does not state its pixel size" in note for note in answer["warnings"])
    (tmp_path / "text.onnx").write_text("no graph")
    with pytest.raises(InputError, match="not an ONNX model"):
        run(context(tmp_path), "nuclei", slide="a.png", weights="text.onnx", mpp=0.5)


def test_seams_neither_double_nor_lose_nuclei(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcp_servers.pathology import nuclei

    image, points = field(step=23, side=420)
    png(tmp_path / "a.png", image)
    save(Labels(), tmp_path / "net.pt")
    counts = []
    for tile in (768, 160, 97):
        monkeypatch.setattr(nuclei, "TILE", tile)
        got = run(context(tmp_path), "nuclei", slide="a.png", weights="net.pt", mpp=0.5)
        counts.append(got["nuclei"])
    assert counts == [len(points)] * 3


def test_a_nucleus_found_in_two_blocks_is_kept_once() -> None:
    from mcp_servers.pathology.nuclei import select_unique

    table = np.zeros((5, 11))
    table[:, 0] = [10, 100, 101, 200, 201]
    table[:, 2] = [30, 30, 40, 30, 30]
    assert select_unique(table, [2, 1, 2], 3.0).tolist() == [True, False, True, True, True]


def test_the_networks_own_pixel_size_counts(tmp_path: Path) -> None:
    image, points = field()
    png(tmp_path / "a.png", image)
    save(Probability(1.0), tmp_path / "net.pt")
    ctx = context(tmp_path)
    own = run(ctx, "nuclei", slide="a.png", weights="net.pt", mpp=0.5)
    assert own["at_mpp"] == 1.0 and own["nuclei"] == pytest.approx(len(points), abs=3)
    # a module that states none is taken at 0.5, and that is said
    silent = torch.jit.trace(torch.nn.Sequential(torch.nn.Conv2d(3, 1, 1), torch.nn.Sigmoid()),
                             torch.zeros(1, 3, 64, 64))  # fmt: skip
    silent.save(str(tmp_path / "silent.pt"))
    got = run(ctx, "nuclei", slide="a.png", weights="silent.pt", mpp=0.5)
    assert any("does not state its pixel size" in note for note in got["warnings"])


def test_a_scan_too_coarse_for_the_network_is_said_or_refused(tmp_path: Path) -> None:
    png(tmp_path / "a.png", field(side=200)[0])
    save(Probability(0.25), tmp_path / "net.pt")
    ctx = context(tmp_path)

    def notes(mpp: float, **more: Any) -> list[str]:
        got = run(ctx, "nuclei", slide="a.png", weights="net.pt", mpp=mpp, **more)
        return [warning for warning in got["warnings"] if "expects" in warning]

    assert not notes(0.2) and not notes(0.3)
    (note,) = notes(0.31)
    assert "net.pt expects 0.25 µm per pixel, but the scan has 0.31" in note
    assert len(notes(0.5)) == 1
    with pytest.raises(
        InputError, match=r"net\.pt expects 0\.25 .* has 1: .* 4\.0 times too small"
    ):
        notes(1.0)
    assert not notes(1.0, weights_mpp=1.0)  # the user knows better


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Logits, "sigmoid"),
        (Vector, r"instead of one image"),
        (Smaller, "sizes must match"),
        (Failing, "fails on a float image"),
    ],
)
def test_a_network_of_another_kind_is_refused(tmp_path: Path, module: Any, words: str) -> None:
    png(tmp_path / "a.png", field(side=200)[0])
    save(module(), tmp_path / "net.pt")
    with pytest.raises(InputError, match=words):
        run(context(tmp_path), "nuclei", slide="a.png", weights="net.pt", mpp=0.5)
    assert not list((tmp_path / "out").glob("*"))


def test_missing_foreign_and_outside_files_are_refused(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    png(inside / "a.png", field(side=200)[0])
    save(Probability(), tmp_path / "net.pt")
    (inside / "text.pt").write_text("no module")
    torch.save({"weight": torch.zeros(2)}, inside / "state.pt")
    ctx = context(inside)
    for name, words in (
        ("none.pt", "not found"), ("text.pt", "not a TorchScript"),
        ("state.pt", "not a TorchScript"), ("../net.pt", "outside"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            run(ctx, "nuclei", slide="a.png", weights=name, mpp=0.5)
