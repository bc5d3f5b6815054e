"""URLs, page ids and shards; the records of every stream, and their framing."""
