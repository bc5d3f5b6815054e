"""The sources of crawls and the destinations of results: files, Kafka, a schema registry."""
