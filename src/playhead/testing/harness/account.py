"""Who runs a server that refuses to be run by root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


@dataclass(frozen=True, slots=True)
class Account:
    """`prefix` goes before a command, and `user` is the id to run it as; None: as whoever runs the tests."""

    prefix: tuple[str, ...] = ()
    user: int | None = None

    @classmethod
    def find(cls) -> Account:
        """Ourselves; for root an id in a namespace of its own, or else the account `nobody`."""
        if os.geteuid() != 0:
            return cls()
        return cls(prefix=_NAMESPACE) if _has_namespaces() else cls(user=pwd.getpwnam("nobody").pw_uid)

    def give(self, folder: Path) -> None:
        """Let the account use a folder and all that is in it."""
        if self.user is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, self.user, self.user, follow_symlinks=False)

    def run(self, command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end and keep what it says."""
        return subprocess.run(
            [*self.prefix, *map(str, command)],
            user=self.user,
            group=self.user,
            extra_groups=None if self.user is None else [],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )


@cache
def _has_namespaces() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
