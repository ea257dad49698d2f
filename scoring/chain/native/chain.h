// SPDX-License-Identifier: MIT
// The arithmetic of the commit chain (docs/judge.md), the same to the bit on every device and in both processes.
//
// seal    XOR with a keystream: inputs lie unreadable in the worker's memory until the judge reveals the key.
// mix     Every window of 256 elements (or words of several) is drawn anew from its own, with replacement: inputs that
//         nobody could know before the key, with the distribution (and the NaN-freeness) of the old ones.
// commit  A keyed digest of output bytes, copied on the way. It is a tree of permutations, hence not linear in the
//         bytes: there is no way to it that avoids computing them, and none to bytes that fit a digest chosen before.
//
// listen, answer   Two doorbells between judge and device, in host memory that both see: the device waits at one for a key and
//         leaves a digest there, so that between the two nothing is timed but what the device does.
//
// The first three are built on the permutation of ChaCha (D. J. Bernstein, 2008; RFC 8439 for the quarter round): 8 rounds as
// a keystream and for indices, 4 for each absorbed block of the digest. Neither has to resist for longer than a call.
#pragma once

#include <cstdint>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define CHAIN_FN __host__ __device__ __forceinline__
#else
#define CHAIN_FN inline
#endif

namespace chain {

constexpr int kKeyWords = 4;  // a key and a digest: 128 bits
constexpr int kBlock = 64;    // bytes of keystream per permutation
constexpr int kWindow = 256;  // elements that are drawn from one another
constexpr int kStreamRounds = 8, kDigestRounds = 4;
constexpr uint64_t kMaxStrips = 1u << 17;  // of one digest: a longer output has longer strips
constexpr int kFan = 4;                    // digests a node of the tree absorbs
constexpr int kLeaves = 128;               // strips of one workgroup, the lowest subtree

// A doorbell in host memory, in words: the judge writes the key and then `rung`, the device says that it listens, and writes the
// digest and then `answered`. Each side writes cache lines of its own.
constexpr int kDoorbellRung = 0, kDoorbellKey = 4, kDoorbellListens = 16, kDoorbellAnswered = 32, kDoorbellDigest = 36,
              kDoorbellWords = 64;

// What a permutation is for, so that no two uses ever share an input.
enum Use : uint32_t { kUseSeal = 1, kUseMix = 2, kUseLeaf = 3, kUseNode = 4, kUseRoot = 5 };

CHAIN_FN uint32_t rotate(uint32_t x, int by) { return x << by | x >> (32 - by); }

CHAIN_FN void quarter(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
    a += b;
    d = rotate(d ^ a, 16);
    c += d;
    b = rotate(b ^ c, 12);
    a += b;
    d = rotate(d ^ a, 8);
    c += d;
    b = rotate(b ^ c, 7);
}

template <int kRounds>
CHAIN_FN void permute(uint32_t (&x)[16]) {
#if defined(__CUDACC__) || defined(__HIPCC__)
#pragma unroll
#endif
    for (int round = 0; round < kRounds; round += 2) {
        quarter(x[0], x[4], x[8], x[12]);
        quarter(x[1], x[5], x[9], x[13]);
        quarter(x[2], x[6], x[10], x[14]);
        quarter(x[3], x[7], x[11], x[15]);
        quarter(x[0], x[5], x[10], x[15]);
        quarter(x[1], x[6], x[11], x[12]);
        quarter(x[2], x[7], x[8], x[13]);
        quarter(x[3], x[4], x[9], x[14]);
    }
}

// ChaCha's input layout: four constants, the key (twice: 128 bits), a counter of 64 bits and 64 bits of context.
CHAIN_FN void load(
    uint32_t (&x)[16], const uint32_t (&key)[kKeyWords], uint64_t counter, uint32_t use, uint32_t nonce) {
    x[0] = 0x61707865u;
    x[1] = 0x3120646eu;
    x[2] = 0x79622d36u;
    x[3] = 0x6b206574u;
    for (int i = 0; i < kKeyWords; ++i) x[4 + i] = x[8 + i] = key[i];
    x[12] = static_cast<uint32_t>(counter);
    x[13] = static_cast<uint32_t>(counter >> 32);
    x[14] = use;
    x[15] = nonce;
}

// 64 bytes of keystream, block number `counter`.
CHAIN_FN void keystream(
    uint32_t (&out)[16], const uint32_t (&key)[kKeyWords], uint64_t counter, uint32_t use, uint32_t nonce) {
    load(out, key, counter, use, nonce);
    uint32_t start[16];
    for (int i = 0; i < 16; ++i) start[i] = out[i];
    permute<kStreamRounds>(out);
    for (int i = 0; i < 16; ++i) out[i] += start[i];
}

// The state of one digest: 256 bits absorb, 256 stay inside; four of the inner words are the result.
struct Sponge {
    uint32_t x[16];

