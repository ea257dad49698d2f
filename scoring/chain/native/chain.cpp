// SPDX-License-Identifier: MIT
//!KERNEL summary the commit chain's seal, mix, commit, and its doorbells
// The chain on the host, with the interface of the GPU builds; `queue` and `scratch` are not used. Sixteen permutations
// run side by side, in vector instructions of the machine it runs on.
#include "chain.h"

#include <sched.h>

#include <atomic>
#include <cstring>
#include <vector>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CHAIN_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CHAIN_CLONES
#endif

namespace {

constexpr int kLanes = 16;
// One word of sixteen permutations; a vector of GCC's and clang's, split where the machine has narrower ones.
typedef uint32_t Vector __attribute__((vector_size(4 * kLanes)));
struct Lanes {
    Vector at[16];
};

#define CHAIN_TURN(value, by) ((value) << (by) | (value) >> (32 - (by)))
#define CHAIN_QUARTER(a, b, c, d) \
    x##a += x##b;                 \
    x##d ^= x##a;                 \
    x##d = CHAIN_TURN(x##d, 16);  \
    x##c += x##d;                 \
    x##b ^= x##c;                 \
    x##b = CHAIN_TURN(x##b, 12);  \
    x##a += x##b;                 \
    x##d ^= x##a;                 \
    x##d = CHAIN_TURN(x##d, 8);   \
    x##c += x##d;                 \
    x##b ^= x##c;                 \
    x##b = CHAIN_TURN(x##b, 7);

CHAIN_CLONES void permute(Lanes& x, int rounds) {
    Vector x0 = x.at[0], x1 = x.at[1], x2 = x.at[2], x3 = x.at[3], x4 = x.at[4], x5 = x.at[5], x6 = x.at[6],
           x7 = x.at[7];
    Vector x8 = x.at[8], x9 = x.at[9], x10 = x.at[10], x11 = x.at[11], x12 = x.at[12], x13 = x.at[13], x14 = x.at[14],
           x15 = x.at[15];
    for (int round = 0; round < rounds; round += 2) {
        CHAIN_QUARTER(0, 4, 8, 12)
        CHAIN_QUARTER(1, 5, 9, 13)
        CHAIN_QUARTER(2, 6, 10, 14)
        CHAIN_QUARTER(3, 7, 11, 15)
        CHAIN_QUARTER(0, 5, 10, 15)
        CHAIN_QUARTER(1, 6, 11, 12)
        CHAIN_QUARTER(2, 7, 8, 13)
        CHAIN_QUARTER(3, 4, 9, 14)
    }
    x.at[0] = x0;
    x.at[1] = x1;
    x.at[2] = x2;
    x.at[3] = x3;
    x.at[4] = x4;
    x.at[5] = x5;
    x.at[6] = x6;
    x.at[7] = x7;
    x.at[8] = x8;
    x.at[9] = x9;
    x.at[10] = x10;
    x.at[11] = x11;
    x.at[12] = x12;
    x.at[13] = x13;
    x.at[14] = x14;
    x.at[15] = x15;
}

void load(Lanes& x, const uint32_t (&key)[chain::kKeyWords], uint64_t counter, uint32_t use, uint32_t nonce) {
    uint32_t one[16];
    chain::load(one, key, 0, use, nonce);
    for (int word = 0; word < 16; ++word) x.at[word] = one[word] - Vector{};
    for (int l = 0; l < kLanes; ++l) {
        x.at[12][l] = static_cast<uint32_t>(counter + l);
        x.at[13][l] = static_cast<uint32_t>((counter + l) >> 32);
    }
}

// Keystream blocks counter … counter + 15, one after the other.
void keystream(
    uint8_t (&out)[kLanes * chain::kBlock], const uint32_t (&key)[chain::kKeyWords], uint64_t counter, uint32_t use,
    uint32_t nonce) {
    Lanes x, start;
    load(x, key, counter, use, nonce);
    start = x;
    permute(x, chain::kStreamRounds);
    for (int word = 0; word < 16; ++word) {
        alignas(64) uint32_t lanes[kLanes];
        const Vector sum = x.at[word] + start.at[word];
        std::memcpy(lanes, &sum, sizeof lanes);
        for (int l = 0; l < kLanes; ++l) std::memcpy(out + l * chain::kBlock + word * 4, lanes + l, 4);
    }
}

template <typename T>
void mix(T* data, uint64_t count, const uint32_t (&key)[chain::kKeyWords], uint32_t nonce) {
    constexpr int kHeld = kLanes * chain::kBlock;
    static_assert(kHeld % chain::kWindow == 0);
    uint8_t random[kHeld];
    T old[chain::kWindow];
    for (uint64_t base = 0; base < count; base += kHeld) {
        keystream(random, key, base / chain::kBlock, chain::kUseMix, nonce);
        for (uint64_t window = base; window < count && window < base + kHeld; window += chain::kWindow) {
            const int size = count - window < chain::kWindow ? static_cast<int>(count - window) : chain::kWindow;
            std::memcpy(old, data + window, size * sizeof(T));
            for (int i = 0; i < size; ++i) data[window + i] = old[chain::source(random[window - base + i], size)];
        }
    }
}

// Digests of up to 16 strips side by side; missing bytes count as zeros (the length is part of the digest).
void leaves(
    uint32_t* out, const uint8_t* bytes, uint64_t nbytes, uint64_t first, int count, uint64_t strip,
    const uint32_t (&key)[chain::kKeyWords], uint32_t nonce) {
    Lanes x;
    load(x, key, first, chain::kUseLeaf, nonce);
    for (uint64_t step = 0; step < strip; step += 32) {
        alignas(64) uint32_t blocks[8][kLanes] = {};
        for (int l = 0; l < count; ++l) {
            const uint64_t offset = (first + l) * strip + step;
            uint32_t block[8] = {};
            if (offset < nbytes) std::memcpy(block, bytes + offset, nbytes - offset < 32 ? nbytes - offset : 32);
            for (int i = 0; i < 8; ++i) blocks[i][l] = block[i];
        }
        for (int i = 0; i < 8; ++i) {
            Vector word;
            std::memcpy(&word, blocks[i], sizeof word);
            x.at[i] ^= word;
        }
        permute(x, chain::kDigestRounds);
    }
    for (int l = 0; l < count; ++l)
        for (int i = 0; i < chain::kKeyWords; ++i) out[l * chain::kKeyWords + i] = x.at[8 + i][l] ^ x.at[12 + i][l];
}

void reduce(
    std::vector<uint32_t>& digests, uint64_t count, const uint32_t (&key)[chain::kKeyWords], uint32_t level,
    uint64_t place, uint32_t nonce) {
    for (; count > 1; ++level) {
        const uint64_t nodes = (count + chain::kFan - 1) / chain::kFan;
        for (uint64_t at = 0; at < nodes; ++at) {
            const uint64_t left = count - at * chain::kFan;
            uint32_t out[chain::kKeyWords];
            chain::node(
                out, digests.data() + at * chain::kFan * chain::kKeyWords,
                left < chain::kFan ? static_cast<int>(left) : chain::kFan, key, level, place * nodes + at, nonce);
            std::memcpy(digests.data() + at * chain::kKeyWords, out, sizeof out);
        }
        count = nodes;
    }
}

}  // namespace

