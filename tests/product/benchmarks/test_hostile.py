"""Scrapes beside hostile clients and hanging polls are measured as ratios of one run."""

import pytest

from benchmarks.hostile import Scrapes, beside, beside_a_hang
from tests.page.abuse.attacks import ATTACKS


def test_a_row_has_ratios_and_misses() -> None:
    """The median and the slowest scrape are ratios to the median at rest."""
    row = Scrapes(at_rest=[0.001, 0.002, 0.003], beside=[0.002, 0.004, 0.02], missed=1).row("a crowd")
    assert row == ("a crowd", "2.0 ms", "2.0 x", "10.0 x", "4", "1", "", "")


def test_scrapes_beside_a_poll_that_hangs_are_measured() -> None:
    """All of them are answered while the poll waits."""
    measured = beside_a_hang()
    assert len(measured.beside) == len(measured.at_rest) > 0
    assert measured.missed == 0


@pytest.mark.slow
def test_scrapes_beside_a_crowd_are_measured() -> None:
    """At least one, however short the attack is."""
    measured = beside(ATTACKS[0], clients=20, seconds=0.0)
    assert len(measured.beside) + measured.missed == 1
    assert measured.most is not None
