"""The site of the documentation, made by Sphinx of the pages as GitHub shows them: ``make site``.

Nothing of the built site comes from elsewhere: no font, no script, no counter.
"""  # noqa: INP001 - Sphinx loads this file by its path

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/gpuslice/gpuslice-exporter"
RUNBOOKS = {path.stem: f"alerts/runbooks/{path.stem}" for path in (ROOT / "alerts/runbooks").glob("*.md")}
# What stands below each heading of the sidebar: titles, and places in the repository.
NAVIGATION = {
    "Start": {
        "Quick start": "docs/quickstart",
        "Glossary": "docs/glossary",
        "Architecture": "docs/architecture",
        "Performance": "docs/performance",
        "Reliability": "docs/reliability",
        "Questions and answers": "docs/faq",
    },
    "Install": {
        "Kubernetes": "docs/deploy",
        "Helm chart": "deploy/charts/gpuslice-exporter/README",
        "Container image": "docs/image",
        "systemd": "docs/systemd",
        "Components": "docs/components",
        "Day 2": "docs/operations",
        "Upgrading": "docs/upgrading",
        "Security": "docs/security",
        "TLS and passwords": "docs/web-config",
        "Releases": "docs/releases",
    },
    "Platforms": {
        "NVIDIA GPU Operator": "docs/platforms/gpu-operator",
        "NVIDIA device plugin": "docs/platforms/device-plugin",
        "DRA": "docs/platforms/dra",
        "GKE": "docs/platforms/gke",
        "EKS": "docs/platforms/eks",
        "AKS": "docs/platforms/aks",
        "ACK": "docs/platforms/ack",
        "OpenShift": "docs/platforms/openshift",
        "k3s": "docs/platforms/k3s",
        "RKE2": "docs/platforms/rke2",
        "MicroK8s": "docs/platforms/microk8s",
        "k0s": "docs/platforms/k0s",
        "Talos": "docs/platforms/talos",
        "AMD GPUs": "docs/platforms/amd",
        "HAMi and others": "docs/platforms/hami",
    },
    "Understand": {
        "Who gets what": "docs/join",
        "Sharing systems": "docs/sharing-systems",
        "The page": "docs/page",
        "Which slice would fit": "docs/advice",
        "Usage, and what it costs": "docs/usage",
        "The whole cluster": "docs/fleet",
        "What befalls GPUs": "docs/lifecycle",
        "Labels and jobs": "docs/labels",
    },
    "Monitor": {
        "Prometheus and Grafana": "docs/prometheus",
        "The first hours": "docs/first-hours",
        "Other collectors": "docs/collectors",
        "What it costs your Prometheus": "docs/cost",
        "Alerts and runbooks": "docs/alerts",
        "Recording rules": "docs/recording-rules",
        "Recipes": "docs/recipes",
    },
    "Reference": {
        "Metrics": "docs/metrics",
        "Settings": "docs/settings",
        "HTTP API": "docs/api",
        "XID codes": "docs/xids",
        "MIG profiles": "docs/mig-profiles",
    },
    "Help": {
        "Troubleshooting": "docs/troubleshooting",
        "From dcgm-exporter": "docs/migration",
        "New names of DCGM": "docs/translate",
        "Other exporters": "docs/comparison",
    },
    "Project": {"Decisions": "docs/decisions", "Contributing": "CONTRIBUTING", "Changelog": "CHANGELOG"},
}
CODE = re.compile(r'(?<=<span class="pre">)[^<]*')
# Where a name may be broken: after a word of it, but for the first one, which all names of series have.
WORD = re.compile(r"(?<!gpuslice)(?<=[\w;])[_./=](?=[A-Za-z&*]|$)")
# A relative link, with the name of a file as its text or with any other.
LINK = re.compile(r"(\[[\w./-]+\.md)?(\]\()((?!\w+:|[#/])[^)#\s]+)")

project = "gpuslice-exporter"
html_title = project
root_doc = "docs/index"
include_patterns = [
    "docs/*.md",
    "docs/platforms/*.md",
    "alerts/runbooks/*.md",
    "deploy/charts/*/README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
]
# Folders that are not even looked through.
exclude_patterns = [
    ".*",
    "build",
    "dist",
    "exporter",
    "podresources",
    "tests",
    "dashboards",
    "benchmarks",
    "scripts",
]
extensions = ["myst_parser"]
# Anchors as on GitHub, of all headings that links lead to.
myst_heading_anchors = 4
html_theme = "furo"
html_static_path = ["site.css", "../images/logo.svg"]
html_css_files = ["site.css"]
html_favicon = "../images/logo.svg"
# The address of the site leads to its first page.
html_extra_path = ["index.html"]
html_copy_source = False
html_use_index = False
html_show_copyright = False
html_show_sphinx = False
html_theme_options = {
    "source_repository": f"{REPOSITORY}/",
    "source_branch": "main",
    "source_directory": "",
    "light_logo": "logo.svg",
    "dark_logo": "logo.svg",
    "light_css_variables": {"color-brand-primary": "#0f6cb8", "color-brand-content": "#0f6cb8"},
    "dark_css_variables": {"color-brand-primary": "#6cb6ff", "color-brand-content": "#6cb6ff"},
}
# Pygments knows no names of series with colons, which is how recording rules are named.
suppress_warnings = ["misc.highlighting_failure"]


def setup(app: Sphinx) -> None:
    """Have each page read and written as below."""
    app.connect("source-read", _read)
    app.connect("html-page-context", _write)


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    """Put the navigation on the first page, and lead links to where they lead on GitHub."""
    pages = app.env.found_docs
    here = (ROOT / name).parent

    def lead(link: re.Match[str]) -> str:
        target = (here / link[3]).resolve()
        if not target.exists() or target.suffix in {".png", ".svg"}:
            return link[0]
        place = target.relative_to(ROOT)
        if place.with_suffix("").as_posix() in pages:
            # Without a text of its own a link has the title of what it leads to.
            return f"[{link[2]}{link[3]}" if link[1] else link[0]
        return f"{link[1] or ''}{link[2]}{REPOSITORY}/{'tree' if target.is_dir() else 'blob'}/main/{place}"

    text = LINK.sub(lead, source[0])
    if name == root_doc:
        text += "".join(_contents(listed, caption) for caption, listed in NAVIGATION.items())
    elif name == "docs/alerts":
        text += _contents({title.removeprefix("GpuSlice"): page for title, page in sorted(RUNBOOKS.items())})
    source[0] = text


def _contents(listed: dict[str, str], caption: str = "") -> str:
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    lines = [f"{title} </{page}>" for title, page in listed.items()]
    return "\n".join(("", "```{toctree}", *options, "", *lines, "```", ""))


def _write(_app: Sphinx, _name: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    """Let long names of series break after their words, so that tables have room for what they mean."""
    context["body"] = CODE.sub(lambda code: WORD.sub(r"\g<0><wbr>", code[0]), context.get("body", ""))
