"""Patch encoder specifications, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sage.core.errors import InputError

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HOPTIMUS = ((0.707223, 0.578729, 0.703617), (0.211883, 0.230117, 0.177517))
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
Loader = Literal["handcrafted", "transformers", "timm", "conch", "clip", "graph"]
"""Form of an encoder's weights. Any network can be a graph instead; "graph" requires it."""
GRAPHS = (".onnx", ".pt", ".ts", ".torchscript")
Resize = Literal["bilinear", "bicubic"]
Precision = Literal["float32", "float16", "bfloat16"]


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """A patch encoder.

    `mpp` is the resolution that it was trained at, and `source` is where users get its
    weights. Patches of a size other than `patch_px` are resized according to `resize`;
    `precision` is used by autocast on a GPU (on a CPU, all encoders run in float32). These
    two fields and `normalize` follow the model card. `memory_mb` is the memory for encoding a
    slide on a CPU, measured for handcrafted, uni2, virchow2, and h-optimus (docs/slides.md)
    and estimated from the weights' size for the rest.
    """

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
    resize: Resize = "bilinear"
    precision: Precision = "float16"
    memory_mb: int = 2048


ENCODERS = {
    spec.name: spec
    for spec in (
        EncoderSpec(
            "handcrafted", 81, 256, 0.5, "handcrafted", "Apache-2.0", "built in", "none", "none",
            memory_mb=1024,
        ),
        EncoderSpec(
            "phikon", 768, 224, 0.5, "transformers", "Owkin non-commercial",
            "Hugging Face owkin/phikon", "TCGA, 16 cancers", "trained on TCGA",
        ),
        EncoderSpec(
            "phikon-v2", 1024, 224, 0.5, "transformers", "Owkin non-commercial",
            "Hugging Face owkin/phikon-v2", "public cohorts, TCGA among them", "trained on TCGA",
            memory_mb=3072,
        ),
        EncoderSpec(
            "uni2", 1536, 224, 0.5, "timm", "CC-BY-NC-ND-4.0, gated",
            "Hugging Face MahmoodLab/UNI2-h", "Mass General Brigham slides", "none stated",
            precision="bfloat16", memory_mb=4608,
        ),
        EncoderSpec(
            "conch", 512, 448, 0.5, "conch", "CC-BY-NC-ND-4.0, gated",
            "Hugging Face MahmoodLab/conch", "image-caption pairs of publications and teaching",
            "none stated", CLIP, "bicubic", "float32", memory_mb=3072,
        ),
        EncoderSpec(
            "uni", 1024, 224, 0.5, "timm", "CC-BY-NC-ND-4.0, gated",
            "Hugging Face MahmoodLab/UNI", "see the model's card", "none stated", memory_mb=4096,
        ),
        EncoderSpec(
            "conch-v15", 768, 448, 0.5, "graph", "CC-BY-NC-ND-4.0, gated",
            "Hugging Face MahmoodLab/TITAN", "see the model's card", "none stated", memory_mb=4096,
        ),
        EncoderSpec(
            "virchow", 2560, 224, 0.5, "timm", "Apache-2.0, gated",
            "Hugging Face paige-ai/Virchow", "see the model's card", "none stated",
            resize="bicubic", memory_mb=4608,
        ),
        EncoderSpec(
            "gigapath", 1536, 224, 0.5, "timm", "Prov-GigaPath research, gated",
            "Hugging Face prov-gigapath/prov-gigapath", "see the model's card", "none stated",
            resize="bicubic", memory_mb=6144,
        ),
        EncoderSpec(
            "plip", 512, 224, 0.5, "clip", "see the model's card", "Hugging Face vinid/plip",
            "see the model's card", "none stated", CLIP, "bicubic", "float32", memory_mb=4096,
        ),
        EncoderSpec(
            "virchow2", 2560, 224, 0.5, "timm", "CC-BY-NC-ND-4.0, gated",
            "Hugging Face paige-ai/Virchow2", "Memorial Sloan Kettering slides", "none stated",
            resize="bicubic", memory_mb=4608,
        ),
        EncoderSpec(
            "h-optimus-0", 1536, 224, 0.5, "timm", "Apache-2.0",
            "Hugging Face bioptimus/H-optimus-0", "proprietary slides", "none stated", HOPTIMUS,
            memory_mb=6144,
        ),
        EncoderSpec(
            "h-optimus-1", 1536, 224, 0.5, "timm", "CC-BY-NC-ND-4.0, gated",
            "Hugging Face bioptimus/H-optimus-1", "proprietary slides", "none stated", HOPTIMUS,
            memory_mb=6144,
        ),
    )
}  # fmt: skip


def encoder_spec(name: str) -> EncoderSpec:
    """Look up the encoder called `name`; raises `InputError`, which lists the known names."""
    if name not in ENCODERS:
        raise InputError(f'unknown encoder "{name}"; available: {", ".join(ENCODERS)}')
    return ENCODERS[name]
