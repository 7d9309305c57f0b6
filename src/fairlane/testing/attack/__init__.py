"""Attacks on a running server: ``python -m fairlane.testing.attack [URL]``.

Each attack is what a tenant, or a stranger without an API key, could try in order to hurt other tenants. While it runs,
a bystander with a queue of its own works in another process. An attack is *held* if it harmed nothing, the bystander
never waited for long, and the memory of the server did not double.
"""
