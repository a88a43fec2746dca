"""Foundation models of tiles: features, clusters, heat maps, multiple-instance learning, texts."""

TOOL_MODULES = ("encoders", "cluster", "heatmap", "mil", "zeroshot")
