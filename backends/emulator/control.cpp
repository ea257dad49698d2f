// SPDX-License-Identifier: MIT
#include "control.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "findings.h"
#include "gfx942/counters/counters.h"
#include "gfx942/counters/hierarchy.h"
#include "gfx942/memory.h"
#include "gfx942/run.h"
#include "gfx942/table.h"
#include "json.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace emu {
namespace control {
namespace {

constexpr size_t kKept = 1000;  // launches that wait to be taken; older ones make room

struct Kept {
    std::mutex mutex;
    std::vector<std::string> counters;
};

// Never destroyed, like the options: exit handlers of the program may still ask.
Kept& kept() {
    static Kept* const instance = new Kept;
    return *instance;
}

bool truth(const std::string& option, const std::string& value) {
    if (value == "1" || value == "on" || value == "true") return true;
    if (value == "0" || value == "off" || value == "false") return false;
    throw std::invalid_argument(option + " is 0 or 1, not '" + value + "'");
}

uint64_t number(const std::string& option, const std::string& value) {
    size_t used = 0;
    uint64_t result = 0;
    try {
        result = std::stoull(value, &used);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): `used` stays 0
    }
    if (!used || used != value.size()) throw std::invalid_argument(option + " is a number, not '" + value + "'");
    return result;
}

void apply(Options& options, const std::string& option, const std::string& value) {
    if (option == "checks") options.checks = checks::parse(value);
    else if (option == "threads") options.threads = static_cast<unsigned>(number(option, value));
    else if (option == "tensors") options.tensors = truth(option, value);
    else if (option == "devices")
        options.devices = static_cast<unsigned>(std::clamp<uint64_t>(number(option, value), 1, 16));
    else if (option == "counters") options.counters = truth(option, value);
    else if (option == "record") options.record = std::min<uint64_t>(number(option, value), 2);
    else if (option == "services") options.services = truth(option, value);
    else if (option == "sample") options.sample = number(option, value);
    else if (option == "keep") options.keep = truth(option, value);
    else if (option == "strict") options.strict = truth(option, value);
    else if (option == "unordered") options.unordered = truth(option, value);
    else if (option == "report") options.report = truth(option, value);
    else if (option == "log") options.log = value;
    else if (option == "halt") options.halt = truth(option, value);
    else if (option == "slice") options.slice = number(option, value);
    else if (option == "limit") options.limit = number(option, value);
    else
        throw std::invalid_argument(
            "no option '" + option +
            "'; there are checks, report, log, threads, devices, tensors, counters, record, sample, keep, services, "
            "strict, "
            "unordered, halt, slice, limit");
    if (!options.threads) options.threads = std::max(1u, std::thread::hardware_concurrency());
}

// WARPWAVE_EMULATOR="checks=bounds+hazard,threads=2"
Options from_environment() {
    Options options;
    options.threads = std::max(1u, std::thread::hardware_concurrency());
    const char* text = std::getenv("WARPWAVE_EMULATOR");
    std::string rest = text ? text : "";
    bool silent = false;
    while (!rest.empty()) {
        const size_t comma = rest.find(',');
        const std::string word = rest.substr(0, comma);
        rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
        const size_t equals = word.find('=');
        try {
            if (equals == std::string::npos) throw std::invalid_argument("'" + word + "' has no value");
            const std::string option = word.substr(0, equals);
            apply(options, option, word.substr(equals + 1));
            silent |= option == "report" && !options.report;
        } catch (const std::invalid_argument& error) {
            std::fprintf(stderr, "WARPWAVE_EMULATOR: %s (ignored)\n", error.what());
        }
    }
    // Whoever sets checks from outside of a program hears of them; a program that sets them asks for its findings.
    options.report = options.checks && !silent;
    return options;
}

Options& current() {
    static Options* const instance = new Options(from_environment());
    return *instance;
}

char* copy(const std::string& text) {
    char* memory = static_cast<char*>(std::malloc(text.size() + 1));
    if (memory) std::memcpy(memory, text.c_str(), text.size() + 1);
    return memory;
}

}  // namespace

const Options& options() { return current(); }

void set(const std::string& option, const std::string& value) {
    apply(current(), option, value);
    if (option == "checks") current().report = false;
}

void keep_counters(std::string json) {
    const std::lock_guard lock(kept().mutex);
    if (kept().counters.size() >= kKept) kept().counters.erase(kept().counters.begin());
    kept().counters.push_back(std::move(json));
}

}  // namespace control

bool tensors_are_device_memory() { return control::options().tensors; }

}  // namespace emu

using namespace emu;

/// Sets an option (see Options); 0, or 1 with the reason on stderr.
EXPORTED int warpwave_emulator_set(const char* option, const char* value) {
    try {
        control::set(option, value);
        return 0;
    } catch (const std::invalid_argument& error) {
        std::fprintf(stderr, "emulator: %s\n", error.what());
        return 1;
    }
}

/// What the checks found since the last call: a JSON array, to be given back with warpwave_emulator_free.
EXPORTED char* warpwave_emulator_take_findings() {
    json::Value list = json::array({});
    for (const checks::Finding& finding : findings::take()) list.push(json::Value::raw(findings::describe(finding)));
    return control::copy(list.text());
}

/// Counters of the launches since the last call: a JSON array, one object a launch.
EXPORTED char* warpwave_emulator_take_counters() {
    const std::lock_guard lock(control::kept().mutex);
    std::string list = "[";
    for (const std::string& each : control::kept().counters) list += (list.size() > 1 ? "," : "") + each;
    control::kept().counters.clear();
    counters::forget();
    counters::empty_caches();  // what is counted next begins with cold caches
    return control::copy(list + "]");
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
    return control::copy("[" + list + "]");
}

EXPORTED void warpwave_emulator_free(char* text) { std::free(text); }

/// Makes a host range known to the bounds check.
EXPORTED int warpwave_emulator_register(const void* memory, size_t size, const char* name) {
    register_host(memory, size, name);
    return 0;
}

EXPORTED int warpwave_emulator_unregister(const void* memory) { return unregister_host(memory) ? 0 : 1; }

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
    return control::copy(list.text());
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
