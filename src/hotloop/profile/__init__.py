"""Profiles of a loop: what the field's own profilers say, joined to the loop's stages."""
