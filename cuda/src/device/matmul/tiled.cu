// The tiled matrix product of float32 and float64, through shared memory.
//
// Idea: a block of 256 threads computes kTileM x kTileN tiles of c. For each kTileK of k it brings a tile of a and
// one of b into shared memory (tile_loader.cuh), both with k slowest; the tiles of the next steps are on their way
// meanwhile, into other stages of it, also those of the next tile of c. Eight warps multiply a part of the tile
// each, by fma in registers, or float64 on the tensor cores (warp_product.cuh), and read the fragments of a and b
// for the next k before they multiply those of this one.
// Tiles that do not give each block one, and long sums of few, are shared (tile_schedule.h). Sums are cut where
// cuBLAS was seen to cut them, of float64 in about eight parts: the error of one long sum was up to 8 times its
// own.
//
// Tile: 128 x 256 x 16 (float32), 128 x 64 x 16 (float64); 3 stages. From compute capability 8.0 on,
// which brought asynchronous copies and 99 KiB of shared memory. 2 * m * n * k flops; an element is used 256 and
// 128, or 64 and 128 times once loaded: limited by the arithmetic units. docs/matmul.md tells what each step of
// its tuning gained.

#include <cstdint>

#include "device/follow.cuh"
#include "device/launch_kernel.h"
#include "device/matmul/join_tiles.cuh"
#include "device/matmul/operands.cuh"
#include "device/matmul/own_product.h"
#include "device/matmul/tile_loader.cuh"
#include "device/matmul/tile_work.cuh"
#include "device/matmul/warp_product.cuh"

namespace cukern::cuda {
namespace {

constexpr int kStages = 3;

template <typename T>
struct TiledParams {
    TileSchedule schedule;
    Operand<T> a, b;
    Neighbours of_a, of_b;
    Result<T> c;
    bool stores_vectors;
    T *parts;
    std::int64_t k;
    // The sums are multiplied by it before they are stored. The compiler does not know its value, so it chooses
    // the registers of the sums for the multiplications and not for the stores.
    T one;
};

template <typename T>
class Loads {
    using S = Tile<T>;

public:
    __device__ __forceinline__ Loads(const TiledParams<T> &p, SharedAddress shared) : p_(p), stage_(shared) {
        end_ = shared + kStages * kStageBytes;
        has_more_ = work_.start(p.schedule);
        if (has_more_) start_tile();
    }

    // Begins to load the tiles of the next step, if there is one.
    __device__ __forceinline__ void start_next() {
        if (__builtin_expect(has_more_, true)) {
            a_.copy_next(p_.a, stage_, depth_left_);
            b_.copy_next(p_.b, stage_ + S::kTileK * S::kPitchM * static_cast<int>(sizeof(T)), depth_left_);
            depth_left_ -= S::kTileK;
            stage_ += kStageBytes;
            if (stage_ == end_) stage_ -= kStages * kStageBytes;
            if (__builtin_expect(++work_.step == work_.end, false)) {
                has_more_ = work_.next(p_.schedule);
                if (has_more_) start_tile();
            }
        }
        end_copies();
    }

private:
    static constexpr int kStageBytes = S::kStage * static_cast<int>(sizeof(T));

    __device__ __forceinline__ void start_tile() {
        const TilePlace place = place_of(p_.schedule, work_.tile);
        const std::int64_t depth = static_cast<std::int64_t>(work_.step) * S::kTileK;
        a_.start(p_.a, p_.of_a, place.product, place.row, depth);
        b_.start(p_.b, p_.of_b, place.product, place.column, depth);
        depth_left_ = static_cast<int>(min(p_.k - depth, std::int64_t{1} << 30));
    }

    const TiledParams<T> &p_;
    SharedAddress stage_;
    SharedAddress end_;
    TileWork work_;
    TileLoader<T, S::kTileM, S::kPitchM> a_;
    TileLoader<T, S::kTileN, S::kPitchN> b_;
    int depth_left_;
    bool has_more_;
};

// A tile's place, and how much of it lies inside of c.
template <typename T>
struct Inside {
    using S = Tile<T>;
    TilePlace place;
    int rows, columns;

