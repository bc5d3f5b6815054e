"""The stream: importance while the crawl runs, on a Flink cluster, from topics to topics."""
