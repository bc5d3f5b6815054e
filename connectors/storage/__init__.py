"""Folders in storage that all workers can access: on a shared disk, or in an object store."""
