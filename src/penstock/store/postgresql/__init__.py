"""PostgreSQL as a store: the batches of the journal, in tables of a database that several brokers may point at."""

from penstock.store.postgresql.store import Postgresql

__all__ = ["Postgresql"]
