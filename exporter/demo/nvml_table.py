"""Every function that the fake driver has, by the name of its symbol."""

from collections.abc import Mapping

from exporter.demo import nvml_fields, nvml_gpu, nvml_mig, nvml_node, nvml_process
from exporter.demo.nvml_call import Function

FUNCTIONS: Mapping[str, Function] = {
    **nvml_node.FUNCTIONS,
    **nvml_gpu.FUNCTIONS,
    **nvml_mig.FUNCTIONS,
    **nvml_process.FUNCTIONS,
    **nvml_fields.FUNCTIONS,
}
