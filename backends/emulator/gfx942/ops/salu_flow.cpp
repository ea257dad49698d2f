// SPDX-License-Identifier: MIT
// What changes the flow or the state of a wave: SOPP, the branches, calls and forks of SOP1, SOP2 and SOPK, hardware
// registers, and the mode that indexes vector registers through M0.
//
// Semantics: "AMD Instinct MI300 Instruction Set Architecture Reference Guide", chapters "Program Flow Control", "SOPP".
#include <cstdio>

#include "../services.h"
#include "../table.h"
#include "../translate.h"
#include "core/text.h"
#include "hardware_registers.h"

namespace emu {
namespace {

// --- where to go on ---------------------------------------------------------------------------------------------

const Program& program(const Wave& w) { return *w.group->launch->program; }

u64 address_after(const Wave& w, const Op& op) { return program(w).text + op.pc + 4u * op.inst.words; }

u64 address_of_target(const Wave& w, const Op& op) {
    return address_after(w, op) + 4 * static_cast<u64>(i64{op.inst.simm});
}

void jump(Wave& w, const Op& op, u64 address) {
    const u32 index = index_of(program(w), address);
    if (index == kNoOp) fault(w, op, "jumps to " + hex(address) + ", where no instruction begins");
    w.next = index;
}

template <auto Condition>
void branch_if(Wave& w, const Op& op) {
    if (Condition(w)) w.next = op.target;
}

void s_getpc_b64(Wave& w, const Op& op) { set_scalar64(w, op.dst, address_after(w, op)); }
void s_setpc_b64(Wave& w, const Op& op) { jump(w, op, scalar64(w, op.src[0])); }

void s_swappc_b64(Wave& w, const Op& op) {
    const u64 target = scalar64(w, op.src[0]);
    set_scalar64(w, op.dst, address_after(w, op));
    jump(w, op, target);
}

void s_call_b64(Wave& w, const Op& op) {
    set_scalar64(w, op.dst, address_after(w, op));
    w.next = op.target;
}

void s_rfe_b64(Wave& w, const Op& op) { fault(w, op, "returns from an exception, which only a trap handler may do"); }

// --- forks: the side with fewer lanes runs first, the other waits in four scalar registers ----------------------

u32 fork_depth(const Wave& w) { return w.mode >> kForkDepthShift; }
void set_fork_depth(Wave& w, u32 depth) { w.mode = (w.mode & ~(7u << kForkDepthShift)) | depth << kForkDepthShift; }

void push_fork(Wave& w, const Op& op, u64 address, u64 lanes) {
    const u32 depth = fork_depth(w);
    if (depth == 7) fault(w, op, "forks more than 7 deep");
    w.set_pair(4 * depth, lanes);
    w.set_pair(4 * depth + 2, address);
    set_fork_depth(w, depth + 1);
}

void fork(Wave& w, const Op& op, u64 condition, u64 target) {
    const u64 exec = w.exec(), pass = condition & exec, fail = ~condition & exec;
    if (pass == exec) return jump(w, op, target);
    if (fail == exec) return;
    if (std::popcount(fail) < std::popcount(pass)) {
        push_fork(w, op, target, pass);
        w.set_pair(kExec, fail);
    } else {
        push_fork(w, op, address_after(w, op), fail);
        w.set_pair(kExec, pass);
        jump(w, op, target);
    }
}

void s_cbranch_g_fork(Wave& w, const Op& op) { fork(w, op, scalar64(w, op.src[0]), scalar64(w, op.src[1])); }
void s_cbranch_i_fork(Wave& w, const Op& op) { fork(w, op, scalar64(w, op.src[0]), address_of_target(w, op)); }

void s_cbranch_join(Wave& w, const Op& op) {
    const u32 depth = fork_depth(w);
    if (depth == scalar32(w, op.src[0])) return;
    if (depth == 0) fault(w, op, "joins where nothing has forked");
    set_fork_depth(w, depth - 1);
    const u64 address = w.pair(4 * (depth - 1) + 2);
    w.set_pair(kExec, w.pair(4 * (depth - 1)));
    jump(w, op, address);
}

// --- the wave's state -------------------------------------------------------------------------------------------

// Nothing that results depend on: memory operations are complete when the next instruction runs, there are no caches of
// instructions, performance counters or thread traces. s_wakeup has nobody to wake: s_sleep only passes the turn.
void nothing(Wave&, const Op&) {}

void s_endpgm(Wave& w, const Op&) { w.state = Wave::Ended; }
void s_barrier(Wave& w, const Op&) { w.state = Wave::AtBarrier; }
void s_sleep(Wave& w, const Op&) { w.yield = true; }

void s_setprio(Wave& w, const Op& op) {
    constexpr u32 kUserPriority = 3u << 3;
    w.status = (w.status & ~kUserPriority) | (static_cast<u32>(op.inst.simm) << 3 & kUserPriority);
}

void s_setkill(Wave& w, const Op& op) {
    if (op.inst.simm & 1) fault(w, op, "kills the wave, which is for debuggers");
}

void s_sethalt(Wave& w, const Op& op) {
    if (op.inst.simm & 1) fault(w, op, "halts the wave, and nothing would ever resume it");
}

// The message of compute kernels is the interrupt that tells the host of a signal.
void s_sendmsg(Wave& w, const Op& op) {
    constexpr int kInterrupt = 1, kIds = 15;
    if ((op.inst.simm & kIds) != kInterrupt)
        fault(w, op, "sends message " + std::to_string(op.inst.simm & kIds) + "; only interrupts (1) have a receiver");
    services::serve();
}

void s_sendmsghalt(Wave& w, const Op& op) {
    s_sendmsg(w, op);
    fault(w, op, "halts the wave, and nothing would ever resume it");
}

// Trap numbers as LLVM's AMDGPU usage has them: 2 is llvm.trap, 3 llvm.debugtrap, which without a debugger is passed over.
void s_trap(Wave& w, const Op& op) {
    constexpr int kTrap = 2, kDebugTrap = 3;
    const int id = op.inst.simm & 0xff;
    if (id == kDebugTrap) return;
    if (id == kTrap) fault(w, op, "the kernel gave up: a failed assertion, abort() or __builtin_trap()");
    fault(w, op, "trap " + std::to_string(id) + ", which has no handler");
}

template <u32 Bits>
bool debug_status(const Wave& w, bool all) {
    const u32 set = w.status & Bits;
    return all ? set == Bits : set != 0;
}
constexpr u32 kDebugUser = 1u << 20, kDebugSystem = 1u << 21;

// --- hardware registers -----------------------------------------------------------------------------------------

struct HardwareField {
    unsigned id, offset, size;
};

HardwareField hardware_field(const Op& op) {
    const auto bits = static_cast<u16>(op.inst.simm);
    return {bits & 63u, bits >> 6 & 31u, (bits >> 11) + 1u};
}

u32 low_bits(unsigned count) { return count >= 32 ? ~u32{0} : (1u << count) - 1; }

void s_getreg_b32(Wave& w, const Op& op) {
    const HardwareField field = hardware_field(op);
    set_scalar32(w, op.dst, read_hardware_register(w, op, field.id) >> field.offset & low_bits(field.size));
}

void set_register(Wave& w, const Op& op, u32 value) {
    const HardwareField field = hardware_field(op);
    write_hardware_register(w, op, field.id, low_bits(field.size) << field.offset, value << field.offset);
}

void s_setreg_b32(Wave& w, const Op& op) { set_register(w, op, scalar32(w, op.src[0])); }
void s_setreg_imm32_b32(Wave& w, const Op& op) { set_register(w, op, op.inst.literal); }

void s_setvskip(Wave& w, const Op& op) {
    if (scalar32(w, op.src[0]) >> (scalar32(w, op.src[1]) & 31) & 1)
        fault(w, op, "sets VSKIP, which the emulator does not have");
}

// --- M0 as the index of vector registers ------------------------------------------------------------------------

void set_index(Wave& w, u32 value) { w.sgpr[kM0] = (w.m0() & ~0xffu) | (value & 0xff); }
void set_indexed(Wave& w, u32 which) { w.sgpr[kM0] = (w.m0() & ~0xf000u) | (which & 15) << 12; }

void s_set_gpr_idx_on(Wave& w, const Op& op) {
    const u32 index = scalar32(w, op.src[0]);
    w.mode |= kGprIndexMode;
    set_index(w, index);
    set_indexed(w, op.inst.src[1]);  // the field itself, not a register
}

void s_set_gpr_idx_off(Wave& w, const Op&) { w.mode &= ~kGprIndexMode; }
void s_set_gpr_idx_mode(Wave& w, const Op& op) { set_indexed(w, static_cast<u32>(op.inst.simm)); }
void s_set_gpr_idx_idx(Wave& w, const Op& op) { set_index(w, scalar32(w, op.src[0])); }

constexpr Row kRows[] = {
    {"s_getpc_b64", Format::Sop1, 28, "b64=", nullptr, s_getpc_b64, 0, 0},
    {"s_setpc_b64", Format::Sop1, 29, "=b64", nullptr, s_setpc_b64, 0, 0},
    {"s_swappc_b64", Format::Sop1, 30, "b64=b64", nullptr, s_swappc_b64, 0, 0},
    {"s_rfe_b64", Format::Sop1, 31, "=b64", nullptr, s_rfe_b64, 0, 0},
    {"s_cbranch_join", Format::Sop1, 46, "=b32", nullptr, s_cbranch_join, 0, 0},
    {"s_set_gpr_idx_idx", Format::Sop1, 50, "=b32", nullptr, s_set_gpr_idx_idx, 0, 0},
    {"s_rfe_restore_b64", Format::Sop2, 43, "=b64,b32", nullptr, s_rfe_b64, 0, 0},
    {"s_cbranch_g_fork", Format::Sop2, 41, "=b64,b64", nullptr, s_cbranch_g_fork, 0, 0},
    {"s_setvskip", Format::Sopc, 16, "=b32,b32", nullptr, s_setvskip, 0, 0},
    {"s_set_gpr_idx_on", Format::Sopc, 17, "=b32,-", nullptr, s_set_gpr_idx_on, 0, 0},

    {"s_cbranch_i_fork", Format::Sopk, 16, "=b64", nullptr, s_cbranch_i_fork, kBranch, 0},
    {"s_getreg_b32", Format::Sopk, 17, "b32=", nullptr, s_getreg_b32, 0, 0},
    {"s_setreg_b32", Format::Sopk, 18, "=b32", nullptr, s_setreg_b32, 0, 0},
    {"s_setreg_imm32_b32", Format::Sopk, 20, "", nullptr, s_setreg_imm32_b32, 0, 0},
    {"s_call_b64", Format::Sopk, 21, "b64=", nullptr, s_call_b64, kBranch, 0},

    {"s_nop", Format::Sopp, 0, "", nullptr, nothing, 0, 0},
    {"s_endpgm", Format::Sopp, 1, "", nullptr, s_endpgm, 0, 0},
    {"s_branch", Format::Sopp, 2, "", nullptr, branch_if<[](const Wave&) { return true; }>, kBranch, 0},
    {"s_wakeup", Format::Sopp, 3, "", nullptr, nothing, 0, 0},
    {"s_cbranch_scc0", Format::Sopp, 4, "", nullptr, branch_if<[](const Wave& w) { return !w.scc; }>, kBranch, 0},
    {"s_cbranch_scc1", Format::Sopp, 5, "", nullptr, branch_if<[](const Wave& w) { return w.scc; }>, kBranch, 0},
    {"s_cbranch_vccz", Format::Sopp, 6, "", nullptr, branch_if<[](const Wave& w) { return !w.vcc(); }>, kBranch, 0},
    {"s_cbranch_vccnz", Format::Sopp, 7, "", nullptr, branch_if<[](const Wave& w) { return w.vcc() != 0; }>, kBranch,
     0},
    {"s_cbranch_execz", Format::Sopp, 8, "", nullptr, branch_if<[](const Wave& w) { return !w.exec(); }>, kBranch, 0},
    {"s_cbranch_execnz", Format::Sopp, 9, "", nullptr, branch_if<[](const Wave& w) { return w.exec() != 0; }>, kBranch,
     0},
    {"s_barrier", Format::Sopp, 10, "", nullptr, s_barrier, 0, 0},
    {"s_setkill", Format::Sopp, 11, "", nullptr, s_setkill, 0, 0},
    {"s_waitcnt", Format::Sopp, 12, "", nullptr, nothing, 0, 0},
    {"s_sethalt", Format::Sopp, 13, "", nullptr, s_sethalt, 0, 0},
    {"s_sleep", Format::Sopp, 14, "", nullptr, s_sleep, 0, 0},
    {"s_setprio", Format::Sopp, 15, "", nullptr, s_setprio, 0, 0},
    {"s_sendmsg", Format::Sopp, 16, "", nullptr, s_sendmsg, 0, 0},
    {"s_sendmsghalt", Format::Sopp, 17, "", nullptr, s_sendmsghalt, 0, 0},
    {"s_trap", Format::Sopp, 18, "", nullptr, s_trap, 0, 0},
    {"s_icache_inv", Format::Sopp, 19, "", nullptr, nothing, 0, 0},
    {"s_incperflevel", Format::Sopp, 20, "", nullptr, nothing, 0, 0},
    {"s_decperflevel", Format::Sopp, 21, "", nullptr, nothing, 0, 0},
    {"s_ttracedata", Format::Sopp, 22, "", nullptr, nothing, 0, 0},
    {"s_cbranch_cdbgsys", Format::Sopp, 23, "", nullptr,
     branch_if<[](const Wave& w) { return debug_status<kDebugSystem>(w, true); }>, kBranch, 0},
    {"s_cbranch_cdbguser", Format::Sopp, 24, "", nullptr,
     branch_if<[](const Wave& w) { return debug_status<kDebugUser>(w, true); }>, kBranch, 0},
    {"s_cbranch_cdbgsys_or_user", Format::Sopp, 25, "", nullptr,
     branch_if<[](const Wave& w) { return debug_status<kDebugSystem | kDebugUser>(w, false); }>, kBranch, 0},
    {"s_cbranch_cdbgsys_and_user", Format::Sopp, 26, "", nullptr,
     branch_if<[](const Wave& w) { return debug_status<kDebugSystem | kDebugUser>(w, true); }>, kBranch, 0},
    {"s_endpgm_saved", Format::Sopp, 27, "", nullptr, s_endpgm, 0, 0},
    {"s_set_gpr_idx_off", Format::Sopp, 28, "", nullptr, s_set_gpr_idx_off, 0, 0},
    {"s_set_gpr_idx_mode", Format::Sopp, 29, "", nullptr, s_set_gpr_idx_mode, 0, 0},
    {"s_endpgm_ordered_ps_done", Format::Sopp, 30, "", nullptr, s_endpgm, 0, 0},
};

}  // namespace

std::span<const Row> salu_flow_rows() { return kRows; }

}  // namespace emu
