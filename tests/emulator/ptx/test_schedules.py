# SPDX-License-Identifier: MIT
"""What the kernel does not order is done early, late, or at random: each schedule shows faults that others hide."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.emulator.ptx.driver import Cuda, Refused
from tests.emulator.ptx.test_checks import ELECTED, EXCHANGE
from tests.emulator.ptx.test_faults import AGAIN, BETWEEN, BULK, FAULTS, HEAD, IN_TURN, STORE, THROUGH, run

# Each of eight blocks adds 200 to one word of global memory.
COUNT = """.visible .entry k(.param .u64 pcount) { .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
ld.param.u64 %rd0, [pcount]; mov.u32 %r0, 0;
AGAIN: red.global.add.u32 [%rd0], 1;
add.u32 %r0, %r0, 1; setp.lt.u32 %p0, %r0, 200; @%p0 bra AGAIN; ret; }"""
LOST = COUNT.replace("red.global.add.u32 [%rd0], 1;",
                     "ld.global.u32 %r1, [%rd0]; add.u32 %r1, %r1, 1; st.global.u32 [%rd0], %r1;")
RANDOM = [f"random:{seed}" for seed in range(1, 6)]


def counted(cuda: Cuda, kernel: str, schedule: str) -> int:
    count = np.zeros(1, np.uint32)
    cuda.set(schedule=schedule, threads=1)
    cuda.launch(kernel, [count], grid=8, block=1)
    found = {each["check"] for each in json.loads(cuda.taken("findings"))}
    assert found == ({"global-race"} if kernel == LOST else set())
    return int(count[0])


# A warp looks at a word of global memory until the other one, which waits for a bulk copy, has set it.
LOOKING = HEAD + """add.u32 %r5, %r1, 1024; setp.eq.u32 %p0, %r0, 32; @!%p0 bra BEGIN;
mbarrier.init.shared::cta.b64 [%r5], 1; fence.mbarrier_init.release.cluster; fence.proxy.async;
BEGIN: bar.sync 0; setp.ge.u32 %p1, %r0, 32; @%p1 bra COPY;
LOOK: ld.acquire.gpu.global.u32 %r4, [%rd1+128]; setp.eq.u32 %p2, %r4, 0; @%p2 bra LOOK; bra END;
COPY: @!%p0 bra WAIT; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 128, [%r5];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
ld.shared.u32 %r4, [%r3+-128]; st.global.u32 [%rd4+-128], %r4; bar.warp.sync 0xffffffff;
@!%p0 bra END; st.release.gpu.global.u32 [%rd1+128], 1;
END: ret; }"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("schedule", ["late", "eager", *RANDOM])
def test_a_copy_lands_though_another_warp_goes_on_looking(cuda: Cuda, schedule: str) -> None:
    given, out = np.arange(1, 33, dtype=np.uint32), np.zeros(64, np.uint32)
    cuda.set(schedule=schedule)
    cuda.launch(LOOKING, [given, out], block=64, shared=2048)
    assert np.array_equal(out[:32], given)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("schedule", ["late", "eager", *RANDOM])
def test_a_copy_lands_though_the_loop_that_waits_for_it_is_long(cuda: Cuda, schedule: str) -> None:
    """As where nvcc moves the zeros of many registers into the loop."""
    given, out = np.arange(1, 33, dtype=np.uint32), np.zeros(64, np.uint32)
    cuda.set(schedule=schedule)
    long = LOOKING.replace("@!%p2 bra WAIT;", "mov.u32 %r6, 0;" * 200 + "@!%p2 bra WAIT;")
    cuda.launch(long.replace("LOOK: ld.acquire", "bra END; LOOK: ld.acquire"), [given, out], block=64, shared=2048)
    assert np.array_equal(out[:32], given)


def test_an_update_that_is_lost_shows_at_random_alone(cuda: Cuda) -> None:
    """In the numbers; the check finds it in every schedule."""
    assert [counted(cuda, LOST, schedule) for schedule in ("eager", "late")] == [1600, 1600]
    wrong = [counted(cuda, LOST, schedule) for schedule in RANDOM]
    assert max(wrong) < 1600
    assert wrong == [counted(cuda, LOST, schedule) for schedule in RANDOM]        # the seed decides
    assert len(set(wrong)) > 1
    assert {counted(cuda, COUNT, schedule) for schedule in ("eager", "late", *RANDOM)} == {1600}


