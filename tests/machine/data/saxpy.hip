// SPDX-License-Identifier: MIT
// A HIP program as examples have it: a kernel and a main() that starts it.
#include <hip/hip_runtime.h>

__global__ void saxpy(float a, const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

int main() {
    float *x = nullptr, *y = nullptr;
    if (hipMalloc(&x, 4096) != hipSuccess || hipMalloc(&y, 4096) != hipSuccess) return 1;
    saxpy<<<4, 256>>>(2.0f, x, y, 1024);
    return hipDeviceSynchronize() != hipSuccess;
}
