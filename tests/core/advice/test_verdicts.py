"""Verdicts on simulated workloads whose need is known."""

from dataclasses import replace

import pytest

from exporter.advice import advise
from exporter.advice.model import Advice
from tests.core.advice.simulated import DAY, H100_BYTES, STEP, Run, gib, mig, steps, whole, window

WEEK = steps(7)


def between(low: float, high: float) -> list[int]:
    """Return a week of memory that alternates between two GiB."""
    return [gib(low), gib(high)] * (WEEK // 2)


def first(advice: Advice) -> tuple[str, str]:
    """Return the verdict and the target of advice that has one."""
    assert advice.reason is None, advice.why
    return advice.options[0].verdict, advice.options[0].target


def test_sawtooth_training_on_a_whole_gpu_fits_a_mig_profile_by_peak_and_multiprocessors() -> None:
    """Its peak of 16 GiB fits 20 GiB; SM activity of 0.15 with its margin, of 132, is 24 multiprocessors."""
    memory = [gib(6 + step % 11) for step in range(WEEK)]
    run = Run(memory=memory, compute=[0.3] * WEEK, sm=[0.15] * WEEK)
    advice = advise(window(run))
    assert first(advice) == ("mig_profile", "1g.20gb")
    assert advice.options[0].gpus_freed == pytest.approx(6 / 7)
    assert advice.options[1].verdict == "shared_gpu"
    assert advice.confidence == "high"


def test_without_sm_activity_only_memory_counts_for_a_mig_profile_and_it_says_so() -> None:
    run = Run(memory=between(6, 8), compute=[0.9] * WEEK)
    option = advise(window(run)).options[0]
    assert (option.verdict, option.target) == ("mig_profile", "1g.10gb")
    assert "compute unknown, a smaller slice may be slower" in option.notes


def test_bursty_inference_is_sized_by_its_p95_not_by_its_maximum() -> None:
    """3 % of the steps use the whole GPU, the rest 0.2: four such holders fit by compute."""
    shares = [1.0 if step % 33 == 0 else 0.2 for step in range(WEEK)]
    memory = [gib(8 + step % 3) for step in range(WEEK)]
    advice = advise(window(Run(memory=memory, compute=shares, sm=[0.9] * WEEK)))
    assert first(advice) == ("shared_gpu", "1/4 of a shared GPU")


def test_forty_short_jobs_are_one_workload_by_the_largest() -> None:
    jobs = [
        Run(
            memory=[gib(2), gib(12 if job == 7 else 9), gib(5), gib(3)],
            compute=[0.5] * 4,
            sm=[0.1] * 4,
            pod=f"p{job}",
        )
        for job in range(40)
    ]
    advice = advise(window(*jobs, days=7))
    assert first(advice) == ("mig_profile", "1g.20gb")
    assert advice.window.pods == 40
    assert advice.options[0].gpus_freed == pytest.approx(40 * 4 * STEP / (7 * DAY) * 6 / 7)


def test_a_profile_fits_by_its_usable_memory_and_not_by_its_name() -> None:
    """9.6 GiB with its margin exceed the 9.75 GiB of 1g.10gb."""
    memory = [gib(9.6) if step % 50 == 0 else gib(5 + step % 4) for step in range(WEEK)]
    run = Run(memory=memory, compute=[0.1] * WEEK, sm=[0.2] * WEEK, compute_entitled=3 / 7)
    device = mig("3g.40gb", adjacent=3)
    advice = advise(window(replace(run, memory_entitled=device.memory), device=device))
    assert first(advice) == ("smaller_profile", "1g.20gb")
    assert advice.options[0].gpus_freed == pytest.approx(2 / 7)
    assert advice.options[0].would_fit


def test_of_four_gpus_one_that_never_computed_is_named() -> None:
    memory = between(30, 50)
    runs = [
        Run(memory=memory, compute=([0.0] if gpu == 3 else [0.7]) * WEEK, sm=[0.5] * WEEK, gpu=gpu)
        for gpu in range(4)
    ]
    advice = advise(window(*runs))
    assert first(advice) == ("fewer_gpus", "3 GPUs")
    assert advice.options[0].gpus_freed == pytest.approx(1.0)
    assert advice.now == "4 GPUs"


def test_what_never_computed_is_released_even_if_it_preallocated() -> None:
    run = Run(memory=[int(0.75 * H100_BYTES)] * WEEK, compute=[0.0] * WEEK)
    assert first(advise(window(run))) == ("release", "nothing: it never computed")


def test_a_workload_that_was_not_measured_for_an_hour_of_the_day_is_not_released() -> None:
    run = Run(memory=between(4, 5), compute=[0.0] * WEEK, compute_coverage=0.94)
    advice = advise(window(run))
    assert "release" not in [option.verdict for option in advice.options]


@pytest.mark.parametrize(
    ("reason", "run", "changes"),
    [
        ("young", Run(memory=[gib(4)] * steps(0.9), compute=[0.4] * steps(0.9)), {}),
        ("young", Run(memory=[gib(4)] * WEEK, compute=[0.4] * 30 + [0.0] * (WEEK - 30)), {}),
        ("not_measured", Run(memory=[gib(4)] * WEEK, compute=[0.4] * WEEK, memory_coverage=0.7), {}),
        ("preallocated", Run(memory=[int(0.75 * H100_BYTES)] * WEEK, compute=[0.4] * WEEK), {}),
        ("preallocated", Run(memory=[int(0.9 * H100_BYTES)] * WEEK, compute=[0.1, 0.9] * (WEEK // 2)), {}),
        ("preallocated", Run(memory=[gib(20)] * WEEK, compute=[0.1, 0.0] * (WEEK // 2)), {}),
        ("preallocated", Run(memory=between(3, 4), compute=[0.4] * WEEK), {"engine": "vllm"}),
        (
            "self_fitting",
            Run(memory=[gib(20), int(0.6 * H100_BYTES)] * (WEEK // 2), compute=[0.4] * WEEK),
            {"sizes": {gib(39): gib(23.6)}},
        ),
        ("limit_hit", Run(memory=[gib(3), int(0.985 * H100_BYTES)] * (WEEK // 2), compute=[0.4] * WEEK), {}),
        (
            "shared_rest",
            Run(memory=[gib(4)] * WEEK, compute=[0.4] * WEEK),
            {"device": whole(unattributed=0.06)},
        ),
        ("not_measured", Run(memory=[gib(4)] * WEEK, compute=[0.4] * WEEK), {"device": whole(memory=None)}),
        ("no_table", Run(memory=between(40, 41), compute=[0.6] * WEEK), {"device": whole(profiles=None)}),
    ],
)
def test_a_reason_instead_of_a_number(reason: str, run: Run, changes: dict[str, object]) -> None:
    advice = advise(window(run, **changes))
    assert (advice.reason, advice.options, advice.confidence) == (reason, (), None)
    assert advice.why


def test_pods_with_several_devices_take_one_verdict_or_none() -> None:
    """Two GPUs that both compute a little: MIG devices do not work together."""
    memory = between(4, 5)
    runs = [Run(memory=memory, compute=[0.2] * WEEK, sm=[0.05] * WEEK, gpu=gpu) for gpu in range(2)]
    assert advise(window(*runs)).reason == "several_devices"


def test_traffic_over_nvlink_keeps_whole_gpus() -> None:
    """Neither a MIG device nor a share has it."""
    run = Run(memory=between(4, 5), compute=[0.2] * WEEK, sm=[0.05] * WEEK)
    assert first(advise(window(run, device=whole(nvlink_traffic=True))))[0] == "keep"


def test_a_mig_device_that_is_nearly_full_gets_the_next_larger_profile() -> None:
    device = mig("1g.10gb")
    assert device.memory is not None
    run = Run(
        memory=[gib(4), int(0.97 * device.memory)] * (WEEK // 2),
        compute=[0.1] * WEEK,
        sm=[0.3] * WEEK,
        memory_entitled=device.memory,
        compute_entitled=1 / 7,
    )
    assert first(advise(window(run, device=device))) == ("larger_profile", "1g.20gb")


@pytest.mark.parametrize(
    ("sum_p95", "sum_peak", "verdict"),
    [
        (0.3, gib(20), ("replicas", "8 replicas")),
        (0.9, gib(20), ("keep", "20.0 GiB and 0.25 GPU")),
        (0.3, int(0.95 * H100_BYTES), ("replicas", "2 replicas")),
    ],
)
def test_replicas_follow_the_sum_of_all_holders(
    sum_p95: float, sum_peak: int, verdict: tuple[str, str]
) -> None:
    """Three holders on four replicas: more where their sums fit, fewer where memory is nearly full."""
    runs = [
        Run(
            memory=between(5, 6),
            compute=[0.1] * WEEK,
            pod=f"p{pod}",
            memory_entitled=gib(20),
            compute_entitled=0.25,
        )
        for pod in range(3)
    ]
    device = whole(sharing="time-slicing", replicas=4, sum_p95=sum_p95, sum_peak=sum_peak)
    assert first(advise(window(*runs, device=device))) == verdict


@pytest.mark.parametrize(
    ("sharing", "peak", "share", "verdict"),
    [
        ("hami", 5, 0.1, ("smaller_limit", "5888 MiB nvidia.com/gpumem and 12 % nvidia.com/gpucores")),
        ("hami", 19.4, 0.45, ("larger_limit", "22846 MiB nvidia.com/gpumem")),
        ("gpushare", 5, 0.1, ("smaller_limit", "6 GiB aliyun.com/gpu-mem")),
        ("gpu-manager", 5, 0.45, ("smaller_limit", "23 blocks of 256 MiB tencent.com/vcuda-memory")),
        ("qgpu", 17, 0.12, ("smaller_limit", "15 % tke.cloud.tencent.com/qgpu-core")),
        (
            "mps",
            5,
            0.12,
            ("smaller_limit", "5888 MiB pinned device memory of each client and 15 % active threads"),
        ),
        ("kai", 5, 0.1, ("smaller_limit", "gpu-fraction 0.12")),
        ("kai", 5, 0.18, ("keep", "20.0 GiB and 0.50 GPU")),
        ("hami", 16, 0.48, ("keep", "20.0 GiB and 0.50 GPU")),
    ],
)
def test_limits_are_in_the_units_and_steps_of_the_system(
    sharing: str, peak: float, share: float, verdict: tuple[str, str]
) -> None:
    """A container with 20 GiB and half of the compute."""
    run = Run(memory=between(2, peak), compute=[share] * WEEK, memory_entitled=gib(20), compute_entitled=0.5)
    device = whole(sharing=sharing, isolation="soft" if sharing != "kai" else "none")
    assert first(advise(window(run, device=device))) == verdict


@pytest.mark.parametrize("sharing", ["mig-time-slicing", "nvshare", "vgpu", "hami-ascend"])
def test_a_system_without_a_rule_is_not_said_to_fit(sharing: str) -> None:
    run = Run(memory=between(2, 3), compute=[0.1] * WEEK, compute_entitled=0.5)
    unlimited = replace(run, memory_entitled=None)
    assert (
        advise(window(replace(run, memory_entitled=gib(20)), device=whole(sharing=sharing))).reason
        == "no_rule"
    )
    assert advise(window(unlimited, device=whole(sharing="gpushare"))).reason == "no_rule"


def test_video_and_jpeg_engines_that_are_used_are_kept() -> None:
    run = Run(memory=between(2, 3), compute=[0.1] * WEEK, sm=[0.05] * WEEK)
    used, unknown = (advise(window(run, device=whole(media_used=media))).options[0] for media in (True, None))
    assert used.target == "1g.10gb+me"
    assert unknown.target == "1g.10gb"
    assert any("JPEG" in note for note in unknown.notes)


def test_a_holder_of_several_replicas_counts_as_several() -> None:
    run = Run(memory=between(5, 6), compute=[0.4] * WEEK, memory_entitled=H100_BYTES)
    device = whole(sharing="time-slicing", replicas=4, sum_p95=0.4, sum_peak=gib(6))
    option = advise(window(run, device=device)).options[0]
    assert (option.verdict, option.target) == ("replicas", "8 replicas")
    assert option.gpus_freed == pytest.approx(0.5)


def test_advice_that_differs_from_that_of_a_day_ago_is_withheld() -> None:
    run = Run(memory=between(4, 6), compute=[0.2] * WEEK, sm=[0.05] * WEEK)
    risen = replace(run, memory=[*run.memory[:-3], *[gib(12)] * 3])
    assert first(advise(window(run), window(run)))[1] == "1g.10gb"
    assert advise(window(risen), window(run)).reason == "unsettled"
