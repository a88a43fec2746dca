"""Patch encoders by name: what they are as data, and how their weights are loaded.

Only the handcrafted encoder needs no weights. The others load from a local folder that the user
obtained under the model's license; nothing is downloaded here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mcp_servers.errors import InputError
from mcp_servers.slides.arrays import F32, U8

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HOPTIMUS = ((0.707223, 0.578729, 0.703617), (0.211883, 0.230117, 0.177517))
Loader = Literal["handcrafted", "transformers", "timm", "conch"]
Batch = Callable[[list[U8]], F32]


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """One encoder. `mpp` is the resolution it was trained at; `source` where users get weights."""

    name: str
    dimension: int
    patch_px: int
    mpp: float
    loader: Loader
    license: str
    source: str
    training_data: str
    tcga_overlap: str
    normalize: tuple[tuple[float, ...], tuple[float, ...]] = IMAGENET


ENCODERS = {
    spec.name: spec
    for spec in (
        EncoderSpec(
            "handcrafted", 81, 256, 0.5, "handcrafted", "Apache-2.0", "built in", "none", "none"
        ),
        EncoderSpec(
            "phikon", 768, 224, 0.5, "transformers", "Owkin non-commercial",
            "Hugging Face owkin/phikon", "TCGA, 16 cancers", "trained on TCGA",
        ),
        EncoderSpec(
            "phikon-v2", 1024, 224, 0.5, "transformers", "Owkin non-commercial",
            "Hugging Face owkin/phikon-v2", "public cohorts, TCGA among them", "trained on TCGA",
        ),
        EncoderSpec(
            "uni2", 1536, 224, 0.5, "timm", "CC-BY-NC-ND-4.0, gated",
            "Hugging Face MahmoodLab/UNI2-h", "Mass General Brigham slides", "none stated",
        ),
        EncoderSpec(
            "conch", 512, 448, 0.5, "conch", "CC-BY-NC-ND-4.0, gated",
            "Hugging Face MahmoodLab/conch", "image-caption pairs of publications and teaching",
            "none stated",
        ),
        EncoderSpec(
            "virchow2", 2560, 224, 0.5, "timm", "CC-BY-NC-ND-4.0, gated",
            "Hugging Face paige-ai/Virchow2", "Memorial Sloan Kettering slides", "none stated",
        ),
        EncoderSpec(
            "h-optimus-0", 1536, 224, 0.5, "timm", "Apache-2.0",
            "Hugging Face bioptimus/H-optimus-0", "proprietary slides", "none stated", HOPTIMUS,
        ),
        EncoderSpec(
            "h-optimus-1", 1536, 224, 0.5, "timm", "CC-BY-NC-ND-4.0, gated",
            "Hugging Face bioptimus/H-optimus-1", "proprietary slides", "none stated", HOPTIMUS,
        ),
    )
}  # fmt: skip


def encoder_spec(name: str) -> EncoderSpec:
    """The encoder called `name`; raises `InputError` that lists the known ones."""
    if name not in ENCODERS:
        raise InputError(f'no encoder is called "{name}"; choose {", ".join(ENCODERS)}')
    return ENCODERS[name]


def choose_device(device: str) -> str:
    """`auto` is cuda when there is one; raises `InputError` when cuda is asked for and absent."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("device cuda was asked for, but PyTorch sees no GPU; use device=cpu")
    return device


def load_encoder(spec: EncoderSpec, weights: Path | None, device: str, mpp: float) -> Batch:
    """A function from patches (H, W, 3) to features (n, d).

    Raises
    ------
    InputError
        Without weights, without the library that reads them, or when they do not fit.
    """
    if spec.loader == "handcrafted":
        return _handcrafted(mpp)
    if weights is None:
        raise InputError(
            f"encoder {spec.name} needs its weights: get them from {spec.source} under its license "
            f"({spec.license}) and pass the folder as weights=...; the encoder that needs none is "
            "handcrafted"
        )
    make = {"transformers": _transformers, "timm": _timm, "conch": _conch}[spec.loader]
    module, pool = make(spec, weights)
    return _torch_batch(module, pool, spec, choose_device(device))


def _handcrafted(mpp: float) -> Batch:
    import numpy as np

    from mcp_servers.pathology.compute.handcrafted import encode_patch

    def run(patches: list[U8]) -> F32:
        # the loops inside release the interpreter's lock
        with ThreadPoolExecutor(2) as pool:
            return np.stack(list(pool.map(lambda patch: encode_patch(patch, mpp), patches)))

    return run


