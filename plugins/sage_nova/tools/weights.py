"""User-supplied encoders, text encoders, and slide encoders, by folder, file, or hub name.

Nothing is downloaded, and no Python code in a model's folder is run. Models published as
code (TITAN, PRISM, CONCH v1.5) must be given as a graph (ONNX or TorchScript).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Given
from mcp_servers.slides.arrays import F32, I64, U8
from mcp_servers.spec import InputPath
from sage.core.errors import InputError
from sage_foundation.specs import CLIP, ENCODERS, EncoderSpec

REPO = re.compile(r"^[\w-][\w.-]{0,95}/[\w-][\w.-]{0,95}$", re.ASCII)
PatchEncoder = Literal[
    "handcrafted", "uni_v1", "uni_v2", "conch_v1", "conch_v15", "virchow", "virchow2", "gigapath",
    "phikon", "phikon_v2", "hoptimus0", "hoptimus1", "plip",
]  # fmt: skip
SlideEncoder = Literal["mean", "titan", "prism", "madeleine", "gigapath"]
TextEncoder = Literal["plip", "conch"]
AS_FOLDER = "weights=FOLDER, or hub=OWNER/NAME if the model is in the hub's cache"
AS_GRAPH = "its graph, ONNX or TorchScript, as weights=FILE"
EXPORT = (
    "is published as Python code, which SAGE does not run; export its graph once "
    "(torch.jit.trace or torch.onnx.export, inputs {inputs}) and pass that file as weights"
)
HUGGING_FACE = {
    "uni": "MahmoodLab/UNI", "conch_v15": "MahmoodLab/TITAN", "virchow": "paige-ai/Virchow",
    "gigapath": "prov-gigapath/prov-gigapath", "plip": "vinid/plip", "conch": "MahmoodLab/conch",
    "titan": "MahmoodLab/TITAN", "prism": "paige-ai/Prism", "madeleine": "MahmoodLab/madeleine",
}  # fmt: skip


class ModelWeights(Given):
    """Location of a model's weights."""

    weights: InputPath | None = Field(
        default=None,
        description="Folder with the weights, or the model's graph (ONNX, TorchScript)",
    )
    hub: str | None = Field(
        default=None, max_length=200, description="OWNER/NAME of a model in the hub's cache"
    )


def _make_spec(name: str, dimension: int, px: int, **options: Any) -> EncoderSpec:
    base: dict[str, Any] = {
        "loader": "timm", "license": "CC-BY-NC-ND-4.0, gated", "memory_mb": 4096,
        "training_data": "see the model's card", "tcga_overlap": "none stated",
        "source": f"Hugging Face {HUGGING_FACE[name]}",
    }  # fmt: skip
    return EncoderSpec(name, dimension, px, 0.5, **(base | options))


SPECS: dict[str, EncoderSpec] = {
    "handcrafted": ENCODERS["handcrafted"],
    "uni_v1": _make_spec("uni", 1024, 224),
    "uni_v2": ENCODERS["uni2"],
    "conch_v1": ENCODERS["conch"],
    "conch_v15": _make_spec("conch_v15", 768, 448),
    "virchow": _make_spec(
        "virchow", 2560, 224, license="Apache-2.0, gated", resize="bicubic", memory_mb=4608
    ),
    "virchow2": ENCODERS["virchow2"],
    "gigapath": _make_spec(
        "gigapath", 1536, 224, license="Prov-GigaPath research, gated", resize="bicubic",
        memory_mb=6144,
    ),
    "phikon": ENCODERS["phikon"],
    "phikon_v2": ENCODERS["phikon-v2"],
    "hoptimus0": ENCODERS["h-optimus-0"],
    "hoptimus1": ENCODERS["h-optimus-1"],
    "plip": _make_spec(
        "plip", 512, 224, license="see the model's card", loader="transformers", normalize=CLIP,
        resize="bicubic", precision="float32",
    ),
}  # fmt: skip
"""Encoders by NOVA's names; `networks` has the published architectures that timm builds."""


def encoder_memory(given: Any) -> int:
    """Estimate a call's memory in MiB from its patch encoder."""
    for field in ("histology_roi_encoder_name", "patch_encoder_name", "model"):
        if name := getattr(given, field, None):
            return max(4096, SPECS[name].memory_mb)
    return 4096


def find_weights(
    given: Any, what: str, source: str, context: ToolContext, how: str = AS_FOLDER
) -> Path:
    """Find the path of a model's weights from the `weights` or `hub` argument.

    Weights never come from folders that tools or programs write to, nor through a link from
    there or from outside the roots, since a person must have chosen them.

    Raises
    ------
    InputError
        If neither or both are given, or the weights do not exist; `what`, `source`, and `how`
        (to give them) appear in the message.
    """
    if given.weights is not None and given.hub is not None:
        raise InputError("give weights or hub, not both")
    if given.hub is not None:
        return _find_cached(given.hub)
    if given.weights is None:
        raise InputError(
            f"{what} requires its weights; obtain them from {source} under their license and pass "
            f"{how}; SAGE does not download them"
        )
    return context.model(given.weights)


