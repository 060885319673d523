"""PgBouncer in transaction mode: a session of the server is lent for one transaction at a time."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

from playhead.testing.harness.account import Account
from playhead.testing.harness.process import Process, ServerFailed, free_port, listens

_INI = """
[databases]
* = {server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
server_reset_query_always = 0
"""
_KEPT = ("host", "port", "user", "password")


def binary() -> str:
    """Debian puts it where only root looks. Raises ServerFailed."""
    found = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
    if found is None:
        raise ServerFailed("There is no pgbouncer here: apt-get install pgbouncer")
    return found


class PgBouncer:
    """A pooler before a server of this machine. `process` can be paused, killed and started again."""

    def __init__(self, server: str, settings: Mapping[str, object] | None = None) -> None:
        """Start it before the server of this DSN, with these settings beside its own. Raises ServerFailed."""
        from psycopg.conninfo import conninfo_to_dict, make_conninfo

        self.port = free_port()
        folder = Path(tempfile.mkdtemp(prefix="playhead-pgbouncer-"))
        try:
            more = "".join(f"{name} = {value}\n" for name, value in (settings or {}).items())
            ini = folder / "pgbouncer.ini"
            target = make_conninfo(
                "", **{name: value for name, value in conninfo_to_dict(server).items() if name in _KEPT}
            )
            ini.write_text(_INI.format(server=target, port=self.port) + more)
            account = Account.find()
            account.give(folder)
            self.process = Process(
                [*account.prefix, binary(), ini],
                folder=folder,
                ready=lambda: listens(self.port),
                user=account.user,
                ends_by=signal.SIGTERM,
            )
            self.process.start()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def close(self) -> None:
        self.process.close()
