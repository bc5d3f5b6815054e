"""The jars of the services, downloaded once with Maven and then cached; and the Java that runs them."""

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
    """A service cannot fulfil a request. The message has the reason and advice, in a few lines."""


class ServicesMissing(ServicesRefused):
    """Java or Maven is missing on this machine, or the jars cannot be downloaded."""


@cache
def java() -> str:
    """Return the program `java` of Java 17 or newer, from JAVA_HOME or the path."""
    found = shutil.which("java", path=os.path.join(os.environ.get("JAVA_HOME", ""), "bin")) or shutil.which("java")
    if not found:
        raise ServicesMissing(f"no Java: {INSTALL}")
    output = subprocess.run([found, "-version"], text=True, capture_output=True).stderr
    version = re.search(r'version "(\d+)', output)
    if not version or int(version[1]) < OLDEST_JAVA:
        raise ServicesMissing(f"{found} is not Java {OLDEST_JAVA} or newer: {INSTALL}")
    return found


def artifact(name: str, title: str, report: Callable[[str], None]) -> Path:
    """Return the folder of the jars that `<name>.pom.xml` names, after downloading them if they are not cached."""
    pom = POMS / f"{name}.pom.xml"
    folder = cache_folder()
    whole = folder / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if whole.exists():
        return whole
    maven = shutil.which("mvn")
    if not maven:
        raise ServicesMissing(f"no Maven, which fetches {title}: {INSTALL}")
    # Two Maven processes must not use its repository at the same time, so hold the lock while it runs.
    with exclusive(folder):
        if whole.exists():
            return whole
        report(f"fetching {title}: the first time takes a minute")
        part = whole.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        fetch = [maven, "-q", "-B", "-f", str(pom), "generate-resources", f"-Ddestination={part}", "--strict-checksums"]
        done = subprocess.run(fetch, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode or not part.is_dir() or not any(part.iterdir()):
            output = [line for line in done.stdout.splitlines() if line.strip()][:3]
            shutil.rmtree(part, ignore_errors=True)
            raise ServicesMissing("\n".join([f"Maven cannot fetch {title}: is there a way to Maven Central?", *output]))
        part.rename(whole)
    return whole


def cache_folder() -> Path:
    """Return the folder of cached jars: `opicflow/services` in the cache of the user."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "opicflow" / "services"


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder. The system releases it when the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
