"""Which kind of file system a path is on."""

from __future__ import annotations

import re
from pathlib import Path

NETWORK = re.compile(
    r"(nfs\d?|cifs|smb\w*|9p|afs|ceph|glusterfs|lustre|beegfs|gpfs|ocfs2|gfs2|davfs2?|fuse\.(sshfs|s3fs|gcsfuse|rclone|"
    r"glusterfs|ceph.*|davfs2?|blobfuse2?|goofys))"
)


def file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """The kind of file system a path is on, where the system tells."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return None
    real = path.resolve()
    best: tuple[int, str] | None = None
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        # Later mounts hide earlier ones at the same place.
        mount = Path(re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[1]))
        if real.is_relative_to(mount) and (best is None or len(mount.parts) >= best[0]):
            best = (len(mount.parts), fields[2])
    return best[1] if best else None
