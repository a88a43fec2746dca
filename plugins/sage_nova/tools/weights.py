"""Encoders, text encoders, slide encoders and captioners of the user, by folder, file or hub name.

Nothing is downloaded and no Python of a model's folder is run. Where a model is published as code
(TITAN, PRISM, CONCH v1.5), its graph as ONNX or TorchScript is taken instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mcp_servers.context import ToolContext
from mcp_servers.pathology.encoder_specs import CLIP, ENCODERS, EncoderSpec
from mcp_servers.slides.arrays import F32, I64, U8
from sage.core.errors import InputError

REPO = re.compile(r"^[\w-][\w.-]{0,95}/[\w-][\w.-]{0,95}$", re.ASCII)
PatchEncoder = Literal[
    "handcrafted", "uni_v1", "uni_v2", "conch_v1", "conch_v15", "virchow", "virchow2", "gigapath",
    "phikon", "phikon_v2", "hoptimus0", "hoptimus1", "plip",
]  # fmt: skip
SlideEncoder = Literal["mean", "titan", "prism", "madeleine", "gigapath"]
TextEncoder = Literal["plip", "conch"]
AS_GRAPH = "its graph, ONNX or TorchScript, as weights=FILE"
"""What is published as Python code, which is not run here."""
GATED = "CC-BY-NC-ND-4.0, gated"


def _spec(name: str, dimension: int, px: int, source: str, **options: Any) -> EncoderSpec:
    base: dict[str, Any] = {
        "loader": "timm", "license": GATED, "training_data": "see the model's card",
        "tcga_overlap": "none stated", "memory_mb": 4096,
    }  # fmt: skip
    return EncoderSpec(name, dimension, px, 0.5, source=source, **(base | options))


SPECS: dict[str, EncoderSpec] = {
    "handcrafted": ENCODERS["handcrafted"],
    "uni_v1": _spec("uni", 1024, 224, "Hugging Face MahmoodLab/UNI"),
    "uni_v2": ENCODERS["uni2"],
    "conch_v1": ENCODERS["conch"],
    "conch_v15": _spec("conch_v15", 768, 448, "Hugging Face MahmoodLab/TITAN"),
    "virchow": _spec(
        "virchow", 2560, 224, "Hugging Face paige-ai/Virchow", license="Apache-2.0, gated",
        resize="bicubic", memory_mb=4608,
    ),
    "virchow2": ENCODERS["virchow2"],
    "gigapath": _spec(
        "gigapath", 1536, 224, "Hugging Face prov-gigapath/prov-gigapath",
        license="Prov-GigaPath research, gated", resize="bicubic", memory_mb=6144,
    ),
    "phikon": ENCODERS["phikon"],
    "phikon_v2": ENCODERS["phikon-v2"],
    "hoptimus0": ENCODERS["h-optimus-0"],
    "hoptimus1": ENCODERS["h-optimus-1"],
    "plip": _spec(
        "plip", 512, 224, "Hugging Face vinid/plip", license="as the model's card",
        loader="transformers", normalize=CLIP, resize="bicubic", precision="float32",
    ),
}  # fmt: skip
"""Encoders by NOVA's names; the published graphs of those that timm builds are in `networks`."""


def encoder_memory(given: Any) -> int:
    """MiB of a call, by the patch encoder that its arguments name."""
    name = getattr(given, "histology_roi_encoder_name", None) or given.model
    return max(4096, SPECS[name].memory_mb)


SLIDE_SOURCES = {
    "titan": "Hugging Face MahmoodLab/TITAN",
    "prism": "Hugging Face paige-ai/Prism",
    "madeleine": "Hugging Face MahmoodLab/madeleine",
    "gigapath": "Hugging Face prov-gigapath/prov-gigapath",
}


