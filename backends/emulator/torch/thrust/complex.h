// SPDX-License-Identifier: MIT
// thrust::complex as far as torch's headers need it, on top of std::complex. For builds without rocThrust.
#pragma once

#include <complex>
#include <type_traits>

namespace thrust {

template <class T>
struct complex : std::complex<T> {
    using std::complex<T>::complex;
    // A template, so that a class which converts to both kinds of complex numbers converts to this one in one way.
    template <class U, class = std::enable_if_t<std::is_same_v<U, std::complex<T>>>>
    __host__ __device__ complex(U value) : std::complex<T>(value) {}
};

using std::abs;
using std::acos;
using std::acosh;
using std::asin;
using std::asinh;
using std::atan;
using std::atanh;
using std::cos;
using std::cosh;
using std::exp;
using std::log;
using std::log10;
using std::polar;
using std::pow;
using std::sin;
using std::sinh;
using std::sqrt;
using std::tan;
using std::tanh;

}  // namespace thrust
