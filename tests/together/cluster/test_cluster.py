"""The exporter in a real cluster reports what containerd runs, whatever happens to pods and to the kubelet.

``make cluster`` builds Kubernetes and names its folder in CLUSTER. Reports are compared with containerd: the
labels of its containers, the devices in their environment, and their pids; never with the exporter's sources.
"""

from collections.abc import Iterator

import pytest

from tests.together.cluster.conftest import HEALTH, REPLICAS, SHARED, WHOLE, Cluster, container, pod
from tests.together.cluster.truth import Task, slices, task, tasks
from tests.waiting import wait_until

pytestmark = [pytest.mark.tools, pytest.mark.timeout(900)]

GIB, MIB = 1 << 30, 1 << 20
MEMORY = {WHOLE: 16 * GIB, SHARED: 40 * GIB / len(REPLICAS)}
COMPUTE = {WHOLE: 1.0, SHARED: 1 / len(REPLICAS)}


@pytest.fixture(autouse=True)
def _unused_afterwards(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.use()


def test_holders_and_slices_are_those_that_containerd_runs(cluster: Cluster) -> None:
    """One row for each container with a device, also sidecars."""
    held = cluster.settled()

    expected = {
        (WHOLE, "default/whole", "train"): 1,
        (SHARED, "default/pair", "first"): 1,
        (SHARED, "default/pair", "second"): 2,
        (SHARED, "default/guarded", "guard"): 1,
    }
    assert {(each.gpu, each.pod, each.container): count for each, count in held.items()} == expected
    cluster.expect("container_slices", expected)
    cluster.expect("gpu_slices", {(WHOLE,): 1, (SHARED,): len(REPLICAS)})
    cluster.expect("gpu_slices_allocated", {(WHOLE,): 1, (SHARED,): 4})


def test_entitlements_are_shares_of_what_the_plugin_offers(cluster: Cluster) -> None:
    """A replica of eight is an eighth of the GPU's memory and compute, a whole GPU all of both."""
    held = cluster.settled()

    for name, share in (("compute_entitled_ratio", COMPUTE), ("memory_entitled_bytes", MEMORY)):
        shares = {(each.gpu, each.pod, each.container): share[each.gpu] * held[each] for each in held}
        cluster.expect(f"container_{name}", shares)


def test_use_is_that_of_the_containers_whose_processes_the_driver_lists(cluster: Cluster) -> None:
    """Memory and compute of each process go to its container; what runs in no container is unattributed."""
    running = {f"{each.pod}/{each.container}": each for each in tasks(cluster.node)}
    first, guard = running["default/pair/first"], running["default/guarded/guard"]
    train, helper = running["default/whole/train"], running["default/pair/helper"]
    cluster.use(
        (WHOLE, train.pid, 2048, 90),
        (SHARED, first.pid, 1024, 20),
        (SHARED, guard.pid, 256, 5),
        # It uses a GPU without an allocation.
        (SHARED, helper.pid, 512, 10),
        (SHARED, cluster.node.first, 128, 3),
    )

    used = {each.key: (0, 0.0) for each in running.values() if each.devices}
    used |= {train.key: (2048, 0.9), first.key: (1024, 0.2), guard.key: (256, 0.05)}
    used |= {(SHARED, helper.pod, helper.container): (512, 0.1)}
    cluster.expect("container_memory_used_bytes", {key: mib * MIB for key, (mib, _) in used.items()})
    cluster.expect("container_compute_used_ratio", {key: share for key, (_, share) in used.items()})
    cluster.expect("gpu_unattributed_memory_bytes", {(WHOLE,): 0, (SHARED,): 128 * MIB})
    cluster.expect("gpu_unattributed_utilization_ratio", {(WHOLE,): 0, (SHARED,): 0.03})


def test_the_use_of_an_init_container_is_its_own(cluster: Cluster) -> None:
    """Its row has no slices: the kubelet lists its device for the next container, which uses nothing yet."""
    before = cluster.settled()
    init = [container("load", shared=1), container("other", seconds=1)]
    cluster.apply(pod("warm", container("main", shared=1), initContainers=init))
    load = task(cluster.node, "warm", "load")
    cluster.use((SHARED, load.pid, 64, 5))

    used = {(each.gpu, each.pod, each.container): 0 for each in before}
    main = (SHARED, load.pod, "main")
    cluster.expect("container_memory_used_bytes", used | {main: 0, load.key: 64 * MIB})
    counts = {(each.gpu, each.pod, each.container): count for each, count in before.items()}
    cluster.expect("container_slices", counts | {main: 1})

    cluster.use()
    _end(cluster, load)
    after = task(cluster.node, "warm", "main")
    assert cluster.settled() == before | slices([after])
    assert after.devices == load.devices
    cluster.delete("warm")
    assert cluster.settled() == before


def test_a_restarted_container_keeps_its_row_and_its_use_is_of_the_new_process(cluster: Cluster) -> None:
    """After a crash its use is that of the new process, never that of another container of the pod."""
    held = cluster.settled()
    before = task(cluster.node, "pair", "first")
    second = task(cluster.node, "pair", "second")
    cluster.use((SHARED, before.pid, 1024, 20), (SHARED, second.pid, 512, 10))
    cluster.expect("gpu_unattributed_memory_bytes", {(WHOLE,): 0, (SHARED,): 0})
    cluster.node.ctr("tasks", "kill", "--signal=SIGKILL", before.id)
    after = task(cluster.node, "pair", "first", instead_of=before.id)
    cluster.use((SHARED, after.pid, 300, 40), (SHARED, second.pid, 512, 10))

    def has_the_use_of_the_new_process() -> bool:
        reported = [exporter.samples("container_memory_used_bytes") for exporter in cluster.exporters]
        for used in reported:
            # Until the kubelet reports the new id, there is a row of the pod instead.
            assert used.get(second.key, 512 * MIB) == 512 * MIB
            assert (second.key in used) != ((SHARED, second.pod, "") in used)
        return all(used.get(after.key) == 300 * MIB for used in reported)

    wait_until(has_the_use_of_the_new_process)
    cluster.expect("gpu_unattributed_memory_bytes", {(WHOLE,): 0, (SHARED,): 0})
    assert cluster.settled() == held


def test_an_unhealthy_replica_changes_no_share(cluster: Cluster) -> None:
    """Shares and holders stay, the replica is counted, and its holder is marked if Kubernetes knows."""
    held = cluster.settled()
    first = task(cluster.node, "pair", "first")
    shares = {(each.gpu, each.pod, each.container): COMPUTE[each.gpu] * held[each] for each in held}
    plugin = cluster.plugins["nvidia.com/gpu.shared"]

    plugin.mark_unhealthy(*first.devices)
    cluster.expect("gpu_slices_unhealthy", {(WHOLE,): 0, (SHARED,): 1})
    cluster.expect("container_compute_entitled_ratio", shares)
    assert cluster.settled() == held
    marked = {first.key} if cluster.node.minor >= HEALTH else set()
    wait_until(lambda: _unhealthy(cluster) == [marked] * len(cluster.exporters), "the holder is marked")

    plugin.mark_unhealthy()
    cluster.expect("gpu_slices_unhealthy", {(WHOLE,): 0, (SHARED,): 0})


def _end(cluster: Cluster, container: Task) -> None:
    """End a container with exit code 0."""
    cluster.node.ctr("tasks", "kill", "--signal=SIGALRM", container.id)


def _unhealthy(cluster: Cluster) -> list[set[tuple[str, str, str]]]:
    return [
        {
            (key.gpu, key.pod, key.container)
            for key, row in exporter.rows().items()
            if row["health"] == "Unhealthy"
        }
        for exporter in cluster.exporters
    ]


def test_a_deleted_pod_leaves_and_one_of_the_same_name_is_another(cluster: Cluster) -> None:
    """The row of a pod goes with it; a pod of the same name has a row with its own uid."""
    held = cluster.settled()
    cluster.run(pod("short", container("main", shared=1)))
    (first,) = cluster.settled().keys() - held.keys()
    cluster.delete("short")
    cluster.run(pod("short", container("main", shared=1)))

    (second,) = cluster.settled().keys() - held.keys()

    assert (first.pod, first.container) == (second.pod, second.container)
    assert first.uid != second.uid
    cluster.delete("short")
    assert cluster.settled() == held


def test_a_pod_that_has_finished_holds_nothing(cluster: Cluster) -> None:
    """Its container has a row while it runs, and none afterwards, although its pod stays."""
    held = cluster.settled()
    cluster.run(pod("job", container("main", shared=1), restartPolicy="Never"))
    (row,) = cluster.settled().keys() - held.keys()

    _end(cluster, task(cluster.node, "job", "main"))
    cluster.node.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s", "pod/job")

    assert row.pod == "default/job"
    assert cluster.settled() == held
    cluster.delete("job")


def test_doctor_in_the_pod_finds_nothing_missing(cluster: Cluster) -> None:
    """Sockets, pids, pods and allocations are readable with the rights of the chart."""
    for exporter in cluster.exporters:
        checks = exporter.doctor()
        assert [check for check in checks if check["status"] not in {"OK", "absent"}] == []
