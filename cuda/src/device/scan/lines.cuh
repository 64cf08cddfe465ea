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

// Elements of a thread in a chunk, 64 or 128 bytes of them, and those of them that it joins before it makes a
// product normal: at most four, so that it stays finite.
template <typename T>
inline constexpr int kScanItems = sizeof(T) <= 4 ? 32 : 128 / static_cast<int>(sizeof(T));
template <typename F, typename T>
inline constexpr int kScanVector =
    (sizeof(typename F::A) > sizeof(typename F::Own) && sizeof(T) < 4) ? 4 : 16 / static_cast<int>(sizeof(T));
// Where that leaves multiprocessors idle a thread has fewer, down to what it moves and joins at once.
template <typename F, typename T>
inline constexpr int kLeastScanItems = kScanVector<F, T> > Vector<T>::kSize ? kScanVector<F, T> : Vector<T>::kSize;

// Of a multiprocessor: while some wait for others, the rest read. More blocks of smaller tiles were slower, and
// with four blocks 1.5 * 10^6 int64 took 1.2 of the time.
template <typename T>
inline constexpr int kScanBlocks = sizeof(T) <= 4 ? 4 : 3;

// A thread's part of a chunk. Its elements are joined twice, once for their total and once for the results: to
// keep what the first time gave takes registers, and with them blocks that run while others wait.
template <typename F, typename T>
struct Chunk {
    using A = typename F::A;
    static constexpr int kVector = kScanVector<F, T>;
    static constexpr int kVectors = kScanItems<T> / kVector;
    // Vectors that a loop's round takes: of long code fewer, so that the kernel stays short.
    static constexpr bool kIsLong = sizeof(A) > 8 && sizeof(T) > 4;
    static constexpr int kAtOnce = !kIsLong ? kVectors : is_complex<T> ? 2 : 4;
    using V = Elements<T, kVector>;
    A earlier;  // what threads before it have in the chunk
    A total;    // of all threads

    // `elements`: the thread's. Those behind the end of a line come after all that count, so that they may be
    // anything. `lane`: of the 2**lane_bits threads.
    __device__ void read(const T *elements, int item_bits, int lane, int lane_bits) {
        A running = F::identity();
        for_vectors(elements, item_bits, &running, [](int, const A &, const auto &) {});
#pragma unroll(sizeof(A) <= 8 ? 5 : 1)
        for (int by = 1; by < 32; by *= 2) {
            if (by >> lane_bits > 0) break;
            const A other = shuffled_up(running, by);
            if (lane >= by) running = F::join(other, running);
        }
        total = F::normal(shuffled_from(running, static_cast<int>(threadIdx.x) % 32 | ((1 << lane_bits) - 1)));
        earlier = shuffled_up(running, 1);
        if (lane == 0) earlier = F::identity();
    }

