"""The cluster, from Prometheus: its page and API (``hub``); commands ``inspect``, ``advise`` and ``is``.

The commands begin in ``commands.py``. Queries stand beside what reads their answers.

- ``prometheus.py``: the client; ``request_headers.py``: authentication, and headers of users. ``queries.py``:
  several queries at once, and their answers.
- ``amounts.py``: sums with unknown parts. ``model.py``: the cluster as records, and their orders.
- ``watch.py`` reads the cluster, once and at intervals: ``targets.py`` finds the nodes; ``nodes.py``,
  ``namespaces.py`` (both with ``sums.py``) and ``sick_and_idle.py`` read what the recording rules recorded;
  ``gpus.py`` makes GPUs and holders of the nodes' own series.
- ``pod.py``, ``pod_before.py`` read one pod (``pod_model.py``); ``pod_text.py``, ``pod_json.py`` write it.
- ``cluster_advice.py``: the advice, by the windows that ``advice_windows.py`` reads (``advice_queries.py``).
- ``cluster_view.py``: nodes, pods and claims as the scheduler sees them; ``cluster_source.py`` takes them
  from the Kubernetes API, or from kube-state-metrics (``kube_state.py``).
- Pods that wait: ``gpu_facts.py`` reads what is known of GPUs, ``waiting.py`` makes the answers (with
  ``exporter.waiting``), ``waiting_watch.py`` keeps them; ``waiting_words.py``, ``waiting_text.py`` and
  ``waiting_data.py`` write them, and ``waiting_commands.py`` has the commands.
- ``narrowed.py``: all of these for some namespaces only.
- ``json_data.py``, ``text.py``, ``csv_tables.py``: a cluster or nodes as JSON, text and CSV.
- ``pages/``: the page and the routes of the hub.
"""
