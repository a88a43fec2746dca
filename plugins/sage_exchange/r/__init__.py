"""Export of a validation's analysis as a standalone R script."""