    // `start`: what comes before the chunk. All of the thread's elements are written.
    __device__ void write(const A &start, T *elements, int item_bits) const {
        A running = F::identity();
        for_vectors(elements, item_bits, &running, [&](int i, const A &before, const auto &own) {
            const typename F::Before all = F::before(F::join(start, F::join(earlier, before)));
            V results;
#pragma unroll
            for (int e = 0; e < kVector; ++e) results.values[e] = F::template result_after<T>(all, own[e]);
            reinterpret_cast<V *>(elements)[i] = results;
        });
    }

private:
    // Calls `take` with the running results of each vector, and what the thread has before the vector.
    template <typename Take>
    __device__ void for_vectors(const T *elements, int item_bits, A *running, const Take &take) const {
#pragma unroll(kAtOnce)
        for (int i = 0; i < kVectors; ++i) {
            if (i * kVector >> item_bits > 0) break;
            const V x = reinterpret_cast<const V *>(elements)[i];
            typename F::Own own[kVector];
#pragma unroll
            for (int e = 0; e < kVector; ++e) {
                own[e] = F::own(x.values[e]);
                if (e > 0) own[e] = F::join_own(own[e - 1], own[e]);
            }
            take(i, *running, own);
            *running = F::normal(F::join(*running, F::of_own(own[kVector - 1])));
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
    // All threads of a warp wait together: those that need no value have one.
    __device__ void wait_for(unsigned place, bool is_there, A *value) const {
        while (!is_there) is_there = look(place, value);
        __syncwarp();
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
    const bool has_large = !takes_large || totals.look(place_of_large, &before);
    const bool has_group = lane >= in_large || totals.look(place_of_group, &of_groups);
    totals.wait_for(place, lane >= in_group, &of_tiles);
    of_tiles = join_warp<F>(of_tiles);
    const bool ends_group = in_group == kScanGroup - 1;
    const A of_group = F::normal(F::join(of_tiles, total));
    if (lane == 0 && ends_group) totals.leave(totals.place_of_group(group), of_group);
    totals.wait_for(place_of_group, has_group, &of_groups);
    of_groups = join_warp<F>(of_groups);
    totals.wait_for(place_of_large, has_large, &before);
    before = F::join(before, of_groups);
    if (lane == 0 && ends_group && in_large == kScanGroup - 1)
        totals.leave(totals.place_of_large(large), F::normal(F::join(before, of_group)));
    return F::join(before, of_tiles);
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
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int number = warp >> p.line_bits;  // of the line's warps
    const int last = (kWarps >> p.line_bits) - 1;
    if (lane == 0) warps[warp] = total;
    __syncthreads();
    A all = lane <= last ? warps[lane << p.line_bits | place.line] : F::identity();
#pragma unroll(sizeof(A) <= 8 ? kWarpBits : 1)
    for (int by = 1; by < kWarps; by *= 2) {
        const A other = shuffled_up(all, by);
        if (lane >= by) all = F::join(other, all);
    }
    const A earlier = shuffled_from(all, max(number - 1, 0));
    const A before = number > 0 ? earlier : F::identity();
    if (p.tiles == 1) return before;
    if (number == 0 && line < p.lines) {
        all = look_back<F>(Totals<A>(p, line), tile, F::normal(shuffled_from(all, last)));
        if (lane == 0) lines[place.line] = all;
    }
    __syncthreads();
    return F::join(lines[place.line], before);
}

template <Op op, typename T>
__global__ void __launch_bounds__(kThreads, kScanBlocks<T>)
    scan_lines_kernel(const __grid_constant__ ScanParams<T> p) {
    using F = Joining<op, T>;
    using A = typename F::A;
    using Shared = SharedTiles<T, kScanItems<T>>;
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
        const auto rows = static_cast<int>(min(p.length - begin, std::int64_t{rows_of_tile}));
        const int count = place.line < lines ? min(rows - place.first_row, place.rows) : 0;
        const bool has_vectors = count % Tiles<T, kScanItems<T>>::kVector == 0;
        if (p.reads_vectors && has_vectors)
            move_vectors<true>(tiles, chunk_memory,
                               const_cast<T *>(static_cast<const T *>(p.in) + from + begin + place.first_row),
                               count);
        else
            load_tiles(p, tiles, place, begin, rows, lines);
        wait();
        Chunk<F, T> chunk;
        chunk.read(chunk_memory + tiles.place(own_row), p.item_bits, place.lane, p.lane_bits);
        if (by_tiles) start = before_chunk<op, T>(p, place, first_line + place.line, tile, chunk.total);
        chunk.write(start, chunk_memory + tiles.place(own_row), p.item_bits);
        wait();
        if (p.writes_vectors && has_vectors)
            move_vectors<false>(tiles, chunk_memory, p.out + to + begin + place.first_row, count);
        else
            store_tiles(p, tiles, place, begin, rows, lines);
        if (!by_tiles) wait();  // until the next chunk takes its place
        start = F::normal(F::join(start, chunk.total));
        begin += rows_of_tile;
    } while (!by_tiles && begin < p.length);
}

}  // namespace cukern::cuda
