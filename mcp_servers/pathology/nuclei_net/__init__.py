"""The bundled nuclei network: what it computes, how it was trained, and how it is scored."""
