// Functions of float32 to some units in the last place, in few instructions: parts of others that allow for that
// error.
#pragma once

#include <cmath>
#include <limits>

#include "formulas/convert.cuh"

namespace cukern::float_math {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// To 2 units in the last place, in a few instructions, where b is from 2**-126 to 2**126.
CUKERN_HD float rough_quotient(float a, float b) {
#ifdef __CUDA_ARCH__
    return __fdividef(a, b);
#else
    return a / b;
#endif
}

// 1 / b to 1 unit, where b is from 2**-126 to 2**126.
CUKERN_HD float rough_inverse(float b) {
#ifdef __CUDA_ARCH__
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
    return inverse;
#else
    return 1 / b;
#endif
}

// A root to some units, of a normal number.
CUKERN_HD float rough_root(float a) {
#ifdef __CUDA_ARCH__
    float root;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(a));
    return root;
#else
    return std::sqrt(a);
#endif
}

// One over the root of a normal number.
CUKERN_HD float rough_inverse_root(float a) {
#ifdef __CUDA_ARCH__
    float inverse;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(a));
    return inverse;
#else
    return 1 / std::sqrt(a);
#endif
}

// 2**x, and the logarithm of a normal number to base 2, to 2**-22 or some units.
CUKERN_HD float rough_exp2(float x) {
#ifdef __CUDA_ARCH__
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
#else
    return std::exp2(x);
#endif
}
CUKERN_HD float rough_log2(float x) {
#ifdef __CUDA_ARCH__
    float logarithm;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(logarithm) : "f"(x));
    return logarithm;
#else
    return std::log2(x);
#endif
}

// atan2, to some 6 units in the last place: the polynomial interpolates atan(q) / q. `q`: the smaller modulus of x
// and y over the larger one.
CUKERN_HD float rough_angle(float q, float y, float x) {
    const float square = q * q;
    float p = 0.00276628346F;
    p = std::fma(p, square, -0.015731249F);
    p = std::fma(p, square, 0.0421376228F);
    p = std::fma(p, square, -0.0745685473F);
    p = std::fma(p, square, 0.106183708F);
    p = std::fma(p, square, -0.141977981F);
    p = std::fma(p, square, 0.199918717F);
    p = std::fma(p, square, -0.333330363F);
    float found = std::fma(p * square, q, q);
    constexpr float kHalfPi = 1.57079637F;
    constexpr float kHalfPiRest = -4.37113883e-8F;
    if (std::abs(x) < std::abs(y)) found = (kHalfPi - found) + kHalfPiRest;
    if (std::copysign(1.0F, x) < 0) found = (2 * kHalfPi - found) + 2 * kHalfPiRest;
    return x != x || y != y ? x + y : std::copysign(found, y);
}
CUKERN_HD float rough_angle(float y, float x) {
    const float u = std::abs(x);
    const float v = std::abs(y);
    const float larger = u < v ? v : u;
    const float smaller = u < v ? u : v;
    const float scale = larger > 0x1p100F ? 0x1p-60F : larger < 0x1p-60F ? 0x1p60F : 1;
    const float q = smaller * scale * rough_inverse(std::fmax(larger * scale, 0x1p-100F));
    return rough_angle(smaller == kInfinity ? 1 : q, y, x);
}

}  // namespace cukern::float_math
