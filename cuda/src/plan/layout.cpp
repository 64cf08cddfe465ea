#include "plan/layout.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace cukern {

bool checked_bytes(const std::int64_t *shape, int ndim, int item_size, std::int64_t *bytes) noexcept {
    std::int64_t padded = item_size;  // zero lengths counted as one
    bool empty = false;
    for (int i = 0; i < ndim; ++i) {
        if (shape[i] < 0) return false;
        if (shape[i] == 0) {
            empty = true;
            continue;
        }
        if (__builtin_mul_overflow(padded, shape[i], &padded)) return false;
    }
    *bytes = empty ? 0 : padded;
    return true;
}

int coalesce_dimensions(std::int64_t *shape, std::int64_t *const *strides, int num_arrays, int ndim) noexcept {
    int left = 0;
    for (int i = 0; i < ndim; ++i) {  // drop lengths of 1; insert the others by falling stride
        if (shape[i] == 1) continue;
        const std::int64_t length = shape[i];
        std::int64_t moved[8];
        for (int a = 0; a < num_arrays; ++a) moved[a] = strides[a][i];
        const auto slower = [&](int j) {  // the moved dimension belongs before dimension j
            for (int a = 0; a < num_arrays; ++a)
                if (std::llabs(moved[a]) != std::llabs(strides[a][j]))
                    return std::llabs(moved[a]) > std::llabs(strides[a][j]);
            return false;
        };
        int at = left++;
        for (; at > 0 && slower(at - 1); --at) {
            shape[at] = shape[at - 1];
            for (int a = 0; a < num_arrays; ++a) strides[a][at] = strides[a][at - 1];
        }
        shape[at] = length;
        for (int a = 0; a < num_arrays; ++a) strides[a][at] = moved[a];
    }
    int merged = 0;
    for (int i = 1; i < left; ++i) {
        bool joins = true;
        for (int a = 0; a < num_arrays; ++a) joins = joins && strides[a][merged] == strides[a][i] * shape[i];
        if (joins) {
            shape[merged] *= shape[i];
        } else {
            ++merged;
            shape[merged] = shape[i];
        }
        for (int a = 0; a < num_arrays; ++a) strides[a][merged] = strides[a][i];
    }
    return left == 0 ? 0 : merged + 1;
}

namespace {

// A view's own shape and strides, reduced for C order: only merging, no reordering.
struct MergedView {
    int ndim = 0;
    std::int64_t shape[kMaxDims];
    std::int64_t strides[kMaxDims];

