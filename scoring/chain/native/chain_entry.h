// SPDX-License-Identifier: MIT
// The C functions of a GPU build; CHAIN_QUEUE, CHAIN_ERROR, CHAIN_REGISTER, CHAIN_UNREGISTER and CHAIN_DEVICE_POINTER are the
// vendor's type of a queue, its last error, and its calls for host memory that the device sees.
//   data, src, dst   device memory, aligned to 16 bytes at least
//   key, digest      4 words in device memory; they may be the same
//   scratch          chain_scratch_words() words of device memory that hold 0 before the first call
//   doorbell             where the device sees one of the doorbells (chain.h) in host memory that chain_open made known to it
// Each returns the vendor's error code, 0 for none; -1 for an element width that is not 1, 2 or 4.
#include "chain_gpu.h"

extern "C" uint64_t chain_scratch_words() { return 4 + (chain::kMaxStrips / chain::kLeaves + 1) * chain::kKeyWords; }

extern "C" int chain_seal(void* data, uint64_t nbytes, const uint32_t* key, uint32_t nonce, void* queue) {
    if (nbytes == 0) return 0;
    const unsigned grid = chain::groups((nbytes + chain::kBlock - 1) / chain::kBlock, chain::kThreads);
    chain::seal<<<grid, chain::kThreads, 0, static_cast<CHAIN_QUEUE>(queue)>>>(
        static_cast<uint8_t*>(data), nbytes, key, nonce);
    return static_cast<int>(CHAIN_ERROR());
}

extern "C" int chain_mix(void* data, uint64_t count, int width, const uint32_t* key, uint32_t nonce, void* queue) {
    if (count == 0) return 0;
    const unsigned grid = chain::groups(count, chain::kMixWindows * chain::kWindow);
    const auto on = static_cast<CHAIN_QUEUE>(queue);
    switch (width) {
        case 1: chain::mix<<<grid, chain::kMixThreads, 0, on>>>(static_cast<uint8_t*>(data), count, key, nonce); break;
        case 2: chain::mix<<<grid, chain::kMixThreads, 0, on>>>(static_cast<uint16_t*>(data), count, key, nonce); break;
        case 4: chain::mix<<<grid, chain::kMixThreads, 0, on>>>(static_cast<uint32_t*>(data), count, key, nonce); break;
        default: return -1;
    }
    return static_cast<int>(CHAIN_ERROR());
}

extern "C" int chain_commit(
    const void* src, void* dst, uint64_t nbytes, const uint32_t* key, uint32_t* digest, uint32_t* scratch,
    uint32_t nonce, void* queue) {
    const unsigned grid = chain::groups(chain::strip_count(nbytes), chain::kLeaves);
    chain::commit<<<grid, chain::kThreads, 0, static_cast<CHAIN_QUEUE>(queue)>>>(
        static_cast<const uint8_t*>(src), static_cast<uint8_t*>(dst), nbytes, key, digest, scratch, nonce);
    return static_cast<int>(CHAIN_ERROR());
}

// `seen` gets the address at which the device sees `nbytes` bytes of host memory: whole pages, mapped as long as it may.
extern "C" int chain_open(void* host, uint64_t nbytes, void** seen) {
    const auto code = CHAIN_REGISTER(host, nbytes);
    return code ? static_cast<int>(code) : static_cast<int>(CHAIN_DEVICE_POINTER(seen, host, 0));
}

extern "C" int chain_close(void* host) { return static_cast<int>(CHAIN_UNREGISTER(host)); }

extern "C" int chain_listen(void* doorbell, uint32_t* key, void* queue) {
    chain::listen<<<1, 1, 0, static_cast<CHAIN_QUEUE>(queue)>>>(static_cast<volatile uint32_t*>(doorbell), key);
    return static_cast<int>(CHAIN_ERROR());
}

extern "C" int chain_answer(void* doorbell, const uint32_t* digest, void* queue) {
    chain::answer<<<1, 1, 0, static_cast<CHAIN_QUEUE>(queue)>>>(static_cast<volatile uint32_t*>(doorbell), digest);
    return static_cast<int>(CHAIN_ERROR());
}
