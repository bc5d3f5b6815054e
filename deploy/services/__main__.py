"""Start, stop and show the services of this machine."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from pathlib import Path
from time import monotonic

from deploy.services.artifacts import ServicesRefused
from deploy.services.instance import Instance
from deploy.services.supervisor import SERVICES, Services


def main() -> int:
    """Run a command line. Returns 2 if the command was refused."""
    parser = argparse.ArgumentParser(prog="python -m deploy.services", description=__doc__)
    parser.add_argument("do", choices=["start", "stop", "status"])
    every = ",".join(SERVICES)
    parser.add_argument("--only", metavar="NAMES", default=every, help="comma-separated names (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("build/services"), help="their data and logs (%(default)s)")
    parser.add_argument(
        "--usual-ports", action="store_true", help="9092, 8081, 8099 and 9249 to 9251, each if it is free"
    )
    chosen = parser.parse_args()
    names = list(dict.fromkeys(chosen.only.split(",")))
    unknown = [name for name in names if name not in SERVICES]
    if unknown:
        parser.exit(2, f"services: there is no service {unknown[0]!r}: give some of {every}\n")
    # Like Ctrl-C: stop the processes started so far.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    services = Services(chosen.folder, say, usual_ports=chosen.usual_ports)
    try:
        return {"start": start, "stop": stop, "status": status}[chosen.do](services, names)
    except (ServicesRefused, OSError) as problem:
        print(f"services: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("services: interrupted: the services that this command had started are stopped", file=sys.stderr)
        return 130


def start(services: Services, names: list[str]) -> int:
    """Start the services that do not run, and print how to connect to them."""
    began = monotonic()
    started = services.start(names)
    for name in names:
        outcome = f"started in {monotonic() - began:.0f} s" if name in started else "runs already"
        say(f"{SERVICES[name].title}: {outcome}")
        for line in SERVICES[name].usage(services.instance(name)):
            say(f"    {line}")
    say(f"logs in {services.logs}; to stop: {command('stop', services)}")
    return 0


def stop(services: Services, names: list[str]) -> int:
    """Stop the services that run."""
    stopped = services.stop(names)
    for name in stopped:
        say(f"{SERVICES[name].title}: stopped, and its data removed")
    say(f"logs in {services.logs}" if stopped else f"nothing runs in {services.folder}")
    return 0


def status(services: Services, names: list[str]) -> int:
    """Print what runs, and where. Returns 0 if at least one service runs and none has ended by itself."""
    known = {name: one for name, one in services.status().items() if name in names}
    for name, one in known.items():
        instance: Instance = services.instance(name)
        say(f"{SERVICES[name].title}: {'runs' if one.runs else 'has ended'}")
        for process in one.processes:
            say(f"    {process.name}: pid {process.pid}{'' if process.lives else ' (ended)'}, log {process.log}")
        say("    ports: " + ", ".join(f"{port} {number}" for port, number in instance.ports.items()))
        for line in SERVICES[name].usage(instance):
            say(f"    {line}")
    if not known:
        say(f"nothing runs in {services.folder}: {command('start', services)}")
    return 0 if known and all(one.runs for one in known.values()) else 1


def command(do: str, services: Services) -> str:
    """Return the command line for an action on these services."""
    if services.folder == Path("build/services").absolute():
        return {"start": "make services", "stop": "make services-stop"}[do]
    return f"python -m deploy.services {do} --folder {shlex.quote(str(services.folder))}"


def say(line: str) -> None:
    """Print a line without buffering, with paths relative to the working folder."""
    print(line.replace(f"{Path.cwd()}/", ""), flush=True)


if __name__ == "__main__":
    sys.exit(main())
