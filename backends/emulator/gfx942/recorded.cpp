// SPDX-License-Identifier: MIT
#include "recorded.h"

#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/control.h"
#include "core/immortal.h"
#include "core/json.h"
#include "core/memory.h"
#include "counters/footprint.h"
#include "counters/places.h"
#include "dispatch.h"
#include "module.h"
#include "options.h"

namespace emu::recorded {
namespace {

constexpr u64 kPage = 4096;
constexpr size_t kCalls = 100'000;  // of one record; a program with more is not replayed

struct Record {
    std::mutex mutex;
    std::string calls;
    size_t count = 0;
    std::map<const Module*, size_t> numbers;
    std::string modules;
    std::map<u64, std::pair<u64, u64>> memory;  // device memory, in the order of allocation: address and bytes
    std::set<u64> pages;                        // of other memory that launches used
};

Record& record() { return immortal<Record>(); }

std::string hex(const uint8_t* bytes, size_t count) {
    constexpr const char* kDigits = "0123456789abcdef";
    std::string text(2 * count, '0');
    for (size_t i = 0; i < count; ++i) {
        text[2 * i] = kDigits[bytes[i] >> 4];
        text[2 * i + 1] = kDigits[bytes[i] & 15];
    }
    return text;
}

void append(std::string& list, const std::string& item) {
    if (!list.empty()) list += ',';
    list += item;
}

void add_call(Record& r, const json::Value& call) {
    if (++r.count <= kCalls) append(r.calls, call.text());
}

size_t number_of(Record& r, const Module& module) {
    const auto [place, fresh] = r.numbers.insert({&module, r.numbers.size()});
    if (fresh) {
        json::Value value = json::object();
        value.set("address", reinterpret_cast<u64>(module.base));
        value.set("code", hex(module.file.data(), module.file.size()));
        append(r.modules, value.text());
    }
    return place->second;
}

json::Value shape(const Dim& dim) { return json::array({dim.x, dim.y, dim.z}); }

}  // namespace

bool on() { return control::options().record != 0; }
bool instead() { return control::options().record == 2; }

void launch(const Kernel& kernel, Dim grid, Dim block, u32 dynamic_lds, const uint8_t* kernarg, size_t kernarg_bytes) {
    Record& r = record();
    const std::lock_guard lock(r.mutex);
    for (const Allocation& each : allocations())
        if (each.device) r.memory[each.serial] = {each.begin, each.size};
    json::Value call = json::object();
    call.set("do", "launch").set("module", number_of(r, *kernel.module)).set("kernel", kernel.info->name);
    call.set("grid", shape(grid)).set("block", shape(block)).set("lds", dynamic_lds);
    call.set("arguments", hex(kernarg, kernarg_bytes));
    add_call(r, call);
}

void used(const counters::Footprint& footprint, const counters::Places& places) {
    Record& r = record();
    const std::lock_guard lock(r.mutex);
    footprint.each([&](u64 line, unsigned) {
        if (!places.on_device(line * counters::kLine).end) r.pages.insert(line * counters::kLine / kPage);
    });
}

void fill(const void* to, uint64_t value, size_t width, size_t count) {
    if (!on() || !count) return;
    Record& r = record();
    const std::lock_guard lock(r.mutex);
    json::Value call = json::object();
    call.set("do", "fill").set("to", reinterpret_cast<u64>(to)).set("value", value);
    call.set("width", width).set("count", count);
    add_call(r, call);
}

void copy(const void* to, const void* from, size_t bytes) {
    if (!on() || !bytes) return;
    Record& r = record();
    const std::lock_guard lock(r.mutex);
    json::Value call = json::object();
    call.set("do", "copy").set("to", reinterpret_cast<u64>(to)).set("from", reinterpret_cast<u64>(from));
    call.set("bytes", bytes);
    add_call(r, call);
}

}  // namespace emu::recorded

using namespace emu;

/// What was recorded since the last call: {"modules": [{address, code}], "memory": [[address, bytes]], "pages": [address],
/// "calls": [{"do": "launch" | "fill" | "copy", …}], "complete": whether these are all calls}. Bytes are hexadecimal.
EXPORTED char* warpwave_emulator_take_record() {
    recorded::Record& r = recorded::record();
    const std::lock_guard lock(r.mutex);
    std::string memory, pages;
    for (const auto& [serial, range] : r.memory)
        recorded::append(memory, "[" + std::to_string(range.first) + "," + std::to_string(range.second) + "]");
    for (const u64 page : r.pages) recorded::append(pages, std::to_string(page * recorded::kPage));
    const std::string text = "{\"modules\":[" + r.modules + "],\"memory\":[" + memory + "],\"pages\":[" + pages +
                             "],\"calls\":[" + r.calls +
                             "],\"complete\":" + (r.count <= recorded::kCalls ? "true" : "false") + "}";
    r.calls.clear();
    r.modules.clear();
    r.numbers.clear();
    r.memory.clear();
    r.pages.clear();
    r.count = 0;
    return control::copied(text);
}

/// A code object of a record, at its address, where it takes `placed` bytes. Null, with the reason in `message` (512 bytes), if
/// that cannot be.
EXPORTED void* warpwave_emulator_place(
    const void* code, size_t bytes, uint64_t address, uint64_t* placed, char* message) {
    try {
        Module* const module = load_module(code, bytes, address);
        *placed = module->size;
        return module;
    } catch (const std::exception& error) {
        std::snprintf(message, 512, "%s", error.what());
        return nullptr;
    }
}

EXPORTED void warpwave_emulator_displace(void* module) { unload_module(static_cast<Module*>(module)); }

/// A launch of a record; `shape` is the grid in workgroups, the block, and the bytes of dynamic LDS. 0, or 1 with the reason in
/// `message` (512 bytes).
EXPORTED int warpwave_emulator_launch(
    void* module, const char* kernel, const uint32_t* shape, const uint8_t* arguments, size_t bytes, char* message) {
    try {
        const Kernel* const found = find_kernel(static_cast<Module*>(module), kernel);
        if (!found) throw std::runtime_error("its code object has no kernel of that name");
        const LaunchResult result =
            launch(*found, {shape[0], shape[1], shape[2]}, {shape[3], shape[4], shape[5]}, shape[6], arguments, bytes);
        if (result.ok) return 0;
        std::snprintf(message, 512, "%s", result.message.c_str());
    } catch (const std::exception& error) {
        std::snprintf(message, 512, "%s", error.what());
    }
    return 1;
}
