// SPDX-License-Identifier: MIT
#include "report.h"

#include <map>

#include "core/offenders.h"
#include "classes.h"

namespace emu::ptx {
namespace {

constexpr u64 kSector = 32;

json::Value place(const Program& program, const Tally& tally, size_t index) {
    const Statement& s = program.function->statements[index];
    const auto file = program.files.find(s.file);
    json::Value value = json::object();
    value.set("instruction", s.text).set("file", file == program.files.end() ? "" : file->second).set("line", s.line);
    value.set("ptx_line", s.ptx_line).set("executed", tally.executed[index]);
    return value;
}

/// The instructions of which `waste` is largest.
template <class Waste, class Describe>
json::Value worst(const Program& program, const Tally& tally, Waste waste, Describe describe) {
    const auto lost = [&](size_t i) { return waste(tally.traffic[i]); };
    return offenders(tally.traffic.size(), lost, [&](size_t i) {
        json::Value value = place(program, tally, i);
        describe(value, tally.traffic[i]);
        return value;
    });
}

u64 conflicts(const Traffic& t) { return t.shared.cost - t.shared.minimum; }
u64 unused(const Traffic& t) {
    return t.global.cost * kSector > t.global.bytes ? t.global.cost * kSector - t.global.bytes : 0;
}

}  // namespace

std::string counted(const Launch& launch, const Tally& tally) {
    const Program& program = *launch.program;
    u64 classes[kClasses] = {}, executed = 0, flops = 0, operand_bytes = 0, local = 0;
    u64 read = 0, written = 0, updated = 0, copies = 0, copied = 0, stored = 0, in_shared = 0;
    Use shared, global;
    std::map<std::string, std::pair<u64, u64>> products;  // executed, flops
    for (size_t i = 0; i < tally.executed.size(); ++i) {
        const u64 count = tally.executed[i];
        if (!count) continue;
        const Statement& s = program.function->statements[i];
        const Classified kind = classify(s);
        const Traffic& t = tally.traffic[i];
        classes[static_cast<int>(kind.klass)] += count;
        executed += count;
        flops += count * kind.flops;
        operand_bytes += count * kind.operand_bytes;
        local += t.local_bytes;
        if (kind.klass == Class::Tensor) {
            auto& [number, work] = products[opcode(s)];
            number += count;
            work += count * kind.flops;
        }
        if (t.copies) {
            copies += t.copies;
            in_shared += t.shared.bytes;
            // Out of shared memory: those that are counted in groups.
            (s.has("bulk_group") ? stored : copied) += t.global.bytes;
            continue;
        }
        shared.add(t.shared);
        global.add(t.global);
        (kind.klass == Class::Atomic ? updated : kind.klass == Class::Store ? written : read) += t.global.bytes;
    }
    json::Value result = json::object();
    result.set("kernel", program.name);
    result.set("grid", json::array({launch.grid[0], launch.grid[1], launch.grid[2]}));
    result.set("block", json::array({launch.block[0], launch.block[1], launch.block[2]}));
    result.set("workgroups", tally.blocks).set("waves", tally.warps).set("instructions", executed);
    result.set("evidence", "emulated");
    json::Value by_class = json::object();
    for (int i = 0; i < kClasses; ++i) by_class.set(name(static_cast<Class>(i)), classes[i]);
    json::Value tensor = json::array({});
    for (const auto& [text, each] : products) {
        json::Value value = json::object();
        tensor.push(value.set("instruction", text).set("executed", each.first).set("flops", each.second));
    }
    result.set("classes", by_class).set("tensor_flops", flops).set("tensor", tensor);
    json::Value value = json::object();
    value.set("bytes", shared.bytes).set("tensor_bytes", operand_bytes).set("bulk_bytes", in_shared);
    value.set("cycles", shared.cost).set("conflict_free_cycles", shared.minimum);
    value.set("conflict_cycles", shared.cost - shared.minimum);
    value.set("conflicts", worst(program, tally, conflicts, [](json::Value& each, const Traffic& t) {
        each.set("cycles", t.shared.cost).set("conflict_free_cycles", t.shared.minimum);
    }));
    result.set("shared", value);
    value = json::object();
    value.set("requested_bytes", global.bytes).set("read_bytes", read).set("written_bytes", written);
    value.set("atomic_bytes", updated).set("sectors", global.cost).set("sector_bytes", global.cost * kSector);
    value.set("uncoalesced", worst(program, tally, unused, [](json::Value& each, const Traffic& t) {
        each.set("requested_bytes", t.global.bytes).set("sector_bytes", t.global.cost * kSector);
        each.set("lanes", t.global.lanes);
    }));
    result.set("global", value);
    value = json::object();
    result.set("bulk", value.set("copies", copies).set("read_bytes", copied).set("written_bytes", stored));
    value = json::object();
    value.set("shared_bytes", launch.shared_bytes).set("local_bytes", program.local_bytes);
    result.set("local_bytes", local).set("resources", value);
    return result.text();
}

}  // namespace emu::ptx
