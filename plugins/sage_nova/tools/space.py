"""Feature space of a slide's tiles: reductions, Leiden clusters, exemplars, and images."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Seed, save_png
from mcp_servers.spec import OutputName, Resources
from sage.core.errors import InputError
from sage_nova.tools import declare as nova
from sage_nova.tools.slide import to_polygons
from sage_nova.tools.store import Store, measure_tiles

if TYPE_CHECKING:
    from mcp_servers.slides.slide import Slide

COMPONENTS = 50
REDUCE = "reduce_single_wsi_patch_feature_space_tool"
Resolution = Annotated[float, Field(gt=0, le=100)]
Cluster = Annotated[
    nova.Key | None, Field(description="Key of the clusters; default: leiden_RESOLUTION")
]
Piece = Annotated[int | None, Field(ge=0, description="Draw only this region and its tiles")]


class SpaceInput(nova.WsiInput):
    """Tile features to use."""

    patch_features_key: nova.Key = nova.FEATURES


@nova.tool(
    REDUCE, Resources(cpu=2, memory_mb=2048, seconds_per_item=10.0), path_to_zarr=OutputName,
    keys_added=list[str],
    explained_variance=nova.described(float, "Share of variance explained by the principal "
        "components"),
)  # fmt: skip
def reduce_space(
    given: SpaceInput, context: ToolContext, *,
    scale_data: Annotated[bool, Field(description="Scale each feature to unit variance")] = True,
    compute_neighbors: bool = True, n_neighbors: Annotated[int, Field(ge=2, le=200)] = 15,
    neighbors_key_added: nova.Key = "neighbors", compute_pca: bool = True,
    pca_key_added: nova.Key = "X_pca",
    compute_umap: Annotated[bool, Field(description="Requires the package umap-learn")] = False,
    umap_key_added: nova.Key = "X_umap", compute_tsne: bool = False,
    tsne_key_added: nova.Key = "X_tsne", seed: Seed = 42,
) -> nova.Result:  # fmt: skip
    """Reduce dimensionality of patch features using PCA, UMAP, or t-SNE.

    Also computes the graph of neighbors that Leiden needs; kept in obsm and obsp of the table.
    """
    import numpy as np
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    store = Store(given, context)
    table = store.get("features", given.patch_features_key)
    features = np.asarray(table.X, dtype=np.float64)
    n, near = len(features), min(n_neighbors, len(features) - 1)
    if n < 5:
        raise InputError(f"too few tiles ({n}); a reduction requires at least 5")
    spread = features.std(axis=0) if scale_data else np.ones(features.shape[1])
    scaled = (features - features.mean(axis=0)) / np.where(spread > 1e-9, spread, 1.0)
    pca = PCA(min(COMPONENTS, n - 1, scaled.shape[1]), random_state=seed)
    reduced, added = pca.fit_transform(scaled), {}
    if compute_pca:
        added[pca_key_added] = reduced
        table.uns[pca_key_added] = {
            "variance": pca.explained_variance_, "variance_ratio": pca.explained_variance_ratio_,
        }  # fmt: skip
    if compute_umap:
        umap = _load_umap()(n_neighbors=near, random_state=seed)
        added[umap_key_added] = umap.fit_transform(reduced)
    if compute_tsne:
        perplexity = min(30.0, max(2.0, (n - 1) / 3))
        tsne = TSNE(2, perplexity=perplexity, init="pca", random_state=seed)
        added[tsne_key_added] = tsne.fit_transform(reduced)
    for key, values in added.items():
        table.obsm[key] = values
    keys = list(added)
    if compute_neighbors:
        key = f"{neighbors_key_added}_connectivities"
        table.obsp[key] = build_neighbor_graph(reduced, near)
        table.uns[neighbors_key_added] = {
            "connectivities_key": key,
            "params": {"n_neighbors": near, "method": "jaccard", "metric": "euclidean"},
        }
        keys.insert(int(compute_pca), neighbors_key_added)
    return {
        "path_to_zarr": store.save(**{given.patch_features_key: table}), "keys_added": keys,
        "explained_variance": pca.explained_variance_ratio_.sum(),
        "operations_log": [f"{', '.join(keys)} of {n} tiles"],
    }  # fmt: skip


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


def _load_umap() -> Any:
    try:
        return importlib.import_module("umap").UMAP
    except ImportError:
        raise InputError(
            "compute_umap requires the umap-learn package (BSD): pip install umap-learn; "
            "compute_tsne and compute_pca work without it"
        ) from None


@nova.tool(
    "run_leiden_clustering_tool", Resources(memory_mb=2048, seconds_per_item=5.0), leiden_key=str,
    n_leiden_clusters=int, leiden_clusters=list[str], tiles_per_cluster=dict[str, int],
    path_to_zarr=OutputName,
)  # fmt: skip
def run_leiden(
    given: SpaceInput, context: ToolContext, *, leiden_resolution: Resolution = 0.75,
    leiden_key: Cluster = None, neighbors_key_added: nova.Key = "neighbors", seed: Seed = 42,
) -> nova.Result:  # fmt: skip
    """Perform Leiden clustering on patch features for morphological analysis.

    Traag, Waltman and van Eck 2019, with modularity, on the stored graph. The clusters are stored
    as a category in obs[leiden_key]; the largest is 0.
    """
    import numpy as np
    import pandas as pd

    from sage_foundation.cluster import PALETTE

    store = Store(given, context)
    table = store.get("features", given.patch_features_key)
    graph = f"{neighbors_key_added}_connectivities"
    if graph not in table.obsp:
        raise InputError(
            f'the features have no graph "{graph}"; first run {REDUCE} with compute_neighbors=true'
        )
    labels = cluster_graph(table.obsp[graph], leiden_resolution, seed)
    key, counts = leiden_key or f"leiden_{leiden_resolution:g}", np.bincount(labels).tolist()
    names = [str(i) for i in range(len(counts))]
    table.obs[key] = pd.Categorical([str(i) for i in labels], categories=names)
    colors = [PALETTE[i % len(PALETTE)] for i in range(len(names))]
    table.uns[f"{key}_colors"] = np.array(["#{:02x}{:02x}{:02x}".format(*rgb) for rgb in colors])
    return {
        "leiden_key": key, "n_leiden_clusters": len(names), "leiden_clusters": names,
        "tiles_per_cluster": dict(zip(names, counts, strict=True)),
        "path_to_zarr": store.save(**{given.patch_features_key: table}),
        "operations_log": [f"{len(names)} clusters at resolution {leiden_resolution:g}"],
    }  # fmt: skip


def cluster_graph(graph: Any, resolution: float, seed: int) -> Any:
    """Cluster a symmetric weighted graph, with the largest cluster as 0; returns (n,) labels.

    Isolated nodes remain singletons.
    """
    import graspologic_native
    import numpy as np
    from scipy import sparse

    upper = sparse.triu(graph, k=1).tocoo()
    ends = zip(upper.row.tolist(), upper.col.tolist(), upper.data.tolist(), strict=True)
    links = [(str(a), str(b), float(weight)) for a, b, weight in ends if weight > 0]
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


@nova.tool(
    "get_topk_close_patch_coords_to_embedding_space_clusters_tool", Resources(memory_mb=1024),
    closest_patches_coords=dict[str, list[PatchPlace]], top_k_save_path=OutputName, top_k=int,
    leiden_key=str,
)  # fmt: skip
def top_patches(
    given: SpaceInput, context: ToolContext, *, tile_key: nova.Key = nova.TILES,
    leiden_resolution: Resolution = 0.75, leiden_key: Cluster = None,
    top_k: Annotated[int, Field(ge=1, le=1000)] = 5,
) -> nova.Result:  # fmt: skip
    """Get coordinates of top-k patches closest to embedding space cluster centers, as JSON.

    A center is the mean feature vector of a Leiden cluster; distances are Euclidean.
    """
    store = Store(given, context)
    table = store.get("features", given.patch_features_key)
    _, corners, side = store.tiles(tile_key)
    key = find_clusters(table, leiden_key, leiden_resolution)
    found = {
        f"cluster_{cluster}": [
            PatchPlace(
                patch_id=i, top_left_x=int(corners[i, 0]), top_left_y=int(corners[i, 1]),
                base_width=side, base_height=side,
            ).model_dump()
            for i in near[:top_k]
        ]
        for cluster, near in rank_exemplars(table, key).items()
    }  # fmt: skip
    name = nova.write_json(context, store.out(f"_{key}_top{top_k}.json"), found)
    return {
        "closest_patches_coords": found, "top_k_save_path": name, "top_k": top_k,
        "leiden_key": key,
    }  # fmt: skip


def rank_exemplars(table: Any, key: str) -> dict[str, list[int]]:
    """Rank each cluster's tiles by distance to its center; return tile indices by cluster."""
    import numpy as np

    features, labels = np.asarray(table.X, dtype=np.float64), table.obs[key].astype(str).to_numpy()
    found = {}
    for name in map(str, table.obs[key].cat.categories):
        own = np.flatnonzero(labels == name)
        away = np.linalg.norm(features[own] - features[own].mean(axis=0), axis=1)
        found[name] = own[np.argsort(away, kind="stable")].tolist()
    return found


