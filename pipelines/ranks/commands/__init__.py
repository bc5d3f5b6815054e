"""The commands that rank graphs, and compare ranks."""
