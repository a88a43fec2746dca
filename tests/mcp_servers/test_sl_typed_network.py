"""Nuclei with types by a network of the user's: HoVer-Net's three maps, windows, names, refusals.

The modules here read their maps from the colors of an image: red is the type, green and blue the
place within the nucleus. Annotations are evaluated, as TorchScript reads them.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mcp_servers.nova.roi import NucleiInput, segment_nuclei
from mcp_servers.pathology.nuclei_maps import PANNUKE, canonical, parted, shares, typed_maps
from sage.core.errors import InputError
from sage.core.seeds import generator
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


def counted(kinds: list[str]) -> dict[str, int]:
    """How many of each, by SAGE's names."""
    names = dict(zip(PANNUKE, canonical(PANNUKE), strict=True))
    return {names[kind]: kinds.count(kind) for kind in PANNUKE}


def test_the_users_types_reach_table_outlines_and_novas_words(tmp_path: Path) -> None:
    image, kinds = colored()
    (tmp_path / "images").mkdir()
    png(tmp_path / "images" / "a.png", image)
    saved(tmp_path / "net.pt")
    asked = {"weights": "net.pt", "scaling": "unit"}
    ctx = context(tmp_path)
    got = run(ctx, "nuclei", slide="images/a.png", mpp=0.5, **asked)
    assert got["types"] == counted(kinds)
    table = pd.read_csv(tmp_path / "out" / got["table"])
    assert set(table["type"]) == set(canonical(PANNUKE))
    assert {"p_lymphoid", "p_dead", "p_epithelial"} <= set(table.columns)
    shown = json.loads((tmp_path / "out" / got["geojson"]).read_text())["features"]
    names = {feature["properties"]["classification"]["name"] for feature in shown}
    assert names == {"Tumor", "Immune cells", "Stroma", "Dead", "Epithelial"}
    roi = segment_nuclei(NucleiInput(input_dir="images", level0_mpp_of_imgs=0.5, **asked), ctx)
    assert roi.classes == ["Neoplastic", "Inflammatory", "Connective", "Dead", "Epithelial"]
    held = json.loads((tmp_path / "out" / roi.jsons[0]).read_text())["nuc"].values()
    assert sum(one["type"] == "Dead" for one in held) == kinds.count("dead")


@pytest.mark.parametrize(("window", "crop"), [(96, 16), (128, 0)])
def test_a_graph_of_one_size_is_moved_over_the_image(
    tmp_path: Path, window: int, crop: int
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


@pytest.mark.parametrize(
    ("module", "given", "message"),
    [
        (Maps([]), {}, "has 5 types and names of 0; name them in weights_types"),
        (Maps(["a", "b"]), {}, "has 5 types and names of 2"),
        (Maps(["=cmd()", "b", "c", "d", "e"]), {}, "is no name of a type"),
        (Maps(["outside", "b", "c", "d", "e"]), {}, "is no name of a type"),
        (Maps(["a", "A", "c", "d", "e"]), {}, "none twice"),
        (Maps(list(PANNUKE), 3), {}, "the sizes must agree"),
        (NoTypes(list(PANNUKE)), {}, "nuclei with types need tp"),
        (Endless(list(PANNUKE)), {}, "not finite"),
    ],
)
def test_a_network_whose_types_cannot_be_read_is_refused(
    tmp_path: Path, module: Any, given: dict[str, Any], message: str
) -> None:
    png(tmp_path / "a.png", colored(128)[0])
    torch.jit.script(module).save(str(tmp_path / "net.pt"))
    with pytest.raises(InputError, match=r"net\.pt") as refused:
        run(context(tmp_path), "nuclei", slide="a.png", mpp=0.5, weights="net.pt", **given)
    assert message in str(refused.value)


def test_named_types_take_the_place_of_stated_ones(tmp_path: Path) -> None:
    image, kinds = colored(200)
    png(tmp_path / "a.png", image)
    saved(tmp_path / "net.pt", names=[])
    got = run(
        context(tmp_path), "nuclei", slide="a.png", mpp=0.5, weights="net.pt", scaling="unit",
        weights_types=["Tumor", "Lymphocyte", "Stroma", "Dead", "Normal"],
    )  # fmt: skip
    assert list(got["types"]) == ["neoplastic", "lymphoid", "stromal", "dead", "normal"]
    assert sum(got["types"].values()) == len(kinds)


def test_nuclei_of_a_painted_field_are_parted_by_its_true_maps() -> None:
    from sage.bench.slidequest_twins.field import MPP, paint
    from sage.bench.slidequest_twins.typed_nuclei import _target

    field = paint(400, generator(3))
    place = _target(field)[3:5].numpy()
    labels = parted(np.stack([field.labels > 0, *place]).astype(np.float32), MPP)
    found = [np.bincount(labels[field.labels == n]).argmax() for n in np.unique(field.labels)[1:]]
    assert len({one for one in found if one}) > 0.95 * len(found)
    assert labels.max() < 1.05 * len(found)


def test_types_are_shares_without_the_background() -> None:
    kinds = np.zeros((2, 4, 4), np.float32)
    kinds[0, :2], kinds[1, :2] = 0.1, 0.3
    labels = np.zeros((4, 4), np.int32)
    labels[:2] = 1
    assert shares(labels, kinds)[0] == pytest.approx([0.25, 0.75])


def test_logits_and_probabilities_are_the_same_maps() -> None:
    rng = generator(1)
    logits = {k: rng.normal(size=(1, n, 6, 6)).astype(np.float32)
              for k, n in (("np", 2), ("hv", 2), ("tp", 4))}  # fmt: skip
    raised = {k: np.exp(v) / np.exp(v).sum(axis=1, keepdims=True) for k, v in logits.items()}
    assert typed_maps(logits) == pytest.approx(typed_maps({**raised, "hv": logits["hv"]}), abs=1e-6)
    renamed = {"nuclei_binary_map": logits["np"], "hv_map": logits["hv"],
               "nuclei_type_map": logits["tp"]}  # fmt: skip
    assert np.array_equal(typed_maps(renamed), typed_maps(logits))
