"""The experiment on whether it is worth it: what a crawler reads, and how fresh it stays, beside other crawlers."""
