"""Each platform has a row in the table of docs/deploy.md and a page, whose commands install it."""

import re
import shlex

import pytest

from tests.product.deploy.charts import chart
from tests.product.deploy.render import EXAMPLES, kustomize
from tests.product.deploy.rendering import OVERLAYS, Manifest, container, only
from tests.product.deploy.tools import ROOT, tool

FOLDER = ROOT / "docs/platforms"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md"))
TABLE = (ROOT / "docs/deploy.md").read_text().partition("\n## Platforms\n")[2].partition("\n## ")[0]
HEADINGS = ["Install", "What it needs, and why", "What is different", "Check", "Known limits"]
# Overlays that are for a purpose, not for a platform: docs/components.md.
PURPOSES = {"hostpid-off", "kubernetes-api", "mig", "network-policy", "prometheus-operator"}
# Pages on what is added to the file of a platform.
ADDITIONS = {"amd", "hami"}


def text_of(page: str) -> str:
    """Return a page."""
    return (FOLDER / f"{page}.md").read_text()


def files_of(page: str) -> list[str]:
    """Return the files of values that the page's command installs with."""
    (command,) = re.findall(r"^\$ (helm install .*(?:\n {4}.*)*)", text_of(page), re.MULTILINE)
    words = shlex.split(command.replace("\\\n", " "))
    given = [words[at + 1] for at, word in enumerate(words) if word == "--values"]
    return [path.removesuffix(".yaml").rpartition("/examples/")[2] for path in given]


def rows() -> dict[str, tuple[str, str]]:
    """Return the columns overlay and values of the table, by page."""
    found = re.findall(
        r"^\|[^|]+\| (.*?) \| (.*?) \| \[[^]]+\]\(platforms/([\w-]+)\.md\) \|$", TABLE, re.MULTILINE
    )
    return {page: (overlay, values) for overlay, values, page in found}


def test_each_page_is_in_the_table_with_its_files() -> None:
    assert sorted(rows()) == PAGES
    for page, (overlay, values) in rows().items():
        first, *further = files_of(page)
        shown = further[0] if page in ADDITIONS else first
        assert values in {f"`{shown}.yaml`", f"and `{shown}.yaml`", "and its file"}, page
        assert page in ADDITIONS or f"`overlays/{first}`" == overlay


def test_each_platform_is_in_the_table() -> None:
    assert set(re.findall(r"`overlays/([\w-]+)`", TABLE)) == {*OVERLAYS} - PURPOSES


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_same_parts(page: str) -> None:
    """What to install, why, what differs, how to check, and that it was not tried there."""
    text = text_of(page)
    parts = re.split(r"^## .*\n", text, flags=re.MULTILINE)

    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS
    assert all(part.strip() for part in parts)
    assert "`doctor`" in parts[4]
    assert parts[5].lstrip().startswith("- It was not run on ")


@pytest.mark.tools
@pytest.mark.parametrize("page", PAGES)
def test_both_ways_of_a_page_run_the_same_pod(page: str) -> None:
    """The chart with the page's values, and its overlay with its components."""
    tool("kustomize")
    overlay = re.findall(r"`\.\./deploy/overlays/([\w-]+)`", text_of(page))[0]
    components = re.findall(r"`(\.\./deploy/components/[\w-]+)`", text_of(page))
    by_chart = chart(
        *files_of(page), values={"image": {"repository": "registry.example.com/gpuslice-exporter"}}
    )
    by_overlay = kustomize({"resources": [f"../deploy/overlays/{overlay}"], "components": components})

    assert pod(by_chart) == pod(by_overlay)


def pod(objects: list[Manifest]) -> Manifest:
    """Return what decides what the pod may see: its spec without names, labels and the image."""
    spec = only(objects, "DaemonSet")["spec"]["template"]["spec"]
    mounts = sorted((each["mountPath"], each.get("readOnly")) for each in container(objects)["volumeMounts"])
    paths = sorted(each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each)
    context = container(objects)["securityContext"]
    kept = ("hostPID", "runtimeClassName", "priorityClassName", "tolerations", "nodeSelector")
    return {
        "mounts": mounts,
        "paths": paths,
        "context": {key: value for key, value in context.items() if value},
        "nodes": labels_of_nodes(spec),
        "claims": len(spec.get("resourceClaims", ())),
        **{key: spec.get(key) for key in kept},
    }


def labels_of_nodes(spec: Manifest) -> set[str]:
    """Return the labels by each of which a node is selected."""
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return {term["matchExpressions"][0]["key"] for term in terms["nodeSelectorTerms"]}


def test_pages_name_files_of_values_that_exist() -> None:
    assert {file for page in PAGES for file in files_of(page)} <= set(EXAMPLES)
