"""The array twin: the scheduler and the modelled consumers once more, as functions over arrays that numba compiles.

It plays plain recordings only, and only where it has reproduced the journal in the same run; see ``players.py``.
"""
