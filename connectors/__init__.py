"""Where a crawl comes from and where results go: files, Kafka, a schema registry. Empty so far."""
