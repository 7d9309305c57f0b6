"""The dashboard: a page in plain HTML, CSS and JavaScript that uses the public HTTP API only."""
