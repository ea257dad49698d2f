# SPDX-License-Identifier: MIT
"""A wrong kernel is refused with the reason; its sound twin, one word apart, runs and is right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.emulator.ptx.driver import Array, Cuda, Refused

POISON = 0xFFFFFFFF      # shared memory that nobody has written
HEAD = """.extern .shared .align 1024 .b8 dynamic[];
.visible .entry k(.param .u64 pin, .param .u64 pout) {
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>;
ld.param.u64 %rd0, [pin]; ld.param.u64 %rd1, [pout]; mov.u32 %r0, %tid.x;
mul.wide.u32 %rd2, %r0, 4; add.s64 %rd3, %rd0, %rd2; add.s64 %rd4, %rd1, %rd2;
mov.u32 %r1, dynamic; shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2;
"""
# Copies the input through shared memory, each thread its word.
THROUGH = HEAD + """cp.async.ca.shared.global [%r3], [%rd3], 4;
cp.async.commit_group; cp.async.wait_group 0;
ld.shared.u32 %r4, [%r3]; st.global.u32 [%rd4], %r4; ret; }"""
# The threads of one warp write, those of the other read behind a barrier.
BETWEEN = HEAD + """setp.ge.u32 %p0, %r0, 32; @%p0 bra READ;
ld.global.u32 %r4, [%rd3]; st.shared.u32 [%r3], %r4; bar.sync 1, 64; bra END;
READ: bar.sync 1, 64; ld.shared.u32 %r4, [%r3+-128]; st.global.u32 [%rd4+-128], %r4;
END: ret; }"""
# A bulk copy into shared memory, which an mbarrier announces.
BULK = HEAD + """add.u32 %r5, %r1, 1024; setp.ne.u32 %p0, %r0, 0; @%p0 bra WAIT;
mbarrier.init.shared::cta.b64 [%r5], 1; fence.mbarrier_init.release.cluster; fence.proxy.async;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 128, [%r5];
WAIT: bar.warp.sync 0xffffffff;
AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r5], 0; @!%p1 bra AGAIN;
ld.shared.u32 %r4, [%r3]; st.global.u32 [%rd4], %r4; ret; }"""
# A bulk copy brings the words in; another one brings zeros, when all have read the first.
AGAIN = BULK.replace("WAIT: bar.warp.sync 0xffffffff;", "WAIT: bar.sync 0;").replace(
    "ld.shared.u32 %r4, [%r3]; st", """bar.sync 0; @%p0 bra READ;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0+128], 128, [%r5];
