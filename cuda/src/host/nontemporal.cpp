#include "host/nontemporal.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "host/cache_line.h"

namespace cukern::host {
namespace {

constexpr std::int64_t kLeastBytes = 16 << 20;  // of results
constexpr std::intptr_t kBlockBytes = 4096;     // of results in the buffer
constexpr std::uintptr_t kCloseBytes = 128;     // which a copy reads before its stores leave the processor
constexpr std::intptr_t kLeastRun = 512;        // bytes of results for which a call is worth cutting

#if defined(__x86_64__)

bool has_avx512() noexcept { return __builtin_cpu_supports("avx512f") != 0; }

// The first line, and the step to the next one.
[[gnu::target("avx512f")]] void store_lines_by_avx512(char *to, const char *from, std::intptr_t step,
                                                      std::intptr_t lines) noexcept {
    for (; lines > 0; --lines, to += step, from += step)
        _mm512_stream_si512(reinterpret_cast<__m512i *>(to), _mm512_loadu_si512(from));
}

// To an address at a line.
void store_lines(char *to, const char *from, std::intptr_t lines) noexcept {
    std::intptr_t step = kLine;
    if (seems_to_overlap(to, from, kCloseBytes)) {
        step = -kLine;
        to += (lines - 1) * kLine;
        from += (lines - 1) * kLine;
    }
    if (has_avx512()) return store_lines_by_avx512(to, from, step, lines);
    constexpr int kVectors = kLine / 16;
    for (; lines > 0; --lines, to += step, from += step) {
        __m128i line[kVectors];  // all of which is loaded before any of it is stored
        for (int i = 0; i < kVectors; ++i) line[i] = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from) + i);
        for (int i = 0; i < kVectors; ++i) _mm_stream_si128(reinterpret_cast<__m128i *>(to) + i, line[i]);
    }
}

// By reference: vectors that the build's processor lacks are not passed.
template <Op op, typename V>
[[gnu::always_inline]] inline void compute(V &a, const V &b) noexcept {
    if constexpr (op == Op::add) a += b;
    if constexpr (op == Op::subtract) a -= b;
    if constexpr (op == Op::multiply) a *= b;
    if constexpr (op == Op::divide) a /= b;
}

// Whole lines of results, to an address at a line. Operands are packed, or one value for all elements.
template <Op op, typename T>
[[gnu::target("avx512f")]] void compute_lines_by_avx512(char *const *data, const std::intptr_t *steps,
                                                        std::intptr_t lines) noexcept {
    typedef T V __attribute__((vector_size(64)));
    const char *a = data[0];
    const char *b = data[1];
    char *out = data[2];
    for (; lines > 0; --lines, a += steps[0], b += steps[1], out += kLine) {
        V x;
        V y;
        std::memcpy(&x, a, sizeof x);
        std::memcpy(&y, b, sizeof y);
        compute<op>(x, y);
        _mm512_stream_si512(reinterpret_cast<__m512i *>(out), reinterpret_cast<__m512i>(x));
    }
}

template <Op op, typename T>
void compute_lines_by_sse2(char *const *data, const std::intptr_t *steps, std::intptr_t lines) noexcept {
    typedef T V __attribute__((vector_size(16)));
    const char *a = data[0];
    const char *b = data[1];
    char *out = data[2];
    for (; lines > 0; --lines, a += steps[0], b += steps[1])
        for (int i = 0; i < kLine; i += 16, out += 16) {
            V x;
            V y;
            std::memcpy(&x, a + i, sizeof x);
            std::memcpy(&y, b + i, sizeof y);
            compute<op>(x, y);
            _mm_stream_si128(reinterpret_cast<__m128i *>(out), reinterpret_cast<__m128i>(x));
        }
}

// In the form of NumPy's loops, of whole lines.
template <Op op, typename T>
void compute_lines(char **data, const std::intptr_t *count, const std::intptr_t *strides, void *) {
    constexpr std::intptr_t kElements = kLine / static_cast<std::intptr_t>(sizeof(T));
    T values[2][kElements];
    char *operands[] = {data[0], data[1], data[2]};
    std::intptr_t steps[2];
    for (int i = 0; i < 2; ++i) {
        steps[i] = strides[i] == 0 ? 0 : kLine;
        if (strides[i] != 0) continue;
        T value;
        std::memcpy(&value, data[i], sizeof value);
        std::fill_n(values[i], kElements, value);
        operands[i] = reinterpret_cast<char *>(values[i]);
    }
    if (has_avx512())
        compute_lines_by_avx512<op, T>(operands, steps, *count / kElements);
    else
        compute_lines_by_sse2<op, T>(operands, steps, *count / kElements);
}

