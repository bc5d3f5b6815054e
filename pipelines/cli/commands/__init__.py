"""The commands of `opicflow`, one module each."""
