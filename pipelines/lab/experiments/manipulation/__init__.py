"""Experiments on manipulation: what pages made for a crawler gain in importance and in crawl orders."""
