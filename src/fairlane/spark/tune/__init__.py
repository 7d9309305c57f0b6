"""Tuning: propose a change of settings, try it on what was recorded, apply it for a while, watch it, keep or undo it.

The parts, from the inside out:

- ``trial``: the state table of a change.
- ``tape``: the last window of the journal, with what was open before it.
- ``search`` and ``judgement``: which change to propose; whether it may stay.
- ``costs``: what the work on each key's messages really costs.
- ``tuner``: the loop around them. It is handed a broker and a way to wait, and reads no clock: time is what the
  broker's journal says.
"""
