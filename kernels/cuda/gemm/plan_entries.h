// SPDX-License-Identifier: MIT
// One FP8 product with entry points that force its plan, so that a test or a sweep can reach every tile shape and
// split. No kernel includes this file. It is itself compiled as CUDA source; the macro WARPWAVE_KERNEL_FILE names the
// kernel, for example "fp8_gemm/mma_sync.cu".
//
//   int plan_count()                                        tile shapes
//   int plan_chosen(m, n, k, workspace_bytes, processors)    what the heuristic takes: shape * 256 + splits
//   double plan_cycles(shape, splits, m, n, k, processors)   what the heuristic expects; infinite if the plan cannot run
//   int plan_cost(shape, int values[9])                      WgmmaCost's fields in their order; 0 where the model is another
//   int plan_run(shape, splits, ...the kernel's own list)    launch exactly that

#include <cmath>
#include <cstdint>

#include WARPWAVE_KERNEL_FILE

extern "C" int plan_count() { return Shapes::kCount; }

extern "C" int plan_chosen(int m, int n, int k, size_t workspace_bytes, int processors) {
    const Plan plan = Shapes::choose(m, n, k, workspace_bytes, processors);
    return plan.shape * 256 + plan.splits;
}

extern "C" double plan_cycles(int shape, int splits, int m, int n, int k, int processors) {
    const BlockScaledGemm problem = {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, m, n, k, 0, 0};
    if (Shapes::refuse(problem, {shape, splits}, SIZE_MAX) != 0) return INFINITY;
    return predicted_cycles(Shapes::cost(shape), splits, m, n, k, processors);
}

template <class Cost>
auto write_cost(const Cost& cost, int* values) -> decltype(cost.reduce, 0) {
    const int fields[] = {cost.m,        cost.n,    cost.tokens_are_rows, cost.reduce, cost.pair,
                          cost.resident, cost.step, cost.shared,          cost.tile};
    for (const int field : fields) *values++ = field;
    return sizeof(fields) / sizeof(int);
}
inline int write_cost(...) { return 0; }

extern "C" int plan_cost(int shape, int* values) { return write_cost(Shapes::cost(shape), values); }

extern "C" int plan_run(
    int shape, int splits, const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m,
    int n, int k, void* workspace, size_t workspace_bytes, void* queue) {
    if (shape < 0 || shape >= Shapes::kCount || splits < 1) return kUnsupportedShape;
    const BlockScaledGemm problem = describe(a, b, a_scale, b_scale, c, m, n, k, workspace);
    const int refusal = Shapes::refuse(problem, {shape, splits}, workspace_bytes);
    return refusal != 0 ? refusal : Shapes::launch(problem, {shape, splits}, queue);
}
