"""Verdicts on devices that are held whole, as MIG devices, or as replicas."""

import math
from collections.abc import Iterator

from exporter.advice.guards import COMPUTE_MARGIN, MEMORY_MARGIN, NEAR_LIMIT, Refusal
from exporter.advice.model import Need, Option, Window
from exporter.model.mig_profiles import MigProfile
from exporter.wording import TIMES, decimal, gibibytes, plural

_USABLE = 0.95
_PRESSURE = 0.92
_ROUNDING = 1e-9
SLOWER = "compute unknown, a smaller slice may be slower"
_PARTITION = "the GPU must be partitioned"
_NO_NVLINK = "MIG devices have no NVLink; whether it is used is unknown"
_NO_MEDIA = "use of video and JPEG engines unknown: a profile may have none"
_NO_ISOLATION = "holders are no longer isolated from each other"
Outcome = tuple[tuple[Option, ...], Refusal | None]


def held_words(window: Window) -> str:
    """Return what each pod of the window holds, such as ``2 GPUs`` or ``3g.40gb``."""
    device, count = window.device, window.devices_of_pod
    if device.profile:
        return device.profile if count == 1 else f"{count} {TIMES} {device.profile}"
    use = window.uses[0]
    shared = use.compute_entitled is not None and use.compute_entitled < 1
    parts = []
    if use.memory_entitled is not None:
        parts.append(f"{gibibytes(use.memory_entitled)} GiB")
    if shared:
        parts.append(f"{decimal(use.compute_entitled, 2)} GPU")
    limited = use.memory_entitled is not None and device.memory and use.memory_entitled < device.memory
    return " and ".join(parts) if parts and (shared or limited) else plural(count, "GPU")


def of_whole_gpu(window: Window, need: Need) -> Outcome:
    """Return a MIG profile and a share of the GPU that would fit; both exclude each other."""
    if window.device.nvlink_traffic:
        return (), None
    share = _share_of_gpu(window, need)
    profile, reason = _profile_for(window, need)
    options = tuple(option for option in (profile, share) if option is not None)
    if options and window.devices_of_pod > 1:
        why = f"its pods hold {window.devices_of_pod} devices, which work together only as whole GPUs"
        return (), Refusal("several_devices", why)
    return options, None if options else reason


def _profile_for(window: Window, need: Need) -> tuple[Option | None, Refusal | None]:
    device = window.device
    if device.profiles is None:
        return None, Refusal("no_table", f"the sizes of the MIG profiles of {device.model} are not known")
    multiprocessors = max((profile.multiprocessors or 0 for profile in device.profiles), default=0)
    fitting = _smallest(window, need, multiprocessors or None)
    if fitting is None or _share(fitting, device.profiles) >= 1:
        return None, None
    notes = [_PARTITION, *_notes(window, need)]
    if device.nvlink_traffic is None:
        notes.append(_NO_NVLINK)
    freed = window.freed(_share(fitting, device.profiles))
    return Option("mig_profile", fitting.name, freed, tuple(notes), would_fit=True), None


def _notes(window: Window, need: Need) -> Iterator[str]:
    if need.sm is None:
        yield SLOWER
    if window.device.media_used is None:
        yield _NO_MEDIA


def _smallest(window: Window, need: Need, multiprocessors: int | None) -> MigProfile | None:
    """Return the smallest profile that suffices; ``multiprocessors`` are those of the held device.

    The largest profile has fewer multiprocessors than some whole GPUs, by less than the margin of the need.
    """
    sm = None if need.sm is None or multiprocessors is None else need.sm * multiprocessors
    fitting = [
        profile
        for profile in window.device.profiles or ()
        if profile.memory is not None
        and profile.memory >= need.memory
        and (sm is None or (profile.multiprocessors or 0) >= sm)
        and _has_engines(profile, window.device.media_used)
    ]
    return min(fitting, key=_size, default=None)


