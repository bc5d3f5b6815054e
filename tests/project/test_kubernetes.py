"""The files of deploy/kubernetes: they refer to names that exist, and match the operator's FlinkDeployment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from deploy.services.artifacts import ServicesMissing, artifact
from opicflow.pipelines.cli.parser import build_parser
from support.paths import TOP
from support.services import missing

FOLDER = TOP / "deploy" / "kubernetes"
DEFINITION = "META-INF/fabric8/flinkdeployments.flink.apache.org-v1.yml"
"""The operator's definition of a FlinkDeployment, as its package for Java has it."""


def read(name: str) -> list[Any]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


FLINK = read("flink.yaml")[0]
STREAM = {one["kind"]: one for one in read("stream.yaml")}
VALUES = read("kustomization.yaml")[0]


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
    schema = version["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]
    assert list(problems(FLINK["spec"], spec, "spec")) == []
    planted = {**FLINK["spec"], "flinkVersion": "v1_1", "taskManagers": {}, "taskManager": {"replicas": "two"}}
    assert len(list(problems(planted, spec, "spec"))) == 3


def secrets_of(pod: dict[str, Any]) -> set[str]:
    named = {one["secret"]["secretName"] for one in pod.get("volumes", ()) if "secret" in one}
    for container in pod["containers"]:
        named |= {one["secretRef"]["name"] for one in container.get("envFrom", ()) if "secretRef" in one}
        mounts = {one["name"] for one in container.get("volumeMounts", ())}
        assert mounts <= {one["name"] for one in pod.get("volumes", ())}
    return named


def test_every_secret_and_value_that_is_named_is_made_and_used() -> None:
    made = {one["name"] for one in VALUES["secretGenerator"]}
    pods = [
        FLINK["spec"]["podTemplate"]["spec"],
        FLINK["spec"]["taskManager"]["podTemplate"]["spec"],
        STREAM["Job"]["spec"]["template"]["spec"],
    ]
    assert set().union(*map(secrets_of, pods)) == made
    (submit,) = pods[-1]["containers"]
    (literals,) = [one["literals"] for one in VALUES["configMapGenerator"]]
    names = {one.partition("=")[0] for one in literals}
    assert names == {part.partition(")")[0] for one in submit["args"] for part in one.split("$(")[1:]}
    assert sorted(VALUES["resources"]) == ["flink.yaml", "stream.yaml"]


def test_the_patches_replace_every_example_value() -> None:
    (patch,) = [yaml.safe_load(one["patch"]) for one in VALUES["patches"]]
    for one in patch:
        at: Any = FLINK
        for name in one["path"].lstrip("/").split("/"):
            at = at[int(name)] if isinstance(at, list) else at[name]
        assert isinstance(at, str)
        assert at.replace("BUCKET", "opicflow-example") == one["value"] or one["value"].endswith(f"{at}:0.2.0")
    settings = FLINK["spec"]["flinkConfiguration"]
    places = {name for name, value in settings.items() if "BUCKET" in value}
    assert places == {one["path"].rpartition("/")[2] for one in patch if "flinkConfiguration" in one["path"]}


def test_the_job_has_options_that_the_command_knows_and_addresses_that_exist() -> None:
    (submit,) = STREAM["Job"]["spec"]["template"]["spec"]["containers"]
    arguments = [*submit["command"][1:], *submit["args"]]
    options = build_parser(arguments).parse_args(arguments)
    assert options.flink_master == f"{FLINK['metadata']['name']}-rest:8081"
    service = STREAM["Service"]
    assert options.job_server == f"{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    assert options.beam_option == ["--environment_type=EXTERNAL", "--environment_config=localhost:50000"]
    (server,) = STREAM["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert f"--flink-master={options.flink_master}" in server["args"]
    assert service["spec"]["selector"] == STREAM["Deployment"]["spec"]["template"]["metadata"]["labels"]


def test_settings_that_the_standalone_cluster_has_too_are_the_same() -> None:
    standalone = yaml.safe_load((TOP / "deploy" / "standalone" / "config.yaml").read_text(encoding="utf-8"))
    ours = FLINK["spec"]["flinkConfiguration"]
    own = {"state.checkpoints.dir", "state.savepoints.dir", "metrics.reporter.prometheus.port"}
    common = (set(ours) & set(standalone)) - own
    assert len(common) > 10
    for name in common:
        assert ours[name] == str(standalone[name]).replace("True", "true").replace("False", "false"), name
