"""What travels: URLs, page ids and shards, and the records and framing of every stream."""