    CHAIN_FN Sponge(const uint32_t (&key)[kKeyWords], uint64_t counter, uint32_t use, uint32_t nonce) {
        // The key in the inner half, the context in the absorbing one's constants: both enter every permutation.
        load(x, key, counter, use, nonce);
    }
    CHAIN_FN void absorb(const uint32_t (&block)[8]) {
        for (int i = 0; i < 8; ++i) x[i] ^= block[i];
        permute<kDigestRounds>(x);
    }
    CHAIN_FN void result(uint32_t (&out)[kKeyWords]) const {
        for (int i = 0; i < kKeyWords; ++i) out[i] = x[8 + i] ^ x[12 + i];
    }
};

// Bytes of the strip that one leaf digests: a multiple of 64, 64 unless the output is long.
CHAIN_FN uint64_t strip_bytes(uint64_t nbytes) {
    const uint64_t blocks = (nbytes + kBlock - 1) / kBlock;
    return kBlock * (blocks == 0 ? 1 : (blocks + kMaxStrips - 1) / kMaxStrips);
}

CHAIN_FN uint64_t strip_count(uint64_t nbytes) {
    const uint64_t strip = strip_bytes(nbytes);
    return nbytes == 0 ? 1 : (nbytes + strip - 1) / strip;
}

// Up to kFan digests into one. The level and the place are part of it, so that no subtree can move.
CHAIN_FN void node(
    uint32_t (&out)[kKeyWords], const uint32_t* children, int count, const uint32_t (&key)[kKeyWords], uint32_t level,
    uint64_t place, uint32_t nonce) {
    Sponge sponge(key, place << 8 | level, kUseNode, nonce);
    for (int first = 0; first < kFan; first += 2) {
        uint32_t block[8];
        for (int i = 0; i < 8; ++i) {
            const int child = first + i / kKeyWords;
            block[i] = child < count ? children[child * kKeyWords + i % kKeyWords] : 0x9e3779b9u * (i + 1);
        }
        sponge.absorb(block);
    }
    sponge.result(out);
}

// The last step: the root of the tree, the number of bytes and the key become the digest.
CHAIN_FN void finish(
    uint32_t (&out)[kKeyWords], const uint32_t (&root)[kKeyWords], const uint32_t (&key)[kKeyWords], uint64_t nbytes,
    uint32_t nonce) {
    Sponge sponge(key, nbytes, kUseRoot, nonce);
    uint32_t block[8];
    for (int i = 0; i < 8; ++i) block[i] = root[i % kKeyWords] ^ (i < kKeyWords ? 0u : 0x5bd1e995u);
    sponge.absorb(block);
    sponge.absorb(block);
    sponge.result(out);
}

// Which element of a window of `size` replaces element number `at`: one byte of the keystream, or for the last, short
// window a share of it.
CHAIN_FN int source(uint8_t random, int size) { return size == kWindow ? random : random * size >> 8; }

}  // namespace chain
