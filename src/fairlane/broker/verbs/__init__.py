"""Every verb of the broker, once for asyncio and once for threads.

Durability is the same for all verbs: what a call has returned is durable; what it has refused has not happened. If a
call raises ``StoreFailed`` it may have happened or not. Calls are carried out in the order they are made.

Verbs that end in ``_many`` judge each item on its own and return one result for each: what was asked for, or the error.
The others raise.
"""
