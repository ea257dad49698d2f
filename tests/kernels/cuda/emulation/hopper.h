// SPDX-License-Identifier: MIT
// What sm_90 adds to the machine: mbarriers, TMA, wgmma, named barriers and clusters.
//
// Asynchronous work happens at once (eager) or as late as a wait allows; wgmma is always late and fills its accumulators with
// NaN until waited for. Together that shows tiles overwritten before they were read, results read before they are there, and
// miscounted arrivals or bytes, which end in a deadlock the machine reports.
#pragma once

#include <list>
#include <map>

#include "common/tensor_map.h"
#include "machine.h"
#include "ptx/number_formats.h"

namespace emulation {

struct ArrivalBarrier {
    uint32_t expected = 0, pending = 0, phase = 0;
    int64_t bytes = 0;

    void settle() {
        if (pending == 0 && bytes == 0) {
            ++phase;
            pending = expected;
            ++machine().progress;
        }
    }
    void arrive() {
        if (pending == 0) fail("more arrivals at an mbarrier than its phase counts");
        --pending;
        settle();
    }
    void land(int64_t count) {
        bytes -= count;
        settle();
    }
};

/// Asynchronous work that reports to a barrier of one block.
struct Delivery {
    uint32_t barrier;
    std::function<void(Block&)> perform;
    bool held = false;  // until nothing else goes on
};

struct NamedBarrier {
    int threads = 0, arrived = 0;
    uint64_t generation = 0;
    bool any[2] = {};  // of this generation, of the one before
};

/// What the tensor cores read: e4m3 32 at a time or 16-bit elements 16 at a time, always 32 bytes.
enum class Format { kE4m3, kBfloat, kHalf, kTf32 };

struct Multiplication {
    std::vector<float*> d;  // of the 128 threads
    uint64_t a, b;
    bool add;
    int n;
    Format format = Format::kE4m3;
    bool b_transposed = false;
    bool a_transposed = false;
    std::vector<uint32_t> a_registers;  // of the 128 threads, four each, instead of a
};

struct Warpgroup {
    Meeting meeting;
    bool fenced = false;
    std::vector<Multiplication> open;
    std::deque<std::vector<Multiplication>> groups;
};

/// The Hopper half of a block.
struct Extension {
    std::map<uint32_t, ArrivalBarrier> barriers;
    std::list<Delivery> deliveries;
    unsigned asked = 0;  // deliveries so far
    NamedBarrier named[16];
    std::vector<Warpgroup> warpgroups;

