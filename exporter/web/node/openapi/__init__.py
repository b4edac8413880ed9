"""The OpenAPI description of the routes."""
