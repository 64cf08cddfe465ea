// Copies on the CPU, from memory of out's element type, or of one value.
//
// Idea: elements are words of 1 to 8 bytes, or complex numbers. Where the source is fastest along out's fastest
// dimension, rows are copied. Where it is fastest along another one, strips are: one cache line each of many rows
// of the source, so that a line is read once for all of its elements. Words of up to 4 bytes are transposed in
// registers, in tiles of 16 by 16 bytes.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "host/cache_line.h"
#include "host/kernels.h"
#include "host/loops.h"
#include "host/nontemporal.h"
#include "host/rows.h"
#include "host/thread_pool.h"
#include "host/versions.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace cukern::host {
namespace {

// Whether the processor's own copies (rep movsb, which the C library's memcpy takes for more than 2 KiB) are fast
// for short ones, too ("fast short rep mov").
bool has_fast_copies() noexcept {
#if defined(__x86_64__)
    static const bool found = [] {
        constexpr unsigned kFastShort = 1U << 4;
        unsigned a = 0;
        unsigned b = 0;
        unsigned c = 0;
        unsigned d = 0;
        return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kFastShort) != 0;
    }();
    return found;
#else
    return true;
#endif
}

// From the end to the beginning, where nothing is read that seems to have just been written.
void copy_backwards(char *to, const char *from, std::int64_t bytes) noexcept {
    const std::int64_t head = bytes_to_line(to);
    const std::int64_t lines = (bytes - head) / kLine;
    const std::int64_t done = head + lines * kLine;
    std::memcpy(to + done, from + done, static_cast<std::size_t>(bytes - done));
    run_by_vectors([to = to + head, from = from + head, lines] {
        for (std::int64_t i = lines - 1; i >= 0; --i) {
            std::uint64_t line[kLine / 8];  // all of which is loaded before any of it is stored
            std::memcpy(line, from + i * kLine, kLine);
            std::memcpy(to + i * kLine, line, kLine);
        }
    });
    std::memcpy(to, from, static_cast<std::size_t>(head));
}

