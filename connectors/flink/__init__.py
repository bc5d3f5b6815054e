"""A Flink cluster, by its REST interface: what runs there, its checkpoints and metrics; savepoints and stopping."""