def find_clusters(table: Any, key: str | None, resolution: float) -> str:
    """Find the key of the clusters; raises `InputError` if there are none under it."""
    named = key or f"leiden_{resolution:g}"
    if named not in table.obs:
        raise InputError(
            f'the features have no clusters "{named}"; run run_leiden_clustering_tool first'
        )
    return named


@nova.tool(
    "visualize_wsi_tool", Resources(memory_mb=1024, seconds_per_item=1.0),
    visualization_save_path=OutputName,
)  # fmt: skip
def visualize_wsi(
    given: nova.WsiInput, context: ToolContext, *, add_contours: bool = False,
    add_tiles: bool = False, tissue_key: nova.Key = nova.TISSUES, tile_key: nova.Key = nova.TILES,
    tissue_id: Piece = None,
    color_tiles_by: Annotated[nova.Key | None,
        Field(description="Column of obs by which to color the tiles")] = None,
    patch_features_key: nova.Key | None = None,
    max_px: Annotated[int,
        Field(ge=64, le=8192, description="Longer side of the picture, in pixels")] = 2048,
) -> nova.Result:  # fmt: skip
    """Create visualizations of WSI with optional tissue contours and tile overlays."""
    from mcp_servers.pathology.drawing import GREEN, captioned, draw_outlines

    if color_tiles_by is not None and patch_features_key is None:
        raise InputError(
            "color_tiles_by requires patch_features_key, the table that contains the column"
        )
    store = Store(given, context)
    slide, legend = store.slide, dict[str, Any]()
    picture = slide.thumbnail(max_px)
    ratio = slide.width / picture.shape[1]
    if add_contours:
        frame = store.get("tissues", tissue_key)
        polygons = to_polygons(frame[select_region(frame, tissue_id)])
        picture, legend["tissue"] = draw_outlines(picture, polygons, ratio, GREEN), GREEN
    if add_tiles or color_tiles_by:
        labels = None
        if color_tiles_by is not None and patch_features_key is not None:
            table = store.get("features", patch_features_key)
            if color_tiles_by not in table.obs:
                have = nova.list_choices(table.obs.columns)
                raise InputError(
                    f'unknown obs column "{color_tiles_by}"; available columns: {have}'
                )
            labels = table.obs[color_tiles_by].astype(str).to_numpy()
        tiles = store.get("tiles", tile_key)
        picture, colors = draw_tiles(slide, picture, tiles, labels, tissue_id)
        legend |= colors
    drawn = captioned(picture, slide.mpp and slide.mpp * ratio, legend)
    return {"visualization_save_path": save_png(context, store.out("_visualization.png"), drawn)}


