"""Beam transforms around the pure parts. What they do is said by pure functions beside them, which tests call alone."""
