/* The stub of the driver's library, with one process of the whole GPU being a real one: HOLDER is its pid. */
#include "../../core/hardware/stub_nvml.c"

__attribute__((constructor)) static void name_holder(void) { gpus[0].processes[0].pid = HOLDER; }
