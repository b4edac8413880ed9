"""KAI-Scheduler: fractions of GPUs that a reservation pod holds.

A pod asks for a part of a GPU, or for MiB of its memory, which KAI counts as that part of the GPU. Nothing
keeps a pod from taking more.
"""

from exporter.sharing.reservation import Reservations


class Kai(Reservations):
    """The fractions of KAI."""

    name = "kai"
    isolation = "none"
    of_runai = False
