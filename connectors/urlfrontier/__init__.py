"""URL Frontier (crawler-commons/url-frontier), a service that keeps the queues of crawlers, by gRPC."""
