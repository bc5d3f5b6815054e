"""Crawl logs and ranks in files.

- Opening: `opening` finds files and decompresses them, also after damage; `formats` detects their format.
- Crawl logs: `log_reader` reads files of every format in batches. `jsonl`, `avro`, `warc` (also WAT) and `edges` read
  one format each; `avro_container` and `warc_records` split files, `avro_scan` and `json_scan` have the kernels,
  `html_links` finds the links of a page.
- Decoded events: `decoded` is the result of every reader; `scan` the columns that kernels fill.
- Records of results and ranks: `record_files` reads JSON lines, Avro and Parquet, `csv_tables` CSV, in blocks with the
  location of each row.
- Ranks: `rank_reader` and `rank_writer`; `rank_rows` checks rows of any file.
- Output: `avro_rows` encodes columns as Avro records; `whole_file` writes files completely or not at all.
"""
