"""Foundation encoders: SAGE's features equal those of the model card.

The published weights are gated, so networks of the published layout with random weights stand for
them; those of timm are cut to one block (the full ones have 0.6 to 1.1 billion numbers), and run
where timm is installed. CONCH's package is not on PyPI: a stand-in with its interface is used.
"""

from __future__ import annotations

import json
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from mcp_servers.slides.slide import Slide
from sage.core.errors import InputError
from sage_foundation import networks
from sage_foundation.batches import batches
from sage_foundation.features import read_features
from sage_foundation.models import network_encoder, resize_patches
from sage_foundation.specs import ENCODERS
from tests.mcp_servers.slide_tools import blobs, context, pyramid, run

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
BIOPTIMUS = ((0.707223, 0.578729, 0.703617), (0.211883, 0.230117, 0.177517))
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
GIANT = {"init_values": 1e-5, "img_size": 224, "num_classes": 0}
# as on the model cards, and how they make one vector of the tokens
CARDS: dict[str, tuple[str, dict[str, Any], float, Any]] = {
    "uni2": (
        "vit_giant_patch14_224",
        GIANT | {"patch_size": 14, "depth": 24, "num_heads": 24, "embed_dim": 1536,
         "mlp_ratio": 2.66667 * 2, "no_embed_class": True, "swiglu": True, "reg_tokens": 8,
         "dynamic_img_size": True},
        681.4, IMAGENET,
    ),
    "virchow2": (
        "vit_huge_patch14_224",
        GIANT | {"reg_tokens": 4, "mlp_ratio": 5.3375, "global_pool": "", "swiglu": True,
         "dynamic_img_size": True},
        631.2, IMAGENET,
    ),
    "h-optimus-0": (
        "vit_giant_patch14_reg4_dinov2",
        {"img_size": 224, "num_classes": 0, "init_values": 1e-5, "dynamic_img_size": False},
        1134.8, BIOPTIMUS,
    ),
}  # fmt: skip
CARDS["h-optimus-1"] = CARDS["h-optimus-0"]


def card_network(name: str, depth: int | None = None) -> Any:
    timm = pytest.importorskip("timm", reason="timm is not installed (it needs torchvision)")
    architecture, given, _, _ = CARDS[name]
    options = dict(given)
    if options.pop("swiglu", False):
        options |= {"mlp_layer": timm.layers.SwiGLUPacked, "act_layer": torch.nn.SiLU}
    if depth is not None:
        options["depth"] = depth
    return timm.create_model(architecture, pretrained=False, **options).eval()


def stir(network: torch.nn.Module, seed: int = 0) -> Any:
    """Random numbers everywhere: as made, layer scales are 1e-5 and tokens 0, and hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            noise = torch.randn(weight.shape, generator=generator) * 0.02
            weight.copy_(noise + (1.0 if name.endswith(("norm.weight", "gamma")) else 0.0))
    return network


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("encoders")
    pyramid(place / "s.svs", blobs(900, 900))
    return place


def encode(folder: Path, **options: Any) -> tuple[dict[str, Any], Any, list[Image.Image]]:
    """The tool's result, its features, and the tiles themselves."""
    asked = {"slide": "s.svs", "min_tissue": 0.6, "device": "cpu", "tile_px": 224} | options
    got = run(context(folder), "encode_tiles", **asked)
    features, coords, attributes = read_features(folder / "out" / got["features"])
    assert coords is not None and attributes["encoder"] == asked["encoder"]
    side = asked["tile_px"]
    with Slide.open(folder / "s.svs") as slide:
        tiles = [Image.fromarray(slide.read(int(x), int(y), side, side)) for x, y in coords]
    assert len(tiles) == got["tiles"] > 1
    return got, features, tiles


def direct(tiles: list[Image.Image], stats: Any, side: int, how: Image.Resampling) -> torch.Tensor:
    """Normalized pixels as torchvision's Resize, ToTensor and Normalize make them, by Pillow."""
    pixels = np.stack([np.asarray(tile.resize((side, side), how)) for tile in tiles])
    mean, sd = (np.array(part, np.float32) for part in stats)
    return torch.from_numpy((pixels.astype(np.float32) / 255 - mean) / sd).permute(0, 3, 1, 2)


