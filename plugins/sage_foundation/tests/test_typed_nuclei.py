"""Nuclei with types by a network of the user's: HoVer-Net's three maps, windows, names, refusals.

The modules here read their maps from the colors of an image: red is the type, green and blue the
place within the nucleus. Annotations are evaluated, as TorchScript reads them.
"""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pytest

from mcp_servers.pathology.nuclei import PANNUKE
from sage.core.errors import InputError
from sage.core.seeds import generator
from sage_foundation.nuclei import LearnedNuclei
from sage_foundation.nuclei_maps import split_nuclei, typed_maps
from tests.mcp_servers.slide_tools import Image, context, png, run

torch = pytest.importorskip("torch")
BACKGROUND, RED = 240, (200, 160, 120, 80, 40)
"""Gray values of red off the nuclei, and of each type."""


class Maps(torch.nn.Module):  # type: ignore[misc]
    """The maps np, hv and tp from colors; `crop` pixels of each side are lost, as in HoVer-Net."""

    types: list[str]
    pixel_size: float

    def __init__(self, names: list[str], crop: int = 0) -> None:
        super().__init__()
        self.types = names
        self.pixel_size = 0.5
        self.crop = crop
        self.register_buffer("reds", torch.tensor([float(BACKGROUND), *RED]))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """(1, 3, H, W) from 0 to 1."""
        n = self.crop
        x = x[:, :, n : x.shape[2] - n, n : x.shape[3] - n] * 255.0
        away = (x[:, 0:1] - self.reds[None, :, None, None]).abs()
        kinds = -away
        inside = kinds[:, 1:].amax(dim=1, keepdim=True)
        return {
            "np": torch.cat([kinds[:, 0:1], inside], dim=1),
            "hv": (x[:, 1:3] - 128.0) / 100.0,
            "tp": kinds,
        }


class Windows(Maps):
    """One that states its window; `uneven` rows of its answer are lost, in each call but the first
    where it is negative."""

    window: int

    def __init__(self, window: int, uneven: int = 0) -> None:
        super().__init__(list(PANNUKE), 16)
        self.window = window
        self.uneven = abs(uneven)
        self.first = uneven < 0

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """(1, 3, H, W) from 0 to 1."""
        n = self.crop
        x = x[:, :, n : x.shape[2] - n, n : x.shape[3] - n]
        y = x if self.first else x[:, :, self.uneven :]
        self.first = False
        return {"np": y[:, 0:2], "hv": y[:, 1:3], "tp": torch.cat([y, y], 1)}