def _size(profile: MigProfile) -> tuple[int, int, bool, str]:
    # A profile with media engines is a scarce one: only one of them fits on a GPU.
    return compute_slices(profile), profile.memory or 0, "+" in profile.name, profile.name


def _has_engines(profile: MigProfile, used: bool | None) -> bool:
    """Return whether a profile keeps video and JPEG engines that are used; only ``+me`` has all of them."""
    suffix = profile.name.partition("+")[2]
    return suffix == "me" if used else suffix in ("", "me")


def compute_slices(profile: MigProfile) -> int:
    """Return the compute slices in the name of a profile."""
    return int(profile.name.partition("g.")[0])


def _share(profile: MigProfile, profiles: tuple[MigProfile, ...]) -> float:
    return compute_slices(profile) / max(map(compute_slices, profiles))


def _share_of_gpu(window: Window, need: Need) -> Option | None:
    if window.device.memory is None:
        return None
    fits = _USABLE * window.device.memory / need.memory
    if need.compute:
        fits = min(fits, 1 / need.compute)
    parts = math.floor(fits)
    if parts < 2:
        return None
    notes = (_NO_ISOLATION, *((SLOWER,) if need.compute is None else ()))
    return Option("shared_gpu", f"1/{parts} of a shared GPU", window.freed(1 / parts), notes, would_fit=True)


def of_mig_device(window: Window, need: Need) -> Outcome:
    """Return a smaller MIG profile, or a larger one if memory is nearly full."""
    device = window.device
    if not device.profiles:
        return (), Refusal("no_table", f"the sizes of the MIG profiles of {device.model} are not known")
    held = next((profile for profile in device.profiles if profile.name == device.profile), None)
    if held is None:
        return (), Refusal("no_table", f"the size of {device.profile} is not known")
    fitting = _smallest(window, need, held.multiprocessors)
    peak = max(use.memory_peak or 0 for use in window.uses)
    usable = device.memory or held.memory
    if usable and peak >= NEAR_LIMIT * usable:
        target = fitting.name if fitting else "a whole GPU"
        share = _share(fitting, device.profiles) if fitting else 1.0
        return (Option("larger_profile", target, window.freed(share)),), None
    if fitting is None or _size(fitting)[:2] >= _size(held)[:2]:
        return (), None
    freed = window.freed(_share(fitting, device.profiles))
    notes = (*_notes(window, need), *_adjacency(device.adjacent))
    fits = None if device.adjacent is None else True
    return (Option("smaller_profile", fitting.name, freed, notes, would_fit=fits),), None


def _adjacency(adjacent: int | None) -> Iterator[str]:
    if adjacent is None:
        yield "whether free slices are beside it is unknown"
    elif adjacent:
        yield f"{plural(adjacent, 'free memory slice')} beside it"


def of_replicas(window: Window) -> Outcome:
    """Return how many replicas a GPU with time-slicing could have, by what its holders need together."""
    device, replicas = window.device, window.device.replicas
    if not replicas or device.memory is None or device.sum_peak is None:
        return (), Refusal("not_measured", "the use of all holders together is not known")
    held = sum(window.entitled_gpus(use) for use in window.uses) * replicas
    pressure, note = device.sum_peak / device.memory, ""
    if pressure >= _PRESSURE:
        count = max(min(math.floor(held * _PRESSURE / pressure), replicas - 1), 1)
        note = "memory is nearly full"
    else:
        fits = _USABLE / (pressure * MEMORY_MARGIN)
        if device.sum_p95 is None:
            note = SLOWER
        else:
            fits = min(fits, 1 / (device.sum_p95 * COMPUTE_MARGIN))
        # Floats may make a whole number a little less.
        count = max(math.floor(held * fits + _ROUNDING), replicas)
    if count == replicas:
        return (), None
    freed = window.freed() * (1 - replicas / count)
    notes = (note,) if note else ()
    return (Option("replicas", plural(count, "replica"), freed, notes, would_fit=count > replicas),), None
