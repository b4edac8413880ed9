"""The record of what a container of a scenario has by a resource claim (DRA)."""

from dataclasses import dataclass

# What drivers name the kind of their CDI devices, where it is not the usual one.
_CLASSES = {"gpu.amd.com": "gpu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One device of a claim, by the driver's name for it.

    The claim's ``namespace`` is the pod's when left out, its ``uid`` is derived from its names and ``pool``
    is the node. Containers that name the same claim share it; ``share_id`` tells shares of a device apart.
    """

    driver: str = "gpu.nvidia.com"
    device: str
    name: str
    namespace: str = ""
    uid: str = ""
    pool: str = ""
    share_id: str = ""

    @property
    def cdi(self) -> str:
        """The CDI name that the driver gives to the device in this claim."""
        return f"k8s.{self.driver}/{_CLASSES.get(self.driver, 'claim')}={self.uid}-{self.device}"
