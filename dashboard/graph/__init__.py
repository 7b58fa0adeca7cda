"""Drawings made on the server: the step graph and the timeline. Positions by SVG attributes, never by style."""
