"""The methods that programs call, written once: one for each verb, with arguments instead of a request.

Brokers and clients share these methods. The modules that end in ``_aio`` are for asyncio; ``tools/sync_verbs.py`` makes
the others, for threads, from them.
"""
