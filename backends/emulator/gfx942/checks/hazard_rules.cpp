// SPDX-License-Identifier: MIT
// The rules for gfx940 to gfx942. Sources of the numbers: "AMD Instinct MI300 Instruction Set Architecture Reference Guide",
// "Manually Inserted Wait States (NOPs)" and its tables for MFMA; LLVM's GCNHazardRecognizer, which has some more cases.
//
// Wait states are counted as LLVM does: each instruction in between is one, s_nop N is N + 1.
#include <algorithm>
#include <cstring>
#include <optional>

#include "hazard_classes.h"
#include "hazards.h"

namespace emu::checks {
namespace {

// How the two instructions must be connected for a rule to hold.
enum class Link {
    Nothing,
    ReadsVector,
    ReadsScalar,
    ReadsLaneSelect,
    WritesExec,
    WritesVcc,
    WritesVccOrExec,
    WritesM0,
    OverwritesData,
    SameRegister,
    DotRead,
    DotWrite,
};

struct Rule {
    u32 earlier, but_earlier;  // classes that the instruction has one of, and none of
    u32 later, but_later;
    Link link;
    int states;
    const char* text;
};

constexpr u32 kUsers = kVector | kVmem | kLds;
constexpr Rule kRules[] = {
    {kTrans, 0, kVector, kTrans, Link::ReadsVector, 1, "reads the result of a transcendental instruction"},
    {kMovesResult, 0, kVector, 0, Link::ReadsVector, 1, "reads a result that SDWA or op_sel placed"},
    {kVector, 0, kVector, 0, Link::ReadsScalar, 2,
     "a vector instruction reads a scalar register that another one wrote"},
    {kVector, 0, kReadLane, 0, Link::ReadsVector, 1, "reads a lane of a register that a vector instruction wrote"},
    {kVector, 0, kReadLane | kWriteLane, 0, Link::WritesExec, 4,
     "reads or writes a lane after a vector instruction wrote EXEC"},
    {kVector, 0, kSelectsLane, 0, Link::ReadsLaneSelect, 4,
     "selects a lane by a register that a vector instruction wrote"},
    {kVector, 0, kVmem, 0, Link::ReadsScalar, 5,
     "a memory instruction reads a scalar register that a vector instruction wrote"},
    {kVector, 0, kDpp, 0, Link::ReadsVector, 2, "DPP reads a register that a vector instruction wrote"},
    {kVector, 0, kDpp, 0, Link::WritesExec, 5, "DPP after a vector instruction wrote EXEC"},
    {kVector, 0, kDivFmas, 0, Link::WritesVcc, 4, "v_div_fmas reads VCC, which a vector instruction wrote"},
    {kVector, 0, kReadsZeroFlag, 0, Link::WritesVccOrExec, 5,
     "reads VCCZ or EXECZ after a vector instruction wrote the mask"},
    {kVector, kMatrix, kMatrix, 0, Link::WritesExec, 4, "a matrix instruction after a vector instruction wrote EXEC"},
    {kVector, kMatrix | kDot, kMatrix, 0, Link::ReadsVector, 2,
     "a matrix instruction reads a register that a vector instruction wrote"},
    {kWideStore, 0, kVector, 0, Link::OverwritesData, 2, "overwrites the data of a store of more than 64 bits"},
    {kSetRegister, 0, kGetRegister | kSetRegister, 0, Link::SameRegister, 2,
     "uses a hardware register that s_setreg wrote"},
    {kScalarAlu, 0, kUsesM0, 0, Link::WritesM0, 1, "uses M0, which a scalar instruction wrote"},
    {kDgemm, 0, kFma64, 0, Link::Nothing, 2, "f64 multiply-add after an f64 matrix instruction"},
    {kDot, 0, kUsers, kMatrix, Link::DotRead, 3, "reads the result of a dot product"},
    {kDot, 0, kUsers, kMatrix, Link::DotWrite, 3, "overwrites the result of a dot product"},
};

bool overlap(const Registers& a, const Registers& b) {
    return a.file == b.file && a.first < b.first + b.count && b.first < a.first + a.count;
}

Registers registers_of(const Operand& operand) {
    if (operand.kind != Operand::Vector && operand.kind != Operand::Scalar) return {Registers::Vector, 0, 0};
    return {operand.kind == Operand::Vector ? Registers::Vector : Registers::Scalar, operand.dwords, operand.index};
}

bool writes(const Op& op, const Registers& registers) {
    return std::any_of(
        op.writes, op.writes + op.write_count, [&](const Registers& each) { return overlap(each, registers); });
}

bool writes_scalar(const Op& op, u16 code, u8 count) { return writes(op, {Registers::Scalar, count, code}); }
bool writes_exec(const Op& op, u32 classes) { return classes & kSetsExec || writes_scalar(op, kExec, 2); }

bool reads_of(const Op& earlier, u32 classes, const Op& later, Registers::File file) {
    for (int i = 0; i < later.read_count; ++i) {
        const Registers& read = later.reads[i];
        if (read.file != file) continue;
        if (writes(earlier, read)) return true;
        if (file == Registers::Scalar && classes & kSetsExec && overlap(read, {Registers::Scalar, 2, kExec}))
            return true;
    }
    return false;
}

u32 hardware_register(const Op& op) { return static_cast<u32>(op.inst.simm) & 63; }

// The accumulator of a dot product of the same kind is forwarded.
bool dot_read(const Op& earlier, const Op& later) {
    const bool same = earlier.inst.row == later.inst.row;
    if (!same) return reads_of(earlier, 0, later, Registers::Vector);
    return writes(earlier, registers_of(later.src[0])) || writes(earlier, registers_of(later.src[1]));
}

bool connected(const Rule& rule, const Op& earlier, u32 classes, const Op& later) {
    switch (rule.link) {
        case Link::Nothing: return true;
        case Link::ReadsVector: return reads_of(earlier, classes, later, Registers::Vector);
        case Link::ReadsScalar: return reads_of(earlier, classes, later, Registers::Scalar);
        case Link::ReadsLaneSelect:
            return later.src[1].kind == Operand::Scalar && writes(earlier, registers_of(later.src[1]));
        case Link::WritesExec: return writes_exec(earlier, classes);
        case Link::WritesVcc: return writes_scalar(earlier, kVcc, 2);
        case Link::WritesVccOrExec: return writes_scalar(earlier, kVcc, 2) || writes_exec(earlier, classes);
        case Link::WritesM0: return writes_scalar(earlier, kM0, 1);
        case Link::OverwritesData: return writes(later, registers_of(earlier.vdata));
        case Link::SameRegister: return hardware_register(earlier) == hardware_register(later);
        case Link::DotRead: return dot_read(earlier, later);
        case Link::DotWrite:
            return earlier.inst.row != later.inst.row && later.dst.kind == Operand::Vector &&
                   writes(earlier, registers_of(later.dst));
    }
    return false;
}

// --- results of matrix instructions -------------------------------------------------------------------------------------

struct Matrix {
    const Op* op;
    u32 classes;
    int passes() const { return op->inst.row->passes; }
    bool xdl() const { return classes & kXdl; }
    bool dgemm() const { return classes & kDgemm; }
    bool small_dgemm() const { return dgemm() && passes() == 4; }
    Operand accumulator() const { return classes & kSparse ? op->dst : op->src[2]; }
    int more(int when_xdl, int otherwise) const { return passes() + (xdl() ? when_xdl : otherwise); }
};

bool same(const Registers& a, const Registers& b) {
    return a.file == b.file && a.first == b.first && a.count == b.count;
}

// As the accumulator of another matrix instruction: forwarded when it is the very same registers.
int as_accumulator(const Matrix& earlier, const Matrix& later) {
    if (same(registers_of(earlier.op->dst), registers_of(later.accumulator()))) {
        if (earlier.small_dgemm() && later.small_dgemm()) return 4;
        return earlier.passes() == 2 ? 2 : 0;
    }
    if (later.xdl() && !earlier.xdl()) return 0;
    if (earlier.dgemm()) return earlier.small_dgemm() ? 4 : 9;
    return earlier.more(1, 0);
}

int as_factor(const Matrix& earlier) {
    if (earlier.dgemm()) return earlier.small_dgemm() ? 6 : 11;
    return earlier.more(3, 2);
}

int as_source(const Matrix& earlier, bool memory) {
    if (earlier.dgemm()) return memory ? (earlier.small_dgemm() ? 9 : 18) : (earlier.small_dgemm() ? 6 : 11);
    return earlier.more(3, 2);
}

int overwritten(const Matrix& earlier) {
    if (earlier.dgemm()) return earlier.small_dgemm() ? 6 : 11;
    return earlier.more(3, 2);
}

// The accumulator is read late: until then nothing may be written to it.
int accumulator_overwritten(const Matrix& earlier) { return earlier.passes() == 2 ? 1 : earlier.passes() - 1; }

// --- one operation --------------------------------------------------------------------------------------------------------

int wait_states(const Op& op) {
    if (op.inst.format != Format::Sopp || !op.inst.row || std::strcmp(op.inst.row->name, "s_nop") != 0) return 1;
    return (op.inst.simm & 15) + 1;
}

class Examination {
public:
    Examination(const Op& op, u32 classes, const Op* const* recent, const u32* recent_classes, size_t count)
        : op_(op), classes_(classes), recent_(recent), recent_classes_(recent_classes), count_(count) {
        int states = 0;
        for (size_t i = 0; i < count; ++i) {
            states_[i] = states;
            states += wait_states(*recent[i]);
        }
    }