@pytest.mark.parametrize("name", CARDS)
def test_the_architecture_is_that_of_the_card(name: str) -> None:
    with torch.device("meta"):
        theirs, ours = card_network(name), networks.timm_network(name)
    shapes = {k: v.shape for k, v in theirs.state_dict().items()}
    assert shapes == {k: v.shape for k, v in ours.state_dict().items()}
    millions = sum(p.numel() for p in ours.parameters()) / 1e6
    assert millions == pytest.approx(CARDS[name][2], abs=0.1)


@pytest.mark.parametrize(
    ("name", "tile_px", "kind"),
    [("uni2", 224, "safetensors"), ("virchow2", 256, "bin"), ("h-optimus-0", 224, "bin")],
)
def test_features_equal_a_direct_pass_of_timm(
    folder: Path, name: str, tile_px: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = stir(card_network(name, depth=1))
    architecture, options = networks.TIMM[name]
    monkeypatch.setitem(networks.TIMM, name, (architecture, options | {"depth": 1}))
    place = folder / f"{name}-{kind}"
    place.mkdir()
    state = {k: v.contiguous() for k, v in network.state_dict().items()}
    if kind == "bin":
        torch.save(state, place / "pytorch_model.bin")
    else:
        save_file(state, place / "model.safetensors")
    (place / "config.json").write_text(json.dumps({"architecture": architecture}))
    got, features, tiles = encode(folder, encoder=name, weights=place.name, tile_px=tile_px)
    how = Image.Resampling.BICUBIC if name == "virchow2" else Image.Resampling.BILINEAR
    with torch.inference_mode():
        out = network(direct(tiles, CARDS[name][3], 224, how))
        if name == "virchow2":
            assert out.shape[1:] == (261, 1280)
            out = torch.cat([out[:, 0], out[:, 5:].mean(1)], dim=-1)
    expected = out.numpy()
    assert got["dimension"] == expected.shape[1] == ENCODERS[name].dimension
    spread = expected.std(axis=0).mean()  # how far tiles differ: the error must be far below
    apart = np.abs(features - expected)
    assert spread > 1e-3
    assert apart.max() < (1e-3 if tile_px == 224 else 0.05) * spread
    assert (got["method"], got["precision"]) == ("learned", "float32")


def phikon(place: Path, width: int = 768) -> Any:
    """A network of Phikon's kind with one block, saved as on the hub; returned too."""
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=width, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64,
        image_size=224, patch_size=32,
    )  # fmt: skip
    network = stir(ViTModel(config, add_pooling_layer=False).eval())
    network.save_pretrained(place, safe_serialization=True)
    return network


def test_features_equal_a_direct_pass_of_transformers(folder: Path) -> None:
    network = phikon(folder / "phikon")
    got, features, tiles = encode(folder, encoder="phikon", weights="phikon")
    with torch.inference_mode():
        pixels = direct(tiles, IMAGENET, 224, Image.Resampling.BILINEAR)
        expected = network(pixels).last_hidden_state[:, 0].numpy()
    assert (got["dimension"], got["tcga_overlap"]) == (768, "trained on TCGA")
    spread = expected.std(axis=0).mean()
    assert spread > 1e-3
    assert np.abs(features - expected).max() < 1e-3 * spread


class Visual(torch.nn.Module):
    """The visual part: a trunk, and a pooler for captions that the published file may lack."""

    def __init__(self, embed_dim: int, patch: int) -> None:
        super().__init__()
        self.trunk = torch.nn.Conv2d(3, embed_dim, patch, patch)
        self.ln_caption = torch.nn.LayerNorm(4)

    def forward(self, batch: Any) -> Any:
        return self.trunk(batch).mean((2, 3))


class StandIn(torch.nn.Module):
    """CONCH's CoCa as far as SAGE calls it: built by its config, a visual part, encode_image."""

    def __init__(self, embed_dim: int, vision_cfg: dict[str, Any]) -> None:
        super().__init__()
        self.visual = Visual(embed_dim, vision_cfg["patch"])
        self.text = torch.nn.Linear(2, 2)

    def encode_image(self, batch: Any, normalize: bool = True, proj_contrast: bool = True) -> Any:
        assert not normalize and not proj_contrast
        return self.visual(batch)


@pytest.fixture
def conch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> torch.nn.Module:
    configs = folder / "configs"
    configs.mkdir(exist_ok=True)
    config = {"embed_dim": 512, "vision_cfg": {"patch": 64}, "custom_text": True}
    (configs / "conch_ViT-B-16.json").write_text(json.dumps(config))
    for name in ("conch", "conch.open_clip_custom", "conch.open_clip_custom.factory"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    coca = types.ModuleType("conch.open_clip_custom.coca_model")
    coca.CoCa = StandIn  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, coca.__name__, coca)
    sys.modules["conch.open_clip_custom.factory"].CFG_DIR = configs  # type: ignore[attr-defined]
    return stir(StandIn(512, {"patch": 64}))


