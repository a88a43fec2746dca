"""Feature space of a slide's tiles: reductions, Leiden clusters, exemplars, and images."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Seed
from mcp_servers.spec import OutputName, Resources
from sage.core.errors import InputError
from sage_nova.tools import store
from sage_nova.tools.common import (
    FEATURES,
    KEY,
    TILES,
    TISSUES,
    NovaResult,
    WsiInput,
    nova_tool,
    write_json_output,
)

COMPONENTS = 50


class SpaceInput(WsiInput):
    """Tile features to use."""

    patch_features_key: str = Field(default=FEATURES, pattern=KEY)


class ReduceInput(SpaceInput):
    """Features and the reductions to compute."""

    scale_data: bool = Field(default=True, description="Scale each feature to unit variance")
    compute_neighbors: bool = True
    n_neighbors: int = Field(default=15, ge=2, le=200)
    neighbors_key_added: str = Field(default="neighbors", pattern=KEY)
    compute_pca: bool = True
    pca_key_added: str = Field(default="X_pca", pattern=KEY)
    compute_umap: bool = Field(default=False, description="Requires the package umap-learn")
    umap_key_added: str = Field(default="X_umap", pattern=KEY)
    compute_tsne: bool = False
    tsne_key_added: str = Field(default="X_tsne", pattern=KEY)
    seed: Seed = 42


class ReduceResult(NovaResult):
    """Keys added to the feature table."""

    path_to_zarr: OutputName
    keys_added: list[str]
    explained_variance: float = Field(
        description="Share of variance explained by the principal components"
    )


@nova_tool(
    "reduce_single_wsi_patch_feature_space_tool",
    Resources(cpu=2, memory_mb=2048, seconds_per_item=10.0),
)
def reduce_space(given: ReduceInput, context: ToolContext) -> ReduceResult:
    """Reduce dimensionality of patch features using PCA, UMAP, or t-SNE.

    Also computes the graph of neighbors that Leiden needs; kept in obsm and obsp of the table.
    """
    import numpy as np
    from sklearn.decomposition import PCA

    slide, job, held = store.open_store(given, context)
    table = store.get_element(held, "features", given.patch_features_key)
    features = np.asarray(table.X, dtype=np.float64)
    if len(features) < 5:
        raise InputError(f"too few tiles ({len(features)}); a reduction requires at least 5")
    spread = features.std(axis=0) if given.scale_data else np.ones(features.shape[1])
    scaled = (features - features.mean(axis=0)) / np.where(spread > 1e-9, spread, 1.0)
    pca = PCA(min(COMPONENTS, len(scaled) - 1, scaled.shape[1]), random_state=given.seed)
    reduced = pca.fit_transform(scaled)
    added = []
    if given.compute_pca:
        table.obsm[given.pca_key_added] = reduced
        table.uns[given.pca_key_added] = {
            "variance": pca.explained_variance_,
            "variance_ratio": pca.explained_variance_ratio_,
        }
        added.append(given.pca_key_added)
    if given.compute_neighbors:
        count = min(given.n_neighbors, len(features) - 1)
        key = f"{given.neighbors_key_added}_connectivities"
        table.obsp[key] = build_neighbor_graph(reduced, count)
        table.uns[given.neighbors_key_added] = {
            "connectivities_key": key,
            "params": {"n_neighbors": count, "method": "jaccard", "metric": "euclidean"},
        }
        added.append(given.neighbors_key_added)
    if given.compute_umap:
        table.obsm[given.umap_key_added] = _reduce_umap(reduced, given.n_neighbors, given.seed)
        added.append(given.umap_key_added)
    if given.compute_tsne:
        table.obsm[given.tsne_key_added] = _reduce_tsne(reduced, given.seed)
        added.append(given.tsne_key_added)
    return ReduceResult(
        path_to_zarr=store.save_store(job, slide, {given.patch_features_key: table}, context),
        keys_added=added,
        explained_variance=float(pca.explained_variance_ratio_.sum()),
        operations_log=[f"{', '.join(added)} of {len(features)} tiles"],
    )


def build_neighbor_graph(reduced: Any, count: int) -> Any:
    """Build a symmetric sparse graph with `count` nearest neighbors.

    Edges are weighted by the Jaccard overlap of neighborhoods (Levine et al. 2015,
    PhenoGraph).
    """
    from scipy import sparse
    from sklearn.neighbors import kneighbors_graph

    near = kneighbors_graph(reduced, count, mode="connectivity", include_self=False)
    own = near + sparse.identity(near.shape[0], format="csr")
    shared = (own @ own.T).multiply(near)
    total = 2 * (count + 1)
    shared.data = shared.data / (total - shared.data)
    return shared.maximum(shared.T).tocsr()


def _reduce_tsne(reduced: Any, seed: int) -> Any:
    from sklearn.manifold import TSNE

    perplexity = min(30.0, max(2.0, (len(reduced) - 1) / 3))
    return TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(reduced)


def _reduce_umap(reduced: Any, neighbors: int, seed: int) -> Any:
    import importlib

    try:
        umap: Any = importlib.import_module("umap")
    except ImportError:
        raise InputError(
            "compute_umap requires the umap-learn package (BSD): pip install umap-learn; "
            "compute_tsne and compute_pca work without it"
        ) from None
    count = min(neighbors, len(reduced) - 1)
    return umap.UMAP(n_neighbors=count, random_state=seed).fit_transform(reduced)


class LeidenInput(SpaceInput):
    """Resolution and keys for clustering."""

    leiden_resolution: float = Field(default=0.75, gt=0, le=100)
    leiden_key: str | None = Field(
        default=None, pattern=KEY, description="Key of the clusters; default: leiden_RESOLUTION"
    )
    neighbors_key_added: str = Field(default="neighbors", pattern=KEY)
    seed: Seed = 42


class LeidenResult(NovaResult):
    """Clusters and their names."""

    leiden_key: str
    n_leiden_clusters: int
    leiden_clusters: list[str]
    tiles_per_cluster: dict[str, int]
    path_to_zarr: OutputName


@nova_tool("run_leiden_clustering_tool", Resources(memory_mb=2048, seconds_per_item=5.0))
def run_leiden(given: LeidenInput, context: ToolContext) -> LeidenResult:
    """Perform Leiden clustering on patch features for morphological analysis.

    Traag, Waltman and van Eck 2019, with modularity, on the stored graph. The clusters are stored
    as a category in obs[leiden_key]; the largest is 0.
    """
    import numpy as np
    import pandas as pd

    from sage_foundation.cluster import PALETTE

    slide, job, held = store.open_store(given, context)
    table = store.get_element(held, "features", given.patch_features_key)
    graph = f"{given.neighbors_key_added}_connectivities"
    if graph not in table.obsp:
        raise InputError(
            f'the features have no graph "{graph}"; first run '
            "reduce_single_wsi_patch_feature_space_tool with compute_neighbors=true"
        )
    labels = cluster_graph(table.obsp[graph], given.leiden_resolution, given.seed)
    key = given.leiden_key or f"leiden_{given.leiden_resolution:g}"
    names = [str(i) for i in range(int(labels.max()) + 1)]
    table.obs[key] = pd.Categorical([str(i) for i in labels], categories=names)
    table.uns[f"{key}_colors"] = np.array(
        ["#{:02x}{:02x}{:02x}".format(*PALETTE[i % len(PALETTE)]) for i in range(len(names))]
    )
    counts = np.bincount(labels)
    return LeidenResult(
        leiden_key=key,
        n_leiden_clusters=len(names),
        leiden_clusters=names,
        tiles_per_cluster={name: int(n) for name, n in zip(names, counts, strict=True)},
        path_to_zarr=store.save_store(job, slide, {given.patch_features_key: table}, context),
        operations_log=[f"{len(names)} clusters at resolution {given.leiden_resolution:g}"],
    )


def cluster_graph(graph: Any, resolution: float, seed: int) -> Any:
    """Cluster a symmetric weighted graph, with the largest cluster as 0; returns (n,) labels.

    Isolated nodes remain singletons.
    """
    import graspologic_native
    import numpy as np
    from scipy import sparse

    upper = sparse.triu(graph, k=1).tocoo()
    links = [
        (str(a), str(b), float(w))
        for a, b, w in zip(upper.row.tolist(), upper.col.tolist(), upper.data.tolist(), strict=True)
        if w > 0
    ]
    found: dict[str, int] = {}
    if links:
        _, found = graspologic_native.leiden(
            links, resolution=resolution, iterations=5, seed=seed, trials=3
        )
    lone = max(found.values(), default=-1) + 1
    raw = np.array([found.get(str(i), lone + i) for i in range(graph.shape[0])])
    _, raw = np.unique(raw, return_inverse=True)
    order = np.argsort(-np.bincount(raw), kind="stable")
    return np.argsort(order)[raw]


class PatchPlace(BaseModel):
    """Corner and side of a tile, in level-0 pixels."""

    patch_id: int
    top_left_x: int
    top_left_y: int
    base_width: int
    base_height: int
    base_level: int = 0


class TopInput(SpaceInput):
    """Clusters and the number of tiles to return for each."""

    tile_key: str = Field(default=TILES, pattern=KEY)
    leiden_resolution: float = Field(default=0.75, gt=0, le=100)
    leiden_key: str | None = Field(default=None, pattern=KEY)
    top_k: int = Field(default=5, ge=1, le=1000)


class TopResult(NovaResult):
    """Tiles nearest to each cluster center."""

    closest_patches_coords: dict[str, list[PatchPlace]]
    top_k_save_path: OutputName
    top_k: int
    leiden_key: str


@nova_tool(
    "get_topk_close_patch_coords_to_embedding_space_clusters_tool", Resources(memory_mb=1024)
)
def top_patches(given: TopInput, context: ToolContext) -> TopResult:
    """Get coordinates of top-k patches closest to embedding space cluster centers, as JSON.

    A center is the mean feature vector of a Leiden cluster; distances are Euclidean.
    """
    slide, job, held = store.open_store(given, context)
    table = store.get_element(held, "features", given.patch_features_key)
    tiles = store.get_element(held, "tiles", given.tile_key)
    key = find_clusters(table, given.leiden_key, given.leiden_resolution)
    corners, side = store.tile_corners(tiles), store.tile_side(tiles)
    found = {
        f"cluster_{name}": [
            PatchPlace(
                patch_id=int(i), top_left_x=int(corners[i, 0]), top_left_y=int(corners[i, 1]),
                base_width=side, base_height=side,
            )
            for i in near[: given.top_k]
        ]
        for name, near in rank_exemplars(table, key).items()
    }  # fmt: skip
    plain = {name: [place.model_dump() for place in places] for name, places in found.items()}
    name = job.out(f"{slide.name}_{key}_top{given.top_k}.json")
    write_json_output(context, name, plain)
    return TopResult(
        closest_patches_coords=found, top_k_save_path=name, top_k=given.top_k, leiden_key=key
    )


def rank_exemplars(table: Any, key: str) -> dict[str, Any]:
    """Rank each cluster's tiles by distance to its center; return tile indices by cluster."""
    import numpy as np

    features, labels = np.asarray(table.X, dtype=np.float64), table.obs[key].astype(str).to_numpy()
    found = {}
    for name in map(str, table.obs[key].cat.categories):
        own = np.flatnonzero(labels == name)
        away = np.linalg.norm(features[own] - features[own].mean(axis=0), axis=1)
        found[name] = own[np.argsort(away, kind="stable")]
    return found


