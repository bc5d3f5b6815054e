"""Beam transforms. Each calls pure functions of the same module, which tests call without Beam."""
