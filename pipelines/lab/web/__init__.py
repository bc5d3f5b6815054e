"""Synthetic webs and the orders in which a crawl visits them, for experiments, tests and demos. Pure."""
