"""The command line: `opicflow`, its options, its progress and its messages."""
