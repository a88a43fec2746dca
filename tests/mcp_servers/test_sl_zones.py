"""Places relative to the tumor, and the names of a class that mean tumor."""

from __future__ import annotations

import numpy as np
import pytest

from mcp_servers.pathology.compute.survey import CELL_UM
from mcp_servers.pathology.compute.tumor import zones
from mcp_servers.pathology.tls import place
from mcp_servers.pathology.tumor import means_tumor


@pytest.mark.parametrize(
    ("distance", "where"),
    [(-1e-9, "intratumoral"), (0.0, "intratumoral"), (1e-9, "peritumoral"),
     (500.0, "peritumoral"), (500.1, "distant"), (999.0, "distant"), (float("inf"), "unknown")],
)  # fmt: skip
def test_places_by_the_distance_to_the_border(distance: float, where: str) -> None:
    assert place(distance, 500.0) == where


@pytest.mark.parametrize("cells", [19.5, 20.0, 20.4])
def test_the_band_is_as_wide_as_asked(cells: float) -> None:
    """The center of the twentieth cell beyond the border is 19.5 cells away."""
    tumor = np.zeros((9, 60), dtype=bool)
    tumor[:, :10] = True
    tissue = np.ones_like(tumor)
    tissue[:, 55:] = False
    found = zones(tumor, tissue, cells * CELL_UM)
    assert found["Tumor"].sum() == 9 * 10
    assert found["Peritumoral"].any(axis=0).nonzero()[0].tolist() == list(range(10, 30))
    assert found["Rest"].any(axis=0).nonzero()[0].tolist() == list(range(30, 55))
    assert sum(part.astype(int) for part in found.values()).max() == 1


@pytest.mark.parametrize(
    ("meant", "labels"),
    [
        (True, "tumour|CARCINOMA| tumor |_Tumor_|Tumor: Positive|Tumor : a: b"),
        (False, "non_tumor|nontumor|Tumor-free|tumor_stroma|intratumoral stroma|no tumor"),
        (False, "stroma: tumor||:|precancer|tumors?"),
    ],
)
def test_only_a_whole_name_of_tumor_means_tumor(meant: bool, labels: str) -> None:
    assert [means_tumor(label) for label in labels.split("|")] == [meant] * len(labels.split("|"))
