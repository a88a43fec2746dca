"""Titles of tools in an MCP client."""

from __future__ import annotations

TITLES = {
    "predict_regions": "Where a reader would look",
    "read_findings": "Findings of a reading as typed maps",
    "read_slide": "Question about a slide",
    "record_session": "Record a reading of a slide",
    "cluster_tiles": "Group the tiles of a slide by appearance",
    "concordance": "Concordance of a variable with survival",
    "cox": "Cox regression",
    "describe_cohort": "Describe a cohort",
    "encode_tiles": "Tile features by an encoder",
    "graph_communities": "Communities of the knowledge graph",
    "graph_concept": "A concept and the evidence for and against it",
    "graph_evidence": "Evidence for a relation in the knowledge graph",
    "graph_paths": "Paths in the knowledge graph",
    "graph_search": "Search the knowledge graph",
    "heatmap": "Heat map of tile scores",
    "ihc": "Immunohistochemistry: positive cells",
    "job_cancel": "Cancel a job",
    "job_result": "Result of a job",
    "job_status": "State of a job",
    "kaplan_meier": "Kaplan-Meier curves",
    "logrank": "Log-rank test",
    "measure_cohort": "Measure the slides of a cohort",
    "measure_maps": "Measure the maps of a slide",
    "mil_evaluate": "Evaluate a multiple-instance model",
    "mil_train": "Train a multiple-instance model",
    "ontology_terms": "Meaning of names in the ontology",
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
    "text_score": "Score tiles by a description",
    "til": "Tumor-infiltrating lymphocytes",
    "tile_slide": "Cut a slide into tiles",
    "tls": "Tertiary lymphoid structures",
    "tumor": "Tumor regions",
}


def make_title(name: str) -> str:
    """Title of a tool, by default its name in words."""
    return TITLES.get(name) or name.replace("_", " ").capitalize()
