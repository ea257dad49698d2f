// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// amd_moe's plan by itself, for test_moe_plan.py: a first product of `columns` tiles of columns, a second one of `others`.
#include "launch.h"

#include "amd_moe/plan.h"

extern "C" int capacity(int rows, int experts, int columns) { return plan_capacity(rows, experts, columns); }

extern "C" int plan(
    int* first_row, int experts, PlannedTile* first, int* first_begin, int columns, PlannedTile* second,
    int* second_begin, int others, int rows, void* queue) {
    Routes routes = {};
    routes.first_row = first_row, routes.experts = experts;
    LAUNCH(plan_tiles, dim3(2 * kDies), dim3(kWaveSize), 0, queue)(
        routes, {first, first_begin, columns, plan_capacity(rows, experts, columns)},
        {second, second_begin, others, plan_capacity(rows, experts, others)});
    return LAUNCH_STATUS();
}
