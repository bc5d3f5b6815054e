"""One Kafka broker and controller, with a plain listener and one that requires TLS and a password."""

from __future__ import annotations

import secrets
import socket
import ssl
import struct
import subprocess
from base64 import urlsafe_b64encode
from pathlib import Path

from deploy.services.artifacts import ServicesRefused
from deploy.services.certificates import authority_and_server
from deploy.services.instance import HOST, Instance, connect, write_secret

USER = "opicflow"
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"

# Small, with short intervals, and as strict as a real cluster: topics are not created automatically.
SERVER = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{controller}
listeners=PLAINTEXT://{plain},SECURED://{secured},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{plain},SECURED://{secured}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.name.secured.ssl.keystore.type=PEM
listener.name.secured.ssl.keystore.location={folder}/server.pem
listener.name.secured.sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.secured.scram-sha-256.sasl.jaas.config={login} required;
log.dirs={folder}/data
auto.create.topics.enable=false
message.max.bytes=35651584
replica.fetch.max.bytes=35651584
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
log.cleaner.backoff.ms=200
log.cleaner.dedupe.buffer.size=16777216
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=1000
"""

CLIENT = """\
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config={login} required username="{user}" password="{password}";
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
"""

# A metadata request (type 3, version 1, number 0, no client name, no topics), preceded by its size in bytes. The
# response begins with its size, the number of the request, and the number of brokers. A client library would log
# errors, retry and leave sockets open while there is no broker.
WHICH_BROKERS = struct.pack(">ihhihi", 14, 3, 1, 0, -1, 0)


class Kafka:
    """The broker. The port `secured` is a second listener, for clients only."""

    name = "kafka"
    title = "Apache Kafka 4.1.1"
    ports = ("plain", "secured", "controller")
    usual_ports = (("plain", 9092),)

    def prepare(self, instance: Instance) -> None:
        """Write the keys, the user, the settings and an empty storage."""
        folder, password = instance.folder, secrets.token_urlsafe(18)
        authority, certified = authority_and_server(HOST)
        (folder / "ca.pem").write_bytes(authority)
        write_secret(folder / "server.pem", certified)
        write_secret(folder / "password", password.encode())
        client = CLIENT.format(folder=folder, login=LOGIN, user=USER, password=password)
        write_secret(self.client_properties(instance), client.encode())
        server_properties = SERVER.format(
            folder=folder, login=LOGIN, **{port: instance.address(port) for port in self.ports}
        )
        (folder / "server.properties").write_text(server_properties, encoding="utf-8")
        cluster = urlsafe_b64encode(b"opicflow" + secrets.token_bytes(8)).decode().rstrip("=")
        user = f"SCRAM-SHA-256=[name={USER},password={password}]"
        arguments = ["format", "-t", cluster, "-c", str(folder / "server.properties"), "--add-scram", user]
        # Every user of the machine can read the arguments of a process; "@file" hides the password.
        hidden = write_secret(folder / "format.arguments", "\n".join(arguments).encode())
        tool = instance.jvm(
            ["kafka.tools.StorageTool", f"@{hidden}"], "-cp", f"{instance.jars}/*", "-XX:TieredStopAtLevel=1"
        )
        done = subprocess.run(tool, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        hidden.unlink()
        if done.returncode:
            output = done.stdout.replace(password, "***").splitlines()[-5:]
            raise ServicesRefused("\n".join([f"{self.title}: the storage in {folder} cannot be created:", *output]))

    def commands(self, instance: Instance) -> dict[str, list[str]]:
        """Return one command: broker and controller."""
        logger = [f"-Dorg.slf4j.simpleLogger.{name}" for name in ("showDateTime=true", "dateTimeFormat=HH:mm:ss.SSS")]
        main = ["kafka.Kafka", str(instance.folder / "server.properties")]
        return {self.name: instance.jvm(main, "-Xms256m", "-Xmx640m", *logger, "-cp", f"{instance.jars}/*")}

    def check(self, instance: Instance) -> None:
        """Check that the plain listener lists a broker, and the other one has a certificate of our authority."""
        with connect(instance.ports["plain"]) as plain:
            plain.sendall(WHICH_BROKERS)
            _size, _request, brokers = struct.unpack(">iii", _receive(plain, 12))
        if not brokers:
            raise ConnectionError("the broker has not registered with its controller yet")
        trusting = ssl.create_default_context(cafile=str(instance.folder / "ca.pem"))
        with connect(instance.ports["secured"]) as raw, trusting.wrap_socket(raw, server_hostname=HOST):
            pass

    def usage(self, instance: Instance) -> list[str]:
        """Return the options for both listeners."""
        secured = f"--brokers {instance.address('secured')} --properties {self.client_properties(instance)}"
        return [f"--brokers {instance.address('plain')}", f"{secured}   (TLS and a password)"]

    def client_properties(self, instance: Instance) -> Path:
        """Return the properties file of a client of the secured listener."""
        return instance.folder / "client.properties"

    def password(self, instance: Instance) -> str:
        """Return the password of the user of the secured listener."""
        return (instance.folder / "password").read_text(encoding="utf-8")


def _receive(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise ConnectionError("the broker has closed the connection")
        data += more
    return data
