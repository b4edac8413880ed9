"""Answers about a pod with labels and values of any kind."""

import asyncio
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.fleet.pod_json import pod_json
from exporter.fleet.pod_text import pod_text
from tests.fleet.answering import AT, HOLDER
from tests.fleet.pods import INFO, KUBELET, SERIES, answers, found

WORDS = st.text(max_size=12) | st.sampled_from(
    ["\x1b[2J", "\u202e", "a\nb", "9" * 5000, "MIG-1", "GPU-1", "31"]
)
LABELS = st.dictionaries(
    st.sampled_from([*HOLDER, *INFO, "mig_uuid", "xid", "condition", "health", "gpu"]), WORDS
)
VALUES = st.floats() | st.sampled_from([0.0, 1.0, -1.0, 1e308, AT])


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*SERIES, *KUBELET, "gpuslice_mig_info", "gpuslice_container_device_health_info"]),
        st.lists(st.tuples(LABELS, VALUES), max_size=3),
        max_size=6,
    ),
    st.lists(st.tuples(LABELS, VALUES), max_size=3),
)
def test_hostile_answers_end_in_text_and_json(extra, before) -> None:
    """Labels and values of any kind are escaped, and nothing raises an error of another kind."""
    names = {"namespace": "ml", "pod": "train-0"}
    series = {**SERIES, **KUBELET}
    for name, more in extra.items():
        hostile = [({**HOLDER, **labels, **names}, value) for labels, value in more]
        series[name] = [*series.get(name, ()), *hostile]
    last = [({**HOLDER, **labels, **names}, value) for labels, value in before]
    for shown in (answers(series), answers(KUBELET, last=last or [(HOLDER, 1.0)], times=last)):
        result = asyncio.run(found(shown))
        assert pod_text(result).replace("\n", "").isprintable()
        json.dumps(pod_json(result))
