#!/usr/bin/env python3
"""Run, check and measure playhead from a clone. Needs Python 3.11 and nothing else; makes its own .venv."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"

# Each environment holds the ones before it, so a larger one serves the smaller verbs too.
ENVIRONMENTS = ("base", "dev")

# Debian's package → the commands of which any one shows that it is there.
PACKAGES = {
    "chromium": ("chromium", "chromium-browser"),
    "curl": ("curl",),
    "nodejs": ("node",),
    "nginx": ("nginx", "/usr/sbin/nginx"),  # where only root looks
    "npm": ("npm",),
    "pgbouncer": ("pgbouncer", "/usr/sbin/pgbouncer"),  # likewise
    "redis-server": ("redis-server",),
    "redis-tools": ("redis-cli",),
}
NEEDED_BY_ALL = ("chromium", "curl", "nginx", "nodejs", "npm", "pgbouncer", "redis-server", "redis-tools")
NODE = (20, 19)  # the oldest that builds the page

# The rooms of TypeScript. The page and the examples are built from the client, so that comes first.
SCRIPTS = ("clients/typescript", "web", "examples")
BUILT = ROOT / "src" / "playhead" / "web"
TOLD = ROOT / ".cache" / "scripts"  # what their tests told, for the case table

WORKERS = 3  # of pytest, on two cores: many tests wait for a server or a lease half of their time

# How much of what is drawn at random a tier tries; the caller's own environment beats this.
ALL = {"PLAYHEAD_KILLS": "60", "PLAYHEAD_HISTORIES": "200"}
DEEP = {"PLAYHEAD_KILLS": "200", "PLAYHEAD_HISTORIES": "1000"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about the system packages that a tier needs."""

    found: tuple[str, ...]
    install: tuple[str, ...]
    ask: tuple[str, ...]

    @property
    def advice(self) -> str:
        return f"sudo apt-get install -y {' '.join(self.ask)}"


def plan(needed: Iterable[str], present: Callable[[str], bool], *, may_install: bool) -> Plan:
    """Sort the needed packages into found, to install, and to ask the person for."""
    found: list[str] = []
    missing: list[str] = []
    for name in needed:
        (found if present(name) else missing).append(name)
    if may_install:
        return Plan(tuple(found), tuple(missing), ())
    return Plan(tuple(found), (), tuple(missing))


def is_present(package: str) -> bool:
    if package == "python3-venv":
        importlib.invalidate_caches()
        return importlib.util.find_spec("ensurepip") is not None
    if package == "nodejs":
        return node_version() >= NODE
    return any(shutil.which(command) for command in PACKAGES[package])


def node_version() -> tuple[int, ...]:
    """Of the node that is there; (0,) without one."""
    if shutil.which("node") is None:
        return (0,)
    told = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout
    return tuple(map(int, re.findall(r"\d+", told))) or (0,)


def provide(needed: Iterable[str]) -> None:
    """Have the system packages, or end with the one line that the person has to type."""
    steps = plan(needed, is_present, may_install=os.geteuid() == 0 and shutil.which("apt-get") is not None)
    for name in steps.found:
        print(f"{name}: found", flush=True)
    if steps.install:
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        must("apt-get", "update", "-qq", env=env)
        must("apt-get", "install", "-y", "-qq", "--no-install-recommends", *steps.install, env=env, quiet=True)
        for name in steps.install:
            if not is_present(name):
                sys.exit(f"{name}: apt-get installed it, and it is still not there, or too old")
            print(f"{name}: installed", flush=True)
    if steps.ask:
        sys.exit(f"missing: {', '.join(steps.ask)}. Please run:\n    {steps.advice}")


def clean_env() -> dict[str, str]:
    """The caller's environment with our interpreter first and nothing of another one."""
    env = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "PYTHONHOME"}}
    env["VIRTUAL_ENV"] = str(VENV)
    env["PATH"] = f"{BIN}{os.pathsep}{env.get('PATH', os.defpath)}"
    return env


def run(*command: str | Path, sizes: Mapping[str, str] | None = None) -> int:
    env = {**(sizes or {}), **clean_env()}
    code = subprocess.run([str(part) for part in command], cwd=ROOT, env=env, check=False).returncode
    # A child ended by a signal is told the way a shell tells it.
    return 128 - code if code < 0 else code