    __device__ __forceinline__ Inside(const TiledParams<T> &p, int tile) : place(place_of(p.schedule, tile)) {
        rows = static_cast<int>(min(p.a.rows - place.row, std::int64_t{S::kTileM}));
        columns = static_cast<int>(min(p.b.rows - place.column, std::int64_t{S::kTileN}));
    }
    __device__ __forceinline__ bool has_warp() const {
        return WarpPlace<T>().row < rows && WarpPlace<T>().column < columns;
    }
};

// Stores the sums of a tile: in c, or as the `part`th in scratch memory.
template <typename T, typename Product>
__device__ __forceinline__ void store_tile(const TiledParams<T> &p, const TileWork &work, int part,
                                           const Product &product) {
    using S = Tile<T>;
    int tile = work.tile;
    asm volatile("" : "+r"(tile));  // found anew, so that it takes no registers meanwhile
    const Inside<T> inside(p, tile);
    const TilePlace &place = inside.place;
    const bool is_whole = work.is_whole(p.schedule);
    T *const to = is_whole ? p.c.data + place.product * p.c.batch + place.row * p.c.row + place.column
                           : p.parts + std::int64_t{part} * S::kTileM * S::kTileN;
    const std::int64_t row_step = is_whole ? p.c.row : S::kTileN;
    if (p.stores_vectors || !is_whole) {
        product.for_each_vector([&](int row, int column, Vector<T> values) {
#pragma unroll
            for (int e = 0; e < Vector<T>::kSize; ++e)
                values.values[e] = multiply_add(values.values[e], p.one, T{});
            if (row < inside.rows && column < inside.columns)
                *reinterpret_cast<Vector<T> *>(to + row * row_step + column) = values;
        });
    } else {
        product.for_each_vector([&](int row, int column, const Vector<T> &values) {
            T *const at = to + row * row_step + column;
#pragma unroll
            for (int e = 0; e < Vector<T>::kSize; ++e)
                if (row < inside.rows && column + e < inside.columns)
                    at[e] = multiply_add(values.values[e], p.one, T{});
        });
    }
}

template <typename T>
__global__ void __launch_bounds__(Tile<T>::kThreads, 1)
    matmul_tiled_kernel(const __grid_constant__ TiledParams<T> p) {
#if __CUDA_ARCH__ >= 800
    using S = Tile<T>;
    using Product = WarpProduct<T>;
    constexpr int kSteps = S::kTileK / Product::kStep;
    static_assert(kSteps % 2 == 0, "the first step of a tile reads the first of two fragments");
    extern __shared__ __align__(16) unsigned char shared[];
    T *const first_stage = reinterpret_cast<T *>(shared);
    TileWork work;
    if (!work.start(p.schedule)) return;
    Loads<T> loads(p, shared_address(shared));
    follow_kernel_before();
#pragma unroll 1
    for (int i = 0; i < kStages - 1; ++i) loads.start_next();

    Product product;
    // Counted here: with work.part() where a tile is stored, the compiler puts the loop's reads of shared memory
    // next to each other, and float32 takes 6 % longer.
    int part = TileWork::first_part(p.schedule);
    int stage = 0;
    wait_for_copies<kStages - 2>();
    __syncthreads();
    product.take(first_stage);
    product.read_first();
    for (bool has_more = true; has_more; has_more = work.next(p.schedule)) {
        const bool is_inside = Inside<T>(p, work.tile).has_warp();
        product.clear();
        for (int step = work.step; step < work.end; ++step) {
            loads.start_next();
            if (is_inside) {
#pragma unroll
                for (int i = 0; i + 2 < kSteps; i += 2) {
                    product.template multiply<0>(i + 1);
                    product.template multiply<1>(i + 2);
                }
                product.template multiply<0>(kSteps - 1);
            }
            wait_for_copies<kStages - 2>();
            __syncthreads();  // the next stage has been written, and this one read
            stage = stage + 1 == kStages ? 0 : stage + 1;
            product.take(first_stage + stage * S::kStage);
            product.template multiply<1>(0);  // a branch would cost more than this one of kSteps saves
        }
        if (is_inside) store_tile(p, work, part, product);
        part += work.tile < p.schedule.whole ? 0 : 1;
    }
#endif
}

}  // namespace

template <typename T>
TileSchedule schedule_tiled(const MatmulLaunch &launch, const Chip &chip) noexcept {
    using S = Tile<T>;
    constexpr int kLeastSteps = 512 / S::kTileK;
    constexpr int kLeastEven = 8192 / S::kTileK;
    constexpr Cuts kCuts = S::kIsWide ? Cuts{4, kLeastSteps, 2, kLeastEven} : Cuts{6, kLeastSteps, 4, 0};
    constexpr Sharing kSharing{4, 4, kCuts};
    return schedule_tiles(launch, S::kTileM, S::kTileN, S::kTileK, chip.multiprocessors, kSharing);
}

template <typename T>
cudaError_t launch_matmul_tiled(const MatmulLaunch &launch, const TileSchedule &schedule,
                                cudaStream_t stream) noexcept {
    using S = Tile<T>;
    TiledParams<T> p;
    p.schedule = schedule;
    p.a = operand_a<T>(launch);
    p.b = operand_b<T>(launch);
    p.of_a = neighbours_in(p.a);
    p.of_b = neighbours_in(p.b);
    p.c = result_of<T>(launch);
    p.stores_vectors = has_vectors<T>(launch.c, p.c.column, p.c.row, p.c.batch) && launch.n % S::kVector == 0;
    p.parts = static_cast<T *>(launch.scratch);
    p.k = launch.k;
    p.one = T{1};
    constexpr unsigned kBytes = kStages * S::kStage * sizeof(T);
    const Grid grid{static_cast<unsigned>(p.schedule.blocks), S::kThreads, kBytes};
    const cudaError_t error = launch_kernel<matmul_tiled_kernel<T>>(grid, stream, p);
    return error == cudaSuccess ? launch_join(launch, p.schedule, p.c, stream) : error;
}

#define CUKERN_INSTANTIATE(type)                                                             \
    template TileSchedule schedule_tiled<CTypeOf<ElementType::type>>(const MatmulLaunch &,   \
                                                                     const Chip &) noexcept; \
    template cudaError_t launch_matmul_tiled<CTypeOf<ElementType::type>>(                    \
        const MatmulLaunch &, const TileSchedule &, cudaStream_t) noexcept;
CUKERN_INSTANTIATE(float32)
CUKERN_INSTANTIATE(float64)
#undef CUKERN_INSTANTIATE

}  // namespace cukern::cuda
