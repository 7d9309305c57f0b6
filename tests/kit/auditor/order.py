"""Strict order: what the journal may do with messages that are kept in order."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.journal import records as r
from tests.kit.auditor.books import Books, Entry, QueueBook, violated


def group_of(book: QueueBook, entry: Entry) -> list[Entry]:
    """Return the messages of a queue that are kept in order with one, the first in front."""
    found = [each for each in book.entries.values() if (each.path, each.order_key) == (entry.path, entry.order_key)]
    return sorted(found, key=lambda each: each.line)


def may_be_next(book: QueueBook, entry: Entry) -> bool:
    """Return whether the order of its queue lets a waiting message go: it is the first, and no other is leased."""
    if not book.is_strict:
        return True
    group = group_of(book, entry)
    return group[0] is entry and not any(each.token for each in group)


def check_leased(book: QueueBook, record: r.Leased, entries: Sequence[Entry]) -> None:
    """Check, before messages are leased, that those of a group are its first ones, in order, and that none is out."""
    if not book.is_strict:
        return
    for entry in entries:
        group = group_of(book, entry)
        taken = [each.number for each in entries if each in group]
        if any(each.token for each in group):
            violated(f"message {entry.number} is leased while others of its group are: {group}")
        if taken != [each.number for each in group][: len(taken)]:
            violated(f"messages {taken} are leased out of order, of {[each.number for each in group]}: {record}")
        if len(taken) > book.policy.order_batch_max:
            violated(f"messages {taken} are leased together, order_batch_max is {book.policy.order_batch_max}")


def check_acked(book: QueueBook, record: r.Acked, entries: Sequence[Entry]) -> None:
    """Check, before messages are acknowledged, that all messages before them are done, or acknowledged with them."""
    for entry in entries:
        if not book.is_strict or _is_older(book, entry):
            continue
        before = [each for each in group_of(book, entry) if each.line < entry.line]
        if any(each not in entries for each in before):
            violated(f"message {entry.number} is acknowledged before {[each.number for each in before]}: {record}")


def check_prefixes(books: Books) -> None:
    """Check, at the end of a commit, that no message is leased behind one of its group that waits."""
    for book in books.queues.values():
        if not book.is_strict:
            continue
        waiting: dict[object, Entry] = {}
        for entry in sorted(book.entries.values(), key=lambda each: each.line):
            group = (entry.path, entry.order_key)
            if not entry.token:
                waiting.setdefault(group, entry)
            elif group in waiting and not _is_older(book, entry):
                violated(f"message {entry.number} is leased while {waiting[group].number} waits, which is before it")


def _is_older(book: QueueBook, entry: Entry) -> bool:
    """Return whether a message was leased before its queue had a strict order."""
    return entry.token < book.strict_at
