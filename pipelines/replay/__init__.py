"""The replay: a crawl log on disk or in a topic becomes importance, schedules and orders."""
