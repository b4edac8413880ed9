"""What a finding is."""

from dataclasses import dataclass

from exporter.report import Check, Status


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause: its code, how bad it is, what is lost by it and how to mend it, "" where nothing is wrong.

    Words in braces in the remedy are filled in where it is found.
    """

    code: str
    status: Status
    lost: str = ""
    remedy: str = ""

    def check(self, name: str, found: str, *, lost: str = "", **words: object) -> Check:
        """Make the check ``name`` of it; ``lost`` says it closer, ``words`` fill the remedy in."""
        remedy = self.remedy.format(**words)
        return Check(name, self.status, found, lost or self.lost, remedy, self.code)
