"""History over HTTP: as JSON for programs, as figures and sparklines for the pages."""
