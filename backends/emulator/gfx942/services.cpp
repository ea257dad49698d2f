// SPDX-License-Identifier: MIT
#include "services.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "core/immortal.h"
#include "core/memory.h"
#include "core/printf.h"

namespace emu::services {

std::atomic<bool> used{false};

namespace {

constexpr u64 kPackets = 4096, kIndexMask = kPackets - 1;  // more than waves are in the middle of a request
constexpr u64 kHeapBytes = 128 * 1024, kSlabBytes = 2 * 1024 * 1024;
enum Service : u32 { kCall = 1, kPrintf = 2, kMemory = 3 };

struct Header {
    u64 next, lanes;
    u32 service, control;  // control: bit 0 is set until there is an answer
};
struct Payload {
    u64 slots[kLanes][8];
};
struct Signal {  // amd_signal_t of the HSA runtime
    i64 kind, value;
    u64 mailbox;
    u32 event, padding;
    u64 reserved[4];
};
struct Buffer {
    Header* headers;
    Payload* payloads;
    Signal* doorbell;
    u64 free, ready, index_mask;
};

void* map_pages(size_t bytes, size_t alignment) {
    void* const base =
        mmap(nullptr, bytes + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(base) + alignment - 1) / alignment * alignment);
}

struct Range {
    u64 begin, end;
};

struct State {
    std::recursive_mutex mutex;
    Buffer* buffer = nullptr;
    void* heap = nullptr;
    std::vector<Range> own;
    std::map<u64, std::vector<u64>> messages;  // by number: words so far
    u64 last_message = 0;
};

State& state() { return immortal<State>(); }

void* keep(State& s, size_t bytes, size_t alignment) {
    void* const memory = map_pages(bytes, alignment);
    const u64 begin = reinterpret_cast<u64>(memory);
    s.own.push_back({begin, begin + bytes});
    used = true;
    return memory;
}

// --- printf ---------------------------------------------------------------------------------------------------------

/// Reads a message's words in order.
class Words {
public:
    explicit Words(const std::vector<u64>& words) : words_(words) {}
    u64 next() { return at_ < words_.size() ? words_[at_++] : 0; }
    /// A string fills whole words, its zero included.
    std::string text() {
        if (at_ >= words_.size()) return {};
        const char* const begin = reinterpret_cast<const char*>(words_.data() + at_);
        const size_t length = strnlen(begin, (words_.size() - at_) * 8);
        at_ += length / 8 + 1;
        return {begin, length};
    }
    i32 star() { return static_cast<i32>(next()); }
    u64 integer(bool) { return next(); }
    f64 number() { return as_f64(next()); }
    std::string other(const Conversion& c) {
        if (!c.kind) return "";
        const f64 value = number();
        return c.kind == 'n' ? "" : formatted(c.flags + c.kind, value);
    }

private:
    const std::vector<u64>& words_;
    size_t at_ = 0;
};

u64 print(const std::vector<u64>& message) {
    Words words(message);
    std::FILE* const file = words.next() == 1 ? stderr : stdout;
    const std::string format = words.text(), text = printed(format, words);
    std::fwrite(text.data(), 1, text.size(), file);
    return text.size();
}

// A message comes in parts, whose first slot says which: first (bit 0), last (1), words (5-7), number (from 8).
void take_part(State& s, u64* slots) {
    const u64 part = slots[0], words = part >> 5 & 7;
    const u64 number = part & 1 ? ++s.last_message : part >> 8;
    std::vector<u64>& message = s.messages[number];
    message.insert(message.end(), slots + 1, slots + 1 + words);
    slots[0] = number << 8;
    if (!(part & 2)) return;
    slots[0] = print(message);
    s.messages.erase(number);
}

// --- the others -----------------------------------------------------------------------------------------------------

/// Slabs must begin at a multiple of their size, and are kept for good; what is larger than their blocks is asked for by itself.
u64 memory(State& s, u64 address, u64 bytes) {
    if (address) {
        device_free(reinterpret_cast<void*>(address));
        return 0;
    }
    try {
        return reinterpret_cast<u64>(
            bytes == kSlabBytes ? keep(s, bytes, kSlabBytes) : device_malloc(bytes, "malloc in a kernel"));
    } catch (const std::bad_alloc&) {
        return 0;
    }
}

void answer(State& s, const Header& header, Payload& payload) {
    for (u64 rest = header.lanes; rest; rest &= rest - 1) {
        u64* const slots = payload.slots[std::countr_zero(rest)];
        if (header.service == kPrintf) {
            take_part(s, slots);
        } else if (header.service == kMemory) {
            slots[0] = memory(s, slots[0], slots[1]);
        } else if (header.service == kCall) {
            u64 result[2] = {};
            reinterpret_cast<void (*)(u64*, const u64*)>(slots[0])(result, slots + 1);
            std::copy(result, result + 2, slots);
        }
    }
}

}  // namespace

u64 hostcall_buffer() {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    if (!s.buffer) {
        constexpr size_t kBefore = sizeof(Buffer) + sizeof(Signal) + kPackets * sizeof(Header);
        u8* const base = static_cast<u8*>(keep(s, kBefore + 4096 + kPackets * sizeof(Payload), 4096));
        s.buffer = new (base) Buffer{};
        s.buffer->doorbell = new (base + sizeof(Buffer)) Signal{};
        s.buffer->doorbell->mailbox =
            reinterpret_cast<u64>(&s.buffer->doorbell->reserved[0]);  // not null: send the interrupt
        s.buffer->headers = reinterpret_cast<Header*>(base + sizeof(Buffer) + sizeof(Signal));
        s.buffer->payloads = reinterpret_cast<Payload*>(base + (kBefore + 4095) / 4096 * 4096);
        s.buffer->index_mask = kIndexMask;
        // A reference to a packet is its index with a tag above, which grows with each use; 0 ends a stack.
        for (u64 i = 0; i < kPackets; ++i) {
            s.buffer->headers[i].next = s.buffer->free;
            s.buffer->free = kPackets + i;
        }
    }
    return reinterpret_cast<u64>(s.buffer);
}

u64 heap() {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    if (!s.heap) s.heap = keep(s, kHeapBytes, 4096);  // zeros are an empty heap
    return reinterpret_cast<u64>(s.heap);
}

void serve() {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    if (!s.buffer) return;
    u64 next = __atomic_exchange_n(&s.buffer->ready, 0, __ATOMIC_ACQUIRE);
    while (next) {
        Header& header = s.buffer->headers[next & kIndexMask];
        next = header.next;
        answer(s, header, s.buffer->payloads[static_cast<size_t>(&header - s.buffer->headers)]);
        __atomic_and_fetch(&header.control, ~1u, __ATOMIC_RELEASE);
    }
}

void flush() {
    if (used) std::fflush(stdout);
}

u64 own_lanes(const u64* address, u64 lanes) {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    u64 own = 0;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const int lane = std::countr_zero(rest);
        const bool inside = std::any_of(s.own.begin(), s.own.end(), [&](const Range& range) {
            return address[lane] >= range.begin && address[lane] < range.end;
        });
        own |= u64{inside} << lane;
    }
    return own;
}

}  // namespace emu::services