def find_clusters(table: Any, key: str | None, resolution: float) -> str:
    """Find the key of the clusters; raises `InputError` if there are none under it."""
    named = key or f"leiden_{resolution:g}"
    if named not in table.obs:
        raise InputError(
            f'the features have no clusters "{named}"; run run_leiden_clustering_tool first'
        )
    return named


class ShowInput(WsiInput):
    """Slide overlays to show."""

    add_contours: bool = False
    add_tiles: bool = False
    tissue_key: str = Field(default=TISSUES, pattern=KEY)
    tile_key: str = Field(default=TILES, pattern=KEY)
    tissue_id: int | None = Field(
        default=None, ge=0, description="Draw only this region and its tiles"
    )
    color_tiles_by: str | None = Field(
        default=None, pattern=KEY, description="Column of obs by which to color the tiles"
    )
    patch_features_key: str | None = Field(default=None, pattern=KEY)
    max_px: int = Field(
        default=2048, ge=64, le=8192, description="Longer side of the picture, in pixels"
    )


class PictureResult(NovaResult):
    """Image file that was written."""

    visualization_save_path: OutputName


@nova_tool("visualize_wsi_tool", Resources(memory_mb=1024, seconds_per_item=1.0))
def visualize_wsi(given: ShowInput, context: ToolContext) -> PictureResult:
    """Create visualizations of WSI with optional tissue contours and tile overlays."""
    from mcp_servers.formats.images import write_png
    from mcp_servers.pathology.drawing import GREEN, captioned

    slide, job = given.open(context)
    if given.color_tiles_by is not None and given.patch_features_key is None:
        raise InputError(
            "color_tiles_by requires patch_features_key, the table that contains the column"
        )
    picture = slide.thumbnail(given.max_px)
    legend: dict[str, Any] = {}
    if given.add_contours or given.add_tiles or given.color_tiles_by:
        held = store.load_store(job, slide)
        if given.add_contours:
            frame = store.get_element(held, "tissues", given.tissue_key)
            if given.tissue_id is not None:
                frame = frame[select_region(frame, given.tissue_id)]
            picture = _draw_outlines(picture, frame, slide.width / picture.shape[1])
            legend["tissue"] = GREEN
        if given.add_tiles or given.color_tiles_by:
            tiles = store.get_element(held, "tiles", given.tile_key)
            labels = None
            if given.color_tiles_by is not None and given.patch_features_key is not None:
                table = store.get_element(held, "features", given.patch_features_key)
                if given.color_tiles_by not in table.obs:
                    have = ", ".join(table.obs.columns)
                    raise InputError(
                        f'unknown obs column "{given.color_tiles_by}"; available columns: {have}'
                    )
                labels = table.obs[given.color_tiles_by].astype(str).to_numpy()
            picture, colors = draw_tiles(slide, picture, tiles, labels, given.tissue_id)
            legend |= colors
    um = None if slide.mpp is None else slide.mpp * slide.width / picture.shape[1]
    name = job.out(f"{slide.name}_visualization.png")
    with context.writing(name) as path:
        write_png(path, captioned(picture, um, legend))
    return PictureResult(visualization_save_path=name)


