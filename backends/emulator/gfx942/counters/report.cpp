// SPDX-License-Identifier: MIT
#include <cmath>

#include "../options.h"
#include "core/immortal.h"
#include "core/offenders.h"
#include "../module.h"
#include "counters.h"
#include "machine.h"
#include "model.h"

namespace emu::counters {
namespace {

u64 whole(double count) { return static_cast<u64>(std::round(count)); }

json::Value place(const Launch& launch, const Tally& tally, size_t index) {
    const Op& op = launch.program->ops[index];
    const u64 address = launch.module->code.text_begin + op.pc;
    json::Value value = json::object();
    const auto line = launch.module->code.lines.find(address);
    value.set("instruction", disassemble(op.inst))
        .set("file", line ? line->file : "")
        .set("line", line ? line->line : 0);
    value.set("pc", address - launch.kernel->entry).set("executed", tally.executed[index]);
    return value;
}

// The instructions of which `waste` is largest.
template <class Waste, class Describe>
json::Value worst(const Launch& launch, const Tally& tally, Waste waste, Describe describe) {
    const auto lost = [&](size_t i) { return tally.executed[i] ? waste(i) : 0; };
    return offenders(tally.memory.size(), lost, [&](size_t i) {
        json::Value value = place(launch, tally, i);
        describe(value, tally.memory[i]);
        return value;
    });
}

json::Value classes(const Totals& t) {
    json::Value value = json::object();
    for (int i = 0; i < kClasses; ++i) value.set(name(static_cast<Class>(i)), whole(t.classes[i]));
    return value;
}

json::Value matrix(const Launch& launch, const Tally& tally, const std::vector<Kind>& kinds, double scale) {
    std::map<std::string, std::pair<u64, const Kind*>> by_name;
    for (size_t i = 0; i < kinds.size(); ++i) {
        if (kinds[i].klass != Class::Matrix || !tally.executed[i]) continue;
        auto& [count, kind] = by_name[launch.program->ops[i].inst.row->name];
        count += tally.executed[i];
        kind = &kinds[i];
    }
    json::Value list = json::array({});
    for (const auto& [name, each] : by_name) {
        const double executed = scale * static_cast<double>(each.first);
        json::Value value = json::object();
        value.set("instruction", name).set("executed", whole(executed)).set("sparse", each.second->sparse);
        value.set("flops", whole(executed * static_cast<double>(each.second->flops)));
        value.set("cycles", whole(executed * each.second->cycles));
        list.push(value);
    }
    return list;
}

json::Value lds(const Launch& launch, const Tally& tally, const Totals& t) {
    const double cycles = t.cycles[static_cast<int>(Unit::Lds)];
    json::Value value = json::object();
    value.set("instructions", whole(t.classes[static_cast<int>(Class::Lds)])).set("bytes", whole(t.lds_bytes));
    value.set("cycles", whole(cycles)).set("conflict_free_cycles", whole(t.lds_minimum));
    value.set("conflict_cycles", whole(cycles - t.lds_minimum));
    value.set("conflicts", worst(launch, tally, [&](size_t i) {
        return tally.memory[i].cycles - tally.memory[i].minimum;
    }, [](json::Value& each, const Memory& m) {
        each.set("cycles", m.cycles).set("conflict_free_cycles", m.minimum);
    }));
    return value;
}

json::Value global(
    const Launch& launch, const Tally& tally, const std::vector<Kind>& kinds, const Totals& t, const Traffic& traffic) {
    const auto& f = t.footprint;
    json::Value value = json::object();
    value.set("requested_bytes", whole(t.bytes)).set("lines", whole(t.lines)).set("line_bytes", whole(t.lines * kLine));
    value.set("lines_beyond_l1", whole(t.beyond));
    value.set("footprint_bytes", f.touched * kLine)
        .set("loaded_bytes", f.loaded * kLine)
        .set("stored_bytes", f.stored * kLine);
    value.set("loaded_bytes_by_die", f.loaded_by_die * kLine).set("stored_bytes_by_die", f.stored_by_die * kLine);
    auto bytes = [](double lines) { return whole(lines * kLine); };
    value.set("l2_hit_bytes", bytes(traffic.loaded[0]))
        .set("mall_hit_bytes", bytes(traffic.loaded[1]))
        .set("hbm_loaded_bytes", bytes(traffic.loaded[2]))
        .set("mall_written_bytes", bytes(traffic.written))
        .set("hbm_written_bytes", bytes(traffic.evicted));
    auto waste = [&](size_t i) -> u64 {
        const Memory& m = tally.memory[i];
        return kinds[i].unit == Unit::Vmem && m.lines * kLine > m.bytes ? m.lines * kLine - m.bytes : 0;
    };
    value.set("uncoalesced", worst(launch, tally, waste, [](json::Value& each, const Memory& m) {
        each.set("requested_bytes", m.bytes).set("line_bytes", m.lines * kLine).set("lanes", m.lanes);
    }));
    return value;
}

json::Value issue_cycles(const Totals& t) {
    json::Value value = json::object();
    auto set = [&](const char* key, Unit unit) { value.set(key, whole(t.cycles[static_cast<int>(unit)])); };
    set("mfma", Unit::Matrix);
    set("valu", Unit::Valu);
    set("salu", Unit::Salu);
    set("lds", Unit::Lds);
    set("vmem", Unit::Vmem);
    set("smem", Unit::Smem);
    return value;
}

json::Value resources(const Launch& launch) {
    const Occupancy fits = occupancy(launch);
    const loader::KernelInfo& kernel = *launch.kernel;
    json::Value value = json::object();
    value.set("vector_registers", launch.program->vgprs);
    value.set("vgprs", kernel.vgprs).set("agprs", kernel.agprs).set("sgprs", kernel.sgprs);
    value.set("spilled_vgprs", kernel.spilled_vgprs).set("spilled_sgprs", kernel.spilled_sgprs);
    value.set("lds_bytes", launch.lds_bytes).set("scratch_bytes", launch.scratch_bytes);
    value.set("waves_per_group", fits.waves_per_group).set("groups_per_cu", fits.groups);
    value.set("waves_per_simd", fits.waves_per_simd);
    value.set("occupancy", fits.waves_per_simd / machine::kWavesPerSimd).set("occupancy_limit", fits.limit);
    return value;
}

json::Value parts(const Modelled& m) {
    json::Value value = json::object();
    value.set("launch_us", m.launch).set("clock_mhz", m.clock / 1e6);
    value.set("compute_units_us", m.compute_units).set("limited_by", m.limit);
    value.set("mfma_us", m.mfma).set("valu_us", m.valu).set("salu_us", m.salu);
    value.set("lds_us", m.lds).set("vmem_us", m.vmem).set("l2_us", m.l2).set("mall_us", m.mall).set("hbm_us", m.hbm);
    value.set("atomics_us", m.atomics)
        .set("latency_us", m.latency)
        .set("tail_us", m.tail)
        .set("imbalance", m.imbalance)
        .set("unit_cycles", m.unit_cycles);
    return value;
}

struct Kept {
    Launch launch;
    Tally tally;
    std::vector<Kind> kinds;
    Totals totals;
    Traffic traffic;
};
std::vector<Kept>& kept() { return immortal<std::vector<Kept>>(); }

}  // namespace

std::string report(const Launch& launch, Tally&& tally, double host_seconds) {
    std::vector<Kind> kinds;
    kinds.reserve(launch.program->ops.size());
    for (const Op& op : launch.program->ops) kinds.push_back(classify(op));
    const Totals t = totals(launch, tally, kinds);
    u64 executed = 0;
    for (const u64 each : tally.executed) executed += each;
    double flops = 0;
    for (const auto& [type, count] : t.flops) flops += count;
    const Traffic traffic = simulate_caches(launch, tally, occupancy(launch).groups);
    const Modelled m = model(launch, tally, kinds, t, traffic);

    json::Value result = json::object();
    result.set("kernel", launch.kernel->name);
    result.set("grid", json::array({launch.grid.x, launch.grid.y, launch.grid.z}));
    result.set("block", json::array({launch.block.x, launch.block.y, launch.block.z}));
    result.set("workgroups", launch.grid.volume()).set("workgroups_run", tally.groups);
    result.set("waves", whole(t.scale * static_cast<double>(tally.waves)));
    result.set("instructions", whole(t.scale * static_cast<double>(executed)));
    result.set("evidence", "modelled").set("modelled_us", m.total).set("modelled_band", m.band);
    result.set("model", parts(m));
    result.set("classes", classes(t)).set("issue_cycles", issue_cycles(t));
    result.set("mfma_flops", whole(flops)).set("mfma", matrix(launch, tally, kinds, t.scale));
    result.set("lds", lds(launch, tally, t)).set("global", global(launch, tally, kinds, t, traffic));
    result.set("resources", resources(launch));
    result.set("host_seconds", host_seconds).set("host_instructions", executed);
    if (control::options().keep) kept().push_back({launch, std::move(tally), kinds, t, traffic});
    return result.text();
}

std::vector<double> modelled_again(const std::string& changes) {
    const machine::Changed changed(changes);
    std::vector<double> times;
    for (const Kept& each : kept())
        times.push_back(model(each.launch, each.tally, each.kinds, each.totals, each.traffic).total);
    return times;
}

void forget() { kept().clear(); }

std::string report_move(const char* what, const void* from, const void* to, size_t bytes) {
    const Modelled m = model_move(from, to, bytes);
    const u64 read = from ? bytes : 0;
    json::Value nothing = json::object(), lds = json::object(), global = json::object(), resources = json::object();
    for (int i = 0; i < kClasses; ++i) nothing.set(name(static_cast<Class>(i)), 0);
    for (const char* key : {"instructions", "bytes", "cycles", "conflict_free_cycles", "conflict_cycles"})
        lds.set(key, 0);
    lds.set("conflicts", json::array({}));
    global.set("requested_bytes", read + bytes).set("line_bytes", read + bytes).set("loaded_bytes", read);
    global.set("stored_bytes", bytes).set("uncoalesced", json::array({}));
    resources.set("scratch_bytes", 0).set("occupancy", 1.0).set("occupancy_limit", "waves");
    json::Value result = json::object();
    result.set("kernel", what).set("grid", json::array({0, 0, 0})).set("block", json::array({0, 0, 0}));
    result.set("workgroups", 0).set("workgroups_run", 0).set("instructions", 0);
    result.set("evidence", "modelled").set("modelled_us", m.total).set("modelled_band", m.band);
    result.set("model", parts(m));
    result.set("classes", nothing).set("mfma_flops", 0).set("mfma", json::array({})).set("lds", lds);
    result.set("global", global).set("resources", resources).set("host_seconds", 0).set("host_instructions", 0);
    return result.text();
}

}  // namespace emu::counters
