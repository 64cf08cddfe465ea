// Python's numbers as arguments of kernels.
#include <cmath>
#include <cstring>

#include "cukern/user_kernels.h"
#include "formulas/convert.cuh"

namespace cukern {
namespace {

template <typename T>
bool store_real(double number, void *to) noexcept {
    const T value = convert<T>(number);
    std::memcpy(to, &value, sizeof value);
    return std::isfinite(convert<double>(value)) || !std::isfinite(number);
}

template <typename T>
bool store_complex(double real, double imaginary, void *to) noexcept {
    auto *const parts = static_cast<unsigned char *>(to);
    const bool real_fits = store_real<T>(real, parts);
    return store_real<T>(imaginary, parts + sizeof(T)) && real_fits;
}

}  // namespace

bool store_number(ElementType type, double real, double imaginary, void *to) noexcept {
    switch (type) {
        case ElementType::float16: return store_real<Float16>(real, to);
        case ElementType::bfloat16: return store_real<BFloat16>(real, to);
        case ElementType::float32: return store_real<float>(real, to);
        case ElementType::complex64: return store_complex<float>(real, imaginary, to);
        case ElementType::complex128: return store_complex<double>(real, imaginary, to);
        default: return store_real<double>(real, to);
    }
}

bool store_integer(std::int64_t number, std::size_t bytes, bool may_be_signed, bool may_be_unsigned,
                   void *to) noexcept {
    const auto bits = static_cast<std::uint64_t>(number);
    const auto shift = static_cast<unsigned>(64 - 8 * bytes);
    const bool fits_signed = number >> (63 - shift) == (number < 0 ? -1 : 0);
    const bool fits_unsigned = number >= 0 && (shift == 0 || bits >> (64 - shift) == 0);
    if (!(may_be_signed && fits_signed) && !(may_be_unsigned && fits_unsigned)) return false;
    std::memcpy(to, &bits, bytes);
    return true;
}

bool is_char(const ParameterType &type) noexcept {
    return type.element == ElementType::int8 && std::strstr(type.text, "signed") == nullptr;
}

}  // namespace cukern