    Hazard run() {
        for (const Rule& rule : kRules)
            if (classes_ & rule.later && !(classes_ & rule.but_later)) simple(rule);
        if (classes_ & kMatrix) matrix();
        else if (classes_ & kUsers) user();
        return worst_;
    }

private:
    // The newest that matches counts: an older one has had more wait states, and lost its registers to it.
    template <class Matches>
    std::optional<size_t> newest(Matches matches) const {
        for (size_t i = 0; i < count_; ++i)
            if (matches(i)) return i;
        return std::nullopt;
    }

    void judge(size_t earlier, int required, const char* text) {
        const int missing = required - states_[earlier];
        if (missing <= 0 || missing <= worst_.required - worst_.found) return;
        worst_ = {required, states_[earlier], recent_[earlier], text};
    }

    void simple(const Rule& rule) {
        const auto found = newest([&](size_t i) {
            const u32 classes = recent_classes_[i];
            return states_[i] < rule.states && classes & rule.earlier && !(classes & rule.but_earlier) &&
                   connected(rule, *recent_[i], classes, op_);
        });
        if (found) judge(*found, rule.states, rule.text);
    }

    Matrix at(size_t i) const { return {recent_[i], recent_classes_[i]}; }

    std::optional<size_t> matrix_that_wrote(const Registers& registers) const {
        if (registers.file != Registers::Vector || !registers.count) return std::nullopt;
        return newest([&](size_t i) { return recent_classes_[i] & kMatrix && writes(*recent_[i], registers); });
    }