def weights_path(
    weights: str | None,
    hub: str | None,
    what: str,
    source: str,
    context: ToolContext,
    given_as: str = "weights=FOLDER, or hub=OWNER/NAME where they lie in the hub's cache",
) -> Path:
    """The folder or file of a model's weights.

    Weights never come from where tools or programs write, nor by a link from there or from outside
    the roots: what lies there is no model that a person chose.

    Parameters
    ----------
    weights : path below the roots
    hub : OWNER/NAME of a model in the hub's cache on this machine
    what : the model, for the message
    source : where people get it
    context : roots
    given_as : how they are given, for the message

    Raises
    ------
    InputError
        Without weights, with both, or when they are not there.
    """
    if weights is not None and hub is not None:
        raise InputError("give weights or hub, not both")
    if hub is not None:
        return _cached(hub)
    if weights is None:
        raise InputError(
            f"{what} needs its weights: get them from {source} under their license and give "
            f"{given_as}; nothing is downloaded here"
        )
    return context.model(weights)


def stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, time stamp and size of each file of the weights: what a loaded model is kept by."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return tuple((str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in files)


def _cached(hub: str) -> Path:
    """The folder of a model in the hub's cache."""
    if not REPO.match(hub):
        raise InputError(f"hub={hub[:120]!r} is no name of a model; write OWNER/NAME")
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        raise InputError(
            'hub= needs the package huggingface_hub: pip install "sage-pathology[models]"'
        ) from None
    for file in ("config.json", "model.safetensors", "pytorch_model.bin"):
        found = try_to_load_from_cache(hub, file)
        if isinstance(found, str):
            return Path(found).parent
    raise InputError(
        f"hub={hub!r} is not in the hub's cache on this machine, and tools download nothing; where "
        f"there is a network: hf download {hub}"
    )


class Graph:
    """A model as a graph: ONNX or TorchScript, arrays in, the first output back."""

    def __init__(self, path: Path, device: str) -> None:
        """Raise `InputError` when the file is neither."""
        from mcp_servers.pathology import nuclei_model

        self.path = path
        if path.suffix == ".onnx":
            self.session, self.module = self._onnx(path), None
        else:
            nuclei_model._torchscript(path, device)  # its message says what is wrong
            import torch

            load: Any = torch.jit.load
            self.session, self.module = None, load(str(path), map_location=device).eval()
        self.device = device

    @staticmethod
    def _onnx(path: Path) -> Any:
        import importlib

        try:
            runtime: Any = importlib.import_module("onnxruntime")
        except ImportError:
            raise InputError(
                f'{path}: an ONNX file needs onnxruntime: pip install "sage-pathology[onnx]"'
            ) from None
        try:
            return runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime's own classes, which have no common base
            raise InputError(f"{path}: not an ONNX model ({str(error)[:160]})") from error

    def __call__(self, *arrays: Any) -> F32:
        """The first output; arrays beyond what the graph takes are left out."""
        try:
            if self.session is not None:
                names = [each.name for each in self.session.get_inputs()]
                given = dict(zip(names, arrays, strict=False))
                return np.asarray(self.session.run(None, given)[0], dtype=np.float32)
            import torch

            assert self.module is not None
            takes = len(list(self.module.graph.inputs())) - 1
            with torch.inference_mode():
                out = self.module(*(torch.tensor(a).to(self.device) for a in arrays[:takes]))
            first = out[0] if isinstance(out, tuple | list) else out
            return np.asarray(first.float().cpu().numpy(), dtype=np.float32)
        except Exception as error:
            told = " ".join(str(error).split())[-300:]
            raise InputError(f"{self.path}: fails on its input: {told}") from error


@dataclass(frozen=True)
class Patches:
    """A patch encoder at work: `encode(patches)` gives (n, dimension)."""

    name: str
    spec: EncoderSpec
    device: str
    encode: Any


