// Where lines lie, and how their elements come into registers and shared memory, and back.
#pragma once

#include "device/grid.cuh"
#include "device/shuffle.cuh"
#include "device/vector.cuh"

namespace cukern::cuda {

// What elements of integers are stored as: their bytes, the bits above them where they have a sign, and whether
// all but 0 are 1.
struct StoredInteger {
    int bytes;
    int sign_shift;
    bool is_truth;
};

// A launch has fewer than 2**31 lines.
template <typename T>
struct ScanParams {
    const void *in;
    T *out;
    std::uint32_t lines;
    std::int64_t length;
    std::int64_t stride;
    std::int64_t out_stride;
    PairedDimensions kept;
    StoredInteger stored;
    bool whole;         // lines begin at whole vectors, in `in`, which is of T, and in `out`
    bool shares_lines;  // of scan_columns_kernel: whether the warps of a block take the same lines
    // Of scan_lines_kernel, all as powers of two: elements of a thread, threads that take a chunk, and lines that
    // a block has tiles of. No tiles: it takes whole lines.
    int item_bits;
    int lane_bits;
    int line_bits;
    unsigned tiles;  // of a line
    // Blocks follow each other along a line, `inner` being its tiles, or where they have several lines, across
    // them: groups of lines.
    Divider inner;
    bool reads_across;  // whether neighbouring lines lie closer to each other than the elements of one
    bool writes_across;
    std::uint64_t *totals;  // see Totals; where lines have several tiles
};

// Loads elements of `data`. Integers may be of any type.
template <typename T, int count, typename Place>
__device__ void load_elements(T (&x)[count], const void *data, const StoredInteger &stored, const Place &place) {
    const auto load = [&](auto zero) {
        using Stored = decltype(zero);
#pragma unroll
        for (int j = 0; j < count; ++j) x[j] = static_cast<T>(static_cast<const Stored *>(data)[place(j)]);
    };
    if constexpr (!std::is_integral_v<T>) {
        load(T{});
    } else {
        switch (stored.bytes) {
            case 1: load(std::uint8_t{}); break;
            case 2: load(std::uint16_t{}); break;
            case 4: load(std::uint32_t{}); break;
            default: load(T{});
        }
#pragma unroll
        for (int j = 0; j < count; ++j) {
            const auto bits = static_cast<std::uint64_t>(x[j]) << stored.sign_shift;
            x[j] = stored.is_truth ? x[j] != 0 : static_cast<T>(bits) >> stored.sign_shift;
        }
    }
}

// Elements `stride` apart, the first `left` of which are there.
template <typename T, int count>
__device__ __noinline__ Elements<T, count> load_some(const void *data, const StoredInteger stored, std::int64_t at,
                                                     std::int64_t stride, int left) {
    Elements<T, count> x{};
    if (left > 0)  // in the place of one that is not there the last one is loaded, see load_tiles
        load_elements(x.values, data, stored, [=](int e) { return at + min(e, left - 1) * stride; });
    return x;
}

constexpr int kLeastLaneBits = 1;  // of the threads that take a chunk

// Where a thread's chunk is among those of its block: `lanes` threads take one, `line` is the block's.
struct ChunkPlace {
    int lane;
    int line;
    int first_row;  // of the line's tile
    int rows;       // of a chunk

    template <typename T>
    __device__ explicit ChunkPlace(const ScanParams<T> &p) {
        const auto thread = static_cast<int>(threadIdx.x);
        const int chunk = thread >> p.lane_bits;
        lane = thread & ((1 << p.lane_bits) - 1);
        rows = 1 << p.item_bits << p.lane_bits;
        line = chunk & ((1 << p.line_bits) - 1);
        first_row = (chunk >> p.line_bits) * rows;
    }
};

// A block's tiles in shared memory, and where their lines begin in the input and in `out`. Behind the elements of
// each thread, and behind each line, 16 bytes are left out, so that what neighbours read or write lies in
// different banks.
template <typename T, int most_items>
struct SharedTiles {
    static constexpr int kVector = Vector<T>::kSize;
    static constexpr int kMostLines = kThreads >> kLeastLaneBits;
    alignas(16) T elements[kThreads * (most_items + kVector) + kMostLines * kVector];
    std::int64_t from[kMostLines];
    std::int64_t to[kMostLines];
};

// How they lie there.
template <typename T, int most_items>
struct Tiles {
    static constexpr int kVector = Vector<T>::kSize;
    SharedTiles<T, most_items> &shared;
    int item_bits;
    int pitch;  // of lines

    __device__ Tiles(SharedTiles<T, most_items> &memory, int own_item_bits, int rows)
        : shared(memory), item_bits(own_item_bits), pitch(place(rows) + kVector) {}
    __device__ int place(int row) const { return row + (row >> item_bits) * kVector; }
    __device__ T *at(int line, int row) const { return shared.elements + line * pitch + place(row); }
};

// Which elements of a block's tiles a thread brings to shared memory, or back: neighbours take neighbouring lines,
// or rows of their warp's chunks.
struct MovedElements {
    bool has_one_line;
    int first;
    int step;
    int rows_bits;
    int first_line;
    int first_row;

