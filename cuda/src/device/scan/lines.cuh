// Running results along lines, by warps.
//
// A warp takes a chunk of a line at a time: in each of a few rounds a thread has a vector of elements that follow
// each other, and shuffles give it what the threads before it have; all loads of a chunk are under way first.
//
// scan_lines_kernel
//   Idea: a block takes a tile of a line, a chunk a warp, and leaves its total for the others. What comes before a
//   tile is made of the totals of the tiles before it in its group of 32, of the groups before that in their group
//   of 32, and of all before those, which one tile after the other hands on; the last tile of each group leaves
//   the group's total. Which totals are joined, and in which order, depends on the tile alone, so that results are
//   the same from run to run. Blocks wait for blocks of lower numbers, which start earlier. Of many lines each
//   warp takes one, chunk after chunk. Memory is read and written once, and limits it.
//   After D. Merrill and M. Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" (2016), which
//   joins what happens to be there.
#pragma once

#include "device/block_size.h"
#include "device/follow.cuh"
#include "device/scan/joining.cuh"

namespace cukern::cuda {

constexpr int kWarps = kThreads / 32;
constexpr int kScanGroup = 32;  // tiles, a lane each

// Elements of a thread in a chunk, as many as registers hold, and those of them that it loads at once: at most
// four of a product, so that it stays finite.
template <typename F, typename T>
inline constexpr int kScanItems = sizeof(typename F::Own) <= 4                      ? 32
                                  : sizeof(typename F::Own) <= 8                    ? 16
                                  : sizeof(typename F::Own) <= 16 && sizeof(T) <= 8 ? 8
                                                                                    : 4;
template <typename F, typename T>
inline constexpr int kScanVector =
    (sizeof(typename F::A) > sizeof(typename F::Own) && sizeof(T) < 4) ? 4 : 16 / static_cast<int>(sizeof(T));
template <typename F, typename T>
inline constexpr int kScanChunk = 32 * kScanItems<F, T>;
template <typename F, typename T>
inline constexpr int kScanTile = kWarps * kScanChunk<F, T>;

// Of a multiprocessor: while some wait for others, the rest read. More blocks of smaller tiles were slower.
constexpr int kScanBlocks = 2;

// A thread's part of a chunk: running results of each vector, and what comes before the vector in the chunk.
template <typename F, typename T>
struct Chunk {
    using A = typename F::A;
    static constexpr int kVector = kScanVector<F, T>;
    static constexpr int kRounds = kScanItems<F, T> / kVector;
    static constexpr int kStep = 32 * kVector;  // from a vector to the thread's next
    using V = Elements<T, kVector>;
    typename F::Own own[kRounds][kVector];
    A before[kRounds];
    A total;        // of all threads
    bool is_short;  // all elements are in the first round: the others are left out

    // How many elements the thread's last vector has, if it is not whole.
    __device__ static int rest_of(int left) {
        const int rest = left > 0 ? left % kStep : 0;
        return rest < kVector ? rest : 0;
    }

    // `first`: the thread's first element in the line; `left`: how many there are from it on, at most a chunk.
    __device__ void read(const ScanParams<T, A> &p, std::int64_t from, std::int64_t first, int left) {
        is_short = left + static_cast<int>(threadIdx.x) % 32 * kVector <= kStep;
        V x[kRounds];
        const std::int64_t at = from + first * p.stride;
        if (p.whole) {
            const auto *const vectors = reinterpret_cast<const V *>(static_cast<const T *>(p.in) + at);
#pragma unroll
            for (int r = 0; r < kRounds; ++r)
                if (r * kStep + kVector <= left) x[r] = vectors[r * 32];
            if (const int rest = rest_of(left); rest > 0) {  // at the end of the line
                const V last = load_some<T, kVector>(p.in, p.type, at + left - rest, 1, rest);
#pragma unroll
                for (int r = 0; r < kRounds; ++r)
                    if (r * kStep + rest == left) x[r] = last;
            }
        } else {
#pragma unroll
            for (int r = 0; r < kRounds; ++r)
                if (r == 0 || !is_short)
                    x[r] =
                        load_some<T, kVector>(p.in, p.type, at + r * kStep * p.stride, p.stride, left - r * kStep);
        }
#pragma unroll
        for (int r = 0; r < kRounds; ++r) {
            if (r == 1 && is_short) break;
#pragma unroll
            for (int e = 0; e < kVector; ++e) {
                own[r][e] = r * kStep + e < left ? F::own(x[r].values[e]) : F::no_own();
                if (e > 0) own[r][e] = F::join_own(own[r][e - 1], own[r][e]);
            }
        }
        const int lane = static_cast<int>(threadIdx.x) % 32;
        total = F::identity();
#pragma unroll
        for (int r = 0; r < kRounds; ++r) {
            if (r == 1 && is_short) break;
            A running = F::normal(F::of_own(own[r][kVector - 1]));
#pragma unroll(sizeof(A) <= 8 ? 5 : 1)
            for (int by = 1; by < 32; by *= 2) {
                const A other = shuffled_up(running, by);
                if (lane >= by) running = F::join(other, running);
            }
            const A earlier = shuffled_up(running, 1);
            before[r] = lane > 0 ? F::join(total, earlier) : total;
            total = F::normal(F::join(total, shuffled_from(running, 31)));
        }
    }

