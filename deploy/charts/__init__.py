"""What of the Helm chart is made from other parts of the project: ``python -m deploy.charts`` writes it."""
