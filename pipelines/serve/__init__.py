"""Pages to look at: what a replay knows as HTML and JSON, on a port of this machine or in one file."""
