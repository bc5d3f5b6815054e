"""The dashboard: results of a replay or a stream as HTML and JSON, on a port of this machine or in one file."""
