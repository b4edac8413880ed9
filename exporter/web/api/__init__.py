"""Routes for programs: metrics, the snapshot and its formats, health, and the OpenAPI description."""
