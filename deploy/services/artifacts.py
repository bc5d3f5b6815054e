"""The jars of the services: fetched once with Maven, then kept in a cache; and the Java that runs them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

POMS = Path(__file__).parent
INSTALL = "install it (Debian: apt install openjdk-17-jdk-headless maven)"
OLDEST_JAVA = 17


class ServicesRefused(Exception):
    """A service cannot do what was asked. What, where, and what to do, in a few lines."""


class ServicesMissing(ServicesRefused):
    """This machine lacks what every service needs: Java, Maven, or jars that cannot be fetched."""


@cache
def java() -> str:
    """The program `java`, of Java 17 or newer: that of JAVA_HOME, or the one on the path."""
    found = shutil.which("java", path=os.path.join(os.environ.get("JAVA_HOME", ""), "bin")) or shutil.which("java")
    if not found:
        raise ServicesMissing(f"no Java: {INSTALL}")
    said = subprocess.run([found, "-version"], text=True, capture_output=True).stderr
    version = re.search(r'version "(\d+)', said)
    if not version or int(version[1]) < OLDEST_JAVA:
        raise ServicesMissing(f"{found} is not Java {OLDEST_JAVA} or newer: {INSTALL}")
    return found


def artifact(name: str, title: str, tell: Callable[[str], None]) -> Path:
    """The folder that holds what `<name>.pom.xml` names. It is fetched when it is not in the cache yet."""
    pom = POMS / f"{name}.pom.xml"
    folder = cache_folder()
    whole = folder / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if whole.exists():
        return whole
    maven = shutil.which("mvn")
    if not maven:
        raise ServicesMissing(f"no Maven, which fetches {title}: {INSTALL}")
    # Maven's own repository is not made for two at once, so the lock is held while it runs.
    with exclusive(folder):
        if whole.exists():
            return whole
        tell(f"fetching {title}: the first time takes a minute")
        part = whole.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        fetch = [maven, "-q", "-B", "-f", str(pom), "generate-resources", f"-Ddestination={part}"]
        done = subprocess.run(fetch, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode or not part.is_dir() or not any(part.iterdir()):
            said = [line for line in done.stdout.splitlines() if line.strip()][:3]
            shutil.rmtree(part, ignore_errors=True)
            raise ServicesMissing("\n".join([f"Maven cannot fetch {title}: is there a way to Maven Central?", *said]))
        part.rename(whole)
    return whole


def cache_folder() -> Path:
    """Where fetched jars are kept: `opicflow/services` in the cache of the user."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "opicflow" / "services"


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Only one process at a time is inside, for each folder. The system takes the lock back from a dead process."""
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