def select_region(frame: Any, tissue_id: int | None) -> Any:
    """Return a mask of the (n,) rows in a tissue region; raises `InputError` if there are none."""
    import numpy as np

    if tissue_id is None:
        return np.ones(len(frame), dtype=bool)
    own = (frame["tissue_id"] == tissue_id).to_numpy()
    if not own.any():
        have = nova.list_choices(sorted(set(frame["tissue_id"].tolist())))
        raise InputError(f"tissue_id {tissue_id}: no such region (regions: {have})")
    return own


def draw_tiles(
    slide: Slide, picture: Any, tiles: Any, labels: Any, tissue_id: int | None
) -> tuple[Any, dict[str, Any]]:
    """Draw tiles over an overview, colored by (n,) labels; return the image and the colors.

    `tissue_id` limits the drawing to tiles in one region.
    """
    import numpy as np

    from mcp_servers.formats.images import draw_squares
    from sage_foundation.cluster import PALETTE

    own, (corners, side) = select_region(tiles, tissue_id), measure_tiles(tiles)
    words = (np.full(len(tiles), "tile") if labels is None else labels)[own].tolist()
    kinds = sorted(set(words), key=lambda word: (len(word), word))
    colors = {word: PALETTE[i % len(PALETTE)] for i, word in enumerate(kinds)}
    ratio = slide.width / picture.shape[1]
    return draw_squares(picture, corners[own], side, ratio, colors, words, 0.45), colors