READ: ld.shared.u32 %r4, [%r3]; st""").replace("[%rd0+128]", "[%rd5]").replace(
    "mov.u32 %r1, dynamic;", "mov.u32 %r1, dynamic; add.s64 %rd5, %rd0, 128;")
IN_TURN = AGAIN.replace("READ: ld.shared.u32 %r4, [%r3];", "READ:").replace(
    "bar.sync 0; @%p0 bra READ;", "ld.shared.u32 %r4, [%r3]; bar.sync 0; @%p0 bra READ;")
# A bulk copy out of shared memory.
STORE = HEAD + """ld.global.u32 %r4, [%rd3]; st.shared.u32 [%r3], %r4; fence.proxy.async; bar.warp.sync 0xffffffff;
setp.ne.u32 %p0, %r0, 0; @%p0 bra END;
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 128; cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0; st.shared.u32 [%r1], 7;
END: ret; }"""
# Each lane's arrival at an mbarrier follows its copy; the other warp reads. Who ends waits for its copies, so it stays.
ARRIVALS = HEAD + """add.u32 %r5, %r1, 1024; mov.u32 %r6, %r5; setp.ne.u32 %p0, %r0, 0; @%p0 bra BEGIN;
mbarrier.init.shared::cta.b64 [%r5], 32;
BEGIN: bar.sync 0; setp.ge.u32 %p1, %r0, 32; @%p1 bra READ;
cp.async.ca.shared.global [%r3], [%rd3], 4; cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r6]; bra END;
READ: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0; @!%p2 bra READ;
ld.shared.u32 %r4, [%r3+-128]; st.global.u32 [%rd4+-128], %r4;
END: bar.sync 0; ret; }"""
# The same at two mbarriers, of 16 lanes each.
TWO = ARRIVALS.replace("mov.u32 %r6, %r5;", "shr.u32 %r6, %r0, 4; shl.b32 %r6, %r6, 3; add.u32 %r6, %r6, %r5;").replace(
    "[%r5], 32;", "[%r5], 16; mbarrier.init.shared::cta.b64 [%r5+8], 16;").replace(
    "bra READ;\nld", "bra READ;\nMORE: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5+8], 0; @!%p2 bra MORE;\nld")
# The warps of a warpgroup wait for one product.
PRODUCT = HEAD + """.reg .f32 %f<4>; setp.eq.u32 %p0, 0, 1; mov.f32 %f0, 0f00000000;
mov.u32 %r6, %tid.x; shr.u32 %r6, %r6, 5; setp.eq.u32 %p1, %r6, 3;
shr.u32 %r4, %r1, 4; cvt.u64.u32 %rd5, %r4; or.b64 %rd5, %rd5, 68720001024;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd5, %rd5, %p0, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
LAST: bar.sync 0; ret; }"""

# Two warpgroups take registers that the third one gives.
REGISTERS = HEAD + """setp.lt.u32 %p0, %r0, 256; @%p0 bra TAKE; setmaxnreg.dec.sync.aligned.u32 24; bra END;
TAKE: setmaxnreg.inc.sync.aligned.u32 240; setp.ge.u32 %p1, %r0, 32; @%p1 bra END;
ld.global.u32 %r4, [%rd3]; st.global.u32 [%rd4], %r4;
END: bar.sync 0; ret; }"""


@dataclass(frozen=True)
class Fault:
    """``wrong`` in place of ``right`` makes ``check`` speak; ``check`` "" if only the numbers show it."""

    kernel: str
    right: str
    wrong: str
    check: str = ""
    block: int = 32


FAULTS = {
    "a load behind an array": Fault(BETWEEN, "%r4, [%rd3]", "%r4, [%rd3+4096]", "bounds", 64),
    "a store before an array": Fault(BETWEEN, "[%rd4+-128], %r4", "[%rd4+-4096], %r4", "bounds", 64),
    "a load that is not aligned": Fault(BETWEEN, "%r4, [%rd3]", "%r4, [%rd3+2]", "misaligned", 64),
    "a copy from behind an array": Fault(THROUGH, "[%r3], [%rd3], 4", "[%r3], [%rd3+4096], 4", "bounds"),
    "a copy that is not aligned": Fault(THROUGH, "[%r3], [%rd3], 4", "[%r3], [%rd3+2], 4", "misaligned"),
    "shared memory behind the block's": Fault(THROUGH, "%r4, [%r3]", "%r4, [%r3+4096]", "bounds"),
    "shared memory that is not aligned": Fault(THROUGH, "%r4, [%r3]", "%r4, [%r3+1]", "misaligned"),
    "no wait for cp.async": Fault(THROUGH, "cp.async.wait_group 0;", "cp.async.wait_group 1;"),
    "no commit of cp.async": Fault(THROUGH, "cp.async.commit_group;", ""),
    "a barrier for more threads than come": Fault(BETWEEN, "READ: bar.sync 1,", "READ: bar.sync 2,", "barrier", 64),
    "unlike counts at a barrier": Fault(BETWEEN, "READ: bar.sync 1, 64", "READ: bar.sync 1, 96", "barrier", 64),
    "barrier 16": Fault(BETWEEN, "READ: bar.sync 1, 64", "READ: bar.sync 16, 64", "barrier", 64),
    "more registers than the block has": Fault(REGISTERS, "u32 24;", "u32 32;", "barrier", 384),
    "registers that nobody gives": Fault(REGISTERS, "setmaxnreg.dec.sync.aligned.u32 24;", "", "barrier", 384),
    "no mbarrier": Fault(BULK, "mbarrier.init.shared::cta.b64 [%r5], 1;", "", "mbarrier"),
    "an mbarrier elsewhere": Fault(BULK, "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r5], 0",
                                   "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r5+8], 0", "mbarrier"),
    "too few bytes awaited": Fault(BULK, "_, [%r5], 128", "_, [%r5], 64", "mbarrier"),
    "too many bytes awaited": Fault(BULK, "_, [%r5], 128", "_, [%r5], 256", "barrier"),
    "an arrival too many": Fault(BULK, "_, [%r5], 128;", "_, [%r5], 128; mbarrier.arrive.shared::cta.b64 _, [%r5];"
                                 " mbarrier.arrive.shared::cta.b64 _, [%r5];", "mbarrier"),
    "the other parity": Fault(BULK, "[%r5], 0; @!%p1", "[%r5], 1; @!%p1"),
    "no wait for a bulk copy": Fault(BULK, "@!%p1 bra AGAIN;", ""),
    "a phase of one arrival": Fault(ARRIVALS, "[%r5], 32;", "[%r5], 1;", block=64),
    "a phase of half of the arrivals": Fault(ARRIVALS, "[%r5], 32;", "[%r5], 16;", block=64),
    "the first of two mbarriers alone": Fault(TWO, "@!%p2 bra MORE;", "", block=64),
    "a bulk copy of 120 bytes": Fault(BULK, "[%rd0], 128, [%r5]", "[%rd0], 120, [%r5]", "misaligned"),
    "no wait for a bulk store": Fault(STORE, "cp.async.bulk.wait_group.read 0;", "cp.async.bulk.wait_group.read 1;"),
    "a trap": Fault(THROUGH, "ld.shared.u32 %r4, [%r3];", "trap;", "trap"),
    "lanes that wait for each other apart": Fault(
        BULK, "WAIT: bar.warp.sync 0xffffffff;", "setp.gt.u32 %p2, %r0, 40; @%p2 bra AGAIN; shfl.sync.idx.b32 %r6, %r0,"
        " 0, 31, 0xffffffff; WAIT: bar.warp.sync 0xffffffff;", "barrier"),
    "a product that one warp does not issue": Fault(
        PRODUCT, "wgmma.fence.sync.aligned;", "@%p1 bra LAST; wgmma.fence.sync.aligned;", "barrier", 128),
}


def run(cuda: Cuda, kernel: str, block: int) -> tuple[Array, Array]:
    given, out = np.arange(1, 33, dtype=np.uint32), np.zeros(32, np.uint32)
    cuda.launch(kernel, [given, out], block=block, shared=2048)
    return given, out


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_its_twin_is_not(cuda: Cuda, name: str) -> None:
    fault = FAULTS[name]
    assert fault.kernel.count(fault.right) == 1
    given, out = run(cuda, fault.kernel, fault.block)
    if fault.block != 128:
        assert np.array_equal(given, out)
    wrong = fault.kernel.replace(fault.right, fault.wrong)
    if not fault.check:
        given, out = run(cuda, wrong, fault.block)
        assert not np.array_equal(given, out)
        return
    with pytest.raises(Refused) as refused:
        run(cuda, wrong, fault.block)
    assert [each["check"] for each in refused.value.findings] == [fault.check], refused.value
    assert "PTX line" in refused.value.findings[0]["text"]


def test_a_deadlock_says_how_many_have_come_to_each_barrier(cuda: Cuda) -> None:
    fault = FAULTS["a barrier for more threads than come"]
    with pytest.raises(Refused) as refused:
        run(cuda, fault.kernel.replace(fault.right, fault.wrong), fault.block)
    text = refused.value.findings[0]["text"]
    assert "every warp waits, barrier 1 has 32 of 64 threads, barrier 2 has 32 of 64 threads: warp 0 at" in text


@pytest.mark.parametrize(("kernel", "block"), [(THROUGH, 32), (BULK, 32), (STORE, 32), (ARRIVALS, 64), (TWO, 64)],
                         ids=["cp.async", "bulk", "bulk store", "arrivals", "two mbarriers"])
@pytest.mark.parametrize("schedule", ["eager", "random:1"])
def test_copies_at_other_times_give_the_same(cuda: Cuda, kernel: str, block: int, schedule: str) -> None:
    cuda.set(schedule=schedule)
    given, out = run(cuda, kernel, block)
    assert np.array_equal(given, out)


def test_an_unknown_instruction_stops_with_its_text_and_line(cuda: Cuda) -> None:
    with pytest.raises(Refused, match=r"PTX line \d+: 'vadd.s32.s32.s32 %r4, %r0, %r0' is not supported"):
        run(cuda, THROUGH.replace("ld.shared.u32 %r4, [%r3];", "vadd.s32.s32.s32 %r4, %r0, %r0;"), 32)


@pytest.mark.parametrize(("text", "why"), [
    ("this is no PTX", "is not supported here"),
    (".visible .entry k( { ret; }", "the function k has no body"),
    (".visible .entry k() { add.s32 %r0, %r1, %r2; ret; }", "'add.s32 %r0, %r1, %r2' is not supported: a register exp"),
    (".visible .entry k() { bra NOWHERE; }", "there is no label NOWHERE"),
    (".visible .entry k() { ret;", "a '}' is missing"),
])
def test_text_that_is_no_kernel_is_refused_in_words(cuda: Cuda, text: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        cuda.launch(text, [])


def test_a_launch_that_the_device_cannot_make_is_refused(cuda: Cuda) -> None:
    with pytest.raises(Refused, match="a block of 2048 threads; 1024 are the most"):
        run(cuda, THROUGH, 2048)
    with pytest.raises(Refused, match="bytes of shared memory"):
        cuda.launch(THROUGH, [np.zeros(32, np.uint32)] * 2, shared=60000)
    with pytest.raises(Refused, match="the module has no kernel"):
        cuda.launch(THROUGH, [np.zeros(32, np.uint32)] * 2, name="another")