    ArrivalBarrier& barrier(uint32_t address) {
        const auto found = barriers.find(address);
        if (found == barriers.end()) fail("an mbarrier is used that nobody initialised");
        return found->second;
    }
};

inline Extension& extension(Block& block) {
    if (!block.extension) {
        auto made = std::make_shared<Extension>();
        made->warpgroups.resize((machine().block_size.x + 127) / 128);
        block.extension = made;
    }
    return *static_cast<Extension*>(block.extension.get());
}
inline Extension& extension() { return extension(this_block()); }

inline void deliver(Block& block, Delivery delivery) {
    const unsigned number = extension(block).asked++;
    delivery.held = number < 64 && (machine().held >> number & 1) != 0;
    if (machine().eager && !delivery.held) delivery.perform(block);
    else extension(block).deliveries.push_back(std::move(delivery));
}

/// Let go of the delivery that was held first, for when no thread goes on; whether there is one.
inline bool let_go() {
    for (const auto& block : machine().blocks) {
        for (auto& delivery : extension(*block).deliveries) {
            if (!delivery.held) continue;
            delivery.held = false;
            return true;
        }
    }
    return false;
}

/// Let everything happen that reports to this barrier.
inline void hurry(Block& block, uint32_t barrier) {
    auto& deliveries = extension(block).deliveries;
    for (auto at = deliveries.begin(); at != deliveries.end();) {
        if (at->barrier == barrier && !at->held) {
            const Delivery delivery = *at;
            at = deliveries.erase(at);
            delivery.perform(block);
        } else {
            ++at;
        }
    }
}

/// Whether all threads of a block are done: nobody may use its shared memory any more.
inline bool ended(const Block& block) {
    const auto& m = machine();
    for (unsigned i = 0; i < m.block_size.x; ++i) {
        if (!m.fibers[block.rank * m.block_size.x + i]->done) return false;
    }
    return true;
}

// Cluster-wide addresses carry the rank + 1 in their top byte.
inline uint32_t cluster_address(uint32_t shared, int rank) { return static_cast<uint32_t>(rank + 1) << 24 | shared; }
inline Block& block_of(uint32_t mapped) {
    const unsigned rank = (mapped >> 24) - 1;
    if (rank >= machine().cluster_size) fail("a cluster address of no block of the cluster");
    return *machine().blocks[rank];
}
inline uint32_t offset_of(uint32_t mapped) { return mapped & 0xffffff; }

/// Place of a byte after the swizzle of rows of `row_bytes`.
inline uint32_t swizzled(uint32_t address, int row_bytes) {
    const uint32_t mask = row_bytes == 128 ? 7 : row_bytes == 64 ? 3 : 1;
    return address ^ (address >> 7 & mask) << 4;
}

/// Call `move(byte in shared memory, byte in global memory or null outside the matrix)` for each byte of a box.
template <class Move>
void each_byte(Block& block, uint32_t shared, const TensorMap& map, int x, int y, const Move& move) {
    const Matrix& matrix = map.matrix;
    const int row_bytes = map.box_columns * matrix.element_bytes;
    if (shared % (row_bytes * 8) != 0) fail("a box must start where its swizzle pattern does");
    for (int r = 0; r < map.box_rows; ++r)
        for (int i = 0; i < row_bytes; ++i) {
            const int row = y + r, column = x + i / matrix.element_bytes;
            const bool inside = row >= 0 && row < matrix.rows && column >= 0 && column < matrix.columns;
            char* global = static_cast<char*>(const_cast<void*>(matrix.start)) +
                           (static_cast<size_t>(row) * matrix.columns + x) * matrix.element_bytes + i;
            move(shared_at(block, swizzled(shared + r * row_bytes + i, row_bytes), 1, 1), inside ? global : nullptr);
        }
}

inline void load_box(Block& block, uint32_t shared, const TensorMap& map, uint32_t barrier, int x, int y) {
    deliver(block, {barrier, [=](Block& at) {
        each_byte(
            at, shared, map, x, y, [](uint8_t* to, const char* from) { *to = from ? static_cast<uint8_t>(*from) : 0; });
        extension(at).barrier(barrier).land(
            static_cast<int64_t>(map.box_rows) * map.box_columns * map.matrix.element_bytes);
    }});
}

/// A box of five dimensions: the contiguous one, 64 or 128 bytes long, is a swizzled row of shared memory, the others follow
/// densely.
inline void load_box_5d(
    Block& block, uint32_t shared, const TensorMap& map, uint32_t barrier, const std::array<int, 5>& at) {
    touch_global();
    const int row_bytes = map.box[0] * 2;
    if (shared % (row_bytes * 8) != 0) fail("a box must start where its swizzle pattern does");
    for (int d = 0; d < 5; ++d) {
        if (map.first != nullptr && at[d] >= map.sizes[d]) fail("a box lies wholly behind its sequence");
    }
    deliver(block, {barrier, [=](Block& block) {
        uint32_t to = shared;
        std::array<int, 5> i{};
        for (i[4] = 0; i[4] < map.box[4]; ++i[4])
            for (i[3] = 0; i[3] < map.box[3]; ++i[3])
                for (i[2] = 0; i[2] < map.box[2]; ++i[2])
                    for (i[1] = 0; i[1] < map.box[1]; ++i[1])
                        for (i[0] = 0; i[0] < map.box[0]; ++i[0], to += 2) {
                            const char* from = static_cast<const char*>(map.matrix.start);
                            bool inside = true;
                            for (int d = 0; d < 5; ++d) {
                                const int x = at[d] + i[d];
                                inside = inside && x >= 0 && x < map.sizes[d];
                                from += static_cast<ptrdiff_t>(map.pitches[d]) * x;
                            }
                            uint8_t* const place = shared_at(block, swizzled(to, row_bytes), 2, 2);
                            if (inside && map.first != nullptr && (from < map.first || from + 2 > map.last)) {
                                fail("a box reads outside its tensor");
                            }
                            if (inside) std::memcpy(place, from, 2);
                            else std::memset(place, 0, 2);
                        }
        extension(block).barrier(barrier).land(to - shared);
    }});
}
inline void load_box_5d(uint32_t shared, const TensorMap& map, uint32_t barrier, const std::array<int, 5>& at) {
    load_box_5d(this_block(), shared, map, barrier, at);
}

struct BoxStores {
    std::vector<std::function<void()>> open;
    std::deque<std::vector<std::function<void()>>> groups;
};
inline std::map<Fiber*, BoxStores>& box_stores() {
    static std::map<Fiber*, BoxStores> stores;
    return stores;
}

/// All threads of a warpgroup meet.
template <class Act>
void warpgroup_wide(void* argument, const Act& act) {
    const unsigned thread = machine().current->index;
    Warpgroup& group = extension().warpgroups[thread / 128];
    meet(group.meeting, 128, thread % 128, argument, [&](void** all) { act(group, all); });
}

/// Elements of 32 bytes of K.
inline int depth(Format format) { return format == Format::kE4m3 ? 32 : format == Format::kTf32 ? 8 : 16; }

inline double decode(Format format, const uint8_t* bytes) {
    if (format == Format::kE4m3) return e4m3(*bytes);
    if (format == Format::kTf32) {
        uint32_t code;
        std::memcpy(&code, bytes, 4);
        code &= ~0x1fffu;
        float value;
        std::memcpy(&value, &code, 4);
        return value;
    }
    const uint16_t code = static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
    return format == Format::kHalf ? half(code) : bfloat(code);
}

/// An operand of one multiplication, decoded: element (row, k) of an A is at row * depth + k, that of a B, whose rows are
/// columns of the product, at k * rows + row.
struct Operand {
    std::vector<double> elements;
    int per_row = 0, per_k = 0;

