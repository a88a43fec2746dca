"""Clustering of a slide's tiles by features, with the tiles nearest to each center."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import SUITE, Seed, SlideInput, SlideResult, of_slide, open_slide
from mcp_servers.spec import InputPath, OutputName, Resources, tool
from sage.core.errors import InputError

# the first eight are by Okabe and Ito, distinguishable with any kind of color vision
PALETTE = (
    (0, 114, 178), (213, 94, 0), (0, 158, 115), (240, 228, 66), (204, 121, 167), (86, 180, 233),
    (230, 159, 0), (0, 0, 0), (145, 30, 180), (210, 245, 60), (128, 0, 0), (0, 128, 128),
    (250, 190, 212), (170, 110, 40), (170, 255, 195), (128, 128, 0), (0, 0, 128), (128, 128, 128),
    (255, 215, 180), (230, 25, 75),
)  # fmt: skip
MOST_WARD = 10_000


class ClusterInput(SlideInput):
    """Feature file and number of clusters."""

    features: InputPath = Field(
        description="HDF5 with features and coords, as written by encode_tiles"
    )
    clusters: int = Field(default=6, ge=2, le=20)
    how: Literal["kmeans", "ward"] = Field(
        default="kmeans",
        description=f"ward: hierarchical, at most {MOST_WARD} tiles; better at "
        "finding small groups",
    )
    components: int = Field(default=20, ge=2, le=256, description="Number of principal components")
    seed: Seed = 0


class Cluster(BaseModel):
    """A cluster and the corners (level-0 pixels) of the tiles nearest to its center."""

    cluster: int
    tiles: int
    share: float
    exemplars: list[tuple[int, int]]


class ClusterResult(SlideResult):
    """Clusters of a slide's tiles."""

    tiles: int
    clusters: list[Cluster]
    silhouette: float | None = Field(
        description="Silhouette, -1 to 1: separation of the clusters, computed on up to 2,000 tiles"
    )
    explained_variance: float = Field(
        description="Share of the variance explained by the principal components"
    )
    table: OutputName
    overlay: OutputName


@tool(
    "cluster_tiles",
    SUITE,
    "1.1.0",
    "Cluster a slide's tiles by their features (PCA, k-means or Ward) and color them on it.",
    resources=Resources(memory_mb=1024, seconds_per_item=3.0),
    title="Group the tiles of a slide by appearance",
)
def cluster_tiles(given: ClusterInput, context: ToolContext) -> ClusterResult:
    """Cluster a slide's tiles; the result depends only on the input and the seed."""
    import numpy as np
    from sklearn.cluster import AgglomerativeClustering, KMeans
    from sklearn.decomposition import PCA
    from sklearn.metrics import silhouette_score

    from mcp_servers.formats.images import draw_squares, write_png
    from mcp_servers.formats.tables import write_columns
    from mcp_servers.pathology.drawing import captioned
    from sage_foundation.features import read_features

    slide = open_slide(given, context)
    features, coords, attributes = read_features(context.input(given.features, "file"))
    if coords is None:
        raise InputError(
            f"{given.features}: coords are missing; encode the tiles with encode_tiles"
        )
    if len(features) < 2 * given.clusters:
        raise InputError(f"too few tiles ({len(features)}) for {given.clusters} clusters")
    if (coords < 0).any() or (coords >= [slide.width, slide.height]).any():
        raise InputError(f"{given.features}: some coordinates are outside this slide")
    # features of a large slide are hundreds of MiB, so nothing of their size is copied
    for start in range(0, features.shape[1], 64):
        part = features[:, start : start + 64]
        spread = part.std(axis=0)
        part -= part.mean(axis=0)
        part /= np.where(spread > 1e-9, spread, 1.0)
    pca = PCA(min(given.components, *features.shape), random_state=given.seed, copy=False)
    reduced = pca.fit_transform(features)
    if given.how == "ward":
        if len(reduced) > MOST_WARD:
            raise InputError(
                f"how=ward supports at most {MOST_WARD} tiles, got {len(reduced)}; use kmeans"
            )
        first = AgglomerativeClustering(given.clusters, linkage="ward").fit_predict(reduced)
    else:
        first = KMeans(given.clusters, n_init=4, random_state=given.seed).fit_predict(reduced)
    # the largest cluster is number 0, so that numbers mean the same from run to run
    order = np.argsort(-np.bincount(first, minlength=given.clusters), kind="stable")
    labels = np.argsort(order)[first]
    centers = np.stack([reduced[labels == k].mean(axis=0) for k in range(given.clusters)])
    distances = np.linalg.norm(reduced[:, None, :] - centers[None], axis=2)
    clusters = []
    for number in range(given.clusters):
        own = np.flatnonzero(labels == number)
        nearest = own[np.argsort(distances[own, number])[:5]]
        clusters.append(
            Cluster(
                cluster=number,
                tiles=len(own),
                share=len(own) / len(labels),
                exemplars=[(int(x), int(y)) for x, y in coords[nearest]],
            )
        )
    picks = np.linspace(0, len(labels) - 1, min(2000, len(labels))).astype(int)
    several = len(np.unique(labels[picks])) > 1 and len(np.unique(labels[picks])) < len(picks)
    silhouette = float(silhouette_score(reduced[picks], labels[picks])) if several else None
    names = {k: f"{slide.name}.clusters.{k}" for k in ("csv", "overlay.png")}
    with context.writing(names["csv"]) as path:
        write_columns(path, {"x": coords[:, 0], "y": coords[:, 1], "cluster": labels})
    picture = slide.thumbnail(2048)
    ratio = slide.width / picture.shape[1]
    size = float(attributes.get("patch_size_level0", 256))
    colors = {str(i): PALETTE[i] for i in range(given.clusters)}
    drawn = draw_squares(picture, coords, size, ratio, colors, [str(v) for v in labels], 0.45)
    with context.writing(names["overlay.png"]) as path:
        um = slide.mpp * ratio if slide.mpp else None
        write_png(path, captioned(drawn, um, {f"cluster {name}": c for name, c in colors.items()}))
    return ClusterResult(
        **of_slide(slide),
        warnings=list(slide.warnings),
        tiles=len(labels),
        clusters=clusters,
        silhouette=silhouette,
        explained_variance=float(pca.explained_variance_ratio_.sum()),
        table=names["csv"],
        overlay=names["overlay.png"],
    )
