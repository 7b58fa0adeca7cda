"""Groups of the four roles."""
