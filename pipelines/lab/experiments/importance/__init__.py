"""Experiments on importance while a crawl runs: figures 2 to 6 of paper 002, and what the papers do not show."""
