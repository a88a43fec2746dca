"""What people see as the name of a tool in an MCP client."""

from __future__ import annotations

TITLES = {
    "cluster_tiles": "Group the tiles of a slide by appearance",
    "competing_risks": "Competing risks",
    "concordance": "Concordance of a variable with survival",
    "cox": "Cox regression",
    "describe_cohort": "Describe a cohort",
    "encode_tiles": "Tile features by an encoder",
    "graph_evidence": "Evidence for a relation in the knowledge graph",
    "graph_paths": "Paths in the knowledge graph",
    "graph_search": "Search the knowledge graph",
    "heatmap": "Heat map of tile scores",
    "ihc": "Immunohistochemistry: positive cells",
    "job_cancel": "Cancel a job",
    "job_result": "Result of a job",
    "job_status": "State of a job",
    "kaplan_meier": "Kaplan-Meier curves",
    "list_cohorts": "List cohorts",
    "list_slides": "List slides",
    "logrank": "Log-rank test",
    "measure_cohort": "Measure the slides of a cohort",
    "measure_maps": "Measure the maps of a slide",
    "mil_evaluate": "Evaluate a multiple-instance model",
    "mil_train": "Train a multiple-instance model",
    "nuclei": "Nuclei",
    "patch_train": "Train a patch classifier",
    "read_region": "Read a region of a slide",
    "region_patches": "Patches of tumor, its surroundings and the rest",
    "review_run": "Answer a run's review",
    "run_status": "State of a run",
    "save_table": "Save a table of measurements",
    "screen": "Screen many features for survival",
    "signature_scores": "Gene signature scores",
    "slide_maps": "Maps of a slide",
    "slide_properties": "Properties of a slide",
    "slide_thumbnail": "Thumbnail of a slide",
    "spatialdata_export": "Export to SpatialData",
    "stain_normalize": "Normalize the stain",
    "stain_separate": "Separate the stains",
    "start_run": "Start a research run",
    "stroma": "Stroma",
    "text_score": "Score tiles by a description",
    "til": "Tumor-infiltrating lymphocytes",
    "tile_slide": "Cut a slide into tiles",
    "tissue_mask": "Tissue mask",
    "tls": "Tertiary lymphoid structures",
    "tumor": "Tumor regions",
}


def title_of(name: str) -> str:
    """A tool's title: the one given here, else its name in words."""
    return TITLES.get(name) or name.replace("_", " ").capitalize()