def patch_encoder(
    name: PatchEncoder,
    weights: str | None,
    hub: str | None,
    device: str,
    mpp: float,
    context: ToolContext,
) -> Patches:
    """A patch encoder by NOVA's name.

    Parameters
    ----------
    name : of `SPECS`; the handcrafted one is used only where it is named
    weights, hub : see `weights_path`
    device : "auto", "cpu" or one of torch's
    mpp : µm per pixel of the patches
    context : roots

    Raises
    ------
    InputError
        Without weights, or when they are not this encoder's.
    """
    from mcp_servers.pathology.models import choose_device, load_encoder

    spec = SPECS[name]
    if spec.loader == "handcrafted":
        if weights is not None or hub is not None:
            raise InputError("the encoder handcrafted has no weights; leave them out")
        own = load_encoder(spec, None, "cpu", mpp)
        return Patches(name, spec, "cpu", lambda patches: own.encode(own.stack(list(patches))))
    told = {"given_as": AS_GRAPH} if name == "conch_v15" else {}
    path = weights_path(weights, hub, f"the encoder {name}", spec.source, context, **told)
    where = choose_device(device, context.device)
    key = ("nova", name, stamp(path), where)
    encode = context.shared(key, lambda: _load_patches(name, spec, path, where))
    return Patches(name, spec, where, encode)


def _load_patches(name: str, spec: EncoderSpec, path: Path, device: str) -> Any:
    from mcp_servers.pathology.models import load_encoder, resize_patches
    from mcp_servers.pathology.zeroshot import embed_images, load_clip

    if path.is_file() and path.suffix in (".onnx", ".pt", ".ts", ".torchscript"):
        graph = Graph(path, device)
        mean, sd = (np.array(part, np.float32)[None, :, None, None] for part in spec.normalize)

        def run(patches: U8) -> F32:
            pixels = resize_patches(np.asarray(patches), spec.patch_px, spec.resize).numpy()
            out = graph((pixels.astype(np.float32) / 255 - mean) / sd)
            if out.shape != (len(pixels), spec.dimension):
                raise InputError(
                    f"{path}: gives {out.shape} for {len(pixels)} patches, {name} gives "
                    f"{(len(pixels), spec.dimension)}; this is another model's graph"
                )
            return out

        return run
    if name == "plip":
        model, _, side = load_clip(path, device)
        return lambda patches: embed_images(model, patches, side, device).float().cpu().numpy()
    if name == "conch_v15":
        raise InputError(
            f"{path}: CONCH v1.5 is published as Python code in TITAN's folder, which is not run "
            "here; export its graph once (torch.jit.trace or torch.onnx.export of the module that "
            "titan.return_conch() gives, input (n, 3, 448, 448)) and give that file as weights"
        )
    own = load_encoder(replace(spec), path, device, spec.mpp)
    return lambda patches: own.encode(own.stack(list(patches)))


@dataclass(frozen=True)
class Texts:
    """A vision-language model: unit vectors of texts and of images, and the scale of logits.

    `projected` brings features as the encoder stores them to the space of the texts.
    """

    texts: Any
    images: Any
    scale: float
    projected: Any = np.asarray


def text_encoder(
    name: TextEncoder, weights: str | None, hub: str | None, device: str, context: ToolContext
) -> Texts:
    """PLIP (any CLIP in the transformers layout) or CONCH.

    Parameters
    ----------
    name : "plip" or "conch"
    weights, hub : see `weights_path`
    device : "auto", "cpu" or one of torch's
    context : roots
    """
    from mcp_servers.pathology.models import choose_device

    source = "Hugging Face vinid/plip" if name == "plip" else "Hugging Face MahmoodLab/conch"
    path = weights_path(weights, hub, f"the text encoder {name}", source, context)
    where = choose_device(device, context.device)
    key = ("nova text", name, stamp(path), where)
    make = _plip if name == "plip" else _conch
    return context.shared(key, lambda: make(path, where))


