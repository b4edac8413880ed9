"""Write the dashboards: ``python -m dashboards``."""

from pathlib import Path

from dashboards.write import board_files

HERE = Path(__file__).parent

for path, text in board_files().items():
    target = HERE / path
    target.parent.mkdir(exist_ok=True)
    target.write_text(text, encoding="utf-8")
