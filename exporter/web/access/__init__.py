"""Who is let in, and over what: the web configuration file in the format of Prometheus' exporters."""