def _plip(path: Path, device: str) -> Texts:
    from mcp_servers.pathology.zeroshot import embed_images, embed_texts, load_clip

    model, tokens, side = load_clip(path, device)

    def texts(words: Sequence[str]) -> F32:
        out: F32 = embed_texts(model, tokens, list(words), device).float().cpu().numpy()
        return out

    def images(patches: U8) -> F32:
        out: F32 = embed_images(model, patches, side, device).float().cpu().numpy()
        return out

    return Texts(texts, images, float(model.logit_scale.detach().exp()))


def _conch(path: Path, device: str) -> Texts:
    import importlib

    import torch

    from mcp_servers.pathology.models import resize_patches
    from mcp_servers.pathology.networks import conch_network

    spec = SPECS["conch_v1"]
    module = conch_network(path, texts=True).eval().to(device)
    words: Any = importlib.import_module("conch.open_clip_custom")
    tokenizer = words.get_tokenizer()
    mean, sd = (torch.tensor(part, device=device)[None, :, None, None] for part in spec.normalize)

    def texts(given: Sequence[str]) -> F32:
        # as the package's own `tokenize`, which calls what transformers 5 no longer has
        found = tokenizer(
            list(given), max_length=127, padding="max_length", truncation=True,
            return_token_type_ids=False, return_tensors="pt",
        )["input_ids"]  # fmt: skip
        ids = torch.nn.functional.pad(found, (0, 1), value=tokenizer.pad_token_id)
        with torch.inference_mode():
            out = module.encode_text(ids.to(device))
        return np.asarray(torch.nn.functional.normalize(out, dim=-1).float().cpu().numpy())

    def images(patches: U8) -> F32:
        pixels = resize_patches(patches, spec.patch_px, spec.resize).to(device).float().div_(255)
        with torch.inference_mode():
            out = module.encode_image((pixels - mean) / sd)
        return np.asarray(torch.nn.functional.normalize(out, dim=-1).float().cpu().numpy())

    def projected(features: F32) -> F32:
        with torch.inference_mode():
            out = module.visual.forward_project(torch.from_numpy(features).to(device))
        return np.asarray(out.float().cpu().numpy())

    return Texts(texts, images, float(module.logit_scale.detach().exp()), projected)


def encode_slide(
    name: SlideEncoder,
    features: F32,
    coords: I64,
    side: int,
    weights: str | None,
    hub: str | None,
    context: ToolContext,
) -> F32:
    """(dimension,) of a slide from the features of its tiles.

    `mean` is their mean and needs no weights. The others are a graph (ONNX or TorchScript) that
    takes features (1, n, d), coordinates (1, n, 2) and the tiles' side in level-0 pixels (1,), or
    the first of these.

    Parameters
    ----------
    name : of the slide encoder
    features : (n, d)
    coords : (n, 2) upper left corners, level-0 pixels
    side : of the tiles, level-0 pixels
    weights, hub : see `weights_path`
    context : roots
    """
    if name == "mean":
        if weights is not None or hub is not None:
            raise InputError("the mean of the tiles has no weights; leave them out")
        return np.asarray(features.mean(axis=0), dtype=np.float32)
    what = f"the slide encoder {name}"
    path = weights_path(weights, hub, what, SLIDE_SOURCES[name], context, AS_GRAPH)
    if path.is_dir():
        raise InputError(
            f"{path}: {name} is published as Python code, which is not run here; export its graph "
            "once (torch.jit.trace or torch.onnx.export, inputs features (1, n, d), coordinates "
            "(1, n, 2), side (1,)) and give that file as weights; slide_encoder=mean needs none"
        )
    key = ("nova slide", name, stamp(path))
    graph = context.shared(key, lambda: Graph(path, "cpu"))
    out = graph(features[None], coords[None].astype(np.int64), np.array([side], np.int64))
    if out.size == 0 or out.size != out.shape[-1]:
        raise InputError(f"{path}: gives {out.shape}; a slide's vector is (1, dimension)")
    return np.asarray(out.reshape(-1), dtype=np.float32)
