"""Foundation models for tiles: features, clusters, heat maps, attention MIL, text scores."""

TOOL_MODULES = ("encoders", "cluster", "heatmap", "mil", "zeroshot")
