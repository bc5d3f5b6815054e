"""What tests share: small webs, logs and crawls, references that code is compared with, fakes and local services."""
