"""Crawl logs in files: which ones are meant, what is in them, and what they say as crawl events.

`opening` finds files and reads their bytes, compressed or not, past damage. `formats` tells what they hold. `jsonl`
reads JSON lines, `archives` WARC, WAT and edge lists. `decoded` is what the readers of columns give.
"""
