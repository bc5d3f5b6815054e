"""Crawls that read pages in the order of importance: a frontier, the recorder beside a crawler, an add-on for Scrapy.

They keep what a kill -9 must not take in one kind of log (log.py).
"""