def passed(cuda: Cuda, kernel: str, block: int, schedule: str) -> bool:
    """Whether the words have come through; numbers alone, without checks."""
    given, out = np.zeros(64, np.uint32), np.zeros(32, np.uint32)
    given[:32] = np.arange(1, 33)
    cuda.set(schedule=schedule, checks="none")
    try:
        cuda.launch(kernel, [given, out], block=block, shared=2048)
    finally:
        cuda.set(checks="all")
    return np.array_equal(out, given[:32])


@pytest.mark.parametrize(("kernel", "twin", "block", "eager", "late"), [
    (THROUGH.replace("cp.async.wait_group 0;", ""), THROUGH, 32, True, False),
    (AGAIN, IN_TURN, 32, False, True),
    (BETWEEN.replace("bar.sync 1, 64;", ""), BETWEEN, 64, True, True),
], ids=["late shows it", "eager shows it", "random alone shows it"])
def test_an_order_that_is_missing_shows_as_a_wrong_number(
    cuda: Cuda, kernel: str, twin: str, block: int, eager: bool, late: bool
) -> None:
    assert [passed(cuda, kernel, block, schedule) for schedule in ("eager", "late")] == [eager, late]
    assert not all(passed(cuda, kernel, block, schedule) for schedule in RANDOM)
    assert all(passed(cuda, twin, block, schedule) for schedule in ("eager", "late", *RANDOM))


@pytest.mark.parametrize("schedule", ["eager", *RANDOM])
@pytest.mark.parametrize(("kernel", "block"), [
    (THROUGH, 32), (BETWEEN, 64), (BULK, 32), (STORE, 32), (ELECTED, 64), (EXCHANGE, 64)],
    ids=["cp.async", "named barrier", "bulk", "bulk store", "elected", "exchange"])
def test_a_sound_kernel_is_right_in_every_schedule(cuda: Cuda, kernel: str, block: int, schedule: str) -> None:
    cuda.set(schedule=schedule)
    given, out = run(cuda, kernel, block)
    assert np.array_equal(given, out)
    assert json.loads(cuda.taken("findings")) == []


@pytest.mark.parametrize("name", ["too many bytes awaited", "a barrier for more threads than come"])
def test_a_deadlock_is_found_at_random_too(cuda: Cuda, name: str) -> None:
    fault = FAULTS[name]
    cuda.set(schedule="random:7")
    with pytest.raises(Refused) as refused:
        run(cuda, fault.kernel.replace(fault.right, fault.wrong), fault.block)
    assert [each["check"] for each in refused.value.findings] == ["barrier"]


@pytest.mark.parametrize("value", ["random", "random:", "random:x", "early"])
def test_an_unknown_schedule_is_refused(cuda: Cuda, value: str) -> None:
    with pytest.raises(AssertionError):
        cuda.set(schedule=value)


# Lanes that wait stand before the one they wait for, as nvcc places a loop whose last statement is one lane's.
BEHIND = HEAD + """add.u32 %r5, %r1, 1024; setp.ne.u32 %p0, %r0, 0; @%p0 bra BEGIN;
mbarrier.init.shared::cta.b64 [%r5], 1; mbarrier.init.shared::cta.b64 [%r5+8], 1;
BEGIN: bar.sync 0; bra WRITE;
LOOK: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0; @!%p2 bra LOOK;
xor.b32 %r6, %r3, 4; ld.shared.u32 %r4, [%r6]; xor.b32 %r7, %r0, 1; mul.wide.u32 %rd4, %r7, 4; add.s64 %rd4, %rd1, %rd4;
st.global.u32 [%rd4], %r4; bra END;
WRITE: ld.global.u32 %r4, [%rd3]; st.shared.u32 [%r3], %r4; bar.warp.sync 0xffffffff; @%p0 bra LOOK;
mbarrier.arrive.shared::cta.b64 _, [%r5]; bra LOOK;
END: ret; }"""
# And one whose lanes wait for two things of which none comes.
OTHER = "ALSO: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5+8], 0; @!%p2 bra ALSO;"


@pytest.mark.parametrize("schedule", ["late", "eager", *RANDOM])
def test_a_lane_goes_on_while_others_of_its_warp_wait_for_it(cuda: Cuda, schedule: str) -> None:
    cuda.set(schedule=schedule)
    given, out = run(cuda, BEHIND, 32)
    assert np.array_equal(given, out)
    assert json.loads(cuda.taken("findings")) == []
    for wrong in ("", OTHER):
        with pytest.raises(Refused) as refused:
            run(cuda, BEHIND.replace("mbarrier.arrive.shared::cta.b64 _, [%r5];", wrong), 32)
        assert [each["check"] for each in refused.value.findings] == ["barrier"]


