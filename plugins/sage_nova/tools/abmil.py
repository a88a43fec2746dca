"""Attention MIL with multiple heads (Ilse et al. 2018, ICML).

slide vector = concatenation over heads of sum_k a_hk h_k, a_h = softmax_k(w_h'(tanh(V_h
h_k) * sigmoid(U_h h_k))); without the gate, the sigmoid is omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mcp_servers.slides.arrays import F32, F64
from sage.core.seeds import generator

if TYPE_CHECKING:
    from sage_nova.tools.supervised import MilInput


def build_network(dimension: int, classes: int, given: MilInput) -> Any:
    """Build a network that maps a bag (n, d) to (classes,) logits and (heads, n) attention."""
    import torch
    from torch import nn

    heads, width = given.n_heads, given.head_dim

    class MultiHeadAbmil(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Sequential(
                nn.Linear(dimension, given.hidden_dim), nn.ReLU(), nn.Dropout(given.dropout)
            )
            self.tanh = nn.Linear(given.hidden_dim, heads * width)
            self.gate = nn.Linear(given.hidden_dim, heads * width) if given.gated else None
            self.weigh = nn.Parameter(torch.randn(heads, width) / width**0.5)
            self.drop = nn.Dropout(given.dropout)
            self.classify = nn.Linear(heads * given.hidden_dim, classes)

        def forward(self, bag: Any) -> tuple[Any, Any]:
            h = self.embed(bag)
            parts = torch.tanh(self.tanh(h))
            if self.gate is not None:
                parts = parts * torch.sigmoid(self.gate(h))
            parts = self.drop(parts).view(len(bag), heads, width)
            attention = torch.softmax(torch.einsum("nhw,hw->hn", parts, self.weigh), dim=1)
            return self.classify((attention @ h).flatten()), attention

    return MultiHeadAbmil()


def train_network(
    bags: Sequence[F32],
    labels: Sequence[int],
    classes: int,
    given: MilInput,
    seed: int,
    device: str,
    on_progress: Callable[[float], None],
) -> Any:
    """Train on bags (n_i, d), one per step; the seed determines the network.

    `on_progress` is called with the completed fraction, 0 to 1.
    """
    import torch

    torch.manual_seed(seed)
    rng = generator(seed)
    network = build_network(bags[0].shape[1], classes, given).to(device).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=given.learning_rate)
    for epoch in range(given.num_epochs):
        for index in rng.permutation(len(bags)).tolist():
            bag = bags[index]
            if given.sample_during_training and len(bag) > given.num_patches_to_sample:
                bag = bag[rng.permutation(len(bag))[: given.num_patches_to_sample]]
            logits, _ = network(torch.from_numpy(np.ascontiguousarray(bag)).to(device))
            target = torch.tensor([labels[index]], device=device)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(logits[None], target).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        on_progress((epoch + 1) / given.num_epochs)
    return network.eval()


def predict(network: Any, bag: F32, device: str) -> tuple[F64, F32]:
    """Compute (classes,) probabilities and (heads, n) attention, each row of which sums to 1."""
    import torch

    with torch.inference_mode():
        logits, attention = network(torch.from_numpy(np.ascontiguousarray(bag)).to(device))
    probabilities: F64 = torch.softmax(logits.double(), dim=0).cpu().numpy()
    weights: F32 = attention.cpu().numpy()
    return probabilities, weights
