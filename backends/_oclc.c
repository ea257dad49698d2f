// SPDX-License-Identifier: MIT
// The control constants that ocml and ockl read. ROCm ships one bitcode file for each value; without ROCm this file
// stands in for them. Compiled for the device, linked as builtin bitcode, then folded away by the optimiser.
// Names, types and meaning: ROCm device libraries, doc/OCML.md ("Controls") and doc/OCKL.md.
#define CONTROL __attribute__((address_space(4))) const

CONTROL int __oclc_ISA_version = WARPWAVE_ISA_VERSION;  // gfx942: 9402
CONTROL int __oclc_ABI_version = 600;                   // code object version 6, clang's default
CONTROL unsigned char __oclc_wavefrontsize64 = 1;
CONTROL unsigned char __oclc_finite_only_opt = 0;  // no fast-math: NaN and infinity count
CONTROL unsigned char __oclc_unsafe_math_opt = 0;
CONTROL unsigned char __oclc_daz_opt = 0;                   // denormals are kept
CONTROL unsigned char __oclc_correctly_rounded_sqrt32 = 1;  // as hipcc sets it by default
