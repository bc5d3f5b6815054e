"""The laboratory: synthetic webs, crawls of them, and the experiments of the papers."""
