"""Figures for print and for color-blind readers: survival, incidence, forest plots and more.

Every figure is drawn on its own canvas (no global plotting state) and written as SVG or,
depending on the path's suffix, as PNG at 200 dpi. The same input gives identical bytes.
The colors are the Okabe-Ito palette; lines also differ in their dashes, so that they can
be distinguished in black-and-white print.
"""
