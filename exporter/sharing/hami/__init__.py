"""HAMi, 4paradigm's scheduler, and Volcano's vGPU.

``annotations.py`` parses the annotations of pods and nodes. ``nvidia.py`` has the systems for NVIDIA GPUs,
based on ``libvgpu.py``; ``vendors.py`` and ``ascend.py`` those for other vendors, based on
``vendor_system.py``. ``cache.py`` decodes the files of libvgpu in the layouts of ``cache_layout.py``;
``cache_owners.py`` finds the container of each file. HAMi's DRA driver has no annotations: it is in
``sharing/dra/drivers.py``.
"""
