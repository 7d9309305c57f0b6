"""Alarms from the tables of the pipeline: who is served too much, whose waits have risen, which errors are new."""

from fairlane.alarms.alarm import Alarm, Kind
from fairlane.alarms.board import AlarmBoard, read_board
from fairlane.alarms.watch import AlarmWatch
from fairlane.alarms.webhook import Webhook

__all__ = ["Alarm", "AlarmBoard", "AlarmWatch", "Kind", "Webhook", "read_board"]
