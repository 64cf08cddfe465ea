// Running results along lines, by warps.
//
// scan_lines_kernel
//   Idea: a block takes a tile of a line, a chunk a warp; of lines that lie beside each other the tiles of
//   several, so that what is read and written lies together. Chunks lie in shared memory, where each thread joins
//   elements that follow each other; shuffles give a thread what those before it have. A tile leaves its total for
//   the others. What comes before a tile is made of the totals of the tiles before it in its group of 32, of the
//   groups before that in their group of 32, and of all before those, which one tile after the other hands on; the
//   last tile of each group leaves the group's total. Which totals are joined, and in which order, depends on the
//   tile alone, so that results are the same from run to run. Blocks wait for blocks of lower numbers, which start
//   earlier. Of many lines each warp takes one, chunk after chunk. Memory is read and written once, and limits it.
//   After D. Merrill and M. Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" (2016), which
//   joins what happens to be there.
#pragma once

#include "device/block_size.h"
#include "device/follow.cuh"
#include "device/scan/joining.cuh"
#include "device/scan/staging.cuh"

namespace cukern::cuda {

constexpr int kWarpBits = kThreadBits - 5;
constexpr int kWarps = 1 << kWarpBits;
constexpr int kScanGroup = 32;  // tiles, a lane each

// Elements of a thread in a chunk, as many as registers hold, and those of them that it joins before it makes a
// product normal: at most four, so that it stays finite.
template <typename F, typename T>
inline constexpr int kScanItems = sizeof(typename F::Own) <= 4                      ? 32
                                  : sizeof(typename F::Own) <= 8                    ? 16
                                  : sizeof(typename F::Own) <= 16 && sizeof(T) <= 8 ? 8
                                                                                    : 4;
template <typename F, typename T>
inline constexpr int kScanVector =
    (sizeof(typename F::A) > sizeof(typename F::Own) && sizeof(T) < 4) ? 4 : 16 / static_cast<int>(sizeof(T));
// Where that leaves multiprocessors idle a thread has fewer, down to what it moves and joins at once.
template <typename F, typename T>
inline constexpr int kLeastScanItems = kScanVector<F, T> > Vector<T>::kSize ? kScanVector<F, T> : Vector<T>::kSize;

// Of a multiprocessor: while some wait for others, the rest read. More blocks of smaller tiles were slower.
constexpr int kScanBlocks = 2;

// A thread's part of a chunk: running results of each vector, and what comes before the vector in the chunk.
template <typename F, typename T>
struct Chunk {
    using A = typename F::A;
    static constexpr int kVector = kScanVector<F, T>;
    static constexpr int kVectors = kScanItems<F, T> / kVector;
    using V = Elements<T, kVector>;
    typename F::Own own[kVectors][kVector];
    A before[kVectors];
    A total;  // of all threads

    // `elements`: the thread's, of up to so many; `left`: how many of them are there, from its first one on.
    // `lane`: of the 2**lane_bits threads.
    __device__ void read(const T *elements, int left, int item_bits, int lane, int lane_bits) {
        const auto *const vectors = reinterpret_cast<const V *>(elements);
        A running = F::identity();
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
            if (i * kVector >> item_bits > 0) break;
            const V x = vectors[i];
#pragma unroll
            for (int e = 0; e < kVector; ++e) {
                own[i][e] = i * kVector + e < left ? F::own(x.values[e]) : F::no_own();
                if (e > 0) own[i][e] = F::join_own(own[i][e - 1], own[i][e]);
            }
            before[i] = running;
            running = F::normal(F::join(running, F::of_own(own[i][kVector - 1])));
        }
#pragma unroll(sizeof(A) <= 8 ? 5 : 1)
        for (int by = 1; by < 32; by *= 2) {
            if (by >> lane_bits > 0) break;
            const A other = shuffled_up(running, by);
            if (lane >= by) running = F::join(other, running);
        }
        total = F::normal(shuffled_from(running, static_cast<int>(threadIdx.x) % 32 | ((1 << lane_bits) - 1)));
        const A earlier = shuffled_up(running, 1);
        if (lane > 0) {
#pragma unroll
            for (int i = 0; i < kVectors; ++i) {
                if (i * kVector >> item_bits > 0) break;
                before[i] = F::join(earlier, before[i]);
            }
        }
    }

    // `start`: what comes before the chunk. All of the thread's elements are written.
    __device__ void write(const A &start, T *elements, int item_bits) const {
        auto *const vectors = reinterpret_cast<V *>(elements);
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
            if (i * kVector >> item_bits > 0) break;
            const typename F::Before earlier = F::before(F::join(start, before[i]));
            V results;
#pragma unroll
            for (int e = 0; e < kVector; ++e) results.values[e] = F::template result_after<T>(earlier, own[i][e]);
            vectors[i] = results;
        }
    }
};

