// SPDX-License-Identifier: MIT
// What kernels ask of the host: printf, assert, malloc, new and free.
#include <hip/hip_runtime.h>

#include <cassert>
#include <cstdio>

struct Node {
    int value;
    Node* next;
};

__global__ void print(const char* text) {
    printf("%d of %s: %5.2f %#llx %c%% [%-4u] [%*d] %s\n", static_cast<int>(threadIdx.x), text, 1.5 * threadIdx.x, 1ull << 40, 'x',
           7u, 3, -1, "a constant that is longer than the fifty-six bytes of one message to the host");
}

__global__ void make(Node** out, int count) {
    Node* first = nullptr;
    for (int i = 0; i < count; ++i) first = new Node{static_cast<int>(threadIdx.x) + i, first};
    out[blockIdx.x * blockDim.x + threadIdx.x] = first;
}

__global__ void use(Node** lists, int* sum) {
    for (Node* node = lists[blockIdx.x * blockDim.x + threadIdx.x]; node;) {
        Node* const next = node->next;
        atomicAdd(sum, node->value);
        delete node;
        node = next;
    }
    int* const large = static_cast<int*>(malloc(100000));
    large[24999] = 1;
    atomicAdd(sum, large[24999]);
    free(large);
}

__global__ void check(int n) { assert(n < 3 && "too large"); }

int main(int argc, char**) {
    char* text = nullptr;
    Node** lists = nullptr;
    int *sum = nullptr, result = 0;
    constexpr int kGroups = 3, kThreads = 100;
    if (hipMallocManaged(&text, 16) || hipMalloc(&lists, kGroups * kThreads * sizeof *lists) || hipMalloc(&sum, sizeof *sum)) return 2;
    snprintf(text, 16, "a block");
    if (hipDeviceSetLimit(hipLimitMallocHeapSize, 1 << 26) || hipMemset(sum, 0, sizeof *sum)) return 2;
    print<<<1, 2>>>(text);
    make<<<kGroups, kThreads>>>(lists, 4);
    use<<<kGroups, kThreads>>>(lists, sum);
    if (hipMemcpy(&result, sum, sizeof result, hipMemcpyDeviceToHost)) return 2;
    printf("%d\n", result);
    if (argc < 2) return 0;
    check<<<1, 1>>>(5);
    return hipDeviceSynchronize() == hipErrorLaunchFailure ? 3 : 2;
}
