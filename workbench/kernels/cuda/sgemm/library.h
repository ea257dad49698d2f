// SPDX-License-Identifier: MIT
// Host side: a row-major fp32 product by cuBLASLt, in either of two ways. The library thinks in columns.
//
// kSwapped: a row-major matrix is its own transpose in column order, so C^T = B^T A^T needs no copy and no transposition: B is
// the first operand, A the second. Else the layouts say that rows are contiguous, and A is the first operand.
// Finding the library, and keeping its handle and what it proposes for a shape: as in mla/layer_library.h.
#pragma once

#include "mla/layer_library.h"
#include "status.h"

namespace sgemm_library {

using mla::library::Functions;
using mla::library::Proposal;
using mla::library::Thing;

enum { kOrder = 1, kRowOrder = 1 };  // an attribute of a layout, and its value

struct Plan {
    Thing handle, product, first, second, result;
    Proposal chosen;
};

inline int layout(const Functions& f, Thing* made, int rows, int columns, bool swapped) {
    const int32_t order = kRowOrder;
    const uint64_t height = static_cast<uint64_t>(swapped ? columns : rows);
    const uint64_t width = static_cast<uint64_t>(swapped ? rows : columns);
    int error = f.layout_create(made, mla::library::kFloat32, height, width, columns);
    if (error == 0 && !swapped) error = f.layout_set(*made, kOrder, &order, sizeof order);
    return error;
}

inline int make(const Functions& f, int m, int n, int k, bool swapped, size_t workspace_bytes, Plan* plan) {
    const uint64_t most = workspace_bytes;
    Thing preference = nullptr, a = nullptr, b = nullptr;
    int error = f.product_create(&plan->product, mla::library::kSumsInFloat32, mla::library::kFloat32);
    if (error == 0) error = layout(f, &a, m, k, swapped);
    if (error == 0) error = layout(f, &b, k, n, swapped);
    if (error == 0) error = layout(f, &plan->result, m, n, swapped);
    if (error == 0) error = f.preference_create(&preference);
    if (error == 0) error = f.preference_set(preference, mla::library::kMostWorkspace, &most, sizeof most);
    plan->first = swapped ? b : a;
    plan->second = swapped ? a : b;
    Proposal proposals[8];
    int count = 0;
    if (error == 0) {
        error = f.propose(
            plan->handle, plan->product, plan->first, plan->second, plan->result, plan->result, preference, 8,
            proposals, &count);
    }
    if (error != 0 || count == 0) return error != 0 ? error : 1;
    plan->chosen = proposals[LIBRARY_CHOICE < count ? LIBRARY_CHOICE : count - 1];
    return 0;
}

/// out = alpha * a b + beta * c. Returns 0 or an error code of the runtime; a machine without the library cannot do any shape.
inline int multiply(
    const float* a, const float* b, const float* c, float* out, int m, int n, int k, float alpha, float beta,
    bool swapped, void* workspace, size_t workspace_bytes, void* queue) {
    const Functions& functions = mla::library_functions();
    static std::mutex mutex;
    static std::map<int, Thing> handles;
    static std::map<std::array<long long, 5>, Plan> plans;
    if (m <= 0 || n <= 0 || k <= 0) return kUnsupportedShape;
    if (!mla::library_works()) return kUnsupportedShape;
    int device = 0;
    if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return static_cast<int>(error);
    const std::lock_guard<std::mutex> lock(mutex);
    const std::array<long long, 5> key = {device, m, n, k, static_cast<long long>(workspace_bytes)};
    auto found = plans.find(key);
    if (found == plans.end()) {
        Thing& handle = handles[device];
        int error = handle == nullptr ? functions.create(&handle) : 0;
        Plan plan{};
        plan.handle = handle;
        if (error == 0) error = make(functions, m, n, k, swapped, workspace_bytes, &plan);
        if (error != 0) return static_cast<int>(cudaErrorUnknown);
        found = plans.emplace(key, plan).first;
    }
    const Plan& plan = found->second;
    const float* const first = swapped ? b : a;
    const float* const second = swapped ? a : b;
    const float* const added = beta == 0.0f ? out : c;  // not read where beta is 0
    const int error = functions.multiply(
        plan.handle, plan.product, &alpha, first, plan.first, second, plan.second, &beta, added, plan.result, out,
        plan.result, &plan.chosen, workspace, workspace_bytes, mla::library::queue_of(queue));
    return error == 0 ? 0 : static_cast<int>(cudaErrorUnknown);
}

}  // namespace sgemm_library