// Joins what the threads of a warp have, in their order, for the first one.
template <typename F, typename A = typename F::A>
__device__ A join_warp(A value) {
#pragma unroll 1
    for (int by = 1; by < 32; by *= 2) {
        const A other = shuffled_down(value, by);
        if (static_cast<int>(threadIdx.x) % 32 + by < 32) value = F::join(value, other);
    }
    return value;
}

// What tiles of one line have left for the others. Each 32 bits of a value lie beside a mark that they are there,
// in a word that is written and read at once: nobody has to wait until memory shows one before the other.
template <typename A>
class Totals {
public:
    static constexpr int kWords = (sizeof(A) + 3) / 4;

    __host__ __device__ static unsigned groups_of(unsigned n) { return (n + kScanGroup - 1) / kScanGroup; }
    // Values of a line: of its tiles, of groups, and of groups of groups.
    __host__ __device__ static unsigned count(unsigned tiles) {
        return tiles + groups_of(tiles) + groups_of(groups_of(tiles));
    }
    template <typename T>
    __device__ Totals(const ScanParams<T> &p, std::uint32_t line)
        : words_(p.totals + static_cast<std::int64_t>(line) * count(p.tiles) * kWords),
          tiles_(p.tiles),
          groups_(groups_of(p.tiles)) {}

    __device__ unsigned place_of_group(unsigned group) const { return tiles_ + group; }
    __device__ unsigned place_of_large(unsigned large) const { return tiles_ + groups_ + large; }

    __device__ void leave(unsigned place, const A &value) const {
        std::uint32_t parts[kWords] = {};
        memcpy(parts, &value, sizeof value);
#pragma unroll
        for (int i = 0; i < kWords; ++i)
            *static_cast<volatile std::uint64_t *>(words_ + place * kWords + i) = kIsThere << 32 | parts[i];
    }
    // Whether a value is there.
    __device__ bool look(unsigned place, A *value) const {
        std::uint32_t parts[kWords];
        bool is_there = true;
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
            const std::uint64_t word = *static_cast<volatile std::uint64_t *>(words_ + place * kWords + i);
            is_there = is_there && word >> 32 == kIsThere;
            parts[i] = static_cast<std::uint32_t>(word);
        }
        memcpy(value, parts, sizeof *value);
        return is_there;
    }
    __device__ void wait_for(unsigned place, bool is_there, A *value) const {
        while (!is_there) is_there = look(place, value);
    }

private:
    static constexpr std::uint64_t kIsThere = 1;
    std::uint64_t *words_;
    unsigned tiles_;
    unsigned groups_;
};

// What comes before a tile, for the first thread of the warp that calls it. Leaves what later tiles wait for.
template <typename F, typename A = typename F::A>
__device__ A look_back(const Totals<A> &totals, unsigned tile, const A &total) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned group = tile / kScanGroup;
    const unsigned large = group / kScanGroup;  // group of groups
    const unsigned in_group = tile % kScanGroup;
    const unsigned in_large = group % kScanGroup;
    if (lane == 0) totals.leave(tile, total);
    // All that may be there already is asked for at once.
    const unsigned place = group * kScanGroup + lane;
    const unsigned place_of_group = totals.place_of_group(large * kScanGroup + lane);
    const unsigned place_of_large = totals.place_of_large(large - 1);
    A of_tiles = F::identity();
    A of_groups = F::identity();
    A before = F::identity();
    const bool takes_large = lane == 0 && large > 0;
    const bool has_large = takes_large && totals.look(place_of_large, &before);
    const bool has_group = lane < in_large && totals.look(place_of_group, &of_groups);
    if (lane < in_group) totals.wait_for(place, false, &of_tiles);
    of_tiles = join_warp<F>(of_tiles);
    const bool ends_group = in_group == kScanGroup - 1;
    const A of_group = F::normal(F::join(of_tiles, total));
    if (lane == 0 && ends_group) totals.leave(totals.place_of_group(group), of_group);
    if (lane < in_large) totals.wait_for(place_of_group, has_group, &of_groups);
    of_groups = join_warp<F>(of_groups);
    if (takes_large) totals.wait_for(place_of_large, has_large, &before);
    before = F::join(before, of_groups);
    if (lane == 0 && ends_group && in_large == kScanGroup - 1)
        totals.leave(totals.place_of_large(large), F::normal(F::join(before, of_group)));
    return F::join(before, of_tiles);
}

// What depends on `value` is computed in each round of a loop, instead of being kept in registers.
__device__ inline void compute_again(int &value) {
#ifdef __CUDA_ARCH__
    asm volatile("" : "+r"(value));
#endif
}

