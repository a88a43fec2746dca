"""A CLIP model of a few weights, in the transformers layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_clip(folder: Path, side: int = 64, dimension: int = 8) -> tuple[Any, Any]:
    """Write a model with random weights and its tokens; returns the tokens and its config."""
    import torch
    from transformers import CLIPConfig, CLIPModel, CLIPTokenizer

    folder.mkdir()
    words = ["<|startoftext|>", "<|endoftext|>", *"abcdefghijklmnopqrstuvwxyz"]
    words += [f"{c}</w>" for c in "abcdefghijklmnopqrstuvwxyz"]
    (folder / "vocab.json").write_text(json.dumps({w: i for i, w in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokens = CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    tokens.save_pretrained(folder)
    torch.manual_seed(0)
    tower = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
             "num_attention_heads": 2}  # fmt: skip
    text = {**tower, "vocab_size": len(words), "eos_token_id": 1, "bos_token_id": 0,
            "pad_token_id": 1}  # fmt: skip
    config = CLIPConfig(
        text_config=text, vision_config={**tower, "image_size": side, "patch_size": 32},
        projection_dim=dimension,
    )  # fmt: skip
    CLIPModel(config).save_pretrained(folder, safe_serialization=True)
    return tokens, config
