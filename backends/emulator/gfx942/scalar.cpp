// SPDX-License-Identifier: MIT
// Scalar operands: registers, constants, and the few values that only look like registers.
#include "wave.h"

namespace emu {
namespace {

u64 special(const Wave& w, u16 code) {
    switch (code) {
        case kSharedBase: return kSharedAperture;
        case kSharedLimit: return kSharedAperture | 0xffffffffu;
        case kPrivateBase: return kPrivateAperture;
        case kPrivateLimit: return kPrivateAperture | 0xffffffffu;
        case kVccz: return w.vcc() == 0;
        case kExecz: return w.exec() == 0;
        case kScc: return w.scc;
        default:
            throw KernelFault("reads scalar operand " + std::to_string(code) + ", which the emulator does not have");
    }
}

}  // namespace

u32 scalar32(const Wave& w, const Operand& operand) {
    switch (operand.kind) {
        case Operand::Scalar: return w.sgpr[operand.index];
        case Operand::Constant: return static_cast<u32>(operand.value);
        case Operand::Special: return static_cast<u32>(special(w, operand.index));
        case Operand::Vector: return w.v(operand.index)[0];
        default: return 0;
    }
}

u64 scalar64(const Wave& w, const Operand& operand) {
    switch (operand.kind) {
        case Operand::Scalar: return w.pair(operand.index);
        case Operand::Constant: return operand.value;
        case Operand::Special: return special(w, operand.index);
        default: return 0;
    }
}

void set_scalar32(Wave& w, const Operand& operand, u32 value) { w.sgpr[operand.index] = value; }

void set_scalar64(Wave& w, const Operand& operand, u64 value) { w.set_pair(operand.index, value); }

}  // namespace emu
