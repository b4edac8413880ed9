"""One object of each kind that scheduling depends on, with every field that is read."""

from typing import Any

Json = dict[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_CONDITION = {"key": "zone", "operator": "In", "values": ["a"]}
_NAMED = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
_TERMS = {"nodeSelectorTerms": [{"matchExpressions": [_CONDITION], "matchFields": [_NAMED]}]}
_CEL = [{"cel": {"expression": "device.driver == 'd'"}}]

NODE: Json = {
    "metadata": {"name": "n1", "labels": {"zone": "a"}},
    "spec": {"taints": [{"key": "gpu", "value": "a", "effect": "NoSchedule"}], "unschedulable": False},
    "status": {"allocatable": {"cpu": "4", "memory": "1Gi", "pods": "10", "nvidia.com/gpu": "2"}},
}
POD: Json = {
    "metadata": {
        "namespace": "ml",
        "name": "train",
        "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": "x"},
        "ownerReferences": [{"kind": "Job", "name": "train", "controller": True}],
    },
    "spec": {
        "containers": [
            {
                "name": "main",
                "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}},
                "ports": [{"hostPort": 0}],
                "volumeMounts": [{"bindMountOptions": []}],
                "restartPolicyRules": [{"action": "Restart"}],
            }
        ],
        "initContainers": [
            {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
        ],
        "resources": {"requests": {"cpu": "2"}},
        "overhead": {"cpu": "1m"},
        "priority": 1,
        "schedulerName": "default-scheduler",
        "nodeSelector": {"zone": "a"},
        "affinity": {
            "nodeAffinity": {_REQUIRED: _TERMS},
            "podAntiAffinity": {
                _REQUIRED: [
                    {
                        "topologyKey": "zone",
                        "namespaces": ["ml"],
                        "namespaceSelector": {},
                        "labelSelector": {"matchLabels": {"app": "x"}, "matchExpressions": [_CONDITION]},
                    }
                ]
            },
        },
        "tolerations": [{"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoSchedule"}],
        "schedulingGates": [{"name": "gate"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}],
        "resourceClaims": [
            {"name": "a", "resourceClaimName": "c1"},
            {"name": "b", "resourceClaimTemplateName": "t"},
        ],
        "hostNetwork": False,
    },
    "status": {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "lastTransitionTime": "2026-01-01T00:01:00Z",
            },
            {"type": "PodResizePending", "reason": "Deferred"},
        ],
        "containerStatuses": [
            {
                "name": "main",
                "allocatedResources": {"cpu": "1"},
                "resources": {"requests": {"cpu": "1"}},
            }
        ],
        "resources": {"requests": {"cpu": "1"}},
        "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "c2"}],
        "nominatedNodeName": "n1",
    },
}
CLAIM: Json = {
    "metadata": {
        "namespace": "ml",
        "name": "c1",
        "ownerReferences": [{"kind": "Pod", "name": "other", "uid": "u", "controller": True}],
    },
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "r",
                    "exactly": {
                        "deviceClassName": "gpu",
                        "allocationMode": "ExactCount",
                        "count": 1,
                        "selectors": _CEL,
                        "tolerations": [{"key": "sick", "operator": "Exists", "effect": "NoExecute"}],
                    },
                }
            ]
        }
    },
    "status": {
        "allocation": {
            "devices": {"results": [{"driver": "d", "pool": "n1", "device": "gpu-1", "request": "r"}]},
            "nodeSelector": _TERMS,
        },
        "reservedFor": [{"resource": "pods", "name": "other", "uid": "u"}],
    },
}
SLICE: Json = {
    "spec": {
        "driver": "d",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n1",
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {
                    "type": {"string": "gpu"},
                    "index": {"int": 0},
                    "healthy": {"bool": True},
                    "driverVersion": {"version": "570.1.2"},
                },
                "capacity": {"memory": {"value": "40Gi"}},
                "taints": [{"key": "sick", "value": "a", "effect": "NoExecute"}],
            }
        ],
    }
}
CLASS: Json = {
    "metadata": {"name": "gpu"},
    "spec": {"selectors": _CEL, "extendedResourceName": "nvidia.com/gpu"},
}
