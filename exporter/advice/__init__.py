"""Advice: which slice would fit a workload, and what that would free. It reads windows and never acts."""

from exporter.advice.model import Advice, DeviceFacts, Option, Reason, Use, Verdict, Window
from exporter.advice.verdicts import advise

__all__ = ["Advice", "DeviceFacts", "Option", "Reason", "Use", "Verdict", "Window", "advise"]