    template <typename T>
    __device__ MovedElements(const ScanParams<T> &p, bool across, const ChunkPlace &place) {
        const auto thread = static_cast<int>(threadIdx.x);
        has_one_line = across || p.lane_bits == 5;
        first = across ? thread >> p.line_bits : thread % 32;
        step = across ? kThreads >> p.line_bits : 32;
        rows_bits = across ? 30 : p.item_bits + p.lane_bits;
        first_line = across ? thread & ((1 << p.line_bits) - 1) : place.line - (thread % 32 >> p.lane_bits);
        first_row = across ? 0 : place.first_row;
    }
    __device__ int line(int i) const { return first_line + ((first + i * step) >> rows_bits); }
    __device__ int row(int i) const { return first_row + ((first + i * step) & ((1 << rows_bits) - 1)); }
};

// Brings elements to shared memory, those below `rows` in the first `lines` lines; `begin`: the first row of the
// tiles. In the place of one that is not there another one is loaded: loads under conditions are not asked for all
// at once, since ptxas puts what is done with each before the next one.
template <typename T, int most_items>
__device__ void load_tiles(const ScanParams<T> &p, const Tiles<T, most_items> &tiles, const MovedElements &moved,
                           std::int64_t begin, int rows, int lines) {
    const auto load = [&](auto at_once, const auto &line_of, const auto &row_of, const auto &place_of) {
        constexpr int kAtOnce = at_once.value < most_items ? at_once.value : most_items;
#pragma unroll 1
        for (int i = 0; i >> p.item_bits == 0; i += kAtOnce) {
            T x[kAtOnce];
            load_elements(x, p.in, p.stored, [&](int j) { return place_of(i + j); });
#pragma unroll
            for (int j = 0; j < kAtOnce; ++j)
                if ((i + j) >> p.item_bits == 0 && row_of(i + j) < rows && line_of(i + j) < lines)
                    *tiles.at(line_of(i + j), row_of(i + j)) = x[j];
        }
    };
    const auto element = [&](int line, int row) {
        return tiles.shared.from[line] + (begin + min(row, rows - 1)) * p.stride;
    };
    if (moved.has_one_line) {
        const int row = moved.row(0);
        const std::int64_t from = element(moved.first_line, 0);
        using AtOnce = std::integral_constant<int, std::is_integral_v<T> ? 4 : 16>;
        load(
            AtOnce{}, [&](int) { return moved.first_line; }, [&](int i) { return row + i * moved.step; },
            [&](int i) { return from + min(row + i * moved.step, rows - 1) * p.stride; });
    } else {
        load(
            std::integral_constant<int, 4>{}, [&](int i) { return moved.line(i); },
            [&](int i) { return moved.row(i); }, [&](int i) { return element(moved.line(i), moved.row(i)); });
    }
}

template <typename T, int most_items>
__device__ void store_tiles(const ScanParams<T> &p, const Tiles<T, most_items> &tiles, const MovedElements &moved,
                            std::int64_t begin, int rows, int lines) {
    constexpr int kAtOnce = 2;
#pragma unroll 1
    for (int i = 0; i >> p.item_bits == 0; i += kAtOnce) {
        T x[kAtOnce];
        std::int64_t to[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
            const int line = moved.line(i + j);
            const int row = moved.row(i + j);
            x[j] = *tiles.at(line, row);
            to[j] = tiles.shared.to[line] + (begin + row) * p.out_stride;
        }
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j)
            if ((i + j) >> p.item_bits == 0 && moved.row(i + j) < rows && moved.line(i + j) < lines)
                p.out[to[j]] = x[j];
    }
}

// Moves the vectors of a warp's chunk, of `count` elements: from packed memory to shared, or back. In the place of
// one that is not there the first one is loaded.
template <bool to_shared, typename T, int most_items>
__device__ void move_vectors(const Tiles<T, most_items> &tiles, T *chunk, T *packed, int count) {
    using V = Vector<T>;
    constexpr int kVectors = most_items / V::kSize;
    if (count <= 0) return;
    const int first = static_cast<int>(threadIdx.x) % 32 * V::kSize;
    V x[kVectors];
    const auto row = [&](int i) { return first + i * 32 * V::kSize; };
    const auto in_shared = [&](int at) { return reinterpret_cast<V *>(chunk + tiles.place(at)); };
    const auto in_packed = [&](int at) { return reinterpret_cast<V *>(packed + at); };
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
        const int at = row(i) < count ? row(i) : 0;
        x[i] = to_shared ? *in_packed(at) : *in_shared(at);
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
        if (row(i) < count) *(to_shared ? in_shared(row(i)) : in_packed(row(i))) = x[i];
}

}  // namespace cukern::cuda
