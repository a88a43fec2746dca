"""Attention-based multiple instance learning over bags of tile features (Ilse et al. 2018, ICML).

score = w' sum_k a_k h_k,  a_k = softmax_k( u' (tanh(V h_k) * sigmoid(U h_k)) ); several
heads have a u each, and the score is of their concatenated sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcp_servers.slides.arrays import F32, F64, AnyArray, BoolArray
from sage.core.seeds import generator


@dataclass(frozen=True, slots=True)
class MilSettings:
    """Architecture and training settings for the network."""

    hidden: int = 128
    attention: int = 64
    heads: int = 1
    gated: bool = True
    epochs: int = 40
    learning_rate: float = 5e-4
    weight_decay: float = 1e-3
    dropout: float = 0.25
    max_tiles: int = 2048
    patience: int = 10


def build(dimension: int, classes: int, settings: MilSettings) -> Any:
    """Build a network that maps a bag (n, d) to (classes,) logits and (heads, n) attention."""
    import torch
    from torch import nn

    class AttentionMil(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Sequential(
                nn.Linear(dimension, settings.hidden), nn.ReLU(), nn.Dropout(settings.dropout)
            )
            self.tanh = nn.Linear(settings.hidden, settings.attention)
            if settings.gated:
                self.gate = nn.Linear(settings.hidden, settings.attention)
            self.weigh = nn.Linear(settings.attention, settings.heads)
            self.classify = nn.Linear(settings.heads * settings.hidden, classes)

        def forward(self, bag: Any) -> tuple[Any, Any]:
            h = self.embed(bag)
            parts = torch.tanh(self.tanh(h))
            if settings.gated:
                parts = parts * torch.sigmoid(self.gate(h))
            attention = torch.softmax(self.weigh(parts), dim=0).T
            return self.classify((attention @ h).flatten()), attention

    return AttentionMil()


def fit(
    bags: Sequence[F32],
    labels: AnyArray,
    classes: int,
    settings: MilSettings,
    seed: int,
    validation: BoolArray | None = None,
    device: str = "cpu",
    tick: Callable[[float], None] | None = None,
) -> tuple[Any, F32, F32]:
    """Train on bags (n_i, d); return the network and the features' mean and sd.

    Classes are weighted equally. The bags in the mask `validation` are held out, and training
    stops once their loss has not fallen for `patience` epochs; the best weights are kept.

    Parameters
    ----------
    bags : (n_i, d) features of each slide's tiles
    labels : (bags,) classes, 0, 1, ...
    seed : random seed for the initial weights and the order of the bags
    validation : (bags,) mask of held-out bags
    tick : called with the fraction completed, 0 to 1
    """
    import torch

    torch.manual_seed(seed)
    rng = generator(seed)
    held = np.zeros(len(bags), dtype=bool) if validation is None else validation
    train = np.flatnonzero(~held)
    pooled = np.concatenate([bags[i][:500] for i in train.tolist()])
    mean, sd = pooled.mean(axis=0), np.maximum(pooled.std(axis=0), 1e-6)
    network = build(bags[0].shape[1], classes, settings).to(device)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    counts = np.maximum(np.bincount(labels[train], minlength=classes), 1)
    weights = torch.tensor(len(train) / (classes * counts), dtype=torch.float32, device=device)

    def bag(index: int, sample: bool) -> Any:
        features = bags[index]
        if sample and len(features) > settings.max_tiles:
            features = features[rng.permutation(len(features))[: settings.max_tiles]]
        return torch.from_numpy(((features - mean) / sd).astype(np.float32)).to(device)

    def loss_of(index: int, sample: bool) -> Any:
        logits, _ = network(bag(index, sample))
        target = torch.tensor([labels[index]], device=device)
        loss = torch.nn.functional.cross_entropy(logits[None], target)
        return loss * weights[labels[index]]

    best, best_state, waited = np.inf, None, 0
    for epoch in range(settings.epochs):
        network.train()
        for index in rng.permutation(train):
            optimizer.zero_grad()
            loss_of(int(index), True).backward()
            optimizer.step()
        if tick is not None:
            tick((epoch + 1) / settings.epochs)
        if not held.any():
            continue
        network.eval()
        with torch.no_grad():
            own = float(np.mean([float(loss_of(int(i), False)) for i in np.flatnonzero(held)]))
        if own < best - 1e-4:
            best, waited = own, 0
            best_state = {k: v.detach().clone() for k, v in network.state_dict().items()}
        else:
            waited += 1
            if waited >= settings.patience:
                break
    if best_state is not None:
        network.load_state_dict(best_state)
    return network.eval(), mean.astype(np.float32), sd.astype(np.float32)


def predict(network: Any, bag: F32, mean: F32, sd: F32, device: str = "cpu") -> tuple[F64, F64]:
    """Compute class probabilities (classes,) and attention (heads, n), whose rows sum to 1.

    Parameters
    ----------
    bag : (n, d) features of a slide's tiles
    mean, sd : (d,) mean and standard deviation of the training features
    """
    import torch

    with torch.no_grad():
        features = torch.from_numpy(((bag - mean) / sd).astype(np.float32)).to(device)
        logits, attention = network(features)
        return (
            torch.softmax(logits, dim=0).double().cpu().numpy(),
            attention.double().cpu().numpy(),
        )


def auc(labels: AnyArray, scores: AnyArray) -> float:
    """Compute the area under the ROC curve: the fraction of pairs ranked correctly, ties half."""
    from scipy.stats import rankdata

    positive = np.asarray(labels).astype(bool)
    n1, n0 = int(positive.sum()), int((~positive).sum())
    if not n1 or not n0:
        return float("nan")
    ranks = rankdata(scores)
    return float((ranks[positive].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))


def auc_interval(
    labels: AnyArray, scores: AnyArray, groups: AnyArray, seed: int, draws: int = 1000
) -> tuple[float, float]:
    """Compute a 95% AUC interval by resampling groups (patients); NaN if it cannot be computed.

    Parameters
    ----------
    labels : (n,) 0 or 1
    scores : (n,) scores, higher for label 1
    """
    rng = generator(seed)
    labels, scores = np.asarray(labels), np.asarray(scores)
    names = np.unique(groups)
    members = [np.flatnonzero(groups == name) for name in names]
    values = []
    for _ in range(draws):
        picked = np.concatenate([members[i] for i in rng.integers(0, len(names), len(names))])
        value = auc(labels[picked], scores[picked])
        if np.isfinite(value):
            values.append(value)
    if len(values) < draws // 2:
        return float("nan"), float("nan")
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
