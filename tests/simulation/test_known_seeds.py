"""Seeds that once failed, each with the bug it found. The workload has grown since, so they cover more than before."""

from __future__ import annotations

from tests.kit.simulation.simulation import Simulation

_SMALL = (2, 7, 8, 9, 12, 17, 18, 23, 33, 70, 87, 119, 142, 189, 207, 226, 247, 303, 314, 320, 370, 438, 459)
_LARGE = (
    977_821,
    90_920_095,
    476_233_785,
    622_212_655,
    735_656_124,
    1_147_181_374,
    1_396_206_717,
    2_117_485_831,
    1_724_709_358,
    1_970_004_739,
    11_015_852,
    521_169_980,
    647_055_429,
    1_978_428_074,
    1_393_914_848,
    386_778_314,
    1_681_060_268,
    936_528_850,
    330_653_726,
)
KNOWN = frozenset((*_SMALL, *_LARGE))
"""All seeds of this file, so that others need not run them again."""


def holds(seed: int) -> bool:
    """Run a seed, which raises if a promise is broken."""
    assert seed in KNOWN
    return Simulation(seed).run().seed == seed


def test_seed_7_limits_per_key() -> None:
    """A queue created with limits per key did not count its keys, so the limits had no effect until its first
    update."""
    assert holds(7)


def test_seed_18_deadlines_that_pass_while_the_broker_is_away() -> None:
    """Messages whose deadline had passed before recovery stayed until the next request about their queue."""
    assert holds(18)


def test_seed_2_credit_after_a_failed_commit() -> None:
    """Credit was returned when an ack was applied although its commit failed: a consumer got more than its credit."""
    assert holds(2)


def test_seeds_9_and_12_peace_for_a_full_disk() -> None:
    """With a full disk and a waiting consumer the broker ran cycles without end, at one instant."""
    assert holds(9)
    assert holds(12)


def test_seeds_23_and_189_the_line_of_an_old_policy() -> None:
    """A line that an update had replaced stayed active: messages were removed twice, from the new line's lanes too."""
    assert holds(23)
    assert holds(189)


def test_seed_70_time_within_a_process() -> None:
    """When the broker recovered in process after the clock was set back, its time ran backwards."""
    assert holds(70)


def test_seed_87_the_holder_of_a_message_after_a_failed_turn() -> None:
    """A cycle that took a message from one consumer and leased it to another failed: the credit was lost forever."""
    assert holds(87)


def test_seed_226_a_message_cancelled_and_late_in_one_turn() -> None:
    """A message was removed a second time, by its deadline, after a cancel in the same cycle."""
    assert holds(226)


def test_seed_247_forwarding_to_several_queues() -> None:
    """Each part of a forward was granted the same capacity, so together they exceeded the global limit."""
    assert holds(247)


def test_seeds_17_and_207_requests_in_a_turn_full_of_expiries() -> None:
    """Expired leases filled every cycle while the disk was full, and requests were neither taken nor answered."""
    assert holds(17)
    assert holds(207)


def test_seeds_303_and_320_consumers_after_a_recovery() -> None:
    """Consumers whose credit was restored by a recovery were not served although messages waited."""
    assert holds(303)
    assert holds(320)


def test_seed_459_a_delete_that_fails() -> None:
    """A delete whose commit failed ended the consumers of the queue silently, although the queue still existed."""
    assert holds(459)


def test_seeds_8_and_33_bodies_that_can_not_be_read() -> None:
    """When no body of a hand-out could be read, waiting consumers got an empty answer, and streams were ended."""
    assert holds(8)
    assert holds(33)


def test_seeds_119_and_142_leases_that_nobody_has() -> None:
    """Leases that were durable but never delivered were not returned if the cycle that returned them failed as well."""
    assert holds(119)
    assert holds(142)


def test_seeds_370_and_438_giving_back_on_a_full_disk() -> None:
    """The broker repeated its own requests after a failure at once, without end, while the disk was full."""
    assert holds(370)
    assert holds(438)


