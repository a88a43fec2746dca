"""Figures for print and for the color-blind: survival, incidence, calibration, forest, and others.

Every figure is drawn on its own canvas (no global plotting state) and written as SVG, or as PNG at
200 dpi by the path's suffix. The same input gives the same bytes. Colors are Okabe and Ito's;
lines also differ in their dashes, so that they survive a black-and-white printer.
"""
