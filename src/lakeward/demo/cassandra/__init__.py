"""A Cassandra of one's own for demonstrations and tests, and a table that is filled, changed and copied in it."""
