"""What-if: yesterday's journal against another policy, with the broker's own scheduler on virtual time.

``reproduce`` hands out again what the journal says was handed out, under the original policy, and tells where the order
differs, if it does. ``simulate`` lets modelled consumers work off the same messages under a candidate. ``compare`` runs
many candidates, here or in Spark, and ``advise`` looks for the one that meets targets at the least cost to the rest.
"""
