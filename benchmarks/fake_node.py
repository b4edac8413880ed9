"""A node without its driver: ``python -m benchmarks.fake_node NAME`` serves its kubelet and its files.

Its first line of output is JSON: the environment that points the exporter at it. It ends with its input.
"""

import asyncio
import json
import signal
import sys
from dataclasses import asdict

from benchmarks.nodes import load
from exporter.demo.node import FakeNode


async def main(name: str) -> None:
    """Serve until the input ends or SIGTERM comes."""
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, end.set)
    loop.add_reader(sys.stdin, end.set)
    async with FakeNode(load(name), clock=lambda: 0.0) as node:
        variables = {f"GPUSLICE_{field.upper()}": str(path) for field, path in asdict(node.paths).items()}
        variables |= {
            "NODE_NAME": node.name,
            "GPUSLICE_LOG_LEVEL": "warning",
            "GPUSLICE_KUBERNETES_API": "off",
        }
        sys.stdout.write(f"{json.dumps(variables)}\n")
        sys.stdout.flush()
        await end.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
