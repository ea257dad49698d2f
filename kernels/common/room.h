// SPDX-License-Identifier: MIT
// Host side: takes pieces of a workspace, 256-byte aligned, and says whether there was enough.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct Room {
    uintptr_t at, end;

    Room(void* start, size_t bytes)
        : at((reinterpret_cast<uintptr_t>(start) + 255) / 256 * 256), end(reinterpret_cast<uintptr_t>(start) + bytes) {}

    /// Room for `count` elements; may lie outside: ask `enough` before it is used.
    template <class T>
    T* take(size_t count) {
        T* const piece = reinterpret_cast<T*>(at);
        at += (count * sizeof(T) + 255) / 256 * 256;
        return piece;
    }
    bool enough() const { return at <= end; }
};
