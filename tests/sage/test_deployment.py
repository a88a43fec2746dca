"""The files of a deployment parse and fit the command line, and the image builds."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from sage.core.errors import InputError
from sage.web.people import Role
from sage_hospital.roles import parse_trust, read_roles
from sandbox.image.build import BASE_IMAGE
from tests.docs.examples import parse

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
ROLES = 'default = ["read"]\n[people]\nann = ["run", "review"]  # "both"\n'


HELM = shutil.which("helm")
helm = pytest.mark.skipif(HELM is None, reason="Helm is not installed (.ci/helm puts it there)")


def manifests(tmp_path: Path, **values: Any) -> list[dict[str, Any]]:
    """What Helm makes of the chart, without a cluster, where its strict lint has no objection."""
    given = tmp_path / "values.yaml"
    image = {"digest": f"sha256:{'0' * 64}"}
    given.write_text(
        yaml.safe_dump(
            {"roles": ROLES, "image": image, "trust": {"proxies": ["192.0.2.0/28"]}} | values
        )
    )
    chart = str(DEPLOY / "helm" / "sage")
    assert HELM is not None
    for command in (["lint", "--strict", chart], ["template", "lab", chart]):
        done = subprocess.run(
            [HELM, *command, "--values", str(given)],
            capture_output=True, text=True, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    return [item for item in yaml.safe_load_all(done.stdout) if item]


def commands_of(found: list[dict[str, Any]]) -> list[list[str]]:
    """What the containers of a chart run."""
    pods = [item["spec"]["template"]["spec"] for item in found if item["kind"] == "Deployment"]
    return [container["args"] for pod in pods for container in pod["containers"]]


@helm
@pytest.mark.parametrize("values", [{}, {"data": "slides", "workers": 9}])
def test_the_chart_becomes_what_a_cluster_takes(values: dict[str, Any], tmp_path: Path) -> None:
    found = manifests(tmp_path, **values)
    assert sorted(item["kind"] for item in found) == [
        "ConfigMap", "Deployment", "Deployment", "NetworkPolicy", "PersistentVolumeClaim",
        "Service",
    ]  # fmt: skip
    names = {(item["kind"], item["metadata"]["name"]) for item in found}
    assert ("PersistentVolumeClaim", "lab-runs") in names
    for command in commands_of(found):
        parse(" ".join(["sage", *command]))
    for item in found:
        if item["kind"] != "Deployment":
            continue
        pod = item["spec"]["template"]["spec"]
        assert item["spec"]["selector"]["matchLabels"].items() <= (
            item["spec"]["template"]["metadata"]["labels"].items()
        )
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["shareProcessNamespace"] is True  # SIGTERM ends SAGE also while it loads
        (container,) = pod["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        assert {entry["name"] for entry in container["env"]} == {
            "SAGE_CHECKPOINT_URL", "SAGE_LEDGER",
        }  # fmt: skip
        assert ("slides" in str(pod["volumes"])) == ("data" in values)


@helm
def test_the_chart_s_roles_are_those_that_the_server_reads(tmp_path: Path) -> None:
    found = manifests(tmp_path, roles=ROLES)
    (said,) = [item for item in found if item["kind"] == "ConfigMap"]
    ((name, text),) = said["data"].items()
    (tmp_path / name).write_text(text)
    assert read_roles(tmp_path / name).roles_of("ann") == {Role.RUN, Role.REVIEW}
    server = next(item for item in found if item["metadata"]["name"] == "lab-server")
    pod = server["spec"]["template"]["spec"]
    mounts = {item["name"]: item["mountPath"] for item in pod["containers"][0]["volumeMounts"]}
    assert f"--roles={mounts['roles']}/{name}" in pod["containers"][0]["args"]
    assert said["metadata"]["name"] in [
        item["configMap"]["name"] for item in pod["volumes"] if "configMap" in item
    ]


@helm
@pytest.mark.parametrize(
    "wrong",
    [
        {"workers": "two"},
        {"wrokers": 4},
        {"trust": {"proxies": [""]}},
        {"secret": ""},
        {"roles": ""},
        {"roles": " \n"},
        # Without sources, a policy of Kubernetes lets everybody in; without targets, out.
        {"trust": {}},
        {"trust": {"proxies": []}},
        {"trust": {"proxies": ["0.0.0.0/0"]}},
        {"trust": {"proxies": ["::/0"]}},
        {"trust": {"header": ""}},
        {"egress": [{}]},
        {"egress": [{"ports": [{"port": 443}]}]},
        {"egress": [{"to": [{}], "ports": [{"port": 443}]}]},
        {"host": "*"},
        {"networkPolicy": {"enabled": False}},
        {"server": {"hostNetwork": True}},
        {"image": {"digest": ""}},
        {"image": {"digest": "latest"}},
    ],
)
def test_values_that_the_chart_does_not_take_are_named(
    wrong: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=next(iter(wrong))):
        manifests(tmp_path, **wrong)


@helm
def test_pods_have_no_way_to_the_node_and_few_to_the_network(tmp_path: Path) -> None:
    rule = {"to": [{"ipBlock": {"cidr": "192.0.2.1/32"}}], "ports": [{"port": 443}]}
    found = manifests(tmp_path, data="slides", egress=[rule])
    (policy,) = [item["spec"] for item in found if item["kind"] == "NetworkPolicy"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert all(entry["from"] for entry in policy["ingress"])
    assert all(entry["to"] and entry["ports"] for entry in policy["egress"])
    (chosen,) = policy["podSelector"]["matchExpressions"]
    for item in found:
        if item["kind"] != "Deployment":
            continue
        assert item["spec"]["template"]["metadata"]["labels"][chosen["key"]] in chosen["values"]
        pod = item["spec"]["template"]["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert pod["automountServiceAccountToken"] is False
        kinds = {kind for volume in pod["volumes"] for kind in volume} - {"name"}
        assert kinds <= {"persistentVolumeClaim", "emptyDir", "secret", "configMap"}
        (container,) = pod["containers"]
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False and "privileged" not in security
        assert re.fullmatch(r"sage@sha256:[0-9a-f]{64}", container["image"])
    with pytest.raises(AssertionError, match="digest"):
        manifests(tmp_path, image={"tag": "latest"})
    local = manifests(tmp_path, image={"pullPolicy": "Never"})
    pods = [it["spec"]["template"]["spec"] for it in local if it["kind"] == "Deployment"]
    assert {pod["containers"][0]["image"] for pod in pods} == {"sage:0.1.0"}


@pytest.mark.parametrize("setting", [{}, {"SAGE_DATA": "/", "SAGE_ROLES": "/dev/null"}])
def test_no_service_has_the_engine_s_socket_or_more_rights(setting: dict[str, str]) -> None:
    """Whatever an `.env` says, folders of the host are read only, and images are not fetched."""
    text = (DEPLOY / "compose.yaml").read_text()
    for name, value in setting.items():
        text = re.sub(rf"\$\{{{name}:-[^}}]*\}}", value, text)
    given = yaml.safe_load(text)
    for name, service in given["services"].items():
        assert not {"privileged", "cap_add", "devices", "network_mode", "pid", "ipc", "userns_mode",
                    "group_add", "extends", "env_file"} & set(service)  # fmt: skip
        for volume in service["volumes"]:
            source, _, place = volume.replace(":-", "").partition(":")
            assert source in given["volumes"] or place.endswith(":ro"), volume
        assert "docker.sock" not in str(service)
        assert "@sha256:" in service["image"] or service["pull_policy"] == "never", name
        published = service.get("ports", [])
        assert all(port.startswith("127.0.0.1:") for port in published)
        if name != "database":
            assert set(service["environment"]) == {"SAGE_CHECKPOINT_URL", "SAGE_LEDGER"}
    assert {name: set(entry) for name, entry in given["secrets"].items()} == {
        "token": {"file"}, "roles": {"file"}
    }  # fmt: skip


@pytest.mark.parametrize(
    ("roles", "proxies", "named"),
    [
        (None, [], "--roles"),
        ("absent", [], "No such file"),
        ("", [], "nobody"),
        ('default = "administer"', [], "administer"),
        ('default = ["read", "administer"]', [], "administer"),
        ('[people]\n"*" = "read"', [], "pattern"),
        ('[people]\n"@example.org?" = "read"', [], "pattern"),
        ('default = "king"', [], "valid roles"),
        (ROLES, ["0.0.0.0/0"], "every address"),
        (ROLES, ["::/0"], "every address"),
        (ROLES, ["proxy"], "--trust-proxy"),
    ],
)
def test_no_server_starts_that_would_let_anybody_in(
    roles: str | None, proxies: list[str], named: str, tmp_path: Path
) -> None:
    file = tmp_path / "roles.toml" if roles is not None else None
    if file is not None and roles != "absent":
        file.write_text(roles or "")
    with pytest.raises(InputError, match=re.escape(named)):
        parse_trust("X-Forwarded-User", proxies, file)


def test_without_its_files_the_service_of_a_unit_does_not_start(tmp_path: Path) -> None:
    """The command of the unit, as an environment of another program's variables would start it."""
    unit = (DEPLOY / "sage-server.service").read_text()
    (line,) = re.findall(r"^ExecStart=/opt/sage/bin/sage (.*)$", unit, re.MULTILINE)
    place = tmp_path / "etc"
    words = line.replace("/etc/sage", str(place)).replace("/srv/sage/cohorts", str(tmp_path))
    place.mkdir()
    (place / "token").write_text("t" * 32)
    (place / "token").chmod(0o640)
    hostile = {"SAGE_TRUST_HEADER": "", "SAGE_ROLES": "", "TRUST_HEADER": "", "OPENAI_API_KEY": "k"}
    for missing in ("roles.toml", "token"):
        (place / "roles.toml").write_text(ROLES)
        (place / missing).unlink()
        done = subprocess.run(
            [sys.executable, "-m", "sage", *words.split()], cwd=tmp_path, timeout=60,
            env={**os.environ, **hostile, "HOME": str(tmp_path)}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 2 and missing in done.stderr, done.stderr


def test_the_image_takes_sage_s_arguments_and_what_nextflow_starts(tmp_path: Path) -> None:
    """Nextflow's launcher is an argument on Kubernetes and AWS Batch, not the entry point."""
    said = re.search(r"^ENTRYPOINT (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert said is not None
    (tmp_path / "sage").write_text('#!/bin/sh\necho "sage: $*"\n')
    (tmp_path / "sage").chmod(0o755)

    def started(*arguments: str) -> str:
        return subprocess.run(
            [*json.loads(said[1]), *arguments], env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    assert started("worker", "--pool", "two words") == "sage: worker --pool two words\n"
    for shell in ("bash", "/bin/bash"):
        assert started(shell, "-ue", "-c", 'echo "$0" task', "a b") == "a b task\n"


def test_what_is_fetched_is_named_by_its_hash() -> None:
    """Actions by commit and images by digest: a moved tag changes nothing."""
    flows = (DEPLOY.parent / ".github" / "workflows").glob("*.yml")
    actions = [name for flow in flows for name in re.findall(r"uses: *(\S+)", flow.read_text())]
    assert actions and all(re.fullmatch(r"[\w/.-]+@[0-9a-f]{40}", name) for name in actions)
    places = [DEPLOY / "Dockerfile", DEPLOY.parent / "sandbox" / "image" / "Dockerfile"]
    images = [re.findall(r"^ARG BASE_IMAGE=(\S+)$", it.read_text(), re.MULTILINE) for it in places]
    images.append([BASE_IMAGE])
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"].values()
    images.append([service["image"] for service in services if service["image"] != "sage"])
    for (image,) in images:
        assert re.fullmatch(r"[\w:.-]+@sha256:[0-9a-f]{64}", image), image


def test_compose_starts_server_and_workers_on_one_database() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(services) == {"database", "server", "worker"}
    for name in ("server", "worker"):
        service = services[name]
        said = [re.sub(r"\$\{\w+:-(.+)\}", r"\1", word) for word in service["command"]]
        parse(" ".join(["sage", *said]))
        assert service["environment"]["SAGE_CHECKPOINT_URL"].endswith("@database/sage")
        assert service["read_only"] is True and service["init"] is True
        assert service["cap_drop"] == ["ALL"]
    assert {"--trust-header", "--roles"} <= set(services["server"]["command"])
    assert services["server"]["ports"] == ["127.0.0.1:8766:8766"]
    assert services["worker"]["ports"] == []


@pytest.mark.parametrize("name", ["sage-server.service", "sage-worker@.service"])
def test_a_unit_runs_what_there_is(name: str) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((DEPLOY / name).read_text())
    service = unit["Service"]
    parse(service["ExecStart"].replace("/opt/sage/bin/", ""))
    if name == "sage-server.service":  # else everybody may do everything
        assert "--trust-header X-Forwarded-User" in service["ExecStart"]
        assert "--roles /etc/sage/roles.toml" in service["ExecStart"]
        # The doctor tells; a queue that waited for workers keeps no page from starting.
        assert "ExecStartPre=-/opt/sage/bin/sage hospital check\n" in (DEPLOY / name).read_text()
    # Docker is given folders of code by their place, and does not see a unit's own /tmp.
    assert service["PrivateTmp"] == "yes"
    assert "Environment=TMPDIR=/srv/sage/tmp\n" in (DEPLOY / name).read_text()
    assert service["ReadWritePaths"] == "/srv/sage"
    assert service["User"] == "sage"
    assert service["NoNewPrivileges"] == "yes"
    assert service["CapabilityBoundingSet"] == ""
    assert service["RestrictAddressFamilies"]
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        done = subprocess.run(
            [analyze, "verify", "--man=no", str(DEPLOY / name)], capture_output=True, text=True
        )
        assert "Unknown" not in done.stderr, done.stderr


def has_base() -> bool:
    """Whether an engine answers that has the base image made on the spot."""
    if shutil.which("docker") is None:
        return False
    found = subprocess.run(["docker", "image", "inspect", "sage-base:latest"], capture_output=True)
    return found.returncode == 0


def write_empty_wheel(folder: Path, name: str) -> None:
    """A package that has the version installed here and no content."""
    info = f"{re.sub(r'[-_.]+', '_', name)}-{version(name)}"
    tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    held = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version(name)}\n"
    with zipfile.ZipFile(folder / f"{info}-py3-none-any.whl", "w") as wheel:
        for file, text in (("METADATA", held), ("WHEEL", tags), ("RECORD", "")):
            wheel.writestr(f"{info}.dist-info/{file}", text)


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.skipif(not has_base(), reason="no engine with the image sage-base")
def test_the_image_builds_without_a_network_and_its_server_answers(tmp_path: Path) -> None:
    """Packages of others stand empty in the wheelhouse, and are mounted while the server runs."""
    wheels = tmp_path / "wheelhouse"
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", str(wheels), str(ROOT)], check=True)
    for needed in map(Requirement, requires("sage-pathology") or ()):
        if needed.marker is None or needed.marker.evaluate({"extra": "postgres"}):
            write_empty_wheel(wheels, needed.name)
    recipe = tmp_path / "Dockerfile"  # bytecode would take a minute
    text = (DEPLOY / "Dockerfile").read_text()
    recipe.write_text(text.replace("install --no-index", "install --no-compile --no-index"))
    tag = "sage-service-test"
    subprocess.run(
        ["docker", "build", "-q", "--network", "none", "-t", tag, "--build-arg",
         "BASE_IMAGE=sage-base:latest", "--build-arg", "EXTRAS=postgres",
         "-f", str(recipe), str(tmp_path)],
        check=True,
    )  # fmt: skip
    flags = ["--rm", "--network", "none", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL",
             "--security-opt", "no-new-privileges"]  # fmt: skip
    try:
        ask = (
            "import subprocess, sys, time, urllib.request as u\n"
            "s = subprocess.Popen(['sage', 'serve', '--port', '8766'])\n"
            "for _ in range(300):\n"
            "    try:\n"
            "        print(u.urlopen('http://127.0.0.1:8766/healthz').read().decode()); break\n"
            "    except OSError: time.sleep(0.2)\n"
            "s.terminate(); s.wait(20)\n"
        )
        packages = ["-v", f"{sysconfig.get_path('purelib')}:/packages:ro",
                    "-e", "PYTHONPATH=/packages"]  # fmt: skip
        done = subprocess.run(
            ["docker", "run", *flags, *packages, "--entrypoint", "python3", tag, "-c", ask],
            capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        assert '{"status": "ok"}' in done.stdout, done.stderr
        who = subprocess.run(
            ["docker", "run", *flags, "--entrypoint", "id", tag, "-u"],
            capture_output=True, text=True,
        )  # fmt: skip
        assert who.stdout.strip() == "10001"
    finally:
        subprocess.run(["docker", "image", "rm", "-f", tag], capture_output=True)
