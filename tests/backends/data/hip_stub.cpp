// SPDX-License-Identifier: MIT
// A HIP runtime that executes nothing: it prints what a compiled host library registers and launches, so that a test
// can see the whole way from a ctypes call to the kernel's arguments without an AMD GPU.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

struct Dim3 { uint32_t x, y, z; };
struct Wrapper { uint32_t magic, version; const unsigned char* binary; void* unused; };
static std::map<const void*, std::string> names;
static Dim3 pushed_grid, pushed_block;
static size_t pushed_lds;
static void* pushed_queue;
static int failure, last_error;

static uint64_t elf_bytes(const unsigned char* elf) {
    uint64_t sections;
    uint16_t size, count;
    memcpy(&sections, elf + 40, 8);
    memcpy(&size, elf + 58, 2);
    memcpy(&count, elf + 60, 2);
    return sections + uint64_t(size) * count;
}

extern "C" {
void fail_launches(int on) { failure = on ? 98 : 0; }

void** __hipRegisterFatBinary(const void* data) {
    static void* handle;
    auto wrapper = static_cast<const Wrapper*>(data);
    bool elf = wrapper->magic == 0x48495046 && memcmp(wrapper->binary, "\x7f" "ELF", 4) == 0;
    printf("binary %llu bytes or more\n", elf ? static_cast<unsigned long long>(elf_bytes(wrapper->binary)) : 0ull);
    return &handle;
}
void __hipRegisterFunction(void**, const void* host, char*, const char* name, unsigned, void*, void*, void*, void*, int*) {
    names[host] = name;
    printf("function %s\n", name);
}
void __hipRegisterVar(void**, void*, char*, const char*, int, size_t, int, int) {}
void __hipUnregisterFatBinary(void**) { puts("unregistered"); fflush(stdout); }
int __hipPushCallConfiguration(Dim3 grid, Dim3 block, size_t lds, void* queue) {
    pushed_grid = grid, pushed_block = block, pushed_lds = lds, pushed_queue = queue;
    return 0;
}
int __hipPopCallConfiguration(Dim3* grid, Dim3* block, size_t* lds, void** queue) {
    *grid = pushed_grid, *block = pushed_block, *lds = pushed_lds, *queue = pushed_queue;
    return 0;
}
int hipLaunchKernel(const void* host, Dim3 grid, Dim3 block, void** args, size_t lds, void* queue) {
    printf("launch %s grid %u %u %u block %u %u %u lds %zu queue %zu x %zu y %zu n %d factor %g\n", names[host].c_str(),
           grid.x, grid.y, grid.z, block.x, block.y, block.z, lds, reinterpret_cast<size_t>(queue),
           *static_cast<size_t*>(args[0]), *static_cast<size_t*>(args[1]), *static_cast<int*>(args[2]),
           *static_cast<float*>(args[3]));
    fflush(stdout);
    return last_error = failure;
}
int hipGetLastError() {
    int error = last_error;
    last_error = 0;
    return error;
}
}