    void matrix() {
        const Matrix self{&op_, classes_};
        const Operand accumulator = self.accumulator();
        if (const auto earlier = matrix_that_wrote(registers_of(accumulator)))
            judge(
                *earlier, as_accumulator(at(*earlier), self),
                "accumulates onto registers that a matrix instruction wrote");
        const int factors = classes_ & kSparse ? 3 : 2;
        for (int i = 0; i < factors; ++i)
            if (const auto earlier = matrix_that_wrote(registers_of(op_.src[i])))
                judge(*earlier, as_factor(at(*earlier)), "multiplies registers that a matrix instruction wrote");
    }

    void user() {
        const bool memory = classes_ & (kVmem | kLds);
        for (int i = 0; i < op_.read_count; ++i)
            if (const auto earlier = matrix_that_wrote(op_.reads[i]))
                judge(*earlier, as_source(at(*earlier), memory), "reads registers that a matrix instruction wrote");
        for (int i = 0; i < op_.write_count; ++i) {
            const Registers& written = op_.writes[i];
            if (const auto earlier = matrix_that_wrote(written))
                judge(*earlier, overwritten(at(*earlier)), "overwrites registers that a matrix instruction wrote");
            const auto reader = newest([&](size_t k) {
                return recent_classes_[k] & kXdl && overlap(registers_of(at(k).accumulator()), written);
            });
            if (reader)
                judge(
                    *reader, accumulator_overwritten(at(*reader)),
                    "overwrites the accumulator of a matrix instruction");
        }
    }

    const Op& op_;
    u32 classes_;
    const Op* const* recent_;
    const u32* recent_classes_;
    size_t count_;
    int states_[kHazardWindow] = {};
    Hazard worst_;
};

}  // namespace

Hazard find_hazard(const Op& op, u32 classes, const Op* const* recent, const u32* recent_classes, size_t count) {
    return Examination(op, classes, recent, recent_classes, count).run();
}

}  // namespace emu::checks
