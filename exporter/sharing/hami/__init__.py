"""HAMi, 4paradigm's scheduler, and Volcano's vGPU."""
