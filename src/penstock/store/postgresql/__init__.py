"""PostgreSQL as a store: the batches of the journal, in tables of a database that several brokers may point at."""