def test_conch_gets_pixels_as_clip_does_and_only_tensors_are_read(folder: Path, conch: Any) -> None:
    (folder / "conch").mkdir()
    state = {"logit_scale": torch.ones(()), "visual.more": torch.ones(2)} | conch.state_dict()
    state.pop("visual.ln_caption.weight")
    torch.save(state, folder / "conch" / "pytorch_model.bin")
    _, features, tiles = encode(folder, encoder="conch", weights="conch", tile_px=448,
                                min_tissue=0.3)  # fmt: skip
    with torch.inference_mode():
        expected = conch.visual(direct(tiles, CLIP, 448, Image.Resampling.BICUBIC))
    assert np.abs(features - expected.numpy()).max() < 1e-5
    state.pop("visual.trunk.bias")
    torch.save(state, folder / "conch" / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"does not match.*trunk\.bias missing"):
        encode(folder, encoder="conch", weights="conch", tile_px=448, min_tissue=0.3)


def test_a_batch_that_does_not_fit_is_halved_until_it_does() -> None:
    seen: list[int] = []

    class Small(torch.nn.Module):
        room = 3

        def forward(self, batch: Any) -> Any:
            if len(batch) > self.room:
                raise torch.cuda.OutOfMemoryError("too much")
            seen.append(len(batch))
            return batch.mean((2, 3))

    network = Small()
    encoder = network_encoder(network, ENCODERS["phikon"], "cpu")
    patches = [np.full((224, 224, 3), i * 20, np.uint8) for i in range(10)]
    features = encoder.encode(encoder.stack(patches))
    assert features.shape == (10, 3) and max(seen) <= 3
    assert (np.diff(features[:, 0]) > 0).all()
    network.room = 0
    with pytest.raises(InputError, match="does not fit into the memory"):
        encoder.encode(encoder.stack(patches[:2]))


def test_a_resize_keeps_to_what_pillow_does() -> None:
    patch = blobs(256, 256)
    for how, theirs in (("bilinear", 2), ("bicubic", 3)):
        ours = resize_patches(patch[None], 224, how)[0].permute(1, 2, 0).numpy().astype(int)
        pillow = np.asarray(Image.fromarray(patch).resize((224, 224), theirs)).astype(int)
        apart = np.abs(ours - pillow)
        assert apart.max() <= 2 and apart.mean() < 0.02


def test_batches_keep_the_order_read_ahead_and_pass_errors_on() -> None:
    taken: list[int] = []

    def items() -> Any:
        for i in range(10):
            taken.append(i)
            yield i

    stream = batches(items(), 4, list)
    assert next(stream) == (4, [0, 1, 2, 3])
    until = time.monotonic() + 10
    while len(taken) < 8 and time.monotonic() < until:  # while the first is still in use
        time.sleep(0.01)
    assert len(taken) >= 8
    assert list(stream) == [(8, [4, 5, 6, 7]), (10, [8, 9])]
    assert taken == list(range(10))

    def broken() -> Any:
        yield 1
        raise InputError("tile 2 is damaged")

    with pytest.raises(InputError, match="tile 2 is damaged"):
        list(batches(broken(), 1, list))
    stream = batches(iter(range(1000)), 1, list)
    next(stream)
    stream.close()  # a caller that gives up does not wait for the rest


def test_a_graph_must_give_what_its_encoder_gives(folder: Path) -> None:
    class Colors(torch.nn.Module):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return pixels.mean((2, 3)).repeat(1, 256)

    traced: Any = torch.jit.trace(Colors(), torch.zeros(1, 3, 448, 448))  # type: ignore[no-untyped-call]
    traced.save(str(folder / "colors.pt"))
    _, features, tiles = encode(folder, encoder="conch-v15", weights="colors.pt")
    pixels = direct(tiles, IMAGENET, 448, Image.Resampling.BILINEAR)
    assert np.abs(features[:, :3] - pixels.mean((2, 3)).numpy()).max() < 1e-3
    with pytest.raises(InputError, match=r"uni outputs \(\d+, 1024\)"):
        encode(folder, encoder="uni", weights="colors.pt")
