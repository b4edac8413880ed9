"""Functions of the fake driver about video: how busy the engines are, and the streams that are encoded."""

from collections.abc import Mapping

from exporter.demo.boards import TURING
from exporter.demo.machine import GpuState
from exporter.demo.nvml_board import GpuDevice
from exporter.demo.nvml_call import Function, numbers
from exporter.demo.nvml_codes import NOT_SUPPORTED, refuse

SAMPLING_MICROSECONDS = 167_000
FRAMES_PER_SECOND, LATENCY_MICROSECONDS = 60, 2400
# How much of an engine one stream takes, per percent of the time that its process keeps the GPU busy.
ENCODING, DECODING = 0.5, 0.3


def _encoder(device: GpuDevice) -> tuple[int, int]:
    return _engine(device.state, ENCODING)


def _decoder(device: GpuDevice) -> tuple[int, int]:
    return _engine(device.state, DECODING)


def _engine(state: GpuState, per_stream: float) -> tuple[int, int]:
    _refuse_cut(state)
    percent = sum(process.running.process.streams * process.sm * per_stream for process in state.processes)
    return min(100, round(percent)), SAMPLING_MICROSECONDS


def _later_engine(device: GpuDevice) -> tuple[int, int]:
    if device.state.gpu.architecture < TURING:
        return refuse(NOT_SUPPORTED)
    _refuse_cut(device.state)
    return 0, SAMPLING_MICROSECONDS


def _encoder_stats(device: GpuDevice) -> tuple[int, int, int]:
    _refuse_cut(device.state)
    sessions = sum(process.running.process.streams for process in device.state.processes if process.sm)
    return (sessions, FRAMES_PER_SECOND, LATENCY_MICROSECONDS) if sessions else (0, 0, 0)


def _refuse_cut(state: GpuState) -> None:
    if state.is_cut:
        refuse(NOT_SUPPORTED)


FUNCTIONS: Mapping[str, Function] = {
    "nvmlDeviceGetEncoderUtilization": numbers("gpu", _encoder),
    "nvmlDeviceGetDecoderUtilization": numbers("gpu", _decoder),
    "nvmlDeviceGetJpgUtilization": numbers("gpu", _later_engine),
    "nvmlDeviceGetOfaUtilization": numbers("gpu", _later_engine),
    "nvmlDeviceGetEncoderStats": numbers("gpu", _encoder_stats),
}