    explicit MergedView(const TensorView &view) noexcept {
        for (int i = 0; i < view.ndim; ++i) {
            if (view.shape[i] == 1) continue;
            if (ndim > 0 && strides[ndim - 1] == view.strides[i] * view.shape[i]) {
                shape[ndim - 1] *= view.shape[i];
                strides[ndim - 1] = view.strides[i];
            } else {
                shape[ndim] = view.shape[i];
                strides[ndim++] = view.strides[i];
            }
        }
        if (ndim == 0) {
            shape[0] = 1;
            strides[0] = 1;
            ndim = 1;
        }
    }
};

// Calls run(offset, packed index, length) for each run along the last dimension of elements [begin, end).
template <typename Run>
void for_each_run(const MergedView &merged, std::int64_t begin, std::int64_t end, Run run) noexcept {
    std::int64_t index[kMaxDims];
    std::int64_t rest = begin;
    std::int64_t offset = 0;
    for (int i = merged.ndim - 1; i >= 0; --i) {
        index[i] = rest % merged.shape[i];
        rest /= merged.shape[i];
        offset += index[i] * merged.strides[i];
    }
    const int last = merged.ndim - 1;
    for (std::int64_t at = begin; at < end;) {
        std::int64_t length = merged.shape[last] - index[last];
        if (length > end - at) length = end - at;
        run(offset, at - begin, length);
        at += length;
        offset += length * merged.strides[last];
        index[last] += length;
        for (int i = last; i > 0 && index[i] == merged.shape[i]; --i) {
            offset += merged.strides[i - 1] - merged.shape[i] * merged.strides[i];
            index[i] = 0;
            ++index[i - 1];
        }
    }
}

template <typename T>
void copy_strided(T *to, std::int64_t to_stride, const T *from, std::int64_t from_stride,
                  std::int64_t n) noexcept {
    for (std::int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
}

template <typename T>
void gather_as(const TensorView &view, std::int64_t begin, std::int64_t end, void *packed) noexcept {
    const MergedView merged(view);
    const std::int64_t stride = merged.strides[merged.ndim - 1];
    const T *from = static_cast<const T *>(view.data);
    T *to = static_cast<T *>(packed);
    for_each_run(merged, begin, end, [=](std::int64_t offset, std::int64_t at, std::int64_t n) {
        if (stride == 1)
            std::memcpy(to + at, from + offset, static_cast<std::size_t>(n) * sizeof(T));
        else
            copy_strided(to + at, 1, from + offset, stride, n);
    });
}

template <typename T>
void scatter_as(const TensorView &view, std::int64_t begin, std::int64_t end, const void *packed) noexcept {
    const MergedView merged(view);
    const std::int64_t stride = merged.strides[merged.ndim - 1];
    T *to = static_cast<T *>(view.data);
    const T *from = static_cast<const T *>(packed);
    for_each_run(merged, begin, end, [=](std::int64_t offset, std::int64_t at, std::int64_t n) {
        if (stride == 1)
            std::memcpy(to + offset, from + at, static_cast<std::size_t>(n) * sizeof(T));
        else
            copy_strided(to + offset, stride, from + at, 1, n);
    });
}

}  // namespace

void order_of_memory(const std::int64_t *strides, int ndim, int *order) noexcept {
    const auto key = [strides](int d) { return strides[d] == 0 ? INT64_MAX : std::abs(strides[d]); };
    for (int i = 0; i < ndim; ++i) {
        order[i] = i;
        for (int j = i; j > 0 && key(order[j - 1]) < key(order[j]); --j) std::swap(order[j - 1], order[j]);
    }
}

bool is_dense(const TensorView &view, const void **first) noexcept {
    std::int64_t shape[kMaxDims];
    std::int64_t strides[kMaxDims];
    const char *start = static_cast<const char *>(view.data);
    for (int i = 0; i < view.ndim; ++i) {
        shape[i] = view.shape[i];
        strides[i] = view.strides[i];
        if (shape[i] > 1 && strides[i] < 0) {
            start += (shape[i] - 1) * strides[i] * size_of(view.type);
            strides[i] = -strides[i];
        }
    }
    std::int64_t *array[] = {strides};
    const int ndim = coalesce_dimensions(shape, array, 1, view.ndim);
    if (ndim > 1 || (ndim == 1 && strides[0] != 1)) return false;
    *first = start;
    return true;
}

namespace {

// Only the size and the alignment of an element matter here: types that agree in both share one copy loop.
template <typename F>
void with_bits(ElementType type, F f) noexcept {
    switch (bits_of(type)) {
        case ElementType::uint8: return f(std::uint8_t{});
        case ElementType::uint16: return f(std::uint16_t{});
        case ElementType::uint32: return f(std::uint32_t{});
        case ElementType::uint64: return f(std::uint64_t{});
        case ElementType::complex64: return f(Complex64{});
        default: return f(Complex128{});
    }
}

}  // namespace

void gather(const TensorView &view, std::int64_t begin, std::int64_t end, void *packed) noexcept {
    if (begin >= end) return;
    with_bits(view.type, [&](auto element) { gather_as<decltype(element)>(view, begin, end, packed); });
}

void scatter(const TensorView &view, std::int64_t begin, std::int64_t end, const void *packed) noexcept {
    if (begin >= end) return;
    with_bits(view.type, [&](auto element) { scatter_as<decltype(element)>(view, begin, end, packed); });
}

TensorView packed_like(const TensorView &view, ElementType type, void *data) noexcept {
    TensorView packed;
    packed.data = data;
    packed.type = type;
    packed.ndim = view.ndim;
    for (int i = 0; i < view.ndim; ++i) packed.shape[i] = view.shape[i];
    set_contiguous(packed);
    return packed;
}

TensorView part_along(const TensorView &view, int axis, std::int64_t begin, std::int64_t end) noexcept {
    TensorView part = view;
    part.data = static_cast<char *>(view.data) + begin * view.strides[axis] * size_of(view.type);
    part.shape[axis] = end - begin;
    return part;
}

}  // namespace cukern
