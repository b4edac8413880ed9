#!/usr/bin/env python3
"""A small nvidia_gpu_exporter: reads the memory of the first GPU every 5 s, and serves it."""

import argparse
import sys
import threading
import time
from ctypes import CDLL, byref, c_ulonglong, c_void_p
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("--version", action="store_true")
parser.add_argument("--web.listen-address", dest="address")
parser.add_argument("--collect.backend", dest="backend", choices=["nvml"])
parser.add_argument("--collect.interval", dest="interval", choices=["5s"])
arguments = parser.parse_args()
if arguments.version:
    # As the real one does, not on the standard output.
    sys.stderr.write("nvidia_gpu_exporter, version 0\n  go version: none\n")
    sys.exit()
driver, memory = CDLL("libnvidia-ml.so.1"), (c_ulonglong * 3)()


def collect() -> None:
    """Read the used memory until killed."""
    while True:
        device = c_void_p()
        assert driver.nvmlDeviceGetHandleByIndex_v2(0, byref(device)) == 0
        assert driver.nvmlDeviceGetMemoryInfo(device, byref(memory)) == 0
        time.sleep(5)


class Handler(BaseHTTPRequestHandler):
    """Serves the page."""

    def do_GET(self) -> None:
        """Answer with one sample."""
        self.send_response(200)
        self.end_headers()
        help_text = "# HELP nvidia_smi_memory_used_bytes Used memory.\n"
        self.wfile.write(f'{help_text}nvidia_smi_memory_used_bytes{{uuid="a"}} {memory[2]}\n'.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


threading.Thread(target=collect, daemon=True).start()
host, _, port = arguments.address.rpartition(":")
ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
