"""Experiments on refreshing: a year of a changing web, crawled by the orders of each strategy."""
