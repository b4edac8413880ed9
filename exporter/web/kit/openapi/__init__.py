"""The parts of OpenAPI descriptions."""
