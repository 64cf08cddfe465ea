#include "transfer/packing.h"

#include <algorithm>
#include <cstring>

#include "plan/layout.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace cukern {
namespace {

// Copies what the host has no use for soon. Stores that pass by the caches spare the reading of lines that are
// overwritten as a whole: of what arrives over the link a quarter more a second.
void copy_past_caches(char *to, const char *from, std::size_t bytes) noexcept {
#if defined(__SSE2__)
    constexpr std::size_t kLine = 64;
    constexpr std::size_t kLeast = std::size_t{64} << 10;
    if (bytes >= kLeast) {
        const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
        std::memcpy(to, from, head);
        const std::size_t lines = (bytes - head) / kLine;
        const auto *source = reinterpret_cast<const __m128i *>(from + head);
        auto *target = reinterpret_cast<__m128i *>(to + head);
        for (std::size_t i = 0; i < lines; ++i, source += 4, target += 4)
            for (int j = 0; j < 4; ++j) _mm_stream_si128(target + j, _mm_loadu_si128(source + j));
        _mm_sfence();
        const std::size_t done = head + lines * kLine;
        to += done;
        from += done;
        bytes -= done;
    }
#endif
    std::memcpy(to, from, bytes);
}

}  // namespace

Packing::Packing(const TensorView &host) noexcept : piece_(host) {
    std::copy_n(host.shape, host.ndim, lengths_);
    for (int i = 0; i < piece_.ndim; ++i)
        if (piece_.strides[i] == 0 && piece_.shape[i] > 1) piece_.shape[i] = 1;
    const void *first = nullptr;
    dense_ = is_dense(piece_, &first);
    if (!dense_) return;
    offset_ = (static_cast<const char *>(piece_.data) - static_cast<const char *>(first)) / item_size();
    piece_.data = const_cast<void *>(first);
}

void Packing::pack(std::int64_t begin, std::int64_t end, void *to) const noexcept {
    if (dense_)
        std::memcpy(to, address_of(begin), static_cast<std::size_t>((end - begin) * item_size()));
    else
        gather(piece_, begin, end, to);
}

void Packing::unpack(std::int64_t begin, std::int64_t end, const void *from) const noexcept {
    if (dense_)
        copy_past_caches(address_of(begin), static_cast<const char *>(from),
                         static_cast<std::size_t>((end - begin) * item_size()));
    else
        scatter(piece_, begin, end, from);
}

TensorView Packing::at(void *data) const noexcept {
    TensorView view = piece_;
    view.data = static_cast<char *>(data) + offset_ * item_size();
    if (!dense_) set_contiguous(view);
    for (int i = 0; i < view.ndim; ++i) {
        if (view.shape[i] != lengths_[i]) view.strides[i] = 0;
        view.shape[i] = lengths_[i];
    }
    return view;
}

}  // namespace cukern
