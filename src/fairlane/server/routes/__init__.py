"""HTTP routes that are not verbs: pages, the journal, reports and API keys."""
