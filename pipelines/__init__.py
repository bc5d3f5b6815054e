"""The processing of a crawl: the pure cores (ledger, graph, web) and the Beam pipelines that run them."""