def test_seeds_977821_and_622212655_two_publications_in_one_cycle() -> None:
    """The auditor blamed a refused publication for a batch that a later request of the same cycle had published."""
    assert holds(977821)
    assert holds(622212655)


def test_seed_90920095_a_claim_that_is_read_twice() -> None:
    """The simulated consumer held such a lease twice, and blamed the broker for extending it once in a request."""
    assert holds(90920095)


def test_seed_476233785_the_line_of_a_queue_that_was_never_created() -> None:
    """A lease waited at a queue whose creation failed. Where queues shared a throttle, the next cycle failed by it."""
    assert holds(476_233_785)


def test_seed_1396206717_producers_at_a_deleted_queue() -> None:
    """A producer waited for room while its queue was deleted and created again: its messages got into the new one, with
    the terms of a script that only the old one had."""
    assert holds(1_396_206_717)


def test_seed_1147181374_the_time_to_catch_up() -> None:
    """The simulation gave the broker too little time to catch up with a clock that was set right: it had been slewing
    towards the wrong one until it looked."""
    assert holds(1_147_181_374)


def test_seed_735656124_a_redrive_with_a_rate_at_a_full_queue() -> None:
    """A redrive with a rate looked every millisecond whether its queue had room, for as long as it was full."""
    assert holds(735_656_124)


def test_seed_2117485831_a_claim_of_the_prompt_messages() -> None:
    """A claim took the prompt messages after a busy consumer had been passed over for them; the plain ones that were
    left went to it only with the next request for the queue."""
    assert holds(2_117_485_831)


def test_seed_1724709358_a_purge_of_leases_that_are_over() -> None:
    """A purge returned a message whose lease was over for the last time, and removed it; the auditor wanted it dead."""
    assert holds(1_724_709_358)


def test_seed_1970004739_what_a_throttle_by_cost_has_left() -> None:
    """A throttle by cost was set to a rate of 0. The auditor did not know that another queue may keep what is left."""
    assert holds(1_970_004_739)


def test_seed_11015852_a_queue_whose_creation_failed() -> None:
    """An enqueue created its queue by a template and waited for a script, and the commit of that cycle failed. After
    the recovery the enqueue was refused, because the queue was missing."""
    assert holds(11_015_852)


def test_seed_521169980_a_sink_that_is_dropped_and_created_again() -> None:
    """A sink published, was dropped and created again in one commit; the auditor judged the answer by the new one."""
    assert holds(521_169_980)


def test_seed_647055429_a_gate_without_lanes() -> None:
    """A throttle had a token, and the messages that had waited for it were gone: a busy consumer was passed over for
    them, and got no plain message until the next request for the queue."""
    assert holds(647_055_429)


def test_seed_1978428074_a_tick_that_waits_while_its_schedule_is_run() -> None:
    """A tick waited for capacity and was enqueued although its schedule, which skips overlaps, had been run by hand."""
    assert holds(1_978_428_074)


def test_seeds_1393914848_and_386778314_a_producer_behind_returned_leases() -> None:
    """On a full disk the leases that the broker returns by itself were taken before an enqueue in every cycle, so the
    producer was never refused and the broker never rested."""
    assert holds(1_393_914_848)
    assert holds(386_778_314)


def test_seed_1681060268_a_tick_that_outlives_those_before_it() -> None:
    """A commit with three ticks of a schedule failed while the fourth waited for capacity. The fourth got in after the
    recovery, which settled the three without a message."""
    assert holds(1_681_060_268)


def test_seed_314_what_a_dead_letter_forwards() -> None:
    """The auditor took what a dead letter forwards for new members of the fan-out that the message had failed."""
    assert holds(314)


def test_seed_936528850_a_fan_out_that_ends_after_its_repeat() -> None:
    """The auditor judged the repeat of a fan-out after the whole commit, in which the fan-out then ended."""
    assert holds(936_528_850)


def test_seed_330653726_a_queue_that_is_deleted_after_the_repeat_of_its_fan_out() -> None:
    """The auditor judged the repeat of a fan-out after the whole commit, which then deleted the queue."""
    assert holds(330_653_726)