// On processors without fast short copies, memcpy is half as fast as a loop of vectors between these sizes; NumPy
// has such a loop for bytes. On those that have them the loop took up to 1.3 times as long, and twice as long
// where addresses were aligned differently.
void copy_packed(char *to, const char *from, std::int64_t bytes) noexcept {
    constexpr std::int64_t kLeast = 2 << 10;
    constexpr std::int64_t kMost = 1 << 20;
    constexpr std::uintptr_t kCloseBytes = 1024;
    if (from == to) return;
    if (bytes >= kLeast && seems_to_overlap(to, from, kCloseBytes)) return copy_backwards(to, from, bytes);
    if (bytes >= kLeast && bytes < kMost && !has_fast_copies())
        if (const HostLoop loop = loop_of(Op::conj, ElementType::int8); loop.function != nullptr) {
            char *data[] = {const_cast<char *>(from), to};
            const std::intptr_t strides[] = {1, 1};
            const std::intptr_t count = bytes;
            loop.function(data, &count, strides, loop.context);
            return;
        }
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

constexpr std::int64_t kFewBytes = 256;  // which take less time than the choice of a vector's width

template <typename W>
void fill(W *to, const W &value, std::int64_t n) noexcept {
    if constexpr (sizeof(W) == 1) {
        std::memset(to, value, static_cast<std::size_t>(n));
    } else if constexpr (std::is_integral_v<W>) {
        const auto fill_all = [to, value, n] { std::fill_n(to, n, value); };
        constexpr auto kFew = kFewBytes / static_cast<std::int64_t>(sizeof(W));
        n < kFew ? fill_all() : run_by_vectors(fill_all);
    } else {  // a line of the cache at a time, which the compiler makes vectors of
        constexpr std::int64_t kInLine = kLine / static_cast<std::int64_t>(sizeof(W));
        W line[kInLine];
        std::fill_n(line, kInLine, value);
        for (; n >= kInLine; n -= kInLine, to += kInLine) std::memcpy(to, line, sizeof line);
        std::fill_n(to, n, value);
    }
}

using PackedStep = std::integral_constant<std::int64_t, 1>;

// Four at a time: a loop of one copy each takes twice as long on some processors.
template <typename W, typename FromStep, typename ToStep>
void copy_steps(const W *from, FromStep from_step, W *to, ToStep to_step, std::int64_t n) noexcept {
    for (; n >= 4; n -= 4, from += 4 * from_step, to += 4 * to_step) {
        const W words[] = {from[0], from[from_step], from[2 * from_step], from[3 * from_step]};
        for (int i = 0; i < 4; ++i) to[i * to_step] = words[i];
    }
    for (std::int64_t i = 0; i < n; ++i) to[i * to_step] = from[i * from_step];
}

// Calls run with the function that copies n words from a row to another one, made for these steps, which are in
// words. Those that have loops of vectors are spelled out.
template <typename W, typename Run>
void with_row_copy(std::int64_t from_step, std::int64_t to_step, const Run &run) noexcept {
    constexpr auto kSize = static_cast<std::int64_t>(sizeof(W));
    if (to_step == 1 && from_step == 1)
        return run([](const W *from, W *to, std::int64_t n) noexcept {
            copy_packed(reinterpret_cast<char *>(to), reinterpret_cast<const char *>(from), n * kSize);
        });
    if (to_step == 1 && from_step == 0)
        return run([](const W *from, W *to, std::int64_t n) noexcept { fill(to, *from, n); });
    if (to_step == 1 && from_step == -1 && kSize <= 8)
        return run([](const W *from, W *to, std::int64_t n) noexcept {
            run_by_vectors([from, to, n] {  // complex numbers as what they lie in, too
                for (std::int64_t i = 0; i < n; ++i) std::memcpy(to + i, from - i, sizeof(W));
            });
        });
    if constexpr (std::is_integral_v<W>) {
        if (to_step == 1 && from_step == 2 && kSize < 8)
            return run([](const W *from, W *to, std::int64_t n) noexcept {
                for (std::int64_t i = 0; i < n; ++i) to[i] = from[2 * i];
            });
        if (from_step == 1)
            return run([to_step](const W *from, W *to, std::int64_t n) noexcept {
                copy_steps(from, PackedStep(), to, to_step, n);
            });
        if (to_step == 1)
            return run([from_step](const W *from, W *to, std::int64_t n) noexcept {
                copy_steps(from, from_step, to, PackedStep(), n);
            });
    }
    run([from_step, to_step](const W *from, W *to, std::int64_t n) noexcept {
        copy_steps(from, from_step, to, to_step, n);
    });
}

// Words of a tile's row.
constexpr int tile_of(int bytes) noexcept { return bytes <= 4 ? 16 / bytes : 1; }
template <typename W>
constexpr int kTile = tile_of(static_cast<int>(sizeof(W)));

#if defined(__SSE2__)
template <typename W>
__m128i low_halves(__m128i a, __m128i b) noexcept {
    if constexpr (sizeof(W) == 1) return _mm_unpacklo_epi8(a, b);
    if constexpr (sizeof(W) == 2) return _mm_unpacklo_epi16(a, b);
    return _mm_unpacklo_epi32(a, b);
}
template <typename W>
__m128i high_halves(__m128i a, __m128i b) noexcept {
    if constexpr (sizeof(W) == 1) return _mm_unpackhi_epi8(a, b);
    if constexpr (sizeof(W) == 2) return _mm_unpackhi_epi16(a, b);
    return _mm_unpackhi_epi32(a, b);
}
#endif

// Word j of row i becomes word i of row j. To interleave the first half of all words with the second rotates the
// bits of a word's place; as many times as a row's place has bits, it swaps row and column.
template <typename W>
void transpose_tile(const W *from, std::int64_t from_pitch, W *to, std::int64_t to_pitch) noexcept {
    constexpr int kN = kTile<W>;
#if defined(__SSE2__)
    if constexpr (kN > 1) {
        __m128i rows[kN];
        for (int i = 0; i < kN; ++i)
            rows[i] = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from + i * from_pitch));
        for (int bits = 1; bits < kN; bits *= 2) {
            __m128i next[kN];
            for (int i = 0; i < kN / 2; ++i) {
                next[2 * i] = low_halves<W>(rows[i], rows[i + kN / 2]);
                next[2 * i + 1] = high_halves<W>(rows[i], rows[i + kN / 2]);
            }
            for (int i = 0; i < kN; ++i) rows[i] = next[i];
        }
        for (int j = 0; j < kN; ++j) _mm_storeu_si128(reinterpret_cast<__m128i *>(to + j * to_pitch), rows[j]);
        return;
    }