def _draw_outlines(picture: Any, frame: Any, ratio: float) -> Any:
    import numpy as np

    from mcp_servers.pathology.drawing import GREEN, draw_outlines
    from mcp_servers.slides.geometry import Polygon

    polygons = [
        Polygon(np.asarray(g.exterior.coords), tuple(np.asarray(h.coords) for h in g.interiors))
        for g in frame.geometry
    ]
    return draw_outlines(picture, polygons, ratio, GREEN)


def select_region(frame: Any, tissue_id: int) -> Any:
    """Return a mask of the (n,) rows in a tissue region; raises `InputError` if there are none."""
    own = (frame["tissue_id"] == tissue_id).to_numpy()
    if not own.any():
        have = ", ".join(map(str, sorted(set(frame["tissue_id"].tolist()))[:30]))
        raise InputError(f"tissue_id {tissue_id}: no such region (regions: {have})")
    return own


def draw_tiles(
    slide: Any, picture: Any, tiles: Any, labels: Any, tissue_id: int | None
) -> tuple[Any, dict[str, Any]]:
    """Draw tiles over an overview, colored by (n,) labels; return the image and the colors.

    `tissue_id` limits the drawing to tiles in one region.
    """
    import numpy as np

    from mcp_servers.formats.images import draw_squares
    from sage_foundation.cluster import PALETTE

    own = np.ones(len(tiles), dtype=bool)
    if tissue_id is not None:
        own = select_region(tiles, tissue_id)
    words = np.full(len(tiles), "tile") if labels is None else labels
    kinds = sorted(set(words[own].tolist()), key=lambda word: (len(word), word))
    colors = {word: PALETTE[i % len(PALETTE)] for i, word in enumerate(kinds)}
    ratio = slide.width / picture.shape[1]
    corners, side = store.tile_corners(tiles)[own], store.tile_side(tiles)
    return draw_squares(picture, corners, side, ratio, colors, list(words[own]), 0.45), colors


