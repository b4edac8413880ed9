"""Write the generated parts of the chart: ``python -m deploy.charts``."""

from deploy.charts.write import CHART, chart_files

for path, text in chart_files().items():
    target = CHART / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
