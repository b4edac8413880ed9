"""The components that let the API server be asked give the exporter what it needs for that, and no more."""

import pytest

from tests.deploy.manifests import only, pod_spec, sum_up

READ = {"node-labels": ["nodes"], "kubernetes-api": ["pods", "nodes"]}


@pytest.mark.parametrize("component", READ)
def test_what_is_followed_can_be_listed_and_watched_and_nothing_else(component: str) -> None:
    """The one role names two verbs on what the exporter follows, and is bound to its own account."""
    objects = sum_up(component)
    role, binding = only(objects, "ClusterRole"), only(objects, "ClusterRoleBinding")
    account = only(objects, "ServiceAccount")["metadata"]

    assert role["rules"] == [{"apiGroups": [""], "resources": READ[component], "verbs": ["list", "watch"]}]
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": role["metadata"]["name"],
    }
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    ]
    assert pod_spec(objects)["serviceAccountName"] == account["name"]


@pytest.mark.parametrize("component", READ)
def test_the_token_is_mounted_and_made_use_of(component: str) -> None:
    """The pod gets its token, and the option that makes use of it is on; the base has neither."""
    spec, base = pod_spec(sum_up(component)), pod_spec(sum_up())
    (container,), (plain,) = spec["containers"], base["containers"]
    added = [variable for variable in container["env"] if variable not in plain["env"]]

    assert (base["automountServiceAccountToken"], spec["automountServiceAccountToken"]) == (False, True)
    assert added == [{"name": "GPUSLICE_KUBERNETES_API", "value": "on"}]
    assert container["volumeMounts"] == plain["volumeMounts"]
