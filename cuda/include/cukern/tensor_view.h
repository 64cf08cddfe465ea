// A borrowed view of an array's memory: what the extension makes of an operand, and what operations take.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cukern/element_type.h"

namespace cukern {

constexpr int kMaxDims = 64;  // NumPy's own limit

// One element by value: a Python scalar or a zero-dimensional host array never needs memory on the device.
struct Immediate {
    alignas(16) unsigned char bytes[16];
};

// Strides are in elements. The arrays beyond `ndim` are not initialised.
struct TensorView {
    void *data = nullptr;
    ElementType type = ElementType::float32;
    bool immediate = false;  // the value is in `value`; data is null and ndim 0
    int ndim = 0;
    std::int64_t shape[kMaxDims];
    std::int64_t strides[kMaxDims];
    Immediate value{};

    TensorView() noexcept {}  // NOLINT(modernize-use-equals-default): shape and strides stay uninitialised
    TensorView(const TensorView &other) noexcept { *this = other; }
    // Copies the dimensions that there are: a kilobyte less than all.
    TensorView &operator=(const TensorView &other) noexcept {
        if (this == &other) return *this;
        data = other.data;
        type = other.type;
        immediate = other.immediate;
        ndim = other.ndim;
        for (int i = 0; i < ndim; ++i) {
            shape[i] = other.shape[i];
            strides[i] = other.strides[i];
        }
        value = other.value;
        return *this;
    }
};

// Number of elements; shapes are checked for overflow where views are made.
inline std::int64_t count_of(const TensorView &view) {
    std::int64_t count = 1;
    for (int i = 0; i < view.ndim; ++i) count *= view.shape[i];
    return count;
}

inline std::int64_t bytes_of(const TensorView &view) { return count_of(view) * size_of(view.type); }

// Whether the elements lie in C order without gaps.
inline bool is_packed(const TensorView &view) {
    std::int64_t stride = 1;
    for (int i = view.ndim - 1; i >= 0; --i) {
        if (view.shape[i] != 1 && view.strides[i] != stride) return false;
        stride *= view.shape[i];
    }
    return true;
}

// Fills in C-contiguous strides.
inline void set_contiguous(TensorView &view) {
    std::int64_t stride = 1;
    for (int i = view.ndim - 1; i >= 0; --i) {
        view.strides[i] = stride;
        // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): ndim lengths are initialised
        stride *= view.shape[i] > 0 ? view.shape[i] : 1;
    }
}

// Computes a shape's size in bytes; false on overflow or a negative length. Zero lengths count as one, as
// in NumPy, so that strides never overflow.
bool checked_bytes(const std::int64_t *shape, int ndim, int item_size, std::int64_t *bytes) noexcept;

}  // namespace cukern
