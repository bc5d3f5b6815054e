"""Kafka: crawl events and publications from topics, results to topics."""
