// The arrays of a call as kept calls know them: by their layouts.
#pragma once

#include "array/array.h"

#include "cukern/ops.h"

namespace cukern::py {

constexpr int kMostDims = 6;  // of an array whose layout is kept
constexpr int kMostArrays = kMaxInputs + 1;

// An array of a call, be it an Array or another library's tensor.
struct PlainArray {
    void *data;
    ElementType type;
    int ndim;
    const std::int64_t *shape;
    const std::int64_t *strides;  // in elements
};

inline PlainArray plain(Array *array) noexcept {
    return {array->data, array->type, array->ndim, array->shape(), array->strides()};
}

// What the arrays of a call are, but for their addresses: of each its type and dimensions, one after the other, so
// that a comparison touches little memory.
class Layouts {
public:
    void add(const PlainArray &array) noexcept {
        words_[end_++] = kind_of(array);
        for (int i = 0; i < array.ndim; ++i) words_[end_++] = array.shape[i];
        for (int i = 0; i < array.ndim; ++i) words_[end_++] = array.strides[i];
    }
    // Whether the array at `*place` is of this layout; the place is moved to the next.
    bool match(const PlainArray &array, int *place) const noexcept {
        const std::int64_t *words = words_ + *place;
        if (*words++ != kind_of(array)) return false;
        for (int i = 0; i < array.ndim; ++i)
            if (words[i] != array.shape[i] || words[array.ndim + i] != array.strides[i]) return false;
        *place += 1 + 2 * array.ndim;
        return true;
    }
    // The same of the array at `index` among those of the call.
    bool match(const PlainArray &array, int index) const noexcept {
        int place = 0;
        for (; index > 0; --index) place += 1 + 2 * static_cast<int>(words_[place] >> 8);
        return match(array, &place);
    }
    // The first, which is the result.
    ElementType type() const noexcept { return static_cast<ElementType>(words_[0] & 0xFF); }
    int ndim() const noexcept { return static_cast<int>(words_[0] >> 8); }
    const std::int64_t *shape() const noexcept { return words_ + 1; }
    const std::int64_t *strides() const noexcept { return words_ + 1 + ndim(); }
    int behind_first() const noexcept { return 1 + 2 * ndim(); }

private:
    static std::int64_t kind_of(const PlainArray &array) noexcept {
        return static_cast<std::int64_t>(array.type) | static_cast<std::int64_t>(array.ndim) << 8;
    }

    int end_ = 0;
    std::int64_t words_[kMostArrays * (1 + 2 * kMostDims)];
};

// FNV-1a, by words.
inline void hash_into(std::uint64_t *hash, const PlainArray &array) noexcept {
    constexpr std::uint64_t kPrime = 0x100000001B3;
    const auto kind = static_cast<std::uint64_t>(array.type) << 16 | static_cast<std::uint64_t>(array.ndim);
    *hash = (*hash ^ kind) * kPrime;
    for (int i = 0; i < array.ndim; ++i) *hash = (*hash ^ static_cast<std::uint64_t>(array.shape[i])) * kPrime;
    for (int i = 0; i < array.ndim; ++i) *hash = (*hash ^ static_cast<std::uint64_t>(array.strides[i])) * kPrime;
}

inline std::int64_t count_of(const PlainArray &array) noexcept {
    std::int64_t count = 1;
    for (int i = 0; i < array.ndim; ++i) count *= array.shape[i];
    return count;
}

// Packed, with more than one element: torch's negative bit may be set elsewhere (see may_be_negative in
// interop/framework_read.cpp).
inline bool is_surely_plain(const PlainArray &array) noexcept {
    std::int64_t stride = 1;
    for (int i = array.ndim - 1; i >= 0; --i) {
        if (array.strides[i] != stride) return false;
        stride *= array.shape[i];
    }
    return stride > 1 && kind_of(array.type) != 'c';
}

}  // namespace cukern::py
