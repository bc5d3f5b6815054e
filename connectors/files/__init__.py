"""Crawl logs in files: which ones are meant, what is in them, and what they say as crawl events.

`opening` finds files and reads their bytes, compressed or not, past damage. `formats` tells what they hold. `jsonl`
reads JSON lines, `avro` Avro, `archives` WARC, WAT and edge lists; `reading` all of them, as a row of batches.
`decoded` and `scan` are what the readers of columns give and fill. `writing` writes files that are whole or not there.
"""
