// SPDX-License-Identifier: MIT
#pragma once

namespace emu {

/// State of the process, one of each type. Made at the first use and never destroyed: libraries of kernels register what they
/// hold before this one's constructors have run, if the linker was not told of the dependency, and unregister it at exit, when
/// threads and exit handlers of the program may still launch, free and ask.
template <class State>
State& immortal() {
    static State* const state = new State;
    return *state;
}

}  // namespace emu
