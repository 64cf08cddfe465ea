// How the elements of a view in host memory travel: a dense view as one piece of memory that keeps its strides,
// any other packed in C order; of a broadcast dimension one element only.
#pragma once

#include "cukern/tensor_view.h"

namespace cukern {

class Packing {
public:
    explicit Packing(const TensorView &host) noexcept;

    std::int64_t count() const noexcept { return count_of(piece_); }  // of elements that travel
    std::int64_t bytes() const noexcept { return bytes_of(piece_); }
    int item_size() const noexcept { return size_of(piece_.type); }
    bool dense() const noexcept { return dense_; }
    void *first() const noexcept { return piece_.data; }  // the lowest address, of a dense view

    std::int64_t offset_bytes() const noexcept {
        return offset_ * item_size();
    }  // of its first element from there

    // Copy elements [begin, end), in the order in which they travel, between the view and packed memory.
    void pack(std::int64_t begin, std::int64_t end, void *to) const noexcept;
    void unpack(std::int64_t begin, std::int64_t end, const void *from) const noexcept;

    // The view as it is once its elements are at `data`.
    TensorView at(void *data) const noexcept;

private:
    char *address_of(std::int64_t element) const noexcept {
        return static_cast<char *>(piece_.data) + element * item_size();
    }

    TensorView piece_;  // that is copied from; where dense, from its lowest address
    bool dense_;
    std::int64_t offset_ = 0;
    std::int64_t lengths_[kMaxDims];
};

}  // namespace cukern
