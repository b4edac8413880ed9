"""The components that let the API server be asked give the exporter what it needs for that, and no more."""

import pytest

from tests.product.deploy.rendering import composed, container, only, pod_spec

READ = {"node-labels": ["nodes"], "kubernetes-api": ["pods", "nodes"]}


@pytest.mark.parametrize("component", READ)
def test_what_is_followed_can_be_listed_and_watched_and_nothing_else(component: str) -> None:
    """The one role names two verbs on what the exporter follows, and is bound to its own account."""
    objects = composed(component)
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
    spec, base = pod_spec(composed(component)), pod_spec(composed())
    own, plain = container(composed(component)), container(composed())
    added = [variable for variable in own["env"] if variable not in plain["env"]]

    assert (base["automountServiceAccountToken"], spec["automountServiceAccountToken"]) == (False, True)
    assert added == [{"name": "GPUSLICE_KUBERNETES_API", "value": "on"}]
    assert own["volumeMounts"] == plain["volumeMounts"]
