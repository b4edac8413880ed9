"""The picture of a GPU.

``gpu_rows.py`` has the row of a GPU. A MIG device is a cell of it; the list of its readings is on the page
of its GPU (``../gpu_page.py``). Cells are made by ``mig_cells.py`` (MIG devices and partitions, placed by
``model/mig_geometry.py``) or ``pool_cells.py`` (a device shared in replicas), with the records and boxes of
``cells.py``. The HTML is in ``templates/pieces/gpu_row.html``, the CSS in ``static/gpus.css``; the classes of
widths, ``w1`` to ``w100``, are made by ``assets.py`` of the kit. Its ``elements.py`` has the geometry of a
bar; its ``markup.py`` writes it as SVG, by functions that templates may call (``html.py``).
"""
