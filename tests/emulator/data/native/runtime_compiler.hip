// SPDX-License-Identifier: MIT
// A kernel that hiprtc compiles, with a header, an option and a template's name.
#include <hip/hip_runtime.h>
#include <hip/hiprtc.h>

#include <cstdio>
#include <string>
#include <vector>

constexpr const char* kSource = R"(
#include "factor.h"
template <class T>
__global__ void scale(T* data, int n) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) data[i] *= FACTOR + OFFSET;
}
)";

int main() {
    const char* header = "#define FACTOR 3\n";
    const char* name = "factor.h";
    const char* options[] = {"--gpu-architecture=gfx942", "-DOFFSET=1"};
    hiprtcProgram program, wrong;
    if (hiprtcCreateProgram(&program, kSource, "scale.hip", 1, &header, &name) || hiprtcAddNameExpression(program, "scale<float>")) return 2;
    if (hiprtcCompileProgram(program, 2, options)) return 3;
    const char* lowered = nullptr;
    size_t size = 0;
    if (hiprtcGetLoweredName(program, "scale<float>", &lowered) || hiprtcGetCodeSize(program, &size)) return 4;
    std::vector<char> code(size);
    if (hiprtcGetCode(program, code.data())) return 5;
    hipModule_t module;
    hipFunction_t function;
    if (hipModuleLoadData(&module, code.data()) || hipModuleGetFunction(&function, module, lowered)) return 6;
    float* data = nullptr;
    int n = 100;
    if (hipMallocManaged(&data, 100 * sizeof *data)) return 7;
    for (int i = 0; i < n; ++i) data[i] = static_cast<float>(i);
    void* arguments[] = {&data, &n};
    if (hipModuleLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr)) return 8;
    std::printf("%s %g\n", lowered, static_cast<double>(data[99]));

    if (hiprtcCreateProgram(&wrong, "__global__ void f() { nonsense; }", "wrong.hip", 0, nullptr, nullptr)) return 9;
    std::printf("%s\n", hiprtcGetErrorString(hiprtcCompileProgram(wrong, 0, nullptr)));
    if (hiprtcGetProgramLogSize(wrong, &size)) return 10;
    std::string log(size, ' ');
    if (hiprtcGetProgramLog(wrong, log.data())) return 11;
    std::printf("%s\n", log.substr(0, log.find('\n')).c_str());
    return hiprtcDestroyProgram(&program) || hiprtcDestroyProgram(&wrong) ? 12 : 0;
}
