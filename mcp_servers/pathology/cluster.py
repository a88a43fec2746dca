"""Clusters of a slide's tiles by their features, with the tiles nearest to each center."""

from __future__ import annotations

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.errors import InputError
from mcp_servers.pathology.common import SUITE, SlideInput, SlideResult, open_slide
from mcp_servers.registry import InputPath, OutputName, Resources, tool

PALETTE = (
    (230, 25, 75), (60, 180, 75), (255, 225, 25), (0, 130, 200), (245, 130, 48), (145, 30, 180),
    (70, 240, 240), (240, 50, 230), (210, 245, 60), (250, 190, 212), (0, 128, 128), (220, 190, 255),
    (170, 110, 40), (128, 0, 0), (170, 255, 195), (128, 128, 0), (0, 0, 128), (128, 128, 128),
    (255, 215, 180), (0, 0, 0),
)  # fmt: skip


class ClusterInput(SlideInput):
    """Features and how many clusters."""

    features: InputPath = Field(description="HDF5 with features and coords, from encode_tiles")
    clusters: int = Field(default=6, ge=2, le=20)
    components: int = Field(default=20, ge=2, le=256, description="Principal components kept")
    seed: int = 0


class Cluster(BaseModel):
    """One cluster and the corners (level-0 pixels) of the tiles nearest to its center."""

    cluster: int
    tiles: int
    share: float
    exemplars: list[tuple[int, int]]


class ClusterResult(SlideResult):
    """Clusters of one slide."""

    tiles: int
    clusters: list[Cluster]
    silhouette: float | None = Field(
        description="-1 to 1, how apart the clusters lie, on up to 2,000 tiles"
    )
    explained_variance: float = Field(description="Share kept by the principal components")
    table: OutputName
    overlay: OutputName


@tool(
    "cluster_tiles",
    SUITE,
    "1.0.0",
    "Cluster a slide's tiles by their features (PCA, k-means) and color them on the slide.",
    resources=Resources(memory_mb=1024, seconds_per_item=3.0),
)
def cluster_tiles(given: ClusterInput, context: ToolContext) -> ClusterResult:
    """Clusters of one slide; the same seed gives the same clusters."""
    import numpy as np
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.metrics import silhouette_score

    from mcp_servers.formats.hdf5 import read_features
    from mcp_servers.formats.images import draw_squares, write_png
    from mcp_servers.formats.tables import write_columns

    slide = open_slide(given, context)
    features, coords, attributes = read_features(context.input(given.features, "file"))
    if coords is None:
        raise InputError(f"{given.features}: has no coords; encode the tiles with encode_tiles")
    if len(features) < 2 * given.clusters:
        raise InputError(f"{len(features)} tiles are too few for {given.clusters} clusters")
    if (coords < 0).any() or (coords >= [slide.width, slide.height]).any():
        raise InputError(f"{given.features}: coordinates lie outside this slide")
    spread = features.std(axis=0)
    scaled = (features - features.mean(axis=0)) / np.where(spread > 1e-9, spread, 1.0)
    pca = PCA(min(given.components, *scaled.shape), random_state=given.seed)
    reduced = pca.fit_transform(scaled)
    model = KMeans(given.clusters, n_init=4, random_state=given.seed).fit(reduced)
    # the largest cluster is number 0, so that numbers mean the same from run to run
    order = np.argsort(-np.bincount(model.labels_, minlength=given.clusters), kind="stable")
    rank = np.argsort(order)
    labels = rank[model.labels_]
    distances = model.transform(reduced)[:, order]
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
        write_png(path, drawn)
    return ClusterResult(
        slide=slide.name,
        mpp=slide.mpp,
        mpp_source=slide.mpp_source,
        warnings=list(slide.warnings),
        tiles=len(labels),
        clusters=clusters,
        silhouette=silhouette,
        explained_variance=float(pca.explained_variance_ratio_.sum()),
        table=names["csv"],
        overlay=names["overlay.png"],
    )