# Two warps take turns: each waits for the other's arrival, many times.
TURNS = HEAD + """add.u32 %r5, %r1, 1024; setp.ne.u32 %p0, %r0, 0; @%p0 bra BEGIN;
mbarrier.init.shared::cta.b64 [%r5], 32; mbarrier.init.shared::cta.b64 [%r5+8], 32;
BEGIN: bar.sync 0; mov.u32 %r6, 0; setp.ge.u32 %p1, %r0, 32; @%p1 bra SECOND; ld.global.u32 %r4, [%rd3];
FIRST: and.b32 %r7, %r6, 1; mbarrier.arrive.shared::cta.b64 _, [%r5];
A: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5+8], %r7; @!%p2 bra A;
add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 3000; @%p3 bra FIRST; st.global.u32 [%rd4], %r4; bra END;
SECOND: and.b32 %r7, %r6, 1;
B: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], %r7; @!%p2 bra B;
mbarrier.arrive.shared::cta.b64 _, [%r5+8]; add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 3000; @%p3 bra SECOND;
END: ret; }"""
# One jumps by a table, many times.
TABLE = HEAD + """ld.global.u32 %r4, [%rd3]; mov.u32 %r6, 0;
TARGETS: .branchtargets EVEN, ODD;
AGAIN: and.b32 %r7, %r6, 1; brx.idx %r7, TARGETS;
ODD: add.u32 %r6, %r6, 1; bra AGAIN;
EVEN: add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 3000; @%p3 bra AGAIN;
st.global.u32 [%rd4], %r4; ret; }"""


@pytest.mark.parametrize(("kernel", "block"), [(TURNS, 64), (TABLE, 32)], ids=["turns", "table"])
def test_going_on_is_no_deadlock(cuda: Cuda, kernel: str, block: int) -> None:
    given, out = run(cuda, kernel, block)
    assert np.array_equal(given, out)


# Behind one copy come twelve others, each of which is waited for; then the word says whether the first has landed.
OVERTAKEN = HEAD + """add.u32 %r5, %r1, 1024; add.u32 %r8, %r1, 128; setp.ne.u32 %p0, %r0, 0; @%p0 bra END;
mbarrier.init.shared::cta.b64 [%r5], 1; mbarrier.init.shared::cta.b64 [%r5+8], 1;
fence.mbarrier_init.release.cluster; fence.proxy.async; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 128, [%r5];
mov.u32 %r6, 0; add.u32 %r9, %r5, 8;
NEXT: and.b32 %r7, %r6, 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r8], [%rd0], 128, [%r9];
LOOK: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r9], %r7; @!%p1 bra LOOK;
add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 12; @%p2 bra NEXT;
mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r5], 0; selp.u32 %r4, 1, 0, %p3; st.global.u32 [%rd1], %r4;
LAST: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r5], 0; @!%p1 bra LAST;
END: ret; }"""


def test_a_copy_may_land_long_after_those_issued_behind_it(cuda: Cuda) -> None:
    landed = []
    for seed in range(40):
        cuda.set(schedule=f"random:{seed}")
        landed.append(int(run(cuda, OVERTAKEN, 32)[1][0]))
    assert set(landed) == {0, 1}
    assert landed.count(0) < 20


LOCK = """.visible .entry k(.param .u64 pout) { .reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<3>;
ld.param.u64 %rd0, [pout]; mov.u32 %r0, %tid.x; mov.u32 %r5, 0;
AGAIN: """ + "add.u32 %r5, %r5, 1;\n" * 60 + """atom.global.cas.b32 %r1, [%rd0], 0, 1;
setp.ne.u32 %p0, %r1, 0; @%p0 bra AGAIN;
ld.volatile.global.u32 %r2, [%rd0+4]; add.u32 %r2, %r2, %r0; st.volatile.global.u32 [%rd0+4], %r2;
membar.gl; atom.global.exch.b32 %r1, [%rd0], 0; ret; }"""


def test_a_long_loop_lets_the_lane_go_on_that_holds_the_lock(cuda: Cuda) -> None:
    """A warp's turn is shorter than the loop's patience: both go on from turn to turn."""
    out = np.zeros(2, np.uint32)
    cuda.launch(LOCK, [out], block=8)
    assert out.tolist() == [0, 28]
