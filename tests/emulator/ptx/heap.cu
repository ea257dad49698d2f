// SPDX-License-Identifier: MIT
// malloc and free, new and delete in kernels. One line for each part, "ok" or the first thread that differs; the argument "twice": a
// kernel that deletes something twice.
#include "compare.h"

#include <cstring>

struct Node {
    int value;
    Node* next;
};
__device__ __noinline__ Node* longer(Node* list, int value) {
    auto* const node = static_cast<Node*>(malloc(sizeof(Node)));
    node->value = value, node->next = list;
    return node;
}
__global__ void lists_kernel(int* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    Node* list = nullptr;
    for (int j = 0; j <= i % 9; ++j) list = longer(list, i + j);
    int sum = 0;
    while (list) {
        Node* const next = list->next;
        sum = 3 * sum + list->value;
        free(list);
        list = next;
    }
    out[i] = sum;
}
int lists(int i) {
    int sum = 0;
    for (int j = i % 9; j >= 0; --j) sum = 3 * sum + i + j;
    return sum;
}

struct Shape {
    int* gone;
    __device__ explicit Shape(int* gone) : gone(gone) {}
    __device__ virtual int area() const { return 1; }
    __device__ virtual ~Shape() { *gone += 1; }
};
struct Row : Shape {
    int count, *sides;
    __device__ Row(int* gone, int count) : Shape(gone), count(count), sides(new int[count]) {
        for (int j = 0; j < count; ++j) sides[j] = j * j;
    }
    __device__ int area() const override {
        int sum = 0;
        for (int j = 0; j < count; ++j) sum += sides[j];
        return sum;
    }
    __device__ ~Row() override {
        delete[] sides;
        *gone += 10;
    }
};
__device__ __noinline__ Shape* made(int* gone, int i) { return i % 3 ? new Row(gone, i % 5) : new Shape(gone); }
__global__ void shapes_kernel(int* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 0;
    Shape* const shape = made(out + i, i);
    const int area = shape->area();
    delete shape;
    out[i] += 100 * area;
}
int shapes(int i) {
    if (i % 3 == 0) return 101;
    int sum = 0;
    for (int j = 0; j < i % 5; ++j) sum += j * j;
    return 11 + 100 * sum;
}

// From launch to launch; the one between does not allocate.
__device__ int* g_kept[256];
__global__ void keep() {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    auto* const mine = static_cast<int*>(malloc(4 * (i + 1)));
    for (int j = 0; j <= i; ++j) mine[j] = i * j;
    g_kept[i] = mine;
}
__global__ void kept_kernel(int* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, other = 255 - i;
    int sum = 0;
    for (int j = 0; j <= other; ++j) sum += g_kept[other][j];
    out[i] = sum + (reinterpret_cast<size_t>(g_kept[other]) % 16 ? 1000000000 : 0);
}
int kept(int i) { return (255 - i) * ((255 - i) * (256 - i) / 2); }
__global__ void drop() { free(g_kept[blockIdx.x * blockDim.x + threadIdx.x]); }

// More than the heap has, one behind the other: addresses come again, in other blocks.
__global__ void again_kernel(int* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = 0;
    for (int j = 0; j < 64; ++j) {
        auto* const mine = static_cast<int*>(malloc(4096));
        if (!mine) sum -= 1000000;
        mine[0] = i, mine[1023] = j;
        sum += mine[0] + mine[1023];
        free(mine);
    }
    out[i] = sum;
}
int again(int i) { return 64 * i + 63 * 32; }

__global__ void fill(int* out, size_t bytes) {
    void* all[64];
    int count = 0;
    while (count < 64 && (all[count] = malloc(bytes))) ++count;
    out[0] = count;
    free(all[count / 2]);
    out[1] = (all[count / 2] = malloc(bytes)) != nullptr;
    out[2] = malloc(~size_t{0}) != nullptr;
    for (int i = 0; i < count; ++i) free(all[i]);
    free(nullptr);
}

__global__ void twice(int** out) {
    int* const one = new int(7);
    *out = one;
    delete one;
    delete *out;
}

void filled(size_t bytes) {
    int *device, host[3];
    if (cudaMalloc(&device, sizeof host) != cudaSuccess) std::exit(2);
    fill<<<1, 1>>>(device, bytes);
    cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost);
    size_t limit = 0;
    cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize);
    std::printf("%zu bytes: %d times %zu, one more %d, too many %d\n", limit, host[0], bytes, host[1], host[2]);
}

int main(int count, char** arguments) {
    if (count > 1 && !std::strcmp(arguments[1], "twice")) {
        int** device;
        if (cudaMalloc(&device, sizeof *device) != cudaSuccess) return 2;
        twice<<<1, 1>>>(device);
        std::printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
        return 0;
    }
    compare("lists", 4, lists_kernel, lists);
    compare("shapes", 4, shapes_kernel, shapes);
    keep<<<4, 64>>>();
    compare("kept", 4, kept_kernel, kept);
    drop<<<4, 64>>>();
    compare("again", 4, again_kernel, again);
    filled(size_t{1} << 20);
    std::printf("set: %s\n", cudaGetErrorName(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 3000)));
    cudaDeviceReset();
    cudaGetLastError();
    std::printf("set: %s\n", cudaGetErrorName(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 3000)));
    filled(1000);
    std::printf("last: %s\n", cudaGetErrorName(cudaGetLastError()));
    return 0;
}