def replace(*command: str | Path) -> int:
    """Become the command, so that signals reach it and not a parent in between."""
    sys.stdout.flush()
    os.chdir(ROOT)
    os.execve(command[0], [str(part) for part in command], clean_env())


def must(*command: str | Path, env: dict[str, str] | None = None, quiet: bool = False) -> None:
    """Run a step of the set-up; a failure ends everything with its exit code."""
    parts = [str(part) for part in command]
    done = subprocess.run(
        parts,
        cwd=ROOT,
        env=env or clean_env(),
        check=False,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
    )
    if done.returncode:
        print(done.stdout or "", file=sys.stderr)
        print(f"failed: {' '.join(parts)}", file=sys.stderr)
        sys.exit(done.returncode)


@contextmanager
def only_one() -> Iterator[None]:
    """Two of us at once would build the same .venv into each other."""
    with (ROOT / ".venv.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def digest(name: str) -> str:
    lock = ROOT / "requirements" / f"{name}.txt"
    return hashlib.sha256(lock.read_bytes() + (ROOT / "pyproject.toml").read_bytes()).hexdigest()


def stamp(name: str) -> Path:
    return VENV / f"stamp-{name}"


def is_written(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


def ensure(name: str) -> None:
    """Have .venv hold the locked packages of an environment and the project itself, editable."""
    with only_one():
        uv = shutil.which("uv")
        # A moved clone, another Python or another installer cannot go on with the old folder.
        owner = f"{ROOT} {sys.version_info[:2]} {'uv' if uv else 'pip'}"
        fresh = is_written(VENV / "stamp-owner", owner) and (BIN / "python").exists()
        if fresh and is_written(stamp(name), digest(name)):
            return
        print(f"preparing .venv ({name}) ...", flush=True)
        if not fresh:
            shutil.rmtree(VENV, ignore_errors=True)
            if uv:
                must(uv, "venv", "-q", "--python", sys.executable, VENV)
            else:
                provide(() if is_present("python3-venv") else ("python3-venv",))
                must(sys.executable, "-m", "venv", VENV)
            (VENV / "stamp-owner").write_text(owner)
        for other in ENVIRONMENTS:
            stamp(other).unlink(missing_ok=True)
        pip = [uv, "pip", "install", "-q"] if uv else [BIN / "python", "-m", "pip", "install", "-qq"]
        must(*pip, "--require-hashes", "-r", ROOT / "requirements" / f"{name}.txt")
        must(*pip, "--no-deps", "--no-build-isolation", "-e", ROOT)
        for held in ENVIRONMENTS[: ENVIRONMENTS.index(name) + 1]:
            stamp(held).write_text(digest(held))


def lint() -> int:
    """Style, format, types and import contracts; all of them, so that one run tells everything."""
    steps: list[list[str | Path]] = [
        [BIN / "ruff", "check", "."],
        [BIN / "ruff", "format", "--check", "."],
        [BIN / "mypy"],
        [BIN / "lint-imports", "--no-logo"],
    ]
    failed = 0
    for step in steps:
        print(f"-- {Path(step[0]).name} {' '.join(map(str, step[1:]))}".rstrip(), flush=True)
        failed = run(*step) or failed
    return failed


def pytest(marks: str, extra: list[str], sizes: Mapping[str, str] | None = None) -> int:
    command: list[str | Path] = [BIN / "python", "-m", "pytest", "-m", marks]
    alone = any(arg.startswith(("-n", "--numprocesses", "-s", "--pdb", "--capture")) for arg in extra)
    if (os.cpu_count() or 1) > 1 and not alone:
        command += ["-n", str(WORKERS)]
    # The case table can only be judged by a run of everything.
    if not extra:
        command += ["--rows=check"]
    return run(*command, *extra, sizes=sizes)


def scripts() -> int:
    """Check and test what is TypeScript, and build the page anew: it has to be the committed one."""
    failed = 0
    for room in SCRIPTS:
        lock, kept = ROOT / room / "package-lock.json", ROOT / room / "node_modules" / ".stamp"
        held = hashlib.sha256(lock.read_bytes()).hexdigest()
        if not is_written(kept, held):
            print(f"preparing {room} ...", flush=True)
            must("npm", "ci", "--prefix", room, "--no-audit", "--no-fund", quiet=True)
            kept.write_text(held)
    shutil.rmtree(TOLD, ignore_errors=True)
    for room in SCRIPTS:
        told = TOLD / f"{room.replace('/', '-')}.json"
        for script, more in (
            ("check", ()),
            ("test", ("--reporter=default", "--reporter=json", f"--outputFile={told}")),
        ):
            print(f"-- npm run {script} in {room}", flush=True)
            failed = run("npm", "--prefix", room, "run", "--silent", "--if-present", script, "--", *more) or failed
    with tempfile.TemporaryDirectory() as fresh:
        print("-- npm run build in web", flush=True)
        failed = run("npm", "--prefix", "web", "run", "--silent", "build", "--", "--outDir", fresh) or failed
        if lines := differing(Path(fresh), BUILT):
            print("the committed page is not the built one (npm --prefix web run build):", *lines, sep="\n  ")
            failed = failed or 1
    return failed


def differing(one: Path, other: Path) -> list[str]:
    """The files that are not the same in both folders."""
    names = {path.relative_to(folder) for folder in (one, other) for path in folder.rglob("*") if path.is_file()}
    same = {name for name in names if all((folder / name).is_file() for folder in (one, other))}
    same = {name for name in same if (one / name).read_bytes() == (other / name).read_bytes()}
    return sorted(map(str, names - same))


def test(args: argparse.Namespace, extra: list[str]) -> int:
    ensure("dev")
    if args.deep:
        keep = f"--deep-result={args.deep}"
        return run(BIN / "python", "-m", "pytest", "-k", args.deep, "--timeout=0", "-n", "2", keep, *extra, sizes=DEEP)
    if args.all:
        provide(NEEDED_BY_ALL)
    failed = lint()
    if args.all:
        failed = scripts() or failed
    everything = ALL | {"PLAYHEAD_SCRIPTS": str(TOLD)}
    tested = (
        pytest("not deep", extra, everything) if args.all else pytest("not deep and not browser and not wide", extra)
    )
    if failed:
        print("a check failed: see above the tests", file=sys.stderr)
    return failed or tested


LINK = re.compile(r"\]\(\s*<?([^)\s>]+)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+\s+(.+?)\s*$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The anchors a Markdown page offers: its headings as the usual renderers spell them."""
    titles = HEADING.findall(FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(root: Path) -> list[str]:
    """Links between the pages of the clone that lead nowhere, as `page: target`."""
    broken = []
    for page in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")]):
        for target in LINK.findall(FENCE.sub("", page.read_text())):
            if "://" in target or target.startswith("mailto:"):
                continue
            path, _, anchor = target.partition("#")
            place = page.parent / path if path else page
            lost = not place.exists() or (anchor and place.suffix == ".md" and anchor not in anchors(place.read_text()))
            if lost:
                broken.append(f"{page.relative_to(root)}: {target}")
    return broken


def docs() -> int:
    broken = broken_links(ROOT)
    for line in broken:
        print(f"broken link in {line}", file=sys.stderr)
    if not broken:
        print("every local link leads somewhere")
    return 1 if broken else 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="dev.py", description=__doc__, allow_abbrev=False)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    verbs.add_parser("demo", help="run the demo server and page; further arguments go to `playhead demo`")
    tests = verbs.add_parser("test", help="lint, then every test that needs no system package", allow_abbrev=False)
    tests.add_argument("--all", action="store_true", help="also the TypeScript and a real browser; what CI runs")
    tests.add_argument("--deep", metavar="NAME", help="only the tests of this name, at full length")
    tests.epilog = "Arguments after -- go to pytest."
    verbs.add_parser("lint", help="style, format, types and import contracts")
    bench = verbs.add_parser("bench", help="run one measurement; arguments after -- go to it")
    bench.add_argument("name", metavar="NAME", help="a module of bench/")
    verbs.add_parser("docs", help="check that the links between the pages lead somewhere")
    return top


def main(argv: list[str]) -> int:
    if argv[:1] == ["demo"]:
        ensure("base")
        return replace(BIN / "playhead", "demo", *argv[1:])
    cut = argv.index("--") if "--" in argv else len(argv)
    args, extra = parser().parse_args(argv[:cut]), argv[cut + 1 :]
    if args.verb == "test":
        return test(args, extra)
    if args.verb == "docs":
        return docs()
    if args.verb == "bench":
        ensure("dev")
        return replace(BIN / "python", "-m", f"bench.{args.name}", *extra)
    ensure("dev")
    return lint()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