#endif
    for (int j = 0; j < kN; ++j)
        for (int i = 0; i < kN; ++i) to[j * to_pitch + i] = from[i * from_pitch + j];
}

// What of a plane is copied at a time: `length` places along out's fastest dimension by `width` along the
// source's.
struct Strip {
    std::int64_t length, width;
    std::int64_t from_along, from_across;
    std::int64_t to_along, to_across;
};

// Out's lines one after the other.
template <typename W>
void copy_places(const Strip &strip, const W *from, W *to, std::int64_t length, std::int64_t width) noexcept {
    for (std::int64_t j = 0; j < width; ++j, from += strip.from_across, to += strip.to_across)
        copy_steps(from, strip.from_along, to, strip.to_along, length);
}

template <typename W>
void copy_strip(const Strip &strip, const W *from, W *to) noexcept {
    if constexpr (kTile<W> == 1) {
        copy_places(strip, from, to, strip.length, strip.width);
    } else {
        if (strip.from_across != 1 || strip.to_along != 1)
            return copy_places(strip, from, to, strip.length, strip.width);
        constexpr std::int64_t kN = kTile<W>;
        const std::int64_t width = strip.width - strip.width % kN;
        const std::int64_t length = strip.length - strip.length % kN;
        for (std::int64_t i = 0; i < length; i += kN)
            for (std::int64_t j = 0; j < width; j += kN)
                transpose_tile(from + i * strip.from_along + j, strip.from_along, to + i + j * strip.to_across,
                               strip.to_across);
        copy_places(strip, from + width, to + width * strip.to_across, length, strip.width - width);
        copy_places(strip, from + length * strip.from_along, to + length, strip.length - length, strip.width);
    }
}

constexpr std::int64_t kStripBytes = 64;    // of the source's lines
constexpr std::int64_t kStripLength = 512;  // lines, each of a page of its own: the TLB has more entries

// The dimension along which the source is fastest, where strips pay; -1 where rows do.
int fastest_of_source(const ElementwiseLaunch &launch) noexcept {
    const std::int64_t tile = tile_of(size_of(launch.types[0]));
    const int last = launch.ndim - 1;
    const auto step = [&](int d) { return std::abs(launch.strides[1][d]); };
    if (launch.immediate[1] || step(last) == 0) return -1;
    int fastest = last;
    for (int d = 0; d < last; ++d)
        if (step(d) != 0 && step(d) < step(fastest)) fastest = d;
    return fastest != last && launch.shape[fastest] >= tile && launch.shape[last] >= tile ? fastest : -1;
}

// How a copy is cut into strips: planes of the two dimensions, parts of their length, strips of their width.
struct Cut {
    Cut(const ElementwiseLaunch &launch, int across_, std::int64_t width_) noexcept
        : across(across_),
          last(launch.ndim - 1),
          width(width_),
          strips((launch.shape[across] - 1) / width + 1),
          parts((launch.shape[last] - 1) / kStripLength + 1),
          count(launch.count / launch.shape[across] / launch.shape[last] * parts * strips) {}

    int across;
    int last;
    std::int64_t width;
    std::int64_t strips;
    std::int64_t parts;
    std::int64_t count;
};

