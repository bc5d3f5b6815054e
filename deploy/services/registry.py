"""A schema registry with the Confluent API. Its schemas are gone when it stops."""

from __future__ import annotations

from deploy.services.places import HOST, Place, get_json


class Registry:
    """Apicurio Registry, with its storage in memory."""

    name = "registry"
    title = "Apicurio Registry 2.6.13"
    ports = ("http",)
    usual_ports = ()

    def prepare(self, place: Place) -> None:
        """It needs nothing on disk."""

    def commands(self, place: Place) -> dict[str, list[str]]:
        """One process."""
        http = [f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={place.ports['http']}"]
        (jar,) = place.jars.glob("apicurio-registry-app-*-runner.jar")
        # It answers a few hundred requests: quick to start matters more than quick to run.
        small = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return {self.name: place.jvm(["-jar", str(jar)], *small, *http)}

    def check(self, place: Place) -> None:
        """Ask for its subjects."""
        get_json(f"{self.url(place)}/subjects")

    def usage(self, place: Place) -> list[str]:
        """Its address."""
        return [f"--registry {self.url(place)}"]

    def url(self, place: Place) -> str:
        """Where its Confluent API is."""
        return f"http://{place.address('http')}/apis/ccompat/v7"
