"""What-if: a journal replayed under other settings, with the broker's own scheduler on virtual time.

``reproduction`` leases the messages again when the journal says, and reports where the order differs. ``simulation``
lets modelled consumers process the same messages under a scenario. ``comparison`` runs many scenarios, here or in
Spark, and ``advice`` finds the one that meets targets at the least cost to other keys.
"""
