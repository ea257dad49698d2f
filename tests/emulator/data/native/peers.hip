// SPDX-License-Identifier: MIT
// Two devices: memory of one, copied to and read by the other.
#include <hip/hip_runtime.h>

#include <cstdio>

__global__ void add(const int* from, int* to) { to[threadIdx.x] = from[threadIdx.x] + 1; }

int main() {
    int count = 0, can = 0, device = -1;
    if (hipGetDeviceCount(&count)) return 2;
    std::printf("%d devices\n", count);
    if (count < 2) return hipSetDevice(1) == hipErrorInvalidDevice ? 0 : 3;
    int *first = nullptr, *second = nullptr, values[64] = {};
    if (hipMalloc(&first, sizeof values) || hipMemset(first, 0, sizeof values)) return 4;
    if (hipSetDevice(1) || hipGetDevice(&device) || device != 1 || hipMalloc(&second, sizeof values)) return 5;
    if (hipDeviceCanAccessPeer(&can, 1, 0) || !can || hipDeviceEnablePeerAccess(0, 0)) return 6;
    if (hipDeviceEnablePeerAccess(0, 0) != hipErrorPeerAccessAlreadyEnabled) return 7;
    if (hipDeviceEnablePeerAccess(1, 0) != hipErrorInvalidDevice) return 8;
    hipStream_t stream;
    if (hipStreamCreate(&stream) || hipStreamGetDevice(stream, &device) || device != 1) return 9;
    add<<<1, 64, 0, stream>>>(first, second);
    hipPointerAttribute_t attributes;
    if (hipPointerGetAttributes(&attributes, second) || attributes.device != 1) return 10;
    if (hipPointerGetAttributes(&attributes, first) || attributes.device != 0) return 11;
    if (hipMemcpyPeer(first, 0, second, 1, sizeof values) || hipMemcpy(values, first, sizeof values, hipMemcpyDefault)) return 12;
    if (hipDeviceDisablePeerAccess(0) || hipDeviceDisablePeerAccess(0) != hipErrorPeerAccessNotEnabled) return 13;
    std::printf("%d\n", values[63]);
    return 0;
}