template <typename W>
void copy_one_strip(const ElementwiseLaunch &launch, const Cut &cut, std::int64_t number) noexcept {
    const std::int64_t *from_strides = launch.strides[1];
    const std::int64_t *to_strides = launch.strides[0];
    const std::int64_t j = number % cut.strips * cut.width;
    const std::int64_t i = number / cut.strips % cut.parts * kStripLength;
    const Strip strip{std::min(kStripLength, launch.shape[cut.last] - i),
                      std::min(cut.width, launch.shape[cut.across] - j),
                      from_strides[cut.last],
                      from_strides[cut.across],
                      to_strides[cut.last],
                      to_strides[cut.across]};
    std::int64_t from = i * strip.from_along + j * strip.from_across;
    std::int64_t to = i * strip.to_along + j * strip.to_across;
    std::int64_t plane = number / cut.strips / cut.parts;
    for (int d = cut.last - 1; d >= 0; --d) {
        if (d == cut.across) continue;
        from += plane % launch.shape[d] * from_strides[d];
        to += plane % launch.shape[d] * to_strides[d];
        plane /= launch.shape[d];
    }
    copy_strip(strip, static_cast<const W *>(launch.data[1]) + from, static_cast<W *>(launch.data[0]) + to);
}

template <typename W>
void copy_in_strips(const ElementwiseLaunch &launch, int across, std::int64_t grain) noexcept {
    const Cut cut(launch, across, kStripBytes / static_cast<std::int64_t>(sizeof(W)));
    parallel_for(cut.count, std::max<std::int64_t>(1, grain * cut.count / launch.count),
                 [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t number = begin; number < end; ++number)
                         copy_one_strip<W>(launch, cut, number);
                 });
}

template <typename W>
void copy_words(const ElementwiseLaunch &launch, std::int64_t grain) noexcept {
    if (const int across = fastest_of_source(launch); across >= 0) return copy_in_strips<W>(launch, across, grain);
    const std::int64_t from_step = launch.immediate[1] ? 0 : launch.strides[1][launch.ndim - 1];
    const std::int64_t to_step = launch.strides[0][launch.ndim - 1];
    // `copy` is inlined: a call for each row is half of the time of short ones.
    const auto run = [&launch, grain](auto copy) {
        parallel_for(launch.count, grain, [&](std::int64_t begin, std::int64_t end) {
            run_rows(launch, std::integral_constant<int, 2>{}, begin, end,
                     [=](char **data, std::int64_t n, const std::intptr_t *) {
                         copy(reinterpret_cast<const W *>(data[0]), reinterpret_cast<W *>(data[1]), n);
                     });
        });
    };
    if (from_step != 1 || to_step != 1 || !stores_past_caches(launch))
        return with_row_copy<W>(from_step, to_step, run);
    parallel_for(launch.count, grain, [&](std::int64_t begin, std::int64_t end) {
        run_rows(launch, std::integral_constant<int, 2>{}, begin, end,
                 [](char **data, std::int64_t n, const std::intptr_t *) {
                     copy_past_caches(data[1], data[0], n * static_cast<std::int64_t>(sizeof(W)));
                 });
        finish_stores();
    });
}

}  // namespace

bool is_copied_in_strips(const ElementwiseLaunch &launch) noexcept {
    return launch.op == Op::copy && launch.types[0] == launch.types[1] && fastest_of_source(launch) >= 0;
}

void run_copy(const ElementwiseLaunch &launch, std::int64_t grain) noexcept {
    if (launch.types[0] == ElementType::complex128) return copy_words<Complex128>(launch, grain);
    if (launch.types[0] == ElementType::complex64) return copy_words<Complex64>(launch, grain);
    switch (size_of(launch.types[0])) {
        case 1: return copy_words<std::uint8_t>(launch, grain);
        case 2: return copy_words<std::uint16_t>(launch, grain);
        case 4: return copy_words<std::uint32_t>(launch, grain);
        default: return copy_words<std::uint64_t>(launch, grain);
    }
}

}  // namespace cukern::host
