# SPDX-License-Identifier: MIT
"""What no run shows by its numbers: each planted fault is found, with its line; its sound twin is silent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.emulator.ptx.driver import Cuda, Refused
from tests.emulator.ptx.test_faults import BETWEEN, BULK, HEAD, IN_TURN, STORE, THROUGH

# Each thread takes the word of the thread of the other warp, or of its neighbour.
EXCHANGE = HEAD + """and.b32 %r6, %r0, 31; mul.wide.u32 %rd2, %r6, 4;
add.s64 %rd3, %rd0, %rd2; add.s64 %rd4, %rd1, %rd2;
ld.global.u32 %r4, [%rd3]; st.shared.u32 [%r3], %r4; bar.sync 0;
xor.b32 %r7, %r0, 32; shl.b32 %r7, %r7, 2; add.u32 %r7, %r1, %r7;
ld.shared.u32 %r4, [%r7]; bar.sync 0; st.shared.u32 [%r3], 0; st.global.u32 [%rd4], %r4; ret; }"""
NEIGHBOUR = EXCHANGE.replace("bar.sync 0", "bar.warp.sync 0xffffffff").replace("%r0, 32;", "%r0, 0;").replace(
    "xor.b32 %r7, %r0, 0; ", "xor.b32 %r7, %r0, 1; ")
# All threads write one value to one word, as compilers do where several hold one element.
TOGETHER = HEAD + """shr.u32 %r6, %r0, 5; mov.u32 %r7, 5; st.shared.u32 [%r1], %r7; bar.sync 0; ret; }"""
# One thread of the first warp tells the second by an mbarrier that all of its warp have written.
ELECTED = HEAD + """add.u32 %r5, %r1, 1024; setp.ne.u32 %p0, %r0, 0; @%p0 bra BEGIN;
mbarrier.init.shared::cta.b64 [%r5], 1;
BEGIN: bar.sync 0; setp.ge.u32 %p1, %r0, 32; @%p1 bra READ;
ld.global.u32 %r4, [%rd3]; st.shared.u32 [%r3], %r4; bar.warp.sync 0xffffffff;
@%p0 bra END; mbarrier.arrive.shared::cta.b64 _, [%r5]; bra END;
READ: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0; @!%p2 bra READ;
ld.shared.u32 %r4, [%r3+-128]; st.global.u32 [%rd4+-128], %r4;
END: ret; }"""
# A product of ones: the matrices are written by all threads, and written again once they have been read.
PRODUCT = HEAD + """.reg .f32 %f<8>; setp.eq.u32 %p0, 0, 0; mul.wide.u32 %rd6, %r0, 4;
mov.f32 %f0, 0f00000000; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000;
shl.b32 %r6, %r0, 4; add.u32 %r6, %r6, %r1; mov.u32 %r7, 0x3c003c00; st.shared.v4.u32 [%r6], {%r7, %r7, %r7, %r7};
fence.proxy.async; bar.sync 0;
shr.u32 %r4, %r1, 4; cvt.u64.u32 %rd5, %r4; or.b64 %rd5, %rd5, 68720001024;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd5, %rd5, %p0, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
add.f32 %f4, %f0, %f1; bar.sync 0; st.shared.u32 [%r6], 0;
setp.ge.u32 %p1, %r0, 32; @%p1 bra END; st.global.f32 [%rd4], %f4; END: ret; }"""
# A lane takes the value of another.
SHUFFLE = HEAD + """ld.global.u32 %r4, [%rd3]; setp.gt.u32 %p0, %r0, 15; @%p0 bra END;
shfl.sync.idx.b32 %r6, %r0, 3, 31, 0xffff; END: st.global.u32 [%rd4], %r4; ret; }"""
# A block reads the shared memory of the other one of its cluster.
PAIR = HEAD.replace(") {", ") .reqnctapercluster 2, 1, 1 {") + """ld.global.u32 %r4, [%rd3]; st.shared.u32 [%r3], %r4;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
mov.u32 %r5, %cluster_ctarank; xor.b32 %r5, %r5, 1; mapa.shared::cluster.u32 %r6, %r3, %r5;
ld.shared::cluster.u32 %r4, [%r6]; st.global.u32 [%rd4], %r4;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret; }"""
# Each block of a cluster sends its row to the other, which says when it has come.
SENT = HEAD.replace(") {", ") .reqnctapercluster 2, 1, 1 {") + """add.u32 %r5, %r1, 1024; setp.ne.u32 %p0, %r0, 0;
@%p0 bra READY; mbarrier.init.shared::cta.b64 [%r5], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 128;
READY: ld.global.u32 %r4, [%rd3]; st.shared.u32 [%r3], %r4; fence.proxy.async; bar.warp.sync 0xffffffff;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; @%p0 bra WAIT;
mov.u32 %r6, %cluster_ctarank; xor.b32 %r6, %r6, 1; add.u32 %r7, %r1, 512;
mapa.shared::cluster.u32 %r7, %r7, %r6; mapa.shared::cluster.u32 %r8, %r5, %r6;
cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r7], [%r1], 128, [%r8];
WAIT: bar.warp.sync 0xffffffff;
AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r5], 0; @!%p1 bra AGAIN;
ld.shared.u32 %r4, [%r3+512]; st.global.u32 [%rd4], %r4;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
END: ret; }"""
EARLY = HEAD + "griddepcontrol.wait; ld.global.u32 %r4, [%rd3]; st.global.u32 [%rd4], %r4; ret; }"
# Each of two blocks writes a word, and reads the other's once both have said that they are there.
ACROSS = HEAD + """mov.u32 %r5, %ctaid.x; mul.wide.u32 %rd5, %r5, 4; add.s64 %rd6, %rd1, %rd5;
add.u32 %r6, %r5, 7; st.global.u32 [%rd6], %r6; red.release.gpu.global.add.u32 [%rd1+64], 1;
AGAIN: ld.acquire.gpu.global.u32 %r7, [%rd1+64]; setp.lt.u32 %p0, %r7, 2; @%p0 bra AGAIN;
xor.b32 %r5, %r5, 1; mul.wide.u32 %rd5, %r5, 4; add.s64 %rd6, %rd1, %rd5; ld.global.u32 %r4, [%rd6];
st.global.u32 [%rd6+32], %r4; ret; }"""
# Two blocks write one word: the same value.
TWICE = HEAD + "mov.u32 %r5, %ctaid.x; mov.u32 %r6, 1; st.global.u32 [%rd1], %r6; ret; }"
# The threads of one warp write global memory, those of the other read behind a barrier.
HANDED = HEAD + """setp.ge.u32 %p0, %r0, 32; @%p0 bra READ; st.global.u32 [%rd4], %r0; bar.sync 1, 64; bra END;
READ: bar.sync 1, 64; ld.global.u32 %r4, [%rd4+-128]; END: ret; }"""
# What a thread has written to global memory it copies in; what it has copied out it reads.
COPIED_IN = BULK.replace("mbarrier.init.", "st.global.u32 [%rd0], 5; mbarrier.init.")
COPIED_OUT = STORE.replace("cp.async.bulk.wait_group.read 0;", "cp.async.bulk.wait_group 0; ld.global.u32 %r4, [%rd1];")
# A warp stores matrices, then others in their place.
MATRICES = HEAD + """shl.b32 %r5, %r0, 4; add.u32 %r5, %r5, %r1; xor.b32 %r6, %r5, 16; mov.u32 %r4, 7;
stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r5], {%r0, %r0, %r0, %r0};
stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r5], {%r4, %r4, %r4, %r4};
bar.warp.sync 0xffffffff; ld.shared.u32 %r4, [%r3]; st.global.u32 [%rd4], %r4; ret; }"""
COPIES = THROUGH.replace("%r4, [%r3];", "%r4, [%r3]; bar.warp.sync 0xffffffff; st.shared.u32 [%r3], 0;")


@dataclass(frozen=True)
class Fault:
    """``wrong`` in place of ``right`` makes ``check`` speak, with ``words``."""

    kernel: str
    right: str
    wrong: str
    check: str
    words: str
    block: int = 32
    grid: int = 1


FAULTS = {
    "no barrier between warps": Fault(
        EXCHANGE, "%r4; bar.sync 0;", "%r4;", "shared-race", "no barrier or wait orders them", 64),
    "a write before others have read": Fault(
        EXCHANGE, "[%r7]; bar.sync 0;", "[%r7];", "shared-race", "has read", 64),
    "no barrier between lanes": Fault(
        NEIGHBOUR, "%r4; bar.warp.sync 0xffffffff;", "%r4;", "shared-race", "has written"),
    "unlike values of two warps in one word of shared memory": Fault(
        TOGETHER, "%r7, 5;", "%r7, %r6;", "shared-race", "has written", 64),
    "an elected arrival before its warp has met": Fault(
        ELECTED, "bar.warp.sync 0xffffffff;", "", "shared-race", "has written", 64),
    "an mbarrier that others may not see yet": Fault(
        ELECTED, "BEGIN: bar.sync 0;", "BEGIN: bar.warp.sync 0xffffffff;", "shared-race", "mbarrier.init", 64),
    "a named barrier that only one side uses": Fault(
        BETWEEN, "READ: bar.sync 1, 64;", "READ: bar.arrive 1, 64;", "shared-race", "has written", 64),
    "cp.async that is not waited for": Fault(
        THROUGH, "cp.async.wait_group 0;", "", "shared-race", "cp.async of warp 0 may not have written"),
    "a group too few of cp.async": Fault(
        THROUGH, "cp.async.wait_group 0;", "cp.async.wait_group 1;", "shared-race", "cp.async of warp 0"),
    "a bulk copy that is not waited for": Fault(
        BULK, "@!%p1 bra AGAIN;", "", "shared-race", "a bulk copy may not have written yet"),
    "a bulk copy over what is still to be read": Fault(
        BULK, "ld.shared.u32 %r4, [%r3]; st", "ld.shared.u32 %r4, [%r3]; @%p0 bra LEAVE; mbarrier.arrive.expect_tx"
        ".shared::cta.b64 _, [%r5], 128; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], "
        "[%rd0], 128, [%r5]; LEAVE: st", "shared-race", "has read"),
    "a bulk store without a proxy fence": Fault(
        STORE, "fence.proxy.async; ", "", "proxy-fence", "no fence.proxy.async stands between"),
    "a proxy fence for global memory": Fault(
        STORE, "fence.proxy.async; ", "fence.proxy.async.global; ", "proxy-fence", "no fence.proxy.async"),
    "a proxy fence of one lane": Fault(
        STORE, "fence.proxy.async; bar.warp.sync 0xffffffff;\nsetp.ne.u32 %p0, %r0, 0; ",
        "setp.ne.u32 %p0, %r0, 0; @!%p0 fence.proxy.async; bar.warp.sync 0xffffffff; ", "proxy-fence", "has written"),
    "a write while a bulk store reads": Fault(
        STORE, "cp.async.bulk.wait_group.read 0;", "", "shared-race", "a bulk store may still read"),
    "a block that ends while a bulk store reads": Fault(
        STORE, "cp.async.bulk.wait_group.read 0; st.shared.u32 [%r1], 7;", "", "shared-race",
        "the block ends, and with it its shared memory, which a bulk store may still read"),
    "a block that ends while another block's copy reads": Fault(
        SENT, "barrier.cluster.wait.aligned;\nEND:", "END:", "shared-race",
        "which a bulk copy may still read", grid=2),
    "a product without a proxy fence": Fault(
        PRODUCT, "fence.proxy.async; bar", "bar", "proxy-fence", "has written", 128),
    "a product before other warps have written": Fault(
        PRODUCT, "fence.proxy.async; bar.sync 0;", "fence.proxy.async;", "shared-race", "reads asynchronously", 128),
    "a result before its product is done": Fault(
        PRODUCT, "wgmma.wait_group.sync.aligned 0;\nadd.f32 %f4, %f0, %f1;",
        "add.f32 %f4, %f0, %f1; wgmma.wait_group.sync.aligned 0;", "in-flight", "reads a register", 128),
    "a wait for a group too few": Fault(
        PRODUCT, "wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;", "in-flight", "reads a", 128),
    "products that are not committed": Fault(
        PRODUCT, "wgmma.commit_group.sync.aligned;", "", "in-flight", "reads a register that a wgmma still", 128),
    "a write to a register in flight": Fault(
        PRODUCT, "wgmma.wait_group.sync.aligned 0;", "add.f32 %f2, %f4, %f4; wgmma.wait_group.sync.aligned 0;",
        "in-flight", "writes a register that a wgmma still works on", 128),
    "an accumulator changed behind the fence": Fault(
        PRODUCT, "wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned; add.f32 %f3, %f3, %f3;", "in-flight",
        "changed since the last wgmma.fence", 128),
    "matrices written again before the product has read them": Fault(
        PRODUCT, "wgmma.wait_group.sync.aligned 0;", "st.shared.u32 [%r6], 0; wgmma.wait_group.sync.aligned 0;",
        "shared-race", "a wgmma of warpgroup 0 may still read", 128),
    "a warp that waits for a product alone": Fault(
        PRODUCT, "wgmma.fence.sync.aligned;", "setp.ge.u32 %p1, %r0, 32; @%p1 bra GO; wgmma.wait_group.sync.aligned 0; "
        "GO: wgmma.fence.sync.aligned;", "collective", "than another warp of its warpgroup makes here", 128),
    "memory that nobody has written": Fault(
        THROUGH, "ld.shared.u32 %r4, [%r3];", "ld.shared.u32 %r4, [%r3]; ld.shared.u32 %r6, [%r3+256];",
        "uninitialised", "that nobody has written"),
    "a value of a lane that is elsewhere": Fault(
        SHUFFLE, "%r0, 3,", "%r0, 20,", "collective", "takes a value from a lane"),
    "a block that may not have begun": Fault(
        PAIR, "%r4;\nbarrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\nmov", "%r4;\nmov", "cluster",
        "may not have begun", grid=2),
    "a block that has ended": Fault(
        PAIR, "[%rd4], %r4;\nbarrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", "[%rd4], %r4;", "cluster",
        "has ended", grid=2),
    "another block's result without an order": Fault(
        ACROSS, "AGAIN: ld.acquire.gpu.global.u32 %r7, [%rd1+64]; setp.lt.u32 %p0, %r7, 2; @%p0 bra AGAIN;", "",
        "global-race", "another block has written", block=1, grid=2),
    "unlike values of two blocks in one word": Fault(
        TWICE, "%r6, 1;", "%r6, %r5;", "global-race", "writes global memory", block=1, grid=2),
    "another warp's result without an order": Fault(
        HANDED, "READ: bar.sync 1, 64;", "READ: bar.arrive 1, 64;", "global-race", "warp 0 has written", 64),
    "a bulk copy of global memory without a proxy fence": Fault(
        COPIED_IN, "fence.proxy.async;", "fence.proxy.async.shared::cta;", "proxy-fence", "global memory at"),
    "a bulk store that has only been read": Fault(
        COPIED_OUT, "wait_group 0;", "wait_group.read 0;", "global-race", "a bulk store may not have written yet"),
    "a word overwritten while a copy is under way": Fault(
        COPIES, "cp.async.wait_group 0;", "st.shared.u32 [%r3], 1; cp.async.wait_group 0;", "shared-race", "cp.async"),
    "rows of matrices over those of other lanes": Fault(
        MATRICES, "[%r5], {%r4,", "[%r6], {%r4,", "shared-race", "warp 0 has written"),
    "columns of matrices over rows": Fault(
        MATRICES, "x4.shared.b16 [%r5], {%r4,", "x4.trans.shared.b16 [%r5], {%r4,", "shared-race", "has written"),
    "a word over another lane's row of a matrix": Fault(
        MATRICES, "bar.warp.sync 0xffffffff;", "st.shared.u32 [%r3], 1;", "shared-race", "has written"),
}


def found(cuda: Cuda, kernel: str, fault: Fault) -> list[dict[str, Any]]:
    given, out = np.arange(1, 33, dtype=np.uint32), np.zeros(32, np.uint32)
    try:
        cuda.launch(kernel, [given, out], block=fault.block, grid=fault.grid, shared=4096)
    except Refused as refused:
        return refused.findings
    findings: list[dict[str, Any]] = json.loads(cuda.taken("findings"))
    return findings


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_its_twin_is_silent(cuda: Cuda, name: str) -> None:
    fault = FAULTS[name]
    cuda.set(threads=1)
    assert fault.kernel.count(fault.right) == 1
    assert found(cuda, fault.kernel, fault) == []
    findings = found(cuda, fault.kernel.replace(fault.right, fault.wrong), fault)
    assert any(each["check"] == fault.check and fault.words in each["text"] for each in findings), findings
    assert all("PTX line" in each["text"] for each in findings)


def test_reads_before_a_bulk_copy_are_told_only_to_who_asks(cuda: Cuda) -> None:
    """An advisory: the manual's text asks for a proxy fence, and most kernels have none."""
    fenced = IN_TURN.replace("bar.sync 0; @%p0 bra READ;", "bar.sync 0; @%p0 bra READ; fence.proxy.async;")
    assert fenced != IN_TURN
    given, out = np.arange(1, 65, dtype=np.uint32), np.zeros(32, np.uint32)
    try:
        for checks, kernel, wanted in (("all", IN_TURN, []), ("all,proxy-read", IN_TURN, ["proxy-read"]),
                                       ("all,proxy-read", fenced, []), ("proxy-read", IN_TURN, ["proxy-read"])):
            cuda.set(checks=checks)
            cuda.launch(kernel, [given, out], shared=2048)
            findings = json.loads(cuda.taken("findings"))
            assert [each["check"] for each in findings] == wanted, (checks, findings)
            assert all(words in each["text"] for each in findings for words in ("has read", "9.7.9.25.2", "advisory"))
    finally:
        cuda.set(checks="all")