    void shape(int rows, int depth, bool is_b) {
        per_row = is_b ? 1 : depth;
        per_k = is_b ? rows : 1;
        elements.resize(static_cast<size_t>(rows) * depth);
    }
    double& at(int row, int k) { return elements[row * per_row + k * per_k]; }
};

/// 32 bytes along K of each row of an operand, which lie 16 and 16 together.
inline void read_operand(uint64_t descriptor, int rows, Format format, bool transposed, Operand& out) {
    const uint32_t start = static_cast<uint32_t>(descriptor & 0x3fff) << 4;
    const uint32_t leading = static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4;
    const uint32_t pitch = static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4;
    const int mode = static_cast<int>(descriptor >> 62);  // 0: no swizzle; 1, 2, 3: rows of 128, 64, 32 bytes in theirs
    if (mode != 1 && transposed) fail("the emulation does not know operands of this layout");
    const uint32_t row_bytes = mode == 0 ? 16 : 256u >> mode;
    const int all = depth(format), bytes = 32 / all, together = 16 / bytes;
    if (!transposed) {
        for (int row = 0; row < rows; ++row)
            for (int k = 0; k < all; k += together) {
                const uint32_t along_k =
                    mode == 0 ? k / together * leading : k * bytes;  // core matrices, or bytes of a row
                const uint32_t address = start + row / 8 * pitch + row % 8 * row_bytes + along_k;
                const uint8_t* const from = shared_at(mode == 0 ? address : swizzled(address, row_bytes), 16, 16);
                for (int i = 0; i < together; ++i) out.at(row, k + i) = decode(format, from + i * bytes);
            }
        return;
    }
    for (int k = 0; k < all; ++k)
        for (int row = 0; row < rows; row += together) {
            const uint32_t address = start + row / 64 * leading + k / 8 * pitch + k % 8 * 128 + row % 64 * bytes;
            const uint8_t* const from = shared_at(swizzled(address, row_bytes), 16, 16);
            for (int i = 0; i < together; ++i) out.at(row + i, k) = decode(format, from + i * bytes);
        }
}

/// The same of an A in registers.
inline void read_registers(const std::vector<uint32_t>& registers, Format format, Operand& out) {
    const int all = depth(format), each = all / 8;  // elements of K, and of one register
    for (int thread = 0; thread < 128; ++thread)
        for (int i = 0; i < 4; ++i)
            for (int e = 0; e < each; ++e) {
                const int row = thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8, k = (i / 2 * 4 + thread % 4) * each + e;
                const uint32_t code = registers[4 * thread + i] >> 32 / each * e;
                uint8_t bytes[4];
                std::memcpy(bytes, &code, 4);
                out.at(row, k) = decode(format, bytes);
            }
}

/// Fraction bits the tensor cores' adder keeps of FP8 products; 0 adds exactly and rounds to fp32.
inline int& adder_bits() {
    static int bits = 0;
    return bits;
}

/// x towards zero to `bits` fraction bits of the power of two at or below `largest`.
inline double cut(double x, double largest, int bits) {
    const int last = std::ilogb(largest) - bits;
    return std::ldexp(std::trunc(std::ldexp(x, -last)), last);
}

/// The sum as Hopper's FP8 adder makes it: addends aligned to the largest of them and cut there, the sum cut once more.
inline double short_sum(const double* addends, int count, int bits) {
    double largest = 0, sum = 0;
    for (int i = 0; i < count; ++i) largest = std::max(largest, std::fabs(addends[i]));
    if (largest == 0) return 0;
    for (int i = 0; i < count; ++i) sum += cut(addends[i], largest, bits);
    return sum == 0 ? 0 : cut(sum, std::fabs(sum), bits);
}

/// sums[0..n) += a[k] * b[k][0..n), from the last k to the first.
__attribute__((optimize("O3"))) inline void add_products(
    double* sums, int n, const double* a, const double* b, int depth) {
    for (int k = depth - 1; k >= 0; --k)
        for (int column = 0; column < n; ++column) sums[column] += a[k] * b[k * n + column];
}

inline void perform(const Multiplication& m) {
    static Operand a, b;
    const int steps = depth(m.format), bits = m.format == Format::kE4m3 ? adder_bits() : 0;
    a.shape(64, steps, false);
    b.shape(m.n, steps, true);
    if (m.a_registers.empty()) read_operand(m.a, 64, m.format, m.a_transposed, a);
    else read_registers(m.a_registers, m.format, a);
    read_operand(m.b, m.n, m.format, m.b_transposed, b);
    for (int row = 0; row < 64; ++row) {
        const auto d = [&](int column) -> float& {
            return m.d[row / 16 * 32 + row % 8 * 4 + column % 8 / 2][column / 8 * 4 + row % 16 / 8 * 2 + column % 2];
        };
        double sums[256] = {};
        for (int column = 0; m.add && column < m.n; ++column) sums[column] = d(column);
        if (bits == 0) add_products(sums, m.n, &a.at(row, 0), b.elements.data(), steps);
        for (int column = 0; bits > 0 && column < m.n; ++column) {
            double addends[33];
            for (int k = 0; k < steps; ++k) addends[k] = a.at(row, k) * b.at(column, k);
            addends[steps] = sums[column];
            sums[column] = short_sum(addends, steps + 1, bits);
        }
        for (int column = 0; column < m.n; ++column) d(column) = static_cast<float>(sums[column]);
    }
}

}  // namespace emulation

/// Fraction bits of the FP8 adder from now on; 0 is exact.
extern "C" inline __attribute__((used)) void emulation_adder(int bits) { emulation::adder_bits() = bits; }

/// Asynchronous copies of a block that are slow: bit i holds the i-th one back until no thread can go on without one that is held.
extern "C" inline __attribute__((used)) void emulation_hold(uint64_t copies) {
    ::emulation::machine().held = copies;
    ::emulation::machine().stuck = ::emulation::let_go;
}
