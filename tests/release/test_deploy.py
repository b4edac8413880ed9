"""The component for labels of the node gives the exporter what it needs for that, and no more."""

from tests.project.manifests import only, pod_spec, sum_up


def test_nodes_can_be_listed_and_watched_and_nothing_else() -> None:
    """The one role names two verbs on nodes, and is bound to the exporter's own account."""
    objects = sum_up("node-labels")
    role, binding = only(objects, "ClusterRole"), only(objects, "ClusterRoleBinding")
    account = only(objects, "ServiceAccount")["metadata"]

    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}]
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": role["metadata"]["name"],
    }
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    ]
    assert pod_spec(objects)["serviceAccountName"] == account["name"]


def test_the_token_is_mounted_and_the_labels_are_followed() -> None:
    """The pod gets its token, and the option that makes use of it is on; the base has neither."""
    spec, base = pod_spec(sum_up("node-labels")), pod_spec(sum_up())
    (container,), (plain,) = spec["containers"], base["containers"]
    added = [variable for variable in container["env"] if variable not in plain["env"]]

    assert (base["automountServiceAccountToken"], spec["automountServiceAccountToken"]) == (False, True)
    assert added == [{"name": "GPUSLICE_KUBERNETES_API", "value": "on"}]
    assert container["volumeMounts"] == plain["volumeMounts"]
