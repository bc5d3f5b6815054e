"""What happens to a crawl: the pure cores (ledger, graph, web) and, around them, the Beam pipelines that run them."""
