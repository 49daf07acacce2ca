"""The only place that opens a connection to Redis, for the broker, migrations and Spark: by URL to a client, and from there."""
