"""The stages of the pipelines: plain functions from batches to batches, with the DoFns that call them beside them."""
