"""The tables, and the steps by which they become what this version of Penstock needs."""

import psycopg

from penstock.model.errors import StoreAway, StoreTooNew, StoreUnreadable
from penstock.store.postgresql import tenure
from penstock.store.postgresql.sessions import Server, Session, told

#: Each step leads from the version of its place to the next; a step that was released is never changed.
#:
#:   batches  whole batches; `at` is the offset of a batch in its run, which both its checksum and readers go by
#:   runs     batches from `base` to `last`, kept and dropped as one; the numbers stand there once it is full
#:   indexes  the engine's state as of `position`; there is one row
#:   stages   what queries of Spark have written and not published yet
#:   tenure   the epoch that every commit checks; beats: a sign of life
STEPS = (
    """
    CREATE TABLE penstock.batches (
        first bigint PRIMARY KEY,
        at bigint NOT NULL,
        bytes bytea NOT NULL
    );
    CREATE TABLE penstock.runs (
        base bigint PRIMARY KEY,
        salt bigint NOT NULL,
        compacted boolean NOT NULL,
        last bigint,
        size bigint,
        records bigint,
        published bigint,
        published_bytes bigint,
        oldest double precision,
        newest double precision
    );
    CREATE TABLE penstock.indexes (
        position bigint NOT NULL,
        state bytea NOT NULL,
        saved timestamptz NOT NULL DEFAULT now()
    );
    CREATE TABLE penstock.stages (
        stage text NOT NULL,
        part bigint GENERATED ALWAYS AS IDENTITY,
        bytes bytea NOT NULL,
        written timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (stage, part)
    );
    ALTER TABLE penstock.batches ALTER bytes SET STORAGE EXTERNAL;
    ALTER TABLE penstock.indexes ALTER state SET STORAGE EXTERNAL;
    """
    + tenure.TABLES,
)
#: Held while the tables are changed; the letters are PSTK.
_LOCK = (0x5053544B, 2)


def migrate(session: Session, server: Server) -> None:
    """Bring the tables up to this version, by one broker at a time and all or nothing."""
    try:
        with session.transaction():
            session.execute("SELECT pg_advisory_xact_lock(%s, %s)", _LOCK)
            _step_up(session, _version(session, server), server)
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreUnreadable(
            f"{server} cannot be prepared: {told(error)}. Its role needs a schema `penstock` that it owns; "
            "docs/postgresql.md has the statements.",
            key="store",
        ) from error
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise StoreAway(
            f"{server} takes no writes now: {told(error)}. Name the primary, or all servers and "
            "target_session_attrs=read-write.",
            key="store",
        ) from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise StoreAway(f"{server} cannot be reached: {told(error)}", key="store") from error
    except psycopg.Error as error:
        raise _foreign(server, told(error)) from error


def _foreign(server: Server, why: str) -> StoreUnreadable:
    return StoreUnreadable(
        f"the schema `penstock` of {server} is not as Penstock makes it: {why}. Nothing was changed. Restore a backup of "
        "the database, or name another one.",
        key="store",
    )


def _version(session: Session, server: Server) -> int:
    """Return the version of the tables; 0 when there are none."""
    if _is_there(session, "SELECT to_regclass('penstock.version')"):
        row = session.execute("SELECT version FROM penstock.version").fetchone()
        if row is None or not isinstance(row[0], int):
            raise _foreign(server, "its table `version` has no version")
        return row[0]
    # A role may own the schema without the right to make one.
    if not _is_there(session, "SELECT to_regnamespace('penstock')"):
        session.execute("CREATE SCHEMA penstock")
    session.execute("CREATE TABLE penstock.version (version integer NOT NULL)")
    session.execute("INSERT INTO penstock.version VALUES (0)")
    return 0


def _step_up(session: Session, version: int, server: Server) -> None:
    if version > len(STEPS):
        raise StoreTooNew(
            f"{server} was written in version {version} of its tables; this Penstock knows versions up to {len(STEPS)}. "
            "Use a newer Penstock.",
            key="store",
            found=version,
            known=len(STEPS),
        )
    for step in STEPS[version:]:
        session.execute(step)
    if version < len(STEPS):
        session.execute("UPDATE penstock.version SET version = %s", (len(STEPS),))


def _is_there(session: Session, query: str) -> bool:
    row = session.execute(query.encode()).fetchone()
    return row is not None and row[0] is not None
