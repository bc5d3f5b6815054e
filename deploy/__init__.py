"""Local services for development and tests. They are not part of the distribution."""
