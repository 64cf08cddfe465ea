// Storage types of the elements that C++17 has no type for. They hold bits: arithmetic is done in wider types,
// reached by the conversions in cuda/src/formulas/convert.cuh.
#pragma once

#include <cstdint>

namespace cukern {

struct Float16 {
    std::uint16_t bits;
};

struct BFloat16 {
    std::uint16_t bits;
};

// Any byte but zero is true, as NumPy reads it.
struct Bool {
    std::uint8_t byte;
};

struct Complex64 {
    float real;
    float imag;
};

struct Complex128 {
    double real;
    double imag;
};

}  // namespace cukern