@nova.tool(
    "visualize_morphological_clusters_on_wsi_tool", Resources(memory_mb=1536, seconds_per_item=3.0),
    visualization_save_path=OutputName,
)  # fmt: skip
def visualize_clusters(
    given: SpaceInput, context: ToolContext, *, tile_key: nova.Key = nova.TILES,
    tissue_id: Piece = None, leiden_resolution: Resolution = 0.75, leiden_key: Cluster = None,
    cluster_labels_key: Annotated[dict[str, str] | None,
        Field(description="Name of each cluster")] = None,
    figure_title: Annotated[str | None, Field(max_length=200)] = None,
) -> nova.Result:  # fmt: skip
    """Visualize morphological clusters overlaid on WSI tissue regions.

    A second panel shows the reduced feature space (UMAP if available, else t-SNE, else PCA).
    """
    import numpy as np
    from matplotlib.figure import Figure

    store = Store(given, context)
    table, slide = store.get("features", given.patch_features_key), store.slide
    key = find_clusters(table, leiden_key, leiden_resolution)
    space = next((name for name in ("X_umap", "X_tsne", "X_pca") if name in table.obsm), None)
    if space is None:
        raise InputError(f"the features have not been reduced; first run {REDUCE}")
    names, clusters = cluster_labels_key or {}, list(map(str, table.obs[key].cat.categories))
    if unknown := sorted(set(names) - set(clusters)):
        have = nova.list_choices(clusters)
        raise InputError(f"cluster_labels_key has no cluster {unknown[0]}; clusters: {have}")
    labels = np.array([names.get(v, v) for v in table.obs[key].astype(str)])
    tiles = store.get("tiles", tile_key)
    picture, colors = draw_tiles(slide, slide.thumbnail(2048), tiles, labels, tissue_id)
    figure = Figure(figsize=(16, 8), layout="constrained")
    left, right = figure.subplots(1, 2)
    points = np.asarray(table.obsm[space])[:, :2]
    for word, color in colors.items():
        x, y = points[labels == word].T
        left.scatter(x, y, s=8, color=[tuple(part / 255 for part in color)], label=word)
    left.set_xlabel(f"{space} 1")
    left.set_ylabel(f"{space} 2")
    for text in left.legend(title=key).get_texts():
        text.set_parse_math(False)
    right.imshow(picture)
    right.set_axis_off()
    figure.suptitle(figure_title or f"{slide.name}: {key}", parse_math=False)
    name = store.out("_morphological_clusters.png")
    with context.writing(name) as path:
        figure.savefig(path, dpi=100, format="png")
    return {"visualization_save_path": name}
