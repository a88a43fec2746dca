"""Which names of a class mean tumor."""

from __future__ import annotations

import pytest

from mcp_servers.pathology.tumor import means_tumor


@pytest.mark.parametrize(
    "label",
    ["tumour", "CARCINOMA", " tumor ", "_Tumor_", "Tumor: Positive", "Tumor : a: b"],
)  # fmt: skip
def test_a_name_that_means_tumor(label: str) -> None:
    assert means_tumor(label)


@pytest.mark.parametrize(
    "label",
    ["non_tumor", "nontumor", "Tumor-free", "tumor_stroma", "intratumoral stroma", "no tumor",
     "stroma: tumor", "", ":", "precancer", "tumors?"],
)  # fmt: skip
def test_a_name_that_only_holds_the_word_does_not(label: str) -> None:
    assert not means_tumor(label)
