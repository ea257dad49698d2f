// SPDX-License-Identifier: MIT
// The library's C functions beside HIP's and those of core/control.cpp.
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "core/control.h"
#include "core/json.h"
#include "counters/counters.h"
#include "counters/hierarchy.h"
#include "findings.h"
#include "options.h"
#include "run.h"
#include "table.h"

using namespace emu;

/// What the checks found since the last call: a JSON array, to be given back with warpwave_emulator_free.
EXPORTED char* warpwave_emulator_take_findings() {
    json::Value list = json::array({});
    for (const checks::Finding& finding : findings::take()) list.push(json::Value::raw(findings::describe(finding)));
    return control::copied(list.text());
}

/// Counters of the launches since the last call: a JSON array, one object a launch.
EXPORTED char* warpwave_emulator_take_counters() {
    char* const taken = control::copied(control::kept_counters().take());
    counters::forget();
    counters::empty_caches();  // what is counted next begins with cold caches
    return taken;
}

/// With keep=1: the modelled microseconds of the launches that take_counters would give, as a JSON array, with some of the
/// model's numbers changed: "hbm=4e12 launch=2e-6". Null if there is no such number.
EXPORTED char* warpwave_emulator_model_again(const char* changes) {
    std::vector<double> times;
    try {
        times = counters::modelled_again(changes);
    } catch (const std::invalid_argument& error) {
        std::fprintf(stderr, "emulator: %s\n", error.what());
        return nullptr;
    }
    std::string list;
    for (const double time : times) list += (list.empty() ? "" : ",") + std::to_string(time);
    return control::copied("[" + list + "]");
}

/// Every instruction of the table: [{"name", "format", "opcode", "signature"}, …].
EXPORTED char* warpwave_emulator_instructions() {
    json::Value list = json::array({});
    for (const Row* row : all_rows()) {
        json::Value value = json::object();
        json::Value formats = json::array({name(row->format)});
        const bool is_short = row->format == Format::Vop1 || row->format == Format::Vop2 || row->format == Format::Vopc;
        if (is_short) formats.push("vop3");
        value.set("name", row->name).set("formats", formats).set("opcode", row->opcode);
        value.set("signature", row->signature ? row->signature : "").set("passes", row->passes);
        list.push(value);
    }
    return control::copied(list.text());
}

/// Text of one instruction; returns how many dwords it takes, 0 if it is none.
EXPORTED int warpwave_emulator_disassemble(const uint32_t* code, size_t dwords, char* text, size_t size) {
    Inst inst;
    const bool known = decode(code, static_cast<u32>(dwords), inst);
    std::snprintf(text, size, "%s", known ? disassemble(inst).c_str() : "");
    return known ? inst.words : 0;
}

/// State of one wave, for warpwave_emulator_execute. Registers are 64 words each, register after register.
struct WaveImage {
    uint32_t version, vgpr_count, agpr_count, lds_bytes;
    uint32_t sgpr[128];
    uint32_t scc, mode, status, pad;
    uint32_t *vgprs, *agprs;
    uint8_t* lds;
    char* message;  // 512 bytes
};

/// Runs straight-line code on the wave; 0, or 1 with what went wrong in `message`.
EXPORTED int warpwave_emulator_execute(const uint32_t* code, size_t dwords, WaveImage* image) {
    constexpr size_t kMessage = 512;
    const size_t words = size_t{image->vgpr_count + image->agpr_count} * kLanes;
    std::vector<u32> storage(words + 16);
    auto* registers = reinterpret_cast<u32*>((reinterpret_cast<uintptr_t>(storage.data()) + 63) & ~uintptr_t{63});
    std::memcpy(registers, image->vgprs, size_t{image->vgpr_count} * kLanes * 4);
    if (image->agpr_count)
        std::memcpy(registers + image->vgpr_count * kLanes, image->agprs, size_t{image->agpr_count} * kLanes * 4);
    const auto program =
        translate(code, dwords * 4, {{0, dwords * 4}}, image->vgpr_count + image->agpr_count, image->vgpr_count);
    loader::KernelInfo kernel;
    kernel.name = "straight-line code";
    std::vector<u8> scratch(kLanes * 1024);
    Launch launch;
    launch.program = program.get();
    launch.kernel = &kernel;
    launch.lds_bytes = image->lds_bytes;
    launch.scratch_bytes = 1024;
    Workgroup group;
    group.launch = &launch;
    std::vector<u8> lds(image->lds_bytes + 64);
    if (image->lds_bytes) std::memcpy(lds.data(), image->lds, image->lds_bytes);
    group.lds = lds.data();
    group.lds_bytes = image->lds_bytes;
    group.waves.resize(1);
    Wave& wave = group.waves[0];
    wave.group = &group;
    wave.vgprs = registers;
    wave.vgpr_count = image->vgpr_count + image->agpr_count;
    wave.scratch = scratch.data();
    std::memcpy(wave.sgpr, image->sgpr, sizeof image->sgpr);
    wave.scc = image->scc;
    wave.mode = image->mode;
    wave.status = image->status;
    wave.initial_exec = kAllLanes;
    const Outcome outcome = run_straight(wave, *program);
    std::memcpy(image->vgprs, registers, size_t{image->vgpr_count} * kLanes * 4);
    if (image->agpr_count)
        std::memcpy(image->agprs, registers + image->vgpr_count * kLanes, size_t{image->agpr_count} * kLanes * 4);
    if (image->lds_bytes) std::memcpy(image->lds, lds.data(), image->lds_bytes);
    std::memcpy(image->sgpr, wave.sgpr, sizeof image->sgpr);
    image->scc = wave.scc;
    image->mode = wave.mode;
    image->status = wave.status;
    std::snprintf(image->message, kMessage, "%s", outcome.message.c_str());
    return outcome.ok ? 0 : 1;
}
