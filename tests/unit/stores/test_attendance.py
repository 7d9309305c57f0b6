"""Which processes are connected to a board, as repeated looks show it."""

from __future__ import annotations

from fairlane.adapters.shared.attendance import Attendance


def look(attendance: Attendance[str], present: str, at_s: float) -> frozenset[str]:
    """Return who has ended, after a look that was sent and answered at once."""
    attendance.note(present.split(), sent_s=at_s, answered_s=at_s)
    return attendance.ended


def test_a_session_that_was_seen_and_stays_away_has_ended() -> None:
    """It is reported once it has been missing for the grace; one that was never seen is not missed."""
    attendance = Attendance[str](grace_s=1.0)
    assert look(attendance, "a b", 0.0) == frozenset()
    assert look(attendance, "a", 0.5) == frozenset()
    assert look(attendance, "a", 1.4) == frozenset()
    assert look(attendance, "a", 1.5) == {"b"}
    assert look(attendance, "a c", 9.0) == {"b"}


def test_a_change_is_told() -> None:
    """A look says whether it has changed who has ended, so that others are woken only then."""
    attendance = Attendance[str](grace_s=0.0)
    assert not attendance.note(["a"], sent_s=0.0, answered_s=0.0)
    assert attendance.note([], sent_s=1.0, answered_s=1.0)
    assert not attendance.note([], sent_s=2.0, answered_s=2.0)


def test_a_new_connection_starts_from_nothing() -> None:
    """Sessions that a restart of the server ended are not reported by the first process that is back."""
    attendance = Attendance[str](grace_s=0.0)
    look(attendance, "a b", 0.0)
    attendance.connected()
    assert look(attendance, "", 5.0) == frozenset()
    assert look(attendance, "b", 6.0) == frozenset()
    assert look(attendance, "", 7.0) == {"b"}


def test_a_process_is_certain_for_the_grace_after_it_saw_itself() -> None:
    """It counts from when the look was sent; before it has shown itself nobody can miss it."""
    attendance = Attendance[str](grace_s=1.0)
    attendance.expect("me")
    assert attendance.is_certain(100.0)
    attendance.show(sent_s=100.0)
    assert attendance.is_certain(100.9)
    assert not attendance.is_certain(101.0)
    attendance.note(["me"], sent_s=101.0, answered_s=101.5)
    assert attendance.is_certain(101.9)
    assert not attendance.is_certain(102.0)


def test_a_lost_session_stays_lost() -> None:
    """After a new connection a process is in doubt until it goes on under another name."""
    attendance = Attendance[str](grace_s=1.0)
    attendance.expect("me")
    attendance.connected()
    assert attendance.is_certain(0.0)
    attendance.show(sent_s=0.0)
    attendance.connected()
    assert attendance.is_over
    assert not attendance.is_certain(0.1)
    attendance.expect("me again")
    assert attendance.is_certain(0.1)
