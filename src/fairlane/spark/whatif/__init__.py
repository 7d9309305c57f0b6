"""What-if: a journal replayed under other settings, with the broker's own scheduler on virtual time.

``reproduction`` leases the messages again when the journal says, and reports where the order differs. ``simulation``
and ``fleet`` let modelled consumers process the same messages under a scenario; ``consumers`` finds in the journal what
consumers there were, and ``load`` varies them, the traffic and the work. ``comparison`` runs many scenarios, here or in
Spark, and ``accuracy`` tells how far the model is from the journal. ``advice`` finds the settings that meet targets at
the least cost to other keys, and ``capacity`` the fewest consumers that do.
"""
