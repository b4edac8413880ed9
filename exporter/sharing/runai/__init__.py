"""run:ai and KAI-Scheduler."""
