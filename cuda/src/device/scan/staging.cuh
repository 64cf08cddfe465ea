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
    bool reads_vectors;   // `in` is of T, and lines begin at whole vectors in it
    bool writes_vectors;  // likewise in `out`
    bool shares_lines;    // of scan_columns_kernel: whether the warps of a block take the same lines
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
            default: load(T{}); return;
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

// A thread's rows of one line's tile, `step` apart, if all of them are there, and their places in shared memory
// are steps apart, too.
template <typename T>
struct MovedRows {
    int first;
    int count;
    T *own;
    int own_step;
    bool is_whole;

    template <int most_items>
    __device__ MovedRows(const Tiles<T, most_items> &tiles, const MovedElements &moved, int rows, int lines)
        : first(moved.row(0)),
          count(1 << tiles.item_bits),
          own(tiles.at(moved.first_line, first)),
          own_step(tiles.place(moved.step)),
          is_whole(moved.has_one_line && moved.step >= count && moved.first_line < lines &&
                   first + (count - 1) * moved.step < rows) {}
};

// Brings elements to shared memory, those below `rows` in the first `lines` lines; `begin`: the first row of the
// tiles. In the place of one that is not there another one is loaded: loads under conditions are not asked for all
// at once, since ptxas puts what is done with each before the next one.
template <typename T, int most_items>
__device__ void load_tiles(const ScanParams<T> &p, const Tiles<T, most_items> &tiles, const ChunkPlace &place,
                           std::int64_t begin, int rows, int lines) {
    const MovedElements moved(p, p.reads_across, place);
    const auto load = [&](auto at_once, const auto &is_there, const auto &from, const auto &to) {
        constexpr int kAtOnce = at_once.value < most_items ? at_once.value : most_items;
#pragma unroll 1
        for (int i = 0; i >> p.item_bits == 0; i += kAtOnce) {
            T x[kAtOnce];
            load_elements(x, p.in, p.stored, [&](int j) { return from(i + j); });
#pragma unroll
            for (int j = 0; j < kAtOnce; ++j)
                if (is_there(i + j)) *to(i + j) = x[j];
        }
    };
    using AtOnce = std::integral_constant<int, 8>;
    const MovedRows<T> own(tiles, moved, rows, lines);
    const auto row = [&](int i) { return own.first + i * moved.step; };
    if (own.is_whole && own.count >= AtOnce::value) {
        const std::int64_t first = tiles.shared.from[moved.first_line] + (begin + own.first) * p.stride;
        const std::int64_t step = moved.step * p.stride;
        load(
            AtOnce{}, [](int) { return true; }, [&](int i) { return first + i * step; },
            [&](int i) { return own.own + i * own.own_step; });
    } else if (moved.has_one_line) {
        const std::int64_t from = tiles.shared.from[moved.first_line] + begin * p.stride;
        load(
            AtOnce{}, [&](int i) { return i < own.count && row(i) < rows && moved.first_line < lines; },
            [&](int i) { return from + min(row(i), rows - 1) * p.stride; },
            [&](int i) { return tiles.at(moved.first_line, row(i)); });
    } else {
        load(
            std::integral_constant<int, 4>{},  // a thread has as many, or more
            [&](int i) { return i < own.count && moved.row(i) < rows && moved.line(i) < lines; },
            [&](int i) {
                return tiles.shared.from[moved.line(i)] + (begin + min(moved.row(i), rows - 1)) * p.stride;
            },
            [&](int i) { return tiles.at(moved.line(i), moved.row(i)); });
    }
}

// Brings them back to `out`.
template <typename T, int most_items>
__device__ void store_tiles(const ScanParams<T> &p, const Tiles<T, most_items> &tiles, const ChunkPlace &place,
                            std::int64_t begin, int rows, int lines) {
    const MovedElements moved(p, p.writes_across, place);
    const auto store = [&](auto at_once, const auto &is_there, const auto &from, const auto &to) {
        constexpr int kAtOnce = at_once.value;
#pragma unroll 1
        for (int i = 0; i >> p.item_bits == 0; i += kAtOnce) {
            T x[kAtOnce];
            std::int64_t there[kAtOnce];
#pragma unroll
            for (int j = 0; j < kAtOnce; ++j) {
                x[j] = *from(i + j);
                there[j] = to(i + j);
            }
#pragma unroll
            for (int j = 0; j < kAtOnce; ++j)
                if (is_there(i + j)) p.out[there[j]] = x[j];
        }
    };
    using AtOnce = std::integral_constant<int, 4>;
    const MovedRows<T> own(tiles, moved, rows, lines);
    if (own.is_whole && own.count >= AtOnce::value) {
        const std::int64_t first = tiles.shared.to[moved.first_line] + (begin + own.first) * p.out_stride;
        const std::int64_t step = moved.step * p.out_stride;
        store(
            AtOnce{}, [](int) { return true; }, [&](int i) { return own.own + i * own.own_step; },
            [&](int i) { return first + i * step; });
    } else {
        store(
            std::integral_constant<int, 2>{},
            [&](int i) { return i < own.count && moved.row(i) < rows && moved.line(i) < lines; },
            [&](int i) { return tiles.at(moved.line(i), moved.row(i)); },
            [&](int i) { return tiles.shared.to[moved.line(i)] + (begin + moved.row(i)) * p.out_stride; });
    }
}

// Moves the vectors of a warp's chunk, of `count` elements: from packed memory to shared, or back. In the place of
// one that is not there the first one is loaded.
template <bool to_shared, typename T, int most_items>
__device__ void move_vectors(const Tiles<T, most_items> &tiles, T *chunk, T *packed, int count) {
    using V = Vector<T>;
    constexpr int kVectors = most_items / V::kSize;
    const int first = static_cast<int>(threadIdx.x) % 32 * V::kSize;
    const auto move = [&](const auto &is_there, const auto &in_shared) {
        const auto row = [&](int i) { return first + i * 32 * V::kSize; };
        const auto in_packed = [&](int at) { return reinterpret_cast<V *>(packed + at); };
        V x[kVectors];
#pragma unroll
        for (int i = 0; i < kVectors; ++i)
            x[i] = to_shared ? *in_packed(is_there(row(i)) ? row(i) : 0) : *in_shared(is_there(row(i)) ? i : 0);
#pragma unroll
        for (int i = 0; i < kVectors; ++i)
            if (is_there(row(i))) *(to_shared ? in_shared(i) : in_packed(row(i))) = x[i];
    };
    if (count == 32 * most_items) {  // whole, by a tenth of the instructions
        constexpr int kStep = 32 * V::kSize / most_items * (most_items + V::kSize);
        V *const own = reinterpret_cast<V *>(chunk + first + first / most_items * V::kSize);
        move([](int) { return true; }, [=](int i) { return own + i * (kStep / V::kSize); });
    } else if (count > 0) {
        V *const own = reinterpret_cast<V *>(chunk + tiles.place(first));
        const int step = 32 + (32 * V::kSize >> tiles.item_bits);
        move([=](int at) { return at < count; }, [=](int i) { return own + i * step; });
    }
}

}  // namespace cukern::cuda
