"""The files of deploy/kubernetes: what a cluster would refuse, and what would be open to others, without a cluster."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
import yaml
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.environments import ExternalEnvironment

from deploy.services.artifacts import ServicesMissing, artifact
from deploy.services.instance import free_ports
from opicflow.pipelines.cli.parser import build_parser
from opicflow.pipelines.stream.submit import FLINK_VERSION
from support.paths import TOP
from support.services import MISSING, missing
from support.waiting import wait_for

FOLDER = TOP / "deploy" / "kubernetes"
DEFINITION = "META-INF/fabric8/flinkdeployments.flink.apache.org-v1.yml"
"""The operator's definition of a FlinkDeployment, as its package for Java has it."""


def read(name: str) -> list[Any]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


def merged(first: Any, second: Any) -> Any:
    """Merge two templates of a pod as the operator does with `merge-arrays-by-name`."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first | {name: merged(first[name], one) if name in first else one for name, one in second.items()}
    if isinstance(first, list) and isinstance(second, list) and all("name" in one for one in first + second):
        return list(merged({one["name"]: one for one in first}, {one["name"]: one for one in second}).values())
    return second


VALUES = read("kustomization.yaml")[0]
RESOURCES = [one for name in VALUES["resources"] for one in read(name)]
KINDS = {one["kind"]: one for one in RESOURCES}
FLINK = KINDS["FlinkDeployment"]
SPEC = FLINK["spec"]
SETTINGS = SPEC["flinkConfiguration"]
POLICIES = [one["spec"] for one in RESOURCES if one["kind"] == "NetworkPolicy"]

PODS = {
    **{
        role.lower(): merged(SPEC["podTemplate"], SPEC[role]["podTemplate"])["spec"]
        for role in ("jobManager", "taskManager")
    },
    **{
        KINDS[kind]["spec"]["template"]["metadata"]["labels"]["component"]: KINDS[kind]["spec"]["template"]["spec"]
        for kind in ("Deployment", "Job")
    },
}
"""The pods by their label `component`, which the operator gives to those of Flink."""
LABELS = {
    **{one: {"app": FLINK["metadata"]["name"], "component": one} for one in ("jobmanager", "taskmanager")},
    **{component: KINDS[kind]["spec"]["template"]["metadata"]["labels"] for component, kind in
       (("job-server", "Deployment"), ("submit", "Job"))},
}  # fmt: skip
CONTAINERS = {
    f"{pod}/{one['name']}": one
    for pod, spec in PODS.items()
    for one in [*spec["containers"], *spec.get("initContainers", ())]
}
WORKERS = CONTAINERS["taskmanager/workers"]
SUBMIT = CONTAINERS["submit/submit"]
WORKER_PORT = 50000


def problems(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield what of a value is against a structural schema of Kubernetes. Other names than those in it are unknown."""
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str):
            yield f"{path}: neither a number nor text"
        return
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "number": (int, float)}
    kind = schema.get("type")
    if kind and not isinstance(value, kinds[kind]):
        yield f"{path}: {value!r} is no {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        yield from (f"{path}: {name} is missing" for name in schema.get("required", ()) if name not in value)
        for name, one in value.items():
            if name in known:
                yield from problems(one, known[name], f"{path}.{name}")
            elif isinstance(others, dict):
                yield from problems(one, others, f"{path}.{name}")
            elif not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{path}: {name} is not known"
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from problems(one, schema["items"], f"{path}[{number}]")


def test_the_deployment_is_as_the_operator_defines_it() -> None:
    try:
        folder = artifact("kubernetes", "the operator's definition of a FlinkDeployment", print)
    except ServicesMissing as problem:
        missing(str(problem))
    (definition,) = yaml.safe_load_all((folder / DEFINITION).read_text(encoding="utf-8"))
    (version,) = [one for one in definition["spec"]["versions"] if FLINK["apiVersion"].endswith(f"/{one['name']}")]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert list(problems(SPEC, schema, "spec")) == []
    planted = {**SPEC, "flinkVersion": "v1_1", "taskManagers": {}, "taskManager": {"replicas": "two"}}
    assert len(list(problems(planted, schema, "spec"))) == 3