def _torch_batch(module: Any, pool: Callable[[Any], Any], spec: EncoderSpec, device: str) -> Batch:
    import numpy as np
    import torch

    module.eval().to(device)
    mean = torch.tensor(spec.normalize[0], device=device)[None, :, None, None]
    sd = torch.tensor(spec.normalize[1], device=device)[None, :, None, None]
    half = device.startswith("cuda")

    def run(patches: list[U8]) -> F32:
        pixels = torch.from_numpy(np.stack(patches)).to(device, non_blocking=True)
        batch = pixels.permute(0, 3, 1, 2).float().div_(255)
        side = spec.patch_px
        if batch.shape[-1] != side:
            batch = torch.nn.functional.interpolate(
                batch, (side, side), mode="bicubic", antialias=True
            ).clamp_(0, 1)
        batch = (batch - mean) / sd
        with torch.inference_mode(), torch.autocast(device.split(":")[0], enabled=half):
            out = pool(module(batch))
        features: F32 = out.float().cpu().numpy()
        return features

    return run


def _transformers(spec: EncoderSpec, weights: Path) -> tuple[Any, Callable[[Any], Any]]:
    from transformers import AutoModel

    if not weights.is_dir() or not (weights / "config.json").is_file():
        raise InputError(f"{weights}: not a model folder (it needs config.json, model.safetensors)")
    try:
        module = AutoModel.from_pretrained(
            str(weights), local_files_only=True, use_safetensors=True, trust_remote_code=False
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise InputError(f"{weights}: weights cannot be loaded: {error}") from error
    return module, lambda output: output.last_hidden_state[:, 0]


def _timm(spec: EncoderSpec, weights: Path) -> tuple[Any, Callable[[Any], Any]]:
    import torch

    try:
        timm: Any = importlib.import_module("timm")
    except ImportError as error:
        raise InputError(f"encoder {spec.name} needs the package timm: pip install timm") from error
    gated = {"mlp_layer": timm.layers.SwiGLUPacked, "act_layer": torch.nn.SiLU}
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "uni2": (
            "vit_giant_patch14_224",
            {
                "depth": 24, "num_heads": 24, "embed_dim": 1536, "mlp_ratio": 2.66667 * 2,
                "no_embed_class": True, "reg_tokens": 8, "dynamic_img_size": True, **gated,
            },
        ),
        "virchow2": (
            "vit_huge_patch14_224",
            {
                "mlp_ratio": 5.3375, "global_pool": "", "reg_tokens": 4,
                "dynamic_img_size": True, **gated,
            },
        ),
        "h-optimus-0": ("vit_giant_patch14_reg4_dinov2", {"global_pool": "token"}),
        "h-optimus-1": ("vit_giant_patch14_reg4_dinov2", {"global_pool": "token"}),
    }  # fmt: skip
    name, options = kinds[spec.name]
    module = timm.create_model(
        name, pretrained=False, img_size=224, init_values=1e-5, num_classes=0, **options
    )
    _fill(module, weights)
    if spec.name == "virchow2":

        def both(tokens: Any) -> Any:
            return torch.cat([tokens[:, 0], tokens[:, 5:].mean(1)], dim=-1)

        return module, both
    return module, lambda output: output


def _conch(spec: EncoderSpec, weights: Path) -> tuple[Any, Callable[[Any], Any]]:
    try:
        conch: Any = importlib.import_module("conch.open_clip_custom")
    except ImportError as error:
        raise InputError(
            "encoder conch needs its own package (the CONCH repository of the Mahmood lab); "
            "install it in this environment"
        ) from error
    file = weights if weights.is_file() else weights / "pytorch_model.bin"
    model, _ = conch.create_model_from_pretrained("conch_ViT-B-16", str(file))

    class Visual:
        def eval(self) -> Visual:
            model.eval()
            return self

        def to(self, device: str) -> Visual:
            model.to(device)
            return self

        def __call__(self, batch: Any) -> Any:
            return model.encode_image(batch, proj_contrast=False, normalize=False)

    return Visual(), lambda output: output


def _fill(module: Any, weights: Path) -> None:
    """Load a state dict from safetensors, or from a .bin without unpickling code."""
    import torch
    from safetensors.torch import load_file

    folder = weights if weights.is_dir() else weights.parent
    file = weights if weights.is_file() else folder / "model.safetensors"
    if not file.is_file():
        file = folder / "pytorch_model.bin"
    if not file.is_file():
        raise InputError(f"{weights}: holds neither model.safetensors nor pytorch_model.bin")
    try:
        if file.suffix == ".safetensors":
            state = load_file(file)
        else:
            state = torch.load(file, map_location="cpu", weights_only=True)
        module.load_state_dict(state, strict=True)
    except (RuntimeError, ValueError, OSError) as error:
        raise InputError(f"{file}: does not fit the encoder: {str(error)[:300]}") from error
