"""The commands that simulate crawls, and run experiments."""
