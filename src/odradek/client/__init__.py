"""A client for any Kafka cluster: `odradek.Producer`, `odradek.Consumer`, `odradek.Admin`."""
