"""Ranks of whole graphs: from crawl logs and edge lists to files of ranks, their comparison, and communities."""
