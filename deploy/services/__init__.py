"""Apache Kafka, a schema registry and a Flink cluster on this machine, without Docker.

`python -m deploy.services start` for people, `deploy.services.supervisor.Services` for tests.
"""