class ClustersInput(SpaceInput):
    """Clusters to show and their names."""

    tile_key: str = Field(default=TILES, pattern=KEY)
    tissue_id: int | None = Field(default=None, ge=0)
    leiden_resolution: float = Field(default=0.75, gt=0, le=100)
    leiden_key: str | None = Field(default=None, pattern=KEY)
    cluster_labels_key: dict[str, str] | None = Field(
        default=None, description="Name of each cluster"
    )
    figure_title: str | None = Field(default=None, max_length=200)


@nova_tool(
    "visualize_morphological_clusters_on_wsi_tool", Resources(memory_mb=1536, seconds_per_item=3.0)
)
def visualize_clusters(given: ClustersInput, context: ToolContext) -> PictureResult:
    """Visualize morphological clusters overlaid on WSI tissue regions.

    A second panel shows the reduced feature space (UMAP if available, else t-SNE, else PCA).
    """
    import numpy as np

    slide, job, held = store.open_store(given, context)
    table = store.get_element(held, "features", given.patch_features_key)
    tiles = store.get_element(held, "tiles", given.tile_key)
    key = find_clusters(table, given.leiden_key, given.leiden_resolution)
    space = next((name for name in ("X_umap", "X_tsne", "X_pca") if name in table.obsm), None)
    if space is None:
        raise InputError(
            "the features have not been reduced; first run "
            "reduce_single_wsi_patch_feature_space_tool"
        )
    names = given.cluster_labels_key or {}
    clusters = [str(name) for name in table.obs[key].cat.categories]
    if unknown := sorted(set(names) - set(clusters)):
        raise InputError(
            f"cluster_labels_key has no cluster {unknown[0]}; clusters: {', '.join(clusters)}"
        )
    labels = np.array([names.get(v, v) for v in table.obs[key].astype(str)])
    picture, colors = draw_tiles(slide, slide.thumbnail(2048), tiles, labels, given.tissue_id)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(16, 8), layout="constrained")
    left, right = figure.subplots(1, 2)
    points = np.asarray(table.obsm[space])[:, :2]
    for word, color in colors.items():
        own = labels == word
        rgb = tuple(part / 255 for part in color)
        left.scatter(points[own, 0], points[own, 1], s=8, color=[rgb], label=word)
    left.set_xlabel(f"{space} 1")
    left.set_ylabel(f"{space} 2")
    for text in left.legend(title=key).get_texts():
        text.set_parse_math(False)
    right.imshow(picture)
    right.set_axis_off()
    figure.suptitle(given.figure_title or f"{slide.name}: {key}", parse_math=False)
    name = job.out(f"{slide.name}_morphological_clusters.png")
    with context.writing(name) as path:
        figure.savefig(path, dpi=100, format="png")
    return PictureResult(visualization_save_path=name)
