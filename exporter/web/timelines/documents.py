"""The figures of a page as one document."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from exporter.history import Past
from exporter.model import Snapshot
from exporter.web.pages.views.scene import name_of
from exporter.web.timelines.figures import CONFIG, Drawn, holder_figures, node_figures
from exporter.web.timelines.stacks import first_known

_DRAWN: Mapping[str, Callable[[Past, Mapping[str, str]], list[Drawn]]] = {
    "node": node_figures,
    "holder": holder_figures,
}


def figures_json(past: Past, snapshot: Snapshot, kind: str) -> bytes:
    """Write the figures of a node or a GPU (``kind`` is "node"), or of a holder ("holder"), as JSON.

    ``begins`` is the Unix time of the first step of which anything is known. Names of devices are those of
    the snapshot.
    """
    # They are looked at several times, and are few and short: those of a figure.
    past = replace(past, tracks=tuple(past.tracks))
    known = first_known(past)
    document = {
        "start": past.start,
        "end": past.start + past.count * past.step,
        "step": past.step,
        "source": past.source,
        "note": past.note,
        "begins": None if known is None else past.start + known * past.step,
        "config": CONFIG,
        "figures": [
            drawn._asdict() for drawn in (_DRAWN[kind](past, _device_names(snapshot)) if past.tracks else ())
        ],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _device_names(snapshot: Snapshot) -> dict[str, str]:
    """Say what GPUs and MIG devices are called, by their uuids."""
    names = {gpu.identity.uuid: name_of(gpu) for gpu in snapshot.gpus}
    of_migs = {
        mig.device.mig_uuid: " ".join(
            filter(None, (names.get(mig.device.uuid), mig.reading.profile, f"({mig.device.mig_uuid[:12]})"))
        )
        for mig in snapshot.migs
    }
    return names | of_migs
