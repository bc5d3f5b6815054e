"""Experiments on discovery: which unread page a crawl should read first."""
