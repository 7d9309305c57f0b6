"""Commands about the journal and the Spark pipeline."""