# -- slots -----------------------------------------------------------------------------------------------------------


def test_all_slots_are_there_before_the_job() -> None:
    """`opicflow stream` refuses a cluster without free slots: that of the native mode has none before a job."""
    assert SPEC["mode"] == "standalone"
    assert SPEC["taskManager"]["replicas"] * int(SETTINGS["taskmanager.numberOfTaskSlots"]) > 0


def test_the_templates_of_a_pod_are_merged_by_name() -> None:
    """By position, the volumes of a TaskManager would replace those of all of Flink's pods."""
    assert SETTINGS["kubernetes.operator.pod-template.merge-arrays-by-name"] == "true"
    assert merged([{"name": "a", "x": 1}], [{"name": "b"}, {"name": "a", "y": 2}]) == [
        {"name": "a", "x": 1, "y": 2},
        {"name": "b"},
    ]


# -- names and values ------------------------------------------------------------------------------------------------


def secrets_of(pod: dict[str, Any]) -> set[str]:
    return {one["secret"]["secretName"] for one in pod.get("volumes", ()) if "secret" in one} | {
        one["secretRef"]["name"]
        for container in pod["containers"]
        for one in container.get("envFrom", ())
        if "secretRef" in one
    }


def test_every_secret_volume_and_value_that_is_named_is_made_and_used() -> None:
    assert set().union(*map(secrets_of, PODS.values())) == {one["name"] for one in VALUES["secretGenerator"]}
    for pod in PODS.values():
        containers = [*pod["containers"], *pod.get("initContainers", ())]
        mounted = {mount["name"] for one in containers for mount in one.get("volumeMounts", ())}
        assert mounted == {one["name"] for one in pod["volumes"]}
    (literals,) = [one["literals"] for one in VALUES["configMapGenerator"]]
    names = {one.partition("=")[0] for one in literals}
    assert names == {part.partition(")")[0] for one in SUBMIT["args"] for part in one.split("$(")[1:]}


SECRET_FILES = {file for one in VALUES["secretGenerator"] for file in [*one.get("files", ()), *one.get("envs", ())]}


def test_no_secret_gets_into_a_commit() -> None:
    assert (
        set((TOP / ".gitignore").read_text("utf-8").splitlines())
        >= SECRET_FILES
        == {"client.properties", "storage.env"}
    )


def test_every_file_is_a_resource() -> None:
    assert sorted(VALUES["resources"]) == sorted(
        file.name for file in FOLDER.glob("*.yaml") if file.name != "kustomization.yaml"
    )


