"""Whatever the board says, and however opening and closing ends, a node does one thing at a time and gets there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlane.cluster.reconcile import (
    TRANSITIONS,
    Goals,
    GroupAction,
    GroupEvent,
    GroupState,
    next_state,
    reconcile,
)

GROUPS = ("orders", "mails", "jobs")
BUSY = {
    GroupState.OPENING: (GroupEvent.OPENED, GroupEvent.REFUSED),
    GroupState.WAITING: (GroupEvent.PAUSED,),
    GroupState.LEAVING: (GroupEvent.CLOSED,),
}
"""The states in which a task is under way, and how it may end."""
wishes = st.sets(st.sampled_from(GROUPS)).map(lambda mine: Goals(mine=dict.fromkeys(mine)))


class Model:
    """The groups of a node, whose tasks end when a test says so."""

    def __init__(self) -> None:
        self.states: dict[str, GroupState] = {}
        self.goals = Goals()
        self.actions: list[GroupAction] = []

    def step(self, group: str, event: GroupEvent) -> None:
        state = next_state(self.states.get(group, GroupState.ABSENT), event)
        self.states[group] = state
        if state is GroupState.ABSENT:
            del self.states[group]

    def reconcile(self) -> None:
        self.actions = reconcile(self.states, self.goals)
        for action in self.actions:
            assert self.states.get(action.group, GroupState.ABSENT) not in BUSY, "two tasks for one group"
            self.step(action.group, action.event)

    def end(self, group: str, choice: int) -> None:
        """End the task of a group, or if it is open lose it."""
        state = self.states.get(group)
        if state is GroupState.OPEN:
            self.step(group, GroupEvent.LOSE)
        elif state in BUSY:
            self.step(group, BUSY[state][choice % len(BUSY[state])])
        self.reconcile()

    def settle(self) -> None:
        """Complete every task successfully."""
        for _ in range(20):
            self.reconcile()
            for group, state in list(self.states.items()):
                if state in BUSY:
                    self.step(group, BUSY[state][0])


@given(st.lists(st.tuples(st.none() | wishes, st.sampled_from(GROUPS), st.integers(0, 1)), max_size=40))
def test_a_node_ends_up_with_the_groups_that_it_should_have(
    steps: list[tuple[Goals | None, str, int]],
) -> None:
    """After any history of goals, refusals and losses, once tasks succeed exactly the wanted groups are open."""
    model = Model()
    for goals, group, choice in steps:
        if goals is not None:
            model.goals = goals
        model.end(group, choice)
    model.settle()
    assert model.states == dict.fromkeys(model.goals.mine, GroupState.OPEN)


@given(wishes, st.dictionaries(st.sampled_from(GROUPS), st.sampled_from(list(GroupState)), max_size=3))
def test_every_decision_is_a_transition_of_the_table(goals: Goals, states: dict[str, GroupState]) -> None:
    """No decision asks for something that the state of its group does not allow."""
    for action in reconcile(states, goals):
        assert (states.get(action.group, GroupState.ABSENT), action.event) in TRANSITIONS


@given(wishes, st.dictionaries(st.sampled_from(GROUPS), st.sampled_from(list(GroupState)), max_size=3))
def test_what_has_been_started_is_not_started_again(goals: Goals, states: dict[str, GroupState]) -> None:
    """After its actions have begun, a node has nothing more to do until one of them ends."""
    for action in reconcile(states, goals):
        states[action.group] = next_state(states.get(action.group, GroupState.ABSENT), action.event)
    assert reconcile(states, goals) == []
