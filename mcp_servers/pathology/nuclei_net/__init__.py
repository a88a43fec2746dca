"""The bundled nuclei network: its computation, training and scoring."""
