"""README.md, the quick start and the chart's README install with the same commands, namespace first."""

import re
import subprocess

import pytest
import yaml

from tests.product.project.documented_commands import PAGES, blocks, commands
from tests.tools import ROOT, tool

INSTALL_PAGES = ("README.md", "docs/quickstart.md", "deploy/charts/gpuslice-exporter/README.md")
CHART = "deploy/charts/gpuslice-exporter"
NAMESPACE = "deploy/base/namespace.yaml"
MAKE_NAMESPACE = f"kubectl apply --server-side -f {NAMESPACE}"
EXAMPLE = re.compile(rf"--values {CHART}/examples/([\w-]+)\.yaml")


def installing(page: str) -> list[str]:
    """Return the blocks of commands of a page that install the chart."""
    return [text for language, text in blocks(page) if language == "console" and "helm install" in text]


def test_the_three_pages_install_with_the_same_commands() -> None:
    """From the image to the doctor, each with the commands of README.md."""
    (whole, *_), *others = ([*installing(page)] for page in INSTALL_PAGES)

    assert [page for page, found in zip(INSTALL_PAGES[1:], others, strict=True) if found[0] != whole] == []
    steps = ["make image ", "docker push ", MAKE_NAMESPACE, "helm install ", "kubectl -n gpuslice rollout "]
    assert [
        line.removeprefix("$ ").startswith(step) for line, step in zip(_lines(whole), steps, strict=False)
    ]
    assert "gpuslice-exporter doctor" in whole.splitlines()[-1]


def _lines(block: str) -> list[str]:
    return re.sub(r"\\\n\s*", "", block).splitlines()


@pytest.mark.parametrize("page", [page for page in PAGES if installing(page)])
def test_the_namespace_is_made_before_the_chart_is_installed(page: str) -> None:
    """By the same command on each page, and with the image of the reader's registry."""
    for block in installing(page):
        lines = [line.removeprefix("$ ") for line in _lines(block)]
        (install,) = [line for line in lines if line.startswith("helm install")]

        assert MAKE_NAMESPACE in lines[: lines.index(install)]
        assert install.startswith(f"helm install gpuslice {CHART} --namespace gpuslice --values {CHART}/")
        assert "--set image.repository=registry.example.com/gpuslice-exporter" in install


def test_no_page_makes_the_namespace_in_another_way() -> None:
    other = re.compile(r"create namespace|--create-namespace|label namespace \S+ pod-security")
    typed = [(page, command) for page in PAGES for command in commands(page) if other.search(command)]

    assert typed == []


def test_the_namespace_admits_the_pods() -> None:
    """Its name is that of the commands, and its level is the only one with the host's process ids."""
    (space,) = yaml.safe_load_all((ROOT / NAMESPACE).read_text())
    pod = yaml.safe_load((ROOT / "deploy/base/daemonset.yaml").read_text())["spec"]["template"]["spec"]

    assert space["metadata"]["name"] == "gpuslice"
    assert pod["hostPID"]
    assert any("hostPath" in volume for volume in pod["volumes"])
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"


def test_the_prometheus_of_the_quick_start_scrapes_and_has_the_rules(tmp_path) -> None:
    """Both files of rules, relative to the checkout, and the labels of the series."""
    (text,) = [text for language, text in blocks("docs/quickstart.md") if language == "yaml"]
    (job,) = yaml.safe_load(text)["scrape_configs"]
    (tmp_path / "alerts").symlink_to(ROOT / "alerts")
    path = tmp_path / "prometheus.yml"
    path.write_text(text)
    done = subprocess.run(
        [tool("promtool"), "check", "config", path], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 rule files found" in done.stdout
    assert (job["honor_labels"], job["static_configs"]) == (True, [{"targets": ["localhost:9836"]}])
