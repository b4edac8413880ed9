"""Laws of the pages of a day: sums over all containers that ever held something, and laws of each page."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from exporter.demo.node import FakeNode
from tests.core.golden import test_laws
from tests.core.golden.page import Page
from tests.core.golden.story import Scene, Story
from tests.together.soak.day import LONGEST, PERIOD, Day, troubles
from tests.truth import truth_of

HELD = "gpuslice_container_entitled_gpu_seconds_total"
ENERGY = "gpuslice_container_energy_joules_total"
REST = "gpuslice_gpu_unattributed_energy_joules_total"
DRAWN = "gpuslice_gpu_energy_joules_total"
# A container without a row for longer is gone: reloading the driver takes a few polls.
_AWAY = 20
_SAMPLE = re.compile(rf"^({HELD}|{ENERGY}|{REST}|{DRAWN})\{{(.*)\}} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_ROUNDING = 1e-6


@dataclass(slots=True)
class _Account:
    """The last values of a container on a device: GPU-seconds and joules, and at which poll."""

    seen: int
    uuid: str
    held: float | None = None
    joules: float = 0.0


@dataclass(slots=True)
class _Meter:
    """The energy of a GPU in joules: its counter, what that has grown by, and what left with containers."""

    counter: float
    drawn: float
    rest: float = 0.0
    gone: float = 0.0


@dataclass(slots=True)
class Books:
    """Adds up the pages of the day; ``objections`` are differences from the truth."""

    day: Day
    objections: list[str] = field(default_factory=list)
    pods: int = 0
    exact: int = 0
    held: float = 0.0
    true: float = 0.0
    joules: float = 0.0
    drawn: float = 0.0
    _polls: int = 0
    _accounts: dict[str, _Account] = field(default_factory=dict)
    _meters: dict[str, _Meter] = field(default_factory=dict)

    def enter(self, poll: int, text: str) -> None:
        """Enter the page of a poll; none may be left out."""
        self._polls = poll + 1
        energies: dict[str, float] = {}
        counters: dict[str, float] = {}
        for name, labels, number in _SAMPLE.findall(text):
            value = float(number)
            found = dict(_LABEL.findall(labels))
            if name == REST:
                energies[found["uuid"]] = value
            elif name == DRAWN:
                counters[found["uuid"]] = value
            else:
                self._account(poll, labels, found, name, value)
        for uuid, counter in counters.items():
            self._draw(uuid, counter, energies.get(uuid, 0.0))
        self._close(poll)
        self._balance(poll, counters.keys() & energies.keys())

    def end(self) -> None:
        """Judge those that are there at the end too, and add up the energy of all."""
        self._close(self._polls + 2 * _AWAY)
        for meter in self._meters.values():
            self.drawn += meter.drawn
            self.joules += meter.gone + meter.rest

    def _account(self, poll: int, key: str, labels: dict[str, str], name: str, value: float) -> None:
        account = self._accounts.setdefault(key, _Account(poll, labels["uuid"]))
        before = account.held if name == HELD else account.joules
        if before is not None and value < before - _ROUNDING:
            self._object(poll, f"{name}{{{key}}} fell from {before} to {value}")
        account.seen = poll
        if name == HELD:
            account.held = value
        else:
            account.joules = value

    def _draw(self, uuid: str, counter: float, rest: float) -> None:
        meter = self._meters.setdefault(uuid, _Meter(counter, counter))
        # It restarts with the driver.
        meter.drawn += max(counter - meter.counter, 0.0)
        meter.counter, meter.rest = counter, rest

    def _close(self, poll: int) -> None:
        for key, account in [item for item in self._accounts.items() if item[1].seen < poll - _AWAY]:
            del self._accounts[key]
            self._meters[account.uuid].gone += account.joules
            self._judge(poll, key, account)

    def _balance(self, poll: int, uuids: set[str]) -> None:
        """Compare the energy of all containers ever, and the unattributed rest, with what the GPU drew."""
        had = dict.fromkeys(uuids, 0.0)
        for account in self._accounts.values():
            if account.uuid in had:
                had[account.uuid] += account.joules
        for uuid in uuids:
            meter = self._meters[uuid]
            total = had[uuid] + meter.gone + meter.rest
            if total != pytest.approx(meter.drawn, rel=1e-6, abs=1e-3):
                self._object(
                    poll, f"{uuid} drew {meter.drawn} J, and {total} J were attributed or unattributed"
                )

    def _judge(self, poll: int, key: str, account: _Account) -> None:
        pod = dict(_LABEL.findall(key))["pod"]
        share, first, stop = self.day.stay(pod)
        if share is None or account.held is None:
            return
        self.pods += 1
        stop = min(stop, self._polls)
        polls = stop - 1 - first
        # Who goes while the kubelet is away stays on the page until it is back.
        late = troubles(first - LONGEST, stop + LONGEST) if troubles(first - 1, stop + 1) else 0
        least, most = share * PERIOD * max(polls - late, 0), share * PERIOD * (polls + late)
        self.exact += not late
        self.held += account.held
        self.true += share * PERIOD * polls
        if not least - _ROUNDING <= account.held <= most + _ROUNDING:
            self._object(poll, f"{pod} held {account.held} GPU-seconds, and not between {least} and {most}")

    def _object(self, poll: int, text: str) -> None:
        self.objections.append(f"poll {poll}: {text}")


def check_page(node: FakeNode, text: str) -> Iterator[str]:
    """Check the golden laws on one page of a node; yield the message of each broken one."""
    page = Page(text)
    scene = Scene(time=int(node.time), text=text, page=page, truth=truth_of(node))
    story = Story(scenario=node.scenario, scenes=(scene,))
    # The laws find stories by their names; this one is made here.
    test_laws.story = lambda _name: story
    for law in _laws():
        try:
            law("soak")
        except AssertionError as broken:
            yield f"{law.__name__}: {str(broken).splitlines()[0] if str(broken) else 'it does not hold'}"


def _laws() -> list[Callable[[str], None]]:
    """List the laws that are about any page.

    Of energy the books know more than one page does, and a GPU that was unplugged was not observed meanwhile.
    """
    of_all_pages = (
        test_laws.test_energy_adds_up_until_a_container_goes,
        test_laws.test_no_class_of_a_balance_ever_falls_and_no_time_is_missing,
    )
    return [
        law
        for name, law in vars(test_laws).items()
        if name.startswith("test_")
        and list(inspect.signature(law).parameters) == ["name"]
        and law not in of_all_pages
    ]
