// SPDX-License-Identifier: MIT
// Device code with everything a loader must place: tables of addresses, zero-filled memory, an undefined symbol,
// static LDS, scratch, and a function that is called.
#define GLOBAL __attribute__((address_space(1)))
#define SHARED __attribute__((address_space(3)))
#define KERNEL __attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(1, 256)))

extern GLOBAL int elsewhere[16] __attribute__((visibility("default")));
extern GLOBAL int perhaps[16] __attribute__((visibility("default"), weak));
GLOBAL int numbers[8] = {1, 2, 3, 4, 5, 6, 7, 8};
GLOBAL int zeroes[300];
GLOBAL int *GLOBAL tables[] = {numbers, zeroes + 3, elsewhere + 2, perhaps};
static GLOBAL int hidden = 42;
static SHARED int tile[128] __attribute__((loader_uninitialized));

__attribute__((noinline)) int twice(int value) {
    return value + __builtin_amdgcn_workitem_id_x() * value;
}

KERNEL void first(GLOBAL int *out, int count) {
    unsigned lane = __builtin_amdgcn_workitem_id_x();
    tile[lane & 127] = twice(count);
    __builtin_amdgcn_s_barrier();
    out[lane] = tile[127 - (lane & 127)] + tables[count & 3][1] + hidden++;
}

KERNEL void second(GLOBAL float *out, short scale) {
    volatile float spread[40];
    for (int index = 0; index < 40; ++index) spread[index * scale % 40] = index;
    out[0] = spread[scale];
}