def test_a_check_is_silent_that_is_not_wanted(cuda: Cuda) -> None:
    fault = FAULTS["a bulk store without a proxy fence"]
    wrong = fault.kernel.replace(fault.right, fault.wrong)
    try:
        for checks, wanted in (("all", ["proxy-fence"]), ("all,-proxy-fence", []), ("none", []), ("shared-race", [])):
            cuda.set(checks=checks)
            assert [each["check"] for each in found(cuda, wrong, fault)] == wanted
    finally:
        cuda.set(checks="all")


def test_a_grid_that_reads_before_the_one_before_it_has_ended(cuda: Cuda) -> None:
    first, second, third = np.arange(1, 33, dtype=np.uint32), np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    early = EARLY.replace("griddepcontrol.wait;", "")
    looks = early.replace("ld.global", "ld.relaxed.gpu.global")      # meant to see what another grid may still write
    for text, wanted in ((EARLY, []), (early, ["grid-order"]), (looks, [])):
        cuda.launch(EARLY, [first, second])
        cuda.launch(text, [second, third], early=True)
        assert [each["check"] for each in json.loads(cuda.taken("findings"))] == wanted
        cuda.launch(text, [first, third])        # nothing is awaited where nothing runs beside it
        assert json.loads(cuda.taken("findings")) == []


def test_options_that_do_not_exist_are_refused(library: Cuda, capfd: pytest.CaptureFixture[str]) -> None:
    for option, value, why in (
        ("threads", "-1", "threads is a number, not '-1'"), ("threads", "2x", "threads is a number, not '2x'"),
        ("multiprocessors", "1025", "multiprocessors is 1 to 1024"),
        ("checks", "shared", "no check 'shared'; there are all, none, shared-race, proxy-fence, "),
        ("counters", "yes", "counters is 0 or 1, not 'yes'"), ("thread", "1", "no option 'thread'; there are gpu, "),
    ):
        assert library.library.warpwave_emulator_set(option.encode(), value.encode()) == 1
        assert why in capfd.readouterr().err
