"""Patch encoder networks, filled from a user's files without running code from them.

A folder has the layout of the hub: config.json and model.safetensors, or
pytorch_model.bin, from which only tensors are read. Files that do not fill every tensor
in the network are refused, because a randomly initialized layer would still produce
plausible-looking features.
"""

from __future__ import annotations

import importlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage.core.errors import InputError
from sage_foundation.specs import GRAPHS, EncoderSpec

if TYPE_CHECKING:
    from mcp_servers.context import ToolContext

TIMM: dict[str, tuple[str, dict[str, Any]]] = {
    "uni2": (
        "vit_giant_patch14_224",
        {
            "patch_size": 14, "depth": 24, "num_heads": 24, "embed_dim": 1536,
            "mlp_ratio": 2.66667 * 2, "no_embed_class": True, "reg_tokens": 8,
            "dynamic_img_size": True, "gated": True,
        },
    ),
    "virchow2": (
        "vit_huge_patch14_224",
        {
            "mlp_ratio": 5.3375, "global_pool": "", "reg_tokens": 4, "dynamic_img_size": True,
            "gated": True,
        },
    ),
    "uni": (
        "vit_large_patch16_224", {"patch_size": 16, "dynamic_img_size": True},
    ),
    "virchow": (
        "vit_huge_patch14_224",
        {"mlp_ratio": 5.3375, "global_pool": "", "dynamic_img_size": True, "gated": True},
    ),
    "gigapath": (
        "vit_giant_patch14_dinov2",
        {
            "patch_size": 16, "embed_dim": 1536, "depth": 40, "num_heads": 24,
            "mlp_ratio": 5.33334, "global_pool": "token",
        },
    ),
    "h-optimus-0": ("vit_giant_patch14_reg4_dinov2", {"global_pool": "token"}),
    "h-optimus-1": ("vit_giant_patch14_reg4_dinov2", {"global_pool": "token"}),
}  # fmt: skip
"""Architectures and arguments from the model cards; gated variants use SwiGLU with SiLU."""
TRANSFORMERS = {"phikon": ("vit", "ViTModel"), "phikon-v2": ("dinov2", "Dinov2Model")}
"""Model type in config.json and class for encoders that transformers builds."""
LEADS_ELSEWHERE = ("transformers_weights", "attn_implementation", "_attn_implementation")
"""Keys in config.json that make transformers load weights or code from elsewhere."""


def load_network(spec: EncoderSpec, weights: Path) -> Any:
    """Load a `torch.nn.Module` that maps normalized patches to features (n, dimension).

    Raises
    ------
    InputError
        If the package that builds it is missing, or the files are not this encoder's weights.
    """
    make = {
        "transformers": _transformers, "timm": _timm, "conch": _conch, "clip": _clip,
        "graph": _refuse_code,
    }[spec.loader]  # fmt: skip
    if weights.is_file() and weights.suffix in GRAPHS:
        return _graph(spec, weights)
    return add_pooling(make(spec, weights), spec)


def timm_network(name: str) -> Any:
    """Build the architecture of a timm encoder on the default device without weights."""
    import torch

    try:
        timm: Any = importlib.import_module("timm")
    except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision of another torch
        raise InputError(
            f"encoder {name} requires the timm package, which could not be imported "
            f'({_short(error)}): pip install "sage-pathology[encoders]" (docs/slides.md, '
            "Encoders)"
        ) from error
    architecture, given = TIMM[name]
    options = dict(given)
    if options.pop("gated", False):
        options |= {"mlp_layer": timm.layers.SwiGLUPacked, "act_layer": torch.nn.SiLU}
    return timm.create_model(
        architecture, pretrained=False, img_size=224, init_values=1e-5, num_classes=0, **options
    )


def add_pooling(module: Any, spec: EncoderSpec) -> Any:
    """Wrap `module` with the token pooling specified on the encoder's card."""
    import torch

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = module

        def forward(self, batch: Any) -> Any:
            if spec.loader == "conch":
                return module.encode_image(batch, proj_contrast=False, normalize=False)
            if spec.loader == "transformers":
                return module(pixel_values=batch).last_hidden_state[:, 0]
            tokens = module(batch)
            if spec.name == "virchow":  # class token and mean of the patches
                return torch.cat([tokens[:, 0], tokens[:, 1:].mean(1)], dim=-1)
            if spec.name == "virchow2":  # class token and mean of the patches, registers left out
                return torch.cat([tokens[:, 0], tokens[:, 5:].mean(1)], dim=-1)
            return tokens

    return Pooled()


