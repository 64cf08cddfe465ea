// Idea: elements of a byte or two are added up in 32 bits, of which vectors hold more, and before these overflow
// in 64.
#include "host/integer_sums.h"

#include <algorithm>
#include <type_traits>

#include "cukern/scalar_types.h"
#include "host/versions.h"

namespace cukern::host {
namespace {

constexpr int kMostBits = 256;  // longer vectors do not read memory faster

std::int32_t value_of(Bool element) noexcept { return element.byte != 0 ? 1 : 0; }
template <typename T>
T value_of(T element) noexcept {
    return element;
}

template <typename T>
std::uint64_t sum_of(const char *from, std::int64_t n) noexcept {
    using Wide = std::conditional_t<sizeof(T) <= 4, std::int64_t, std::uint64_t>;  // which holds them, or wraps
    using Partial = std::conditional_t<sizeof(T) <= 2, std::int32_t, Wide>;
    constexpr std::int64_t kMost = 1 << 15;  // 65535 as often is less than 2**31
    const auto *elements = reinterpret_cast<const T *>(from);
    std::uint64_t sum = 0;
    for (std::int64_t at = 0; at < n; at += kMost) {
        Partial partial = 0;
        run_by_vectors<kMostBits>([&partial, elements, at, end = std::min(n, at + kMost)] {
            Partial own = 0;
#pragma GCC unroll 4
            for (std::int64_t i = at; i < end; ++i) own += static_cast<Partial>(value_of(elements[i]));
            partial = own;
        });
        sum += static_cast<std::uint64_t>(partial);
    }
    return sum;
}

}  // namespace

IntegerSum integer_sum_of(ElementType type) noexcept {
    switch (type) {
        case ElementType::bool_: return sum_of<Bool>;
        case ElementType::int8: return sum_of<std::int8_t>;
        case ElementType::int16: return sum_of<std::int16_t>;
        case ElementType::int32: return sum_of<std::int32_t>;
        case ElementType::int64:
        case ElementType::uint64: return sum_of<std::uint64_t>;
        case ElementType::uint8: return sum_of<std::uint8_t>;
        case ElementType::uint16: return sum_of<std::uint16_t>;
        case ElementType::uint32: return sum_of<std::uint32_t>;
        default: return nullptr;
    }
}

}  // namespace cukern::host
