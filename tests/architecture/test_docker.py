"""The container files agree with the project: pinned, unprivileged, and of the same versions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import ralm_engine

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKER = REPOSITORY / "docker"


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (DOCKER / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def compose() -> dict:
    return yaml.safe_load((DOCKER / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def rayjob() -> dict:
    return yaml.safe_load((DOCKER / "rayjob.yaml").read_text())


def _pod_specs(rayjob: dict) -> list[dict]:
    cluster = rayjob["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [group["template"]["spec"] for group in groups]


def test_base_images_are_pinned(dockerfile):
    """Fails when a base image floats: the same build would give another CUDA tomorrow."""
    stages = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)", dockerfile, re.MULTILINE))
    assert len(stages) == 2
    for stage in stages:
        image, _, tag = re.sub(r"\$\{(\w+)\}", lambda m: arguments[m[1]], stage).partition(":")
        assert image
        assert re.match(r"\d+\.\d+\.\d+-", tag), stage


def test_the_image_runs_unprivileged(dockerfile):
    """Fails when the last stage runs as root."""
    runtime = dockerfile[dockerfile.rindex("\nFROM ") :]
    assert re.findall(r"^USER (\S+)", runtime, re.MULTILINE) == ["10001"]


def test_the_last_stage_carries_no_cuda_compiler(dockerfile):
    """Fails when the image that ships is the build image."""
    stages = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    assert "-devel-" in stages[0]
    assert "-base-" in stages[1]


def test_everything_copied_exists_and_is_let_through(dockerfile):
    """Fails when a COPY names a file that is gone or that .dockerignore keeps out."""
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    sources = [source for line in copies for source in line.split()]
    let_through = set(re.findall(r"^!(\S+)", (REPOSITORY / ".dockerignore").read_text(), re.M))
    assert len(sources) > 5
    assert set(sources) <= let_through
    assert [source for source in sources if not (REPOSITORY / source).exists()] == []


def test_compose_runs_the_version_of_this_tree(compose):
    """Fails when the image tag lags behind the package version."""
    for service in compose["services"].values():
        assert service["image"] == f"ralm-engine:{ralm_engine.__version__}"
        assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_compose_publishes_only_to_this_machine(compose):
    """Fails when the Ray dashboard, which runs any code it is sent, is open to the network."""
    for service in compose["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_rayjob_matches_the_pinned_ray_and_image(rayjob):
    """Fails when operator, image and package would run different versions."""
    pinned = re.search(r"^ray==(\S+)", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned
    assert rayjob["spec"]["rayClusterSpec"]["rayVersion"] == pinned[1]
    for pod in _pod_specs(rayjob):
        images = {container["image"] for container in pod["containers"]}
        assert images == {f"ralm-engine:{ralm_engine.__version__}"}


def test_rayjob_pods_run_unprivileged_and_mount_what_they_name(rayjob):
    """Fails when a pod runs as root or mounts a volume that it does not declare."""
    for pod in _pod_specs(rayjob):
        assert pod["securityContext"]["runAsNonRoot"] is True
        declared = {volume["name"] for volume in pod["volumes"]}
        mounted = {
            mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]
        }
        assert mounted <= declared


def test_worker_pods_ask_for_a_gpu(rayjob):
    """Fails when a worker would be placed where there is no GPU."""
    for group in rayjob["spec"]["rayClusterSpec"]["workerGroupSpecs"]:
        for container in group["template"]["spec"]["containers"]:
            assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