def from_folder(kind: Any, folder: Path, model_type: str) -> Any:
    """Load a model from a folder in the layout of transformers, reading every tensor from it.

    `kind` is the class that loads the model, and `model_type` its required name in
    config.json. The pooler is exempt: it is not used, and Phikon is published without it.
    Raises `InputError` if the folder is not such a model, points to files other than
    config.json and model.safetensors, or lacks tensors.
    """
    from safetensors import SafetensorError

    _check_config(folder, model_type)
    logging: Any = importlib.import_module("transformers.utils.logging")
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # its report of missing tensors is checked below
    logging.disable_progress_bar()
    try:
        module, report = kind.from_pretrained(
            str(folder),
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except (
        OSError,
        ValueError,
        RuntimeError,
        LookupError,
        TypeError,
        AttributeError,
        ImportError,
        ArithmeticError,
        SafetensorError,
    ) as error:  # config.json is the user's, and transformers uses its numbers without validation
        raise InputError(f"{folder}: weights cannot be loaded: {_short(error)}") from error
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()
    missing = sorted(k for k in report["missing_keys"] if not k.startswith("pooler."))
    if missing:
        raise InputError(
            f"{folder}: model.safetensors does not match the architecture in config.json: "
            f"{len(missing)} tensors are missing, starting with {missing[0]}"
        )
    return module


def _check_config(folder: Path, model_type: str) -> None:
    """Raise `InputError` unless the folder is a model of this type with a single weights file.

    transformers follows file names in a shard index, config.json, or adapter_config.json,
    even out of the folder, so all such references are refused.
    """
    if not folder.is_dir() or not (folder / "config.json").is_file():
        raise InputError(
            f"{folder}: not a model folder; config.json and model.safetensors are required"
        )
    index = next(iter(sorted(folder.glob("*.index.json"))), None)
    if index is not None:
        raise InputError(
            f"{index}: sharded weights are not supported; merge them into one model.safetensors "
            "(transformers: "
            f'AutoModel.from_pretrained("{folder.name}").save_pretrained("merged", '
            'max_shard_size="100GB")), or delete the index if model.safetensors is complete'
        )
    if (folder / "adapter_config.json").exists():
        raise InputError(
            f"{folder / 'adapter_config.json'}: adapters are not supported; merge them into the "
            "model (peft: merge_and_unload, then save_pretrained)"
        )
    config = _json_object(folder / "config.json")
    found = config.get("model_type")
    if found != model_type:
        raise InputError(
            f'{folder}: config.json has model_type {json.dumps(found)[:60]}, but "{model_type}" '
            "is required; these are the weights of another model"
        )
    led = [k for k in LEADS_ELSEWHERE if config.get(k) is not None]
    if led:
        raise InputError(
            f"{folder / 'config.json'}: sets {led[0]}, which SAGE does not support; remove this key"
        )
    tokens = folder / "tokenizer_config.json"
    named = _json_object(tokens).get("fast_tokenizer_files") if tokens.is_file() else None
    if named is not None and not all(
        isinstance(item, str) and item == Path(item).name and "\\" not in item
        for item in (named if isinstance(named, list) else [None])
    ):
        raise InputError(f"{tokens}: fast_tokenizer_files may list only files in this folder")


def _json_object(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise InputError(f"{file}: not readable JSON: {_short(error)}") from error
    if not isinstance(found, dict):
        raise InputError(f"{file}: not a JSON object")
    return found


def _transformers(spec: EncoderSpec, weights: Path) -> Any:
    import transformers

    model_type, kind = TRANSFORMERS[spec.name]
    module = from_folder(getattr(transformers, kind), weights, model_type)
    config = module.config
    if config.hidden_size != spec.dimension:
        raise InputError(
            f"{weights}: the model outputs {config.hidden_size} features per patch, but "
            f"{spec.name} outputs {spec.dimension}; these are the weights of another model"
        )
    side, channels = config.image_size, config.num_channels
    if channels != 3 or (spec.name == "phikon" and side != spec.patch_px):
        raise InputError(
            f"{weights}: the model takes images of {side} px with {channels} channels, but "
            f"{spec.name} takes {spec.patch_px} px with 3 channels; these are the weights of "
            "another model"
        )
    return module


def _timm(spec: EncoderSpec, weights: Path) -> Any:
    import torch

    with torch.device("meta"):  # no memory and no random numbers for what is filled at once
        module = timm_network(spec.name)
    file = weights_file(weights)
    _fill(module, read_tensors(file), file)
    return module


def _clip(spec: EncoderSpec, weights: Path) -> Any:
    import torch
    from transformers import CLIPModel

    model = from_folder(CLIPModel, weights, "clip")
    config = model.config
    if (config.projection_dim, config.vision_config.image_size) != (spec.dimension, spec.patch_px):
        raise InputError(
            f"{weights}: {spec.name} takes images of {spec.patch_px} px and outputs "
            f"{spec.dimension} features; these are the weights of another model"
        )

    class Images(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vision_model, self.project = model.vision_model, model.visual_projection

        def forward(self, batch: Any) -> Any:
            out = self.project(self.vision_model(pixel_values=batch).pooler_output)
            return torch.nn.functional.normalize(out, dim=-1)

    return Images()


def _refuse_code(spec: EncoderSpec, weights: Path) -> Any:
    side = spec.patch_px
    raise InputError(
        f"{weights}: {spec.name} is published as Python code, which SAGE does not run; export its "
        f"graph once (torch.jit.trace or torch.onnx.export, input (n, 3, {side}, {side})) and pass "
        "that file as weights"
    )


def _graph(spec: EncoderSpec, weights: Path) -> Any:
    import torch

    class Graph(torch.nn.Module):
        def forward(self, batch: Any) -> Any:
            device = str(batch.device)
            if device not in graphs:
                graphs[device] = load_graph(weights, device)
            out = graphs[device](batch.cpu().numpy())
            if out.shape != (len(batch), spec.dimension):
                raise InputError(
                    f"{weights}: the output has shape {out.shape} for {len(batch)} patches, but "
                    f"{spec.name} outputs {(len(batch), spec.dimension)}; the graph belongs to "
                    "another model"
                )
            return torch.from_numpy(out)

    graphs = {"cpu": load_graph(weights, "cpu")}
    return Graph()


def load_graph(path: Path, device: str) -> Callable[..., Any]:
    """Load a graph (ONNX or TorchScript) as a function from as many arrays as it accepts.

    It returns the graph's first output as float32. Raises `InputError` for other files, and when
    the graph fails on its input.
    """
    import numpy as np

    from sage_foundation.nuclei import open_graph

    answer, _ = open_graph(path, device)

    def run(*arrays: Any) -> Any:
        try:
            out = answer(*arrays)
            out = next(iter(out.values())) if isinstance(out, dict) else out
            out = out[0].float().cpu() if isinstance(out, tuple | list) else out
            return np.asarray(out, dtype=np.float32)
        except Exception as error:
            raise InputError(f"{path}: failed on its input: {_short(error)}") from error

    return run


def _conch(spec: EncoderSpec, weights: Path) -> Any:
    try:
        factory: Any = importlib.import_module("conch.open_clip_custom.factory")
        model: Any = importlib.import_module("conch.open_clip_custom.coca_model")
    except (ImportError, RuntimeError) as error:
        raise InputError(
            "encoder conch requires the conch package, which is not on PyPI: pip install "
            "git+https://github.com/mahmoodlab/CONCH.git (docs/slides.md, Encoders)"
        ) from error
    # the package's own loader would unpickle the file and skip tensors that do not fit
    config = json.loads((Path(factory.CFG_DIR) / "conch_ViT-B-16.json").read_text("utf-8"))
    config.pop("custom_text", None)
    module = model.CoCa(**config)
    file = weights_file(weights)
    state = {k.removeprefix("module."): v for k, v in read_tensors(file).items()}
    own = module.visual.state_dict().keys()
    inside = {k: v for k, v in _below("visual.", state).items() if k in own}
    unused = ("attn_pool_caption.", "ln_caption.", "proj_")
    _fill(module.visual, inside, file, unused)
    return module


def _below(prefix: str, state: dict[str, Any]) -> dict[str, Any]:
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def check_weights(weights: Path, context: ToolContext) -> tuple[tuple[str, int, int], ...]:
    """Return the name, time stamp, and size of each weights file: the key of a cached network.

    The targets of links are recorded as separate inputs, because a folder's hash does not
    cover links. Raises `InputError` if a target is outside the roots.
    """
    files = sorted(weights.rglob("*")) if weights.is_dir() else [weights]
    found = []
    for file in files:
        if file.is_symlink():
            context.input(file)
        stat = file.stat()
        found.append((str(file), stat.st_mtime_ns, stat.st_size))
    return tuple(found)


def weights_file(weights: Path) -> Path:
    """Find the weights file in a folder, or return the file itself.

    Raises `InputError` if there is none.
    """
    if weights.is_file():
        return weights
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (weights / name).is_file():
            return weights / name
    raise InputError(f"{weights}: contains neither model.safetensors nor pytorch_model.bin")


def read_tensors(file: Path) -> dict[str, Any]:
    """Read the tensors in a safetensors file, or in a .bin file that contains nothing else."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        state = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{file}: not loaded because it contains code or objects besides tensors, or is not "
            "a PyTorch file"
        ) from error
    except (RuntimeError, ValueError, OSError, EOFError, KeyError, SafetensorError) as error:
        raise InputError(f"{file}: cannot be read; it may be truncated: {_short(error)}") from error
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise InputError(f"{file}: not a table of named tensors")
    return state


def _fill(module: Any, state: dict[str, Any], file: Path, unused: tuple[str, ...] = ()) -> None:
    """Copy all tensors in `state` into `module`; raises `InputError` if they do not fit.

    Tensors with a prefix in `unused` may be missing, since features do not depend on them.
    """
    try:
        found = module.load_state_dict(state, strict=not unused, assign=True)
    except (RuntimeError, ValueError, TypeError) as error:
        raise InputError(f"{file}: does not match the encoder: {_short(error)}") from error
    missing = [k for k in found.missing_keys if not k.startswith(unused)] if unused else []
    if missing:
        raise InputError(f"{file}: does not match the encoder: {', '.join(missing[:3])} missing")
    module.float()  # some are published in half precision


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