extern "C" uint64_t chain_scratch_words() { return 4; }

extern "C" int chain_seal(void* data, uint64_t nbytes, const uint32_t* key_from, uint32_t nonce, void*) {
    uint32_t key[chain::kKeyWords];
    std::memcpy(key, key_from, sizeof key);
    auto* bytes = static_cast<uint8_t*>(data);
    uint8_t pad[kLanes * chain::kBlock];
    for (uint64_t base = 0; base < nbytes; base += sizeof pad) {
        keystream(pad, key, base / chain::kBlock, chain::kUseSeal, nonce);
        const uint64_t here = nbytes - base < sizeof pad ? nbytes - base : sizeof pad;
        for (uint64_t i = 0; i < here; ++i) bytes[base + i] ^= pad[i];
    }
    return 0;
}

extern "C" int chain_mix(void* data, uint64_t count, int width, const uint32_t* key_from, uint32_t nonce, void*) {
    uint32_t key[chain::kKeyWords];
    std::memcpy(key, key_from, sizeof key);
    switch (width) {
        case 1: mix(static_cast<uint8_t*>(data), count, key, nonce); return 0;
        case 2: mix(static_cast<uint16_t*>(data), count, key, nonce); return 0;
        case 4: mix(static_cast<uint32_t*>(data), count, key, nonce); return 0;
        default: return -1;
    }
}

extern "C" int chain_commit(
    const void* src, void* dst, uint64_t nbytes, const uint32_t* key_from, uint32_t* digest, uint32_t*, uint32_t nonce,
    void*) {
    uint32_t key[chain::kKeyWords];
    std::memcpy(key, key_from, sizeof key);
    if (src != dst) std::memmove(dst, src, nbytes);
    const auto* bytes = static_cast<const uint8_t*>(dst);
    const uint64_t strips = chain::strip_count(nbytes), strip = chain::strip_bytes(nbytes);
    const uint64_t groups = (strips + chain::kLeaves - 1) / chain::kLeaves;
    std::vector<uint32_t> results(groups * chain::kKeyWords), digests(chain::kLeaves * chain::kKeyWords);
    for (uint64_t group = 0; group < groups; ++group) {
        const uint64_t first = group * chain::kLeaves;
        const uint64_t mine = strips - first < chain::kLeaves ? strips - first : chain::kLeaves;
        for (uint64_t at = 0; at < mine; at += kLanes)
            leaves(
                digests.data() + at * chain::kKeyWords, bytes, nbytes, first + at,
                static_cast<int>(mine - at < kLanes ? mine - at : kLanes), strip, key, nonce);
        reduce(digests, mine, key, 0, group, nonce);
        std::memcpy(results.data() + group * chain::kKeyWords, digests.data(), sizeof(uint32_t) * chain::kKeyWords);
    }
    reduce(results, groups, key, 16, 0, nonce);
    uint32_t root[chain::kKeyWords], out[chain::kKeyWords];
    std::memcpy(root, results.data(), sizeof root);
    chain::finish(out, root, key, nbytes, nonce);
    std::memcpy(digest, out, sizeof out);
    return 0;
}

extern "C" int chain_open(void* host, uint64_t, void** seen) {
    *seen = host;
    return 0;
}

extern "C" int chain_close(void*) { return 0; }

extern "C" int chain_listen(void* doorbell_at, uint32_t* key, void*) {
    auto* doorbell = static_cast<volatile uint32_t*>(doorbell_at);
    doorbell[chain::kDoorbellListens] = 1;
    while (doorbell[chain::kDoorbellRung] == 0) sched_yield();
    std::atomic_thread_fence(std::memory_order_acquire);
    for (int i = 0; i < chain::kKeyWords; ++i) key[i] = doorbell[chain::kDoorbellKey + i];
    return 0;
}

extern "C" int chain_answer(void* doorbell_at, const uint32_t* digest, void*) {
    auto* doorbell = static_cast<volatile uint32_t*>(doorbell_at);
    for (int i = 0; i < chain::kKeyWords; ++i) doorbell[chain::kDoorbellDigest + i] = digest[i];
    std::atomic_thread_fence(std::memory_order_release);
    doorbell[chain::kDoorbellAnswered] = 1;
    return 0;
}
