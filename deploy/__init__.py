"""What opicflow runs on: local services for development and tests. No part of the distribution."""