template <typename T>
LoopFunction direct_of(Op op) noexcept {
    switch (op) {
        case Op::add: return compute_lines<Op::add, T>;
        case Op::subtract: return compute_lines<Op::subtract, T>;
        case Op::multiply: return compute_lines<Op::multiply, T>;
        case Op::divide: return compute_lines<Op::divide, T>;
        default: return nullptr;
    }
}

LoopFunction direct_of(const ElementwiseLaunch &launch) noexcept {
    for (int i = 1; i < launch.num_operands; ++i)
        if (!launch.immediate[i] && launch.types[i] != launch.result) return nullptr;
    if (launch.compute != launch.result || launch.types[0] != launch.result) return nullptr;
    if (launch.result == ElementType::float32) return direct_of<float>(launch.op);
    return launch.result == ElementType::float64 ? direct_of<double>(launch.op) : nullptr;
}

bool is_flat(const ElementwiseLaunch &launch) noexcept {
    std::int64_t stride = 1;
    for (int d = launch.ndim - 1; d >= 0; --d) {
        if (launch.strides[0][d] != stride) return false;
        stride *= launch.shape[d];
    }
    return true;
}

#else

void store_lines(char *to, const char *from, std::intptr_t lines) noexcept {
    std::memcpy(to, from, static_cast<std::size_t>(lines * kLine));
}
LoopFunction direct_of(const ElementwiseLaunch &) noexcept { return nullptr; }

#endif

}  // namespace

#if defined(__x86_64__)
bool stores_past_caches(const ElementwiseLaunch &launch) noexcept {
    if (launch.count * size_of(launch.types[0]) < kLeastBytes || !is_flat(launch)) return false;
    for (int i = 1; i < launch.num_operands; ++i)
        if (!launch.immediate[i] && launch.data[i] == launch.data[0]) return false;
    return true;
}

void finish_stores() noexcept { _mm_sfence(); }
#else
bool stores_past_caches(const ElementwiseLaunch &) noexcept { return false; }

void finish_stores() noexcept {}
#endif

void copy_past_caches(char *to, const char *from, std::int64_t bytes) noexcept {
    const std::int64_t head = bytes < kLeastRun ? bytes : bytes_to_line(to);
    const std::int64_t lines = (bytes - head) / kLine;
    const std::int64_t done = head + lines * kLine;
    std::memcpy(to, from, static_cast<std::size_t>(head));
    store_lines(to + head, from + head, lines);
    std::memcpy(to + done, from + done, static_cast<std::size_t>(bytes - done));
}

NontemporalLoop::NontemporalLoop(const ElementwiseLaunch &launch, const HostLoop &loop) noexcept
    : loop_(loop),
      num_inputs_(launch.num_operands - 1),
      size_(size_of(launch.types[0])),
      begin_(static_cast<const char *>(launch.data[0])),
      end_(begin_ + launch.count * size_),
      direct_(direct_of(launch)) {}

void NontemporalLoop::run(char **data, const std::intptr_t *count, const std::intptr_t *strides,
                          void *self) noexcept {
    const auto &own = *static_cast<const NontemporalLoop *>(self);
    const int last = own.num_inputs_;
    const bool is_result = data[last] >= own.begin_ && data[last] < own.end_;  // not another buffer
    if (!is_result || strides[last] != own.size_ || *count * own.size_ < kLeastRun ||
        bytes_to_line(data[last]) % own.size_ != 0) {
        own.loop_.function(data, count, strides, own.loop_.context);
        return;
    }
    char *at[kMaxOperands];
    std::copy_n(data, last + 1, at);
    const auto advance = [&](std::intptr_t n) {
        for (int i = 0; i <= last; ++i) at[i] += n * strides[i];
    };
    const auto compute = [&](std::intptr_t n) {
        own.loop_.function(at, &n, strides, own.loop_.context);
        advance(n);
    };
    const std::intptr_t head = bytes_to_line(at[last]) / own.size_;  // elements, to the next line
    if (head > 0) compute(head);
    std::intptr_t left = *count - head;
    const std::intptr_t in_lines = left - left % (kLine / own.size_);
    bool is_direct = own.direct_ != nullptr;
    for (int i = 0; i < last; ++i) is_direct = is_direct && (strides[i] == own.size_ || strides[i] == 0);
    if (is_direct) {
        own.direct_(at, &in_lines, strides, nullptr);
        advance(in_lines);
    } else {
        alignas(kLine) char buffer[kBlockBytes];
        for (std::intptr_t done = 0; done < in_lines;) {
            const std::intptr_t n = std::min(in_lines - done, kBlockBytes / own.size_);
            char *const out = at[last];
            at[last] = buffer;
            own.loop_.function(at, &n, strides, own.loop_.context);
            at[last] = out;
            store_lines(out, buffer, n * own.size_ / kLine);
            advance(n);
            done += n;
        }
    }
    left -= in_lines;
    if (left > 0) compute(left);
}

}  // namespace cukern::host