    // `start`: what comes before the chunk.
    __device__ void write(const ScanParams<T, A> &p, const A &start, std::int64_t to, std::int64_t first,
                          int left) const {
        T *const out = p.out + to + first * p.inner;
#pragma unroll
        for (int r = 0; r < kRounds; ++r) {
            if (r == 1 && is_short) break;
            const typename F::Before earlier = F::before(F::join(start, before[r]));
            V results;
#pragma unroll
            for (int e = 0; e < kVector; ++e) results.values[e] = F::template result_after<T>(earlier, own[r][e]);
            if (p.whole && r * kStep + kVector <= left)
                reinterpret_cast<V *>(out)[r * 32] = results;
            else if (r * kStep < left)
                store_some(out + r * kStep * p.inner, p.inner, left - r * kStep, results);
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
    __device__ Totals(const ScanParams<T, A> &p, std::uint32_t line)
        : words_(p.totals + static_cast<std::int64_t>(line) * count(p.tiles.by) * kWords),
          tiles_(p.tiles.by),
          groups_(groups_of(p.tiles.by)) {}

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

// What comes before a warp's chunk in its tile's line. All threads of the block take part.
template <Op op, typename T, typename A = typename Joining<op, T>::A>
__device__ A before_chunk(const ScanParamsOf<op, T> &p, std::uint32_t line, unsigned tile, const A &total) {
    using F = Joining<op, T>;
    __shared__ __align__(16) unsigned char memory[(kWarps + 1) * sizeof(A)];
    auto *const warps = reinterpret_cast<A *>(memory);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0) warps[warp] = total;
    __syncthreads();
    A before = F::identity();
    A all = F::identity();
#pragma unroll(sizeof(A) <= 8 ? kWarps : 1)
    for (int i = 0; i < kWarps; ++i) {
        if (i == warp) before = all;
        all = F::join(all, warps[i]);
    }
    all = F::normal(all);
    if (p.tiles.by == 1) return before;
    if (warp == 0) {
        all = look_back<F>(Totals<A>(p, line), tile, all);
        if (threadIdx.x == 0) warps[kWarps] = all;
    }
    __syncthreads();
    return F::join(warps[kWarps], before);
}

template <Op op, typename T>
__global__ void __launch_bounds__(kThreads, kScanBlocks)
    scan_lines_kernel(const __grid_constant__ ScanParamsOf<op, T> p) {
    using F = Joining<op, T>;
    using A = typename F::A;
    const bool by_warps = p.tiles.by == 0;
    const unsigned warp = threadIdx.x / 32;
    unsigned tile = 0;
    const std::uint32_t line = by_warps ? blockIdx.x * kWarps + warp : p.tiles.divide(blockIdx.x, &tile);
    if (line >= p.lines) return;
    const std::int64_t from = p.begin(line);
    const std::int64_t to = p.begin_of_out(line);
    A start = F::identity();
    std::int64_t begin =
        by_warps ? 0 : static_cast<std::int64_t>(tile) * kScanTile<F, T> + warp * kScanChunk<F, T>;
    follow_kernel_before();
#pragma unroll 1
    do {
        using C = Chunk<F, T>;
        constexpr std::int64_t kMost = kScanChunk<F, T>;
        const std::int64_t first = begin + threadIdx.x % 32 * C::kVector;
        const auto left = static_cast<int>(min(p.length - first, kMost));
        C chunk;
        chunk.read(p, from, first, left);
        if (!by_warps) start = before_chunk<op, T>(p, line, tile, chunk.total);
        chunk.write(p, start, to, first, left);
        start = F::normal(F::join(start, chunk.total));
        begin += kScanChunk<F, T>;
    } while (by_warps && begin < p.length);
}

}  // namespace cukern::cuda