class NoTypes(Maps):
    """Two of the three maps."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """(1, 3, H, W)."""
        return {"np": x[:, 0:2], "hv": x[:, 1:3]}


class Endless(Maps):
    """A map that is not finite."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """(1, 3, H, W)."""
        return {"np": x[:, 0:2] / 0.0, "hv": x[:, 1:3], "tp": x}


def colored(side: int = 420) -> tuple[Image, list[str]]:
    """Pairs of touching disks of 14 pixels, each of a type, and the types in their order."""
    image = np.full((side, side, 3), (BACKGROUND, 128, 128), np.uint8)
    y, x = np.mgrid[:side, :side]
    kinds = []
    for row, top in enumerate(range(20, side - 30, 40)):
        for column, left in enumerate(range(20, side - 50, 60)):
            for place, cx in enumerate((left, left + 13)):
                number = (row + column + place) % len(RED)
                reach = np.hypot(x - cx, y - top) <= 7
                if place:
                    reach &= image[:, :, 0] == BACKGROUND
                image[reach, 0] = RED[number]
                image[reach, 1] = (128 + 100 * (x[reach] - cx) / 7).round()
                image[reach, 2] = (128 + 100 * (y[reach] - top) / 7).round()
                kinds.append(PANNUKE[number])
    return image, kinds


def saved(path: Path, **options: Any) -> Path:
    """A scripted module beside an image of colors."""
    torch.jit.script(Maps(**{"names": list(PANNUKE), **options})).save(str(path))
    return path


def in_onnx(path: Path, window: int, crop: int, types: str) -> Path:
    """The same graph with a fixed window, types in the metadata."""
    import onnx

    module = Maps(list(PANNUKE), crop).eval()

    class Three(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            out = module(x)
            return out["tp"], out["np"], out["hv"]

    torch.onnx.export(
        Three(), (torch.zeros(1, 3, window, window),), str(path), dynamo=False,
        input_names=["image"], output_names=["tp", "np", "hv"],
    )  # fmt: skip
    model = onnx.load(str(path))
    onnx.helper.set_model_props(model, {"pixel_size": "0.5", "types": types})
    onnx.save(model, str(path))
    return path


def test_nuclei_at_the_edges_of_an_image_are_found(tmp_path: Path, side: int = 256) -> None:
    image = np.full((side, side, 3), (BACKGROUND, 128, 128), np.uint8)
    y, x = np.mgrid[:side, :side]
    places = [9, side // 2, side - 10]
    for row, column in ((row, column) for row in places for column in places):
        disk = np.hypot(x - column, y - row) <= 8
        image[disk, 0] = RED[0]
        image[disk, 1] = (128 + 12 * (x[disk] - column)).round()
        image[disk, 2] = (128 + 12 * (y[disk] - row)).round()
    png(tmp_path / "a.png", image)
    saved(tmp_path / "net.pt")
    got = run(
        context(tmp_path), "nuclei", slide="a.png", mpp=0.25, weights="net.pt", weights_mpp=0.25,
        scaling="unit", search="everything",
    )  # fmt: skip
    assert got["nuclei"] == 9
    assert got["area_mm2"] == pytest.approx((side * 0.25 / 1000) ** 2)


def blurred(path: Path) -> Path:
    """A scripted module whose answer for a pixel hangs on all 33 x 33 around it."""

    class Around(torch.nn.Module):  # type: ignore[misc]
        types: list[str]
        window: int

        def __init__(self) -> None:
            super().__init__()
            self.types, self.window = list(PANNUKE), 96
            self.all = torch.nn.Conv2d(3, 10, 33)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            out = self.all(x)
            return {"np": out[:, 0:2], "hv": out[:, 2:4], "tp": out[:, 4:]}

    torch.jit.script(Around()).save(str(path))
    return path


def counted(kinds: list[str]) -> dict[str, int]:
    """How many of each."""
    return {kind: kinds.count(kind) for kind in PANNUKE}


def test_the_users_types_reach_table_and_outlines(tmp_path: Path) -> None:
    image, kinds = colored(260)
    (tmp_path / "images").mkdir()
    png(tmp_path / "images" / "a.png", image)
    saved(tmp_path / "net.pt")
    asked = {"weights": "net.pt", "scaling": "unit"}
    ctx = context(tmp_path)
    metadata = run(ctx, "nuclei", slide="images/a.png", mpp=0.5, weights="net.pt")["warnings"]
    assert any("scaling=none" in text for text in metadata)  # as another kind of network needs
    got = run(ctx, "nuclei", slide="images/a.png", mpp=0.5, **asked)
    assert got["types"] == counted(kinds)
    assert not any("scaling" in text for text in got["warnings"])
    table = pd.read_csv(tmp_path / "out" / got["table"])
    assert set(table["type"]) == set(PANNUKE)
    assert {"p_inflammatory", "p_dead", "p_epithelial"} <= set(table.columns)
    shown = json.loads((tmp_path / "out" / got["geojson"]).read_text())["features"]
    names = {feature["properties"]["classification"]["name"] for feature in shown}
    assert names == {"Tumor", "Inflammatory", "Connective", "Dead", "Epithelial"}


def test_a_graph_of_one_size_is_moved_over_the_image(
    tmp_path: Path, window: int = 96, crop: int = 16
) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    image, kinds = colored()
    png(tmp_path / "a.png", image)
    in_onnx(tmp_path / "net.onnx", window, crop, ",".join(PANNUKE))
    got = run(
        context(tmp_path), "nuclei", slide="a.png", mpp=0.5, weights="net.onnx", scaling="unit"
    )
    assert got["types"] == counted(kinds)


@pytest.mark.parametrize(("height", "width"), [(150, 233), (1, 1)])
def test_windows_give_what_one_pass_over_the_mirrored_image_gives(
    tmp_path: Path, height: int, width: int
) -> None:
    image = generator(2).integers(0, 256, (height, width, 3)).astype(np.uint8)
    torch.manual_seed(1)
    network = LearnedNuclei(blurred(tmp_path / "net.pt"), "cpu")
    got = network.raw(image)
    border = ((16, 16), (16, 16), (0, 0))
    mirrored = np.pad(image.astype(np.float32) / 255, border, mode="reflect").transpose(2, 0, 1)
    out = torch.jit.load(str(tmp_path / "net.pt"))(torch.from_numpy(mirrored.copy())[None])
    want = typed_maps({name: one.detach().numpy() for name, one in out.items()})
    assert got.shape == want.shape == (3 + 5, height, width)
    assert got == pytest.approx(want, abs=1e-5)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Maps([]), "weights_types"),
        (Maps(["a", "b"]), "2"),
        (Maps(["=cmd()", "b", "c", "d", "e"]), "=cmd()"),
        (Maps(["outside", "b", "c", "d", "e"]), "outside"),
        (Maps(["NaN", "b", "c", "d", "e"]), "nan"),
        (Maps(["a", "A", "c", "d", "e"]), "unique"),
        (Maps(list(PANNUKE), 3), "sizes"),
        (NoTypes(list(PANNUKE)), "tp"),
        (Endless(list(PANNUKE)), "finite"),
        (Maps(["t" + "x" * n for n in range(21)]), "21"),
        (Windows(0), "0"),
        (Windows(100_000), "100000"),
        (Windows(96, 8), "64 x 56"),
        (Windows(96, -8), "64 x 56"),
    ],
)
def test_a_network_whose_types_cannot_be_read_is_refused(
    tmp_path: Path, module: Any, message: str
) -> None:
    png(tmp_path / "a.png", colored(128)[0])
    torch.jit.script(module).save(str(tmp_path / "net.pt"))
    with pytest.raises(InputError, match=r"net\.pt") as refused:
        run(context(tmp_path), "nuclei", slide="a.png", mpp=0.5, weights="net.pt")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "weights"),
        ({"method": "classical"}, "weights"),
        ({"weights": "own.safetensors"}, "types"),
    ],
)
def test_types_are_named_for_a_network_that_has_some(
    tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    png(tmp_path / "a.png", colored(64)[0])
    (tmp_path / "own.safetensors").write_bytes(b"not looked at")
    with pytest.raises(InputError, match=message):
        run(context(tmp_path), "nuclei", slide="a.png", mpp=0.5, weights_types=["a"], **given)


def test_a_graph_of_any_size_states_its_window_and_a_fixed_one_says_what_it_lacks(
    tmp_path: Path,
) -> None:
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    image, kinds = colored(200)
    png(tmp_path / "a.png", image)
    model = onnx.load(str(in_onnx(tmp_path / "net.onnx", 96, 16, ",".join(PANNUKE))))
    size = model.graph.input[0].type.tensor_type.shape.dim
    size[0].dim_value = 4
    onnx.save(model, str(tmp_path / "four.onnx"))
    size[0].dim_value, size[2].dim_param, size[3].dim_param = 1, "h", "w"
    for one in model.graph.output:
        one.type.tensor_type.ClearField("shape")
    metadata = {"window": "96", "types": ",".join(PANNUKE), "pixel_size": "0.5"}
    onnx.helper.set_model_props(model, metadata)
    onnx.save(model, str(tmp_path / "net.onnx"))
    asked = {"slide": "a.png", "mpp": 0.5, "scaling": "unit"}
    assert run(context(tmp_path), "nuclei", weights="net.onnx", **asked)["types"] == counted(kinds)
    with pytest.raises(InputError, match=r"four\.onnx"):
        run(context(tmp_path), "nuclei", weights="four.onnx", **asked)


def test_nuclei_of_a_painted_field_are_parted_by_its_true_maps() -> None:
    rng, truth = generator(3), np.zeros((400, 400), np.int32)
    place = np.zeros((2, 400, 400), np.float32)
    for number, (row, column) in enumerate(np.ndindex(13, 13), 1):
        center = [round(25 + 28 * at + rng.uniform(-4, 4)) for at in (column, row)]
        axes = (round(rng.uniform(8, 14)), round(rng.uniform(6, 9)))
        cv2.ellipse(truth, center, axes, rng.uniform(0, 180), 0, 360, number, -1)
        inside = np.nonzero(truth == number)
        for axis, at in zip(place, inside[::-1], strict=True):
            axis[inside] = (at - at.mean()) / np.abs(at - at.mean()).max()
    labels = split_nuclei(np.stack([truth > 0, *place]).astype(np.float32), 0.5)
    found = [np.bincount(labels[truth == n]).argmax() for n in np.unique(truth)[1:]]
    assert len({one for one in found if one}) > 0.95 * len(found)
    assert labels.max() < 1.05 * len(found)


def test_logits_and_probabilities_are_the_same_maps() -> None:
    rng = generator(1)
    logits = {k: rng.normal(size=(1, n, 6, 6)).astype(np.float32)
              for k, n in (("np", 2), ("hv", 2), ("tp", 4))}  # fmt: skip
    raised = {k: np.exp(v) / np.exp(v).sum(axis=1, keepdims=True) for k, v in logits.items()}
    assert typed_maps(logits) == pytest.approx(typed_maps({**raised, "hv": logits["hv"]}), abs=1e-6)
    renamed = {"nuclei_binary_map": logits["np"], "hv_map": logits["hv"],
               "nuclei_type_map": logits["tp"]}  # fmt: skip
    assert np.array_equal(typed_maps(renamed), typed_maps(logits))
