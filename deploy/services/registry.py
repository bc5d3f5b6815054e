"""A schema registry with the Confluent API. It loses its schemas when it stops."""

from __future__ import annotations

from deploy.services.instance import HOST, Instance, get_json


class Registry:
    """Apicurio Registry, with its storage in memory."""

    name = "registry"
    title = "Apicurio Registry 2.6.13"
    ports = ("http",)
    usual_ports = ()

    def prepare(self, instance: Instance) -> None:
        """Do nothing: it stores nothing on disk."""

    def commands(self, instance: Instance) -> dict[str, list[str]]:
        """Return one command."""
        http = [f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={instance.ports['http']}"]
        (jar,) = instance.jars.glob("apicurio-registry-app-*-runner.jar")
        # It serves a few hundred requests: a fast start matters more than fast execution.
        small = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return {self.name: instance.jvm(["-jar", str(jar)], *small, *http)}

    def check(self, instance: Instance) -> None:
        """Request the subjects."""
        get_json(f"{self.url(instance)}/subjects")

    def usage(self, instance: Instance) -> list[str]:
        """Return the option with its address."""
        return [f"--registry {self.url(instance)}"]

    def url(self, instance: Instance) -> str:
        """Return the URL of its Confluent API."""
        return f"http://{instance.address('http')}/apis/ccompat/v7"