// What comes before a warp's chunk in its line, of which `total` is the chunk's. All threads of the block take
// part, those of lines that are not there, too.
template <Op op, typename T, typename A = typename Joining<op, T>::A>
__device__ A before_chunk(const ScanParams<T> &p, const ChunkPlace &place, std::uint32_t line, unsigned tile,
                          const A &total) {
    using F = Joining<op, T>;
    __shared__ __align__(16) unsigned char memory[2 * kWarps * sizeof(A)];
    auto *const warps = reinterpret_cast<A *>(memory);
    A *const lines = warps + kWarps;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0) warps[warp] = total;
    __syncthreads();
    A before = F::identity();
    A all = F::identity();
#pragma unroll(sizeof(A) <= 8 ? kWarps : 1)
    for (int i = 0; i < kWarps; ++i) {
        if (((i ^ warp) & ((1 << p.line_bits) - 1)) != 0) continue;  // another line's
        if (i == warp) before = all;
        all = F::join(all, warps[i]);
    }
    all = F::normal(all);
    if (p.tiles == 1) return before;
    if (place.first_row == 0 && line < p.lines) {
        all = look_back<F>(Totals<A>(p, line), tile, all);
        if (threadIdx.x % 32 == 0) lines[place.line] = all;
    }
    __syncthreads();
    return F::join(lines[place.line], before);
}

template <Op op, typename T>
__global__ void __launch_bounds__(kThreads, kScanBlocks)
    scan_lines_kernel(const __grid_constant__ ScanParams<T> p) {
    using F = Joining<op, T>;
    using A = typename F::A;
    using Shared = SharedTiles<T, kScanItems<F, T>>;
    __shared__ __align__(16) unsigned char memory[sizeof(Shared)];
    auto &shared = *reinterpret_cast<Shared *>(memory);
    const bool by_tiles = p.tiles > 0;
    unsigned group = blockIdx.x;
    unsigned tile = 0;
    if (by_tiles && p.line_bits > 0)
        tile = p.inner.divide(blockIdx.x, &group);
    else if (by_tiles)
        group = p.inner.divide(blockIdx.x, &tile);
    const ChunkPlace place(p);
    const int rows_of_tile = kThreads << p.item_bits >> p.line_bits;
    const Tiles tiles(shared, p.item_bits, rows_of_tile);
    T *const chunk_memory = tiles.at(place.line, place.first_row);
    const int own_row = place.lane << p.item_bits;  // in the chunk
    const std::uint32_t first_line = group << p.line_bits;
    const auto lines = static_cast<int>(min(p.lines - first_line, 1U << p.line_bits));
    MovedElements read(p, p.reads_across, place);
    MovedElements written(p, p.writes_across, place);
    std::int64_t to = 0;
    const std::int64_t from = place.line < lines ? p.kept.offset_at(first_line + place.line, &to) : 0;
    if (place.lane == 0 && place.first_row == 0) {
        shared.from[place.line] = from;
        shared.to[place.line] = to;
    }
    __syncthreads();
    const auto wait = [&] {
        if (p.reads_across || p.writes_across)
            __syncthreads();
        else
            __syncwarp();
    };
    A start = F::identity();
    std::int64_t begin = static_cast<std::int64_t>(tile) * rows_of_tile;
    follow_kernel_before();
#pragma unroll 1
    do {
        compute_again(read.first);
        compute_again(written.first);
        const auto rows = static_cast<int>(min(p.length - begin, std::int64_t{rows_of_tile}));
        const int count = place.line < lines ? min(rows - place.first_row, place.rows) : 0;
        const bool by_vectors = p.whole && count % Tiles<T, kScanItems<F, T>>::kVector == 0;
        if (by_vectors)
            move_vectors<true>(tiles, chunk_memory,
                               const_cast<T *>(static_cast<const T *>(p.in) + from + begin + place.first_row),
                               count);
        else
            load_tiles(p, tiles, read, begin, rows, lines);
        wait();
        Chunk<F, T> chunk;
        chunk.read(chunk_memory + tiles.place(own_row), count - own_row, p.item_bits, place.lane, p.lane_bits);
        if (by_tiles) start = before_chunk<op, T>(p, place, first_line + place.line, tile, chunk.total);
        chunk.write(start, chunk_memory + tiles.place(own_row), p.item_bits);
        wait();
        if (by_vectors)
            move_vectors<false>(tiles, chunk_memory, p.out + to + begin + place.first_row, count);
        else
            store_tiles(p, tiles, written, begin, rows, lines);
        if (!by_tiles) wait();  // until the next chunk takes its place
        start = F::normal(F::join(start, chunk.total));
        begin += rows_of_tile;
    } while (!by_tiles && begin < p.length);
}

}  // namespace cukern::cuda
