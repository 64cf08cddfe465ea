// Idea: an element is true if one of its bits is set, but for the sign of a float. So elements are words, whatever
// their type, and their truth is a mask and a comparison with 0, which vectorise.
#include "host/truths.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "formulas/reducers.cuh"
#include "host/versions.h"

namespace cukern::host {
namespace {

constexpr int kMostBits = 256;  // longer vectors do not read memory faster

// Element i of those from here on, which need not be aligned; one of several words is true if one of them is.
template <typename Word, int words>
Word bits_of(const char *from, std::int64_t i, Word mask) noexcept {
    Word bits = 0;
    for (int w = 0; w < words; ++w) {
        Word word;
        std::memcpy(&word, from + (i * words + w) * static_cast<std::int64_t>(sizeof(Word)), sizeof(Word));
        bits = static_cast<Word>(bits | (word & mask));
    }
    return bits;
}

// The loops of both are unrolled: one of five instructions took twice as long where it crossed a line of the cache
// of instructions.
template <typename Word, int words>
std::uint8_t find_nonzero(const char *from, std::int64_t n, std::uint64_t given) noexcept {
    Word all_bits = 0;
    run_by_vectors<kMostBits>([&all_bits, from, n, mask = static_cast<Word>(given)] {
        Word found = 0;
#pragma GCC unroll 4
        for (std::int64_t i = 0; i < n; ++i)
            found = static_cast<Word>(found | bits_of<Word, words>(from, i, mask));
        all_bits = found;
    });
    return all_bits != 0 ? Reducer<Op::any, Bool>::kNonzero : 0;
}

template <typename Word, int words>
std::uint8_t find_zero(const char *from, std::int64_t n, std::uint64_t given) noexcept {
    bool has_zero = false;
    run_by_vectors<kMostBits>([&has_zero, from, n, mask = static_cast<Word>(given)] {
        if constexpr (sizeof(Word) < 8) {
            auto least = static_cast<Word>(~Word{0});
#pragma GCC unroll 4
            for (std::int64_t i = 0; i < n; ++i) least = std::min(least, bits_of<Word, words>(from, i, mask));
            has_zero = least == 0;
        } else {  // AVX2 has no minimum of 64 bits
            Word found = 0;
#pragma GCC unroll 4
            for (std::int64_t i = 0; i < n; ++i)
                found |= bits_of<Word, words>(from, i, mask) == 0 ? Word{1} : Word{0};
            has_zero = found != 0;
        }
    });
    return has_zero ? Reducer<Op::any, Bool>::kZero : 0;
}

template <typename Word, int words>
void truths_of(const char *from, std::int64_t stride, std::uint64_t given, Bool *to, std::int64_t n) noexcept {
    const auto mask = static_cast<Word>(given);
    const auto truth = [from, mask](std::int64_t i) {
        return Bool{static_cast<std::uint8_t>(bits_of<Word, words>(from, i, mask) != 0 ? 1 : 0)};
    };
    if (stride != 1) {
        for (std::int64_t i = 0; i < n; ++i) to[i] = truth(i * stride);
        return;
    }
    run_by_vectors<kMostBits>([truth, to, n] {
        for (std::int64_t i = 0; i < n; ++i) to[i] = truth(i);
    });
}

// All bits but the signs of floats.
constexpr std::uint64_t mask_of(ElementType type) noexcept {
    const bool is_float = is_floating(type) || kind_of(type) == 'c';
    if (!is_float) return ~std::uint64_t{0};
    if (size_of(type) == 2) return 0x7fff;
    const bool has_short_parts = type == ElementType::float32 || type == ElementType::complex64;
    return has_short_parts ? 0x7fffffff7fffffff : ~std::uint64_t{0} >> 1;
}

// Calls function(a word of elements of a type, constant of how many they have).
template <typename Function>
auto with_words(ElementType type, const Function &function) noexcept {
    using One = std::integral_constant<int, 1>;
    switch (size_of(type)) {
        case 1: return function(std::uint8_t{}, One());
        case 2: return function(std::uint16_t{}, One());
        case 4: return function(std::uint32_t{}, One());
        case 8: return function(std::uint64_t{}, One());
        default: return function(std::uint64_t{}, std::integral_constant<int, 2>());
    }
}

}  // namespace

DecidingKind deciding_kind(ElementType type, Op asked) noexcept {
    return with_words(type, [type, asked](auto word, auto words) -> DecidingKind {
        using Word = decltype(word);
        return {asked == Op::any ? find_nonzero<Word, words.value> : find_zero<Word, words.value>, mask_of(type)};
    });
}

void load_truths(ElementType type, const char *from, std::int64_t stride, Bool *to, std::int64_t n) noexcept {
    with_words(type, [&](auto word, auto words) {
        truths_of<decltype(word), words.value>(from, stride, mask_of(type), to, n);
    });
}

}  // namespace cukern::host