def test_flink_runs_as_an_account_that_may_do_nothing_but_keep_its_config_maps() -> None:
    role, account = KINDS["Role"], KINDS["ServiceAccount"]["metadata"]["name"]
    assert SPEC["serviceAccount"] == account
    assert KINDS["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    assert KINDS["RoleBinding"]["roleRef"]["name"] == role["metadata"]["name"]
    assert [(one["apiGroups"], one["resources"]) for one in role["rules"]] == [([""], ["configmaps"])]
    assert all(PODS[pod]["automountServiceAccountToken"] is False for pod in ("job-server", "submit"))


def patched() -> Iterator[tuple[str, str, str]]:
    """Yield kind, path, and value of each patch, and compare the value with the example that it replaces."""
    for one in VALUES["patches"]:
        target = one["target"]
        for step in yaml.safe_load(one["patch"]):
            (at,) = [
                found
                for found in RESOURCES
                if found["kind"] == target["kind"] and target.get("name") in (None, found["metadata"]["name"])
            ]
            for name in step["path"].lstrip("/").split("/"):
                at = at[int(name)] if isinstance(at, list) else at[name.replace("~1", "/")]
            yield step["path"], at, step["value"]


def test_the_patches_replace_every_example_value() -> None:
    replaced = {before for _, before, _ in patched()}
    placeholder = re.compile(r"\b(BUCKET|OPERATOR|MONITORING)\b(?!\))")
    texts = re.findall(r"^[^#\n]*", "\n".join((FOLDER / name).read_text("utf-8") for name in VALUES["resources"]), re.M)
    named = [one for text in texts for one in text.split() if placeholder.search(one)]
    assert {one.rstrip("}") for one in named} == {one for one in replaced if placeholder.search(one)}
    for _, before, after in patched():
        assert not placeholder.search(after)
        assert before != "opicflow-worker" or after.rpartition(":")[0].endswith(f"/{before}")
    image = {(one["newName"], one["newTag"]) for one in VALUES["images"]}
    assert image == {tuple(after.rsplit(":", 1)) for _, before, after in patched() if before == "opicflow-worker"}


def test_the_job_has_options_that_the_command_knows_and_addresses_that_exist() -> None:
    arguments = [*SUBMIT["command"][1:], *SUBMIT["args"]]
    options = build_parser(arguments).parse_args(arguments)
    assert options.flink_master == f"{FLINK['metadata']['name']}-rest:8081"
    service = KINDS["Service"]
    assert options.job_server == f"{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    assert options.beam_option == ["--environment_type=EXTERNAL", f"--environment_config=localhost:{WORKER_PORT}"]
    assert f"--flink-master={options.flink_master}" in CONTAINERS["job-server/job-server"]["args"]
    assert service["spec"]["selector"] == LABELS["job-server"] == KINDS["Deployment"]["spec"]["selector"]["matchLabels"]
    folder, _, file = options.properties.rpartition("/")
    for container in (SUBMIT, WORKERS):  # the job has the path, and a worker reads the file
        assert {"name": "kafka", "mountPath": folder, "readOnly": True} in container["volumeMounts"]
    assert {"name": "opicflow-kafka", "files": [file]} in VALUES["secretGenerator"]


@pytest.mark.slow
def test_the_command_of_the_pool_runs_the_worker_of_this_package(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    python, *module = WORKERS["command"]
    assert python == "python" and f"--service_port={WORKER_PORT}" in WORKERS["args"]
    arguments = [one.replace(str(WORKER_PORT), str(port)) for one in WORKERS["args"]]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    pool = subprocess.Popen(
        [sys.executable, *module, *arguments],
        env={**os.environ, "PATH": path, "OPICFLOW_WORKER_LOGS": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with pool:
        try:
            wait_for(f"the pool to listen on port {port}", lambda: listens(port))
            runner = FnApiRunner(default_environment=ExternalEnvironment(f"localhost:{port}"))
            options = PipelineOptions(["--experiments=disable_logging_submission_environment"])
            with beam.Pipeline(runner=runner, options=options) as pipeline:
                assert_that(pipeline | beam.Create(["a", "bb"]) | beam.Map(len), equal_to([1, 2]))
        finally:
            pool.terminate()
    assert list(tmp_path.glob("opicflow-worker-*.log")), "another program was started"


def listens(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("localhost", port), 1).close()
        return True
    return False


def test_kustomize_makes_all_of_it(tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if not kubectl:
        pytest.skip(f"{MISSING}no kubectl, whose kustomize reads deploy/kubernetes")
    shutil.copytree(FOLDER, tmp_path / "kubernetes")
    for file in SECRET_FILES:
        (tmp_path / "kubernetes" / file).write_text("a=b\n", "utf-8")
    made = subprocess.run([kubectl, "kustomize", tmp_path / "kubernetes"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    objects = list(yaml.safe_load_all(made.stdout))
    assert len(objects) == len(RESOURCES) + len(VALUES["configMapGenerator"]) + len(VALUES["secretGenerator"])
    names = {one["metadata"].get("namespace", one["metadata"]["name"]) for one in objects}
    assert names == {VALUES["namespace"]}
    assert re.findall(r"\b(?:BUCKET|OPERATOR|MONITORING)\b(?!\)|:|=)", made.stdout) == []
    assert made.stdout.count("image: registry.example/opicflow-worker:") == 2


def test_settings_that_the_standalone_cluster_has_too_are_the_same() -> None:
    standalone = yaml.safe_load((TOP / "deploy" / "standalone" / "config.yaml").read_text(encoding="utf-8"))
    own = {"state.checkpoints.dir", "state.savepoints.dir", "metrics.reporter.prometheus.port"}
    common = (set(SETTINGS) & set(standalone)) - own
    assert len(common) > 10
    for name in common:
        assert SETTINGS[name] == str(standalone[name]).replace("True", "true").replace("False", "false"), name


def test_images_have_exact_versions_that_fit_each_other() -> None:
    flink = f":{FLINK_VERSION}."
    assert SPEC["image"] == CONTAINERS["jobmanager/plugins"]["image"] and flink in SPEC["image"]
    assert SPEC["flinkVersion"] == f"v{FLINK_VERSION.replace('.', '_')}"
    assert f"flink{FLINK_VERSION}_job_server:" in CONTAINERS["job-server/job-server"]["image"]
    images = {one["image"] for one in CONTAINERS.values() if "image" in one} - {"opicflow-worker"}
    assert [image for image in images if not re.search(r":\d+\.\d+\.\d+", image)] == []


# -- rights and ports ------------------------------------------------------------------------------------------------


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a selector of Kubernetes selects these labels."""
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    return all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items()) and all(
        one["operator"] == "In" and labels.get(one["key"]) in one["values"]
        for one in selector.get("matchExpressions", ())
    )


def admits(peer: dict[str, Any], namespace: str | None, labels: dict[str, str]) -> bool:
    """Whether a policy's peer is a pod with these labels; namespace None = the one of opicflow."""
    names = {"kubernetes.io/metadata.name": namespace or VALUES["namespace"]}
    at = selects(peer["namespaceSelector"], names) if "namespaceSelector" in peer else namespace is None
    return at and selects(peer.get("podSelector", {}), labels)


def opened_to(namespace: str | None, labels: dict[str, str]) -> set[tuple[str, int]]:
    """Return the pods and ports to which a pod may open a connection, as the policies are added up."""
    found = set()
    for component, to in LABELS.items():
        applied = [one for one in POLICIES if "Ingress" in one["policyTypes"] and selects(one["podSelector"], to)]
        assert applied, f"{component}: no policy selects this pod, so that everybody may reach it"
        for rule in (rule for one in applied for rule in one.get("ingress", ())):
            assert rule["from"] and rule["ports"], "a rule without them opens all"
            if any(admits(peer, namespace, labels) for peer in rule["from"]):
                found |= {(component, port["port"]) for port in rule["ports"]}
    return found


FLINKS = {("jobmanager", 6123), ("jobmanager", 6124)} | {("taskmanager", port) for port in (6121, 6122, 6170)}
REST = {("jobmanager", 8081)}
METRICS = {("jobmanager", 9249), ("taskmanager", 9249)}


@pytest.mark.parametrize(
    ("namespace", "labels", "ports"),
    [
        (None, LABELS["jobmanager"], FLINKS),
        (None, LABELS["taskmanager"], FLINKS),
        (None, LABELS["job-server"], REST),
        (None, LABELS["submit"], REST | {("job-server", 8098), ("job-server", 8099)}),
        (None, {"app": "another"}, set()),
        ("other", LABELS["taskmanager"], set()),
        ("other", LABELS["submit"], set()),
        ("OPERATOR", {"app.kubernetes.io/name": "flink-kubernetes-operator"}, REST),
        ("OPERATOR", {}, set()),
        ("other", {"app.kubernetes.io/name": "flink-kubernetes-operator"}, set()),
        ("MONITORING", {}, METRICS),
    ],
)
def test_a_pod_reaches_the_ports_that_it_needs_and_no_others(
    namespace: str | None, labels: dict[str, str], ports: set[tuple[str, int]]
) -> None:
    """So the pool of workers, which starts programs, and Beam's servers beside it are closed to all pods."""
    assert opened_to(namespace, labels) == ports
    assert not {WORKER_PORT} & {port for _, port in ports}


def test_flink_listens_on_the_ports_that_are_open() -> None:
    names = {
        "jobmanager": ("jobmanager.rpc.port", "blob.server.port"),
        "taskmanager": ("taskmanager.data.port", "taskmanager.rpc.port", "metrics.internal.query-service.port"),
    }
    assert {(pod, int(SETTINGS[name])) for pod, found in names.items() for name in found} == FLINKS
    assert {port for _, port in METRICS} == {int(SETTINGS["metrics.reporter.prometheus.port"])}


def test_the_namespace_refuses_pods_with_more_rights() -> None:
    namespace = KINDS["Namespace"]["metadata"]
    assert namespace["name"] == VALUES["namespace"]
    assert namespace["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_has_no_rights_and_writes_to_its_volumes_only(name: str) -> None:
    pod, container = PODS[name.partition("/")[0]]["securityContext"], CONTAINERS[name]["securityContext"]
    assert pod["runAsNonRoot"] is True and pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert {**pod, **container}["runAsUser"] > 0
    assert (container["allowPrivilegeEscalation"], container["readOnlyRootFilesystem"]) == (False, True)
    assert container["capabilities"] == {"drop": ["ALL"]}


def test_a_container_runs_as_the_user_of_its_image() -> None:
    lines = (TOP / "deploy/container/Dockerfile").read_text("utf-8").splitlines()
    (user,) = [line.split()[1] for line in lines if line.startswith("USER ")]
    for name, container in CONTAINERS.items():
        context = {**PODS[name.partition("/")[0]]["securityContext"], **container["securityContext"]}
        if container.get("image") == "opicflow-worker":
            assert f"{context['runAsUser']}:{context['runAsGroup']}" == user, name
        elif "flink" in container.get("image", "flink-main-container") and "job_server" not in container.get(
            "image", ""
        ):
            assert (context["runAsUser"], context["runAsGroup"]) == (9999, 9999), name


# -- limits and probes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_has_as_much_memory_as_it_requests(name: str) -> None:
    """A pod that may take more is killed when the machine is full, in the middle of the work."""
    if name.endswith("/flink-main-container"):  # the operator makes both from this
        assert SPEC["jobManager" if name.startswith("job") else "taskManager"]["resource"]["memory"]
    else:
        resources = CONTAINERS[name]["resources"]
        assert resources["limits"]["memory"] == resources["requests"]["memory"]
    for volume in PODS[name.partition("/")[0]]["volumes"]:
        assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"], volume["name"]


def test_every_process_that_stays_is_probed_at_a_port_on_which_it_listens() -> None:
    listens = {
        "jobmanager/flink-main-container": int(SETTINGS["jobmanager.rpc.port"]),
        "taskmanager/flink-main-container": int(SETTINGS["taskmanager.rpc.port"]),
        "taskmanager/workers": WORKER_PORT,
        "job-server/job-server": "jobs",
    }
    probed = {
        name: one["livenessProbe"]["tcpSocket"]["port"] for name, one in CONTAINERS.items() if "livenessProbe" in one
    }
    assert probed == listens
    named = {one["name"]: one["containerPort"] for one in CONTAINERS["job-server/job-server"]["ports"]}
    assert named["jobs"] == KINDS["Service"]["spec"]["ports"][0]["port"]


def test_a_start_is_tried_again_until_flink_is_there() -> None:
    """Kubernetes doubles the time between two tries, from 10 s to 6 minutes."""
    tries = KINDS["Job"]["spec"]["backoffLimit"]
    assert sum(min(10 * 2**number, 360) for number in range(tries)) >= 1800
