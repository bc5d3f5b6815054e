"""Shared by tests: small webs, logs and crawls, reference implementations, fakes and local services."""