def stamp_files(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Return each weights file's name, time stamp, and size: the cache key of a loaded model."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return tuple((str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in files)


def _find_cached(hub: str) -> Path:
    if not REPO.match(hub):
        raise InputError(f"hub={hub[:120]!r} is not a model name; use OWNER/NAME")
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        raise InputError(
            'hub= requires the huggingface_hub package: pip install "sage-pathology[models]"'
        ) from None
    for file in ("config.json", "model.safetensors", "pytorch_model.bin"):
        found = try_to_load_from_cache(hub, file)
        if isinstance(found, str):
            return Path(found).parent
    raise InputError(
        f"hub={hub!r} is not in this machine's hub cache, and tools do not download; on a "
        f"machine with network access run: hf download {hub}"
    )


class Graph:
    """A model as a graph (ONNX or TorchScript) that maps arrays to its first output."""

    def __init__(self, path: Path, device: str) -> None:
        """Load the graph; raises `InputError` if the file is neither ONNX nor TorchScript."""
        from sage_foundation import nuclei

        self.path, self.device, self.session, self.module = path, device, None, None
        if path.suffix == ".onnx":
            self.session = self._load_onnx(path)
        else:
            nuclei._torchscript(path, device)  # raises an error with the reason
            import torch

            load: Any = torch.jit.load
            self.module = load(str(path), map_location=device).eval()

    @staticmethod
    def _load_onnx(path: Path) -> Any:
        try:
            runtime: Any = importlib.import_module("onnxruntime")
        except ImportError:
            raise InputError(
                f'{path}: ONNX files require onnxruntime: pip install "sage-pathology[onnx]"'
            ) from None
        try:
            return runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime's exceptions have no common base
            raise InputError(f"{path}: not an ONNX model ({str(error)[:160]})") from error

    def __call__(self, *arrays: Any) -> F32:
        """Run the graph on as many arrays as it accepts, and return its first output."""
        try:
            if self.session is not None:
                names = [each.name for each in self.session.get_inputs()]
                inputs = dict(zip(names, arrays, strict=False))
                return np.asarray(self.session.run(None, inputs)[0], dtype=np.float32)
            import torch

            assert self.module is not None
            takes = len(list(self.module.graph.inputs())) - 1
            with torch.inference_mode():
                out = self.module(*(torch.tensor(a).to(self.device) for a in arrays[:takes]))
            first = out[0] if isinstance(out, tuple | list) else out
            return np.asarray(first.float().cpu().numpy(), dtype=np.float32)
        except Exception as error:
            reason = " ".join(str(error).split())[-300:]
            raise InputError(f"{self.path}: failed on its input: {reason}") from error


def load_patch_encoder(
    name: PatchEncoder, given: Any, mpp: float, context: ToolContext
) -> Callable[[U8], F32]:
    """Load a patch encoder by NOVA's name; it maps (n, h, w, 3) patches to (n, dimension).

    `given` has weights, hub and device; `mpp` is the patches' µm per pixel.

    Raises
    ------
    InputError
        If weights are missing or belong to another encoder.
    """
    from mcp_servers.pathology.common import choose_device
    from sage_foundation.models import load_encoder

    spec = SPECS[name]
    if spec.loader == "handcrafted":
        if given.weights is not None or given.hub is not None:
            raise InputError("encoder handcrafted has no weights; omit them")
        own = load_encoder(spec, None, "cpu", mpp)
        return lambda patches: own.encode(own.stack(list(patches)))
    how = AS_GRAPH if name == "conch_v15" else AS_FOLDER
    path = find_weights(given, f"the encoder {name}", spec.source, context, how)
    device = choose_device(given.device, context.device)
    key = ("nova", name, stamp_files(path), device)
    encode: Callable[[U8], F32] = context.share_handle(
        key, lambda: _load_encoder(name, spec, path, device)
    )
    return encode


def _load_encoder(name: str, spec: EncoderSpec, path: Path, device: str) -> Any:
    from sage_foundation.models import load_encoder, resize_patches
    from sage_foundation.zeroshot import embed_images, load_clip

    if path.is_file() and path.suffix in (".onnx", ".pt", ".ts", ".torchscript"):
        graph = Graph(path, device)
        mean, sd = (np.array(part, np.float32)[None, :, None, None] for part in spec.normalize)

        def run(patches: U8) -> F32:
            pixels = resize_patches(np.asarray(patches), spec.patch_px, spec.resize).numpy()
            out = graph((pixels.astype(np.float32) / 255 - mean) / sd)
            if out.shape != (len(pixels), spec.dimension):
                raise InputError(
                    f"{path}: the output has shape {out.shape} for {len(pixels)} patches, but "
                    f"{name} outputs {(len(pixels), spec.dimension)}; the graph belongs "
                    "to another model"
                )
            return out

        return run
    if name == "plip":
        model, _, side = load_clip(path, device)
        return lambda patches: embed_images(model, patches, side, device).float().cpu().numpy()
    if name == "conch_v15":
        raise InputError(f"{path}: CONCH v1.5 {EXPORT.format(inputs='(n, 3, 448, 448)')}")
    own = load_encoder(spec, path, device, spec.mpp)
    return lambda patches: own.encode(own.stack(list(patches)))


@dataclass(frozen=True)
class TextModel:
    """Vision-language model that returns unit vectors for texts and images, and its logit scale.

    `project` maps the encoder's stored features to the text space.
    """

    embed_texts: Any
    embed_images: Any
    scale: float
    project: Any = np.asarray


def load_text_encoder(name: TextEncoder, given: Any, context: ToolContext) -> TextModel:
    """Load PLIP (any CLIP in the transformers layout) or CONCH; see `load_patch_encoder`."""
    from mcp_servers.pathology.common import choose_device

    source = f"Hugging Face {HUGGING_FACE[name]}"
    path = find_weights(given, f"the text encoder {name}", source, context)
    device = choose_device(given.device, context.device)
    key = ("nova text", name, stamp_files(path), device)
    load = _load_plip if name == "plip" else _load_conch
    return context.share_handle(key, lambda: load(path, device))


def _load_plip(path: Path, device: str) -> TextModel:
    from sage_foundation.zeroshot import embed_images, embed_texts, load_clip

    model, tokens, side = load_clip(path, device)
    return TextModel(
        lambda words: embed_texts(model, tokens, list(words), device).float().cpu().numpy(),
        lambda patches: embed_images(model, patches, side, device).float().cpu().numpy(),
        float(model.logit_scale.detach().exp()),
    )


def _load_conch(path: Path, device: str) -> TextModel:
    import torch

    from sage_foundation.models import resize_patches
    from sage_foundation.networks import conch_network

    spec = SPECS["conch_v1"]
    module = conch_network(path, texts=True).eval().to(device)
    words: Any = importlib.import_module("conch.open_clip_custom")
    tokenizer = words.get_tokenizer()
    mean, sd = (torch.tensor(part, device=device)[None, :, None, None] for part in spec.normalize)

    def embed_texts(given: Sequence[str]) -> F32:
        # like the package's `tokenize`, which calls a method that transformers 5 removed
        found = tokenizer(
            list(given), max_length=127, padding="max_length", truncation=True,
            return_token_type_ids=False, return_tensors="pt",
        )["input_ids"]  # fmt: skip
        ids = torch.nn.functional.pad(found, (0, 1), value=tokenizer.pad_token_id)
        with torch.inference_mode():
            out = module.encode_text(ids.to(device))
        return np.asarray(torch.nn.functional.normalize(out, dim=-1).float().cpu().numpy())

    def embed_images(patches: U8) -> F32:
        pixels = resize_patches(patches, spec.patch_px, spec.resize).to(device).float().div_(255)
        with torch.inference_mode():
            out = module.encode_image((pixels - mean) / sd)
        return np.asarray(torch.nn.functional.normalize(out, dim=-1).float().cpu().numpy())

    def project(features: F32) -> F32:
        with torch.inference_mode():
            out = module.visual.forward_project(torch.from_numpy(features).to(device))
        return np.asarray(out.float().cpu().numpy())

    return TextModel(embed_texts, embed_images, float(module.logit_scale.detach().exp()), project)


def encode_slide(
    name: SlideEncoder, features: F32, coords: I64, side: int, given: Any, context: ToolContext
) -> F32:
    """Compute a slide's (dimension,) vector from its tiles' features (n, d).

    `mean` needs no weights. Any other encoder is a graph (ONNX or TorchScript) that takes
    features (1, n, d), upper left corners (1, n, 2) and the tiles' side (1,), both in level-0
    pixels, or the first of these.
    """
    if name == "mean":
        if given.weights is not None or given.hub is not None:
            raise InputError("the mean of the tiles has no weights; omit them")
        return np.asarray(features.mean(axis=0), dtype=np.float32)
    source = f"Hugging Face {HUGGING_FACE[name]}"
    path = find_weights(given, f"the slide encoder {name}", source, context, AS_GRAPH)
    if path.is_dir():
        inputs = "features (1, n, d), coordinates (1, n, 2), side (1,)"
        raise InputError(f"{path}: {name} {EXPORT.format(inputs=inputs)}; mean needs none")
    graph = context.share_handle(
        ("nova slide", name, stamp_files(path)), lambda: Graph(path, "cpu")
    )
    out = graph(features[None], coords[None].astype(np.int64), np.array([side], np.int64))
    if out.size == 0 or out.size != out.shape[-1]:
        raise InputError(f"{path}: the output has shape {out.shape} instead of (1, dimension)")
    return np.asarray(out.reshape(-1), dtype=np.float32)
