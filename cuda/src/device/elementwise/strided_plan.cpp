// Which elements a thread of strided_kernel takes.
#include <algorithm>
#include <cstdlib>
#include <limits>

#include "device/block_size.h"
#include "device/kernels.h"

namespace cukern::cuda {
namespace {

constexpr std::int64_t kSector = 32;  // bytes
// The fewer elements there are, the fewer a thread takes, so that all multiprocessors take part.
constexpr std::int64_t kElementsForOne = 1 << 16;  // of a launch: two blocks for each of 128 multiprocessors

std::int64_t divide_up(std::int64_t n, std::int64_t by) noexcept { return (n + by - 1) / by; }

// How many elements a thread takes.
struct ThreadShare {
    int most;
    int step;    // 2 where they are computed in pairs
    int beside;  // what a thread does but for its elements, in elements
};

// How many elements a thread has where a line costs least: with fewer of them, fewer lie past its end.
int fitting(std::int64_t length, ThreadShare share) noexcept {
    const auto cost = [&](int each) { return divide_up(length, each) * (each + share.beside); };
    int best = share.most;
    for (int each = best - share.step; each > 0; each -= share.step)
        if (cost(each) < cost(best)) best = each;
    return best;
}

// An operand whose neighbours along the last dimension lie apart, and the dimension along which they lie closest.
struct Transposed {
    int operand;
    int dimension;
};

// The dimension along which an operand lies closest, if its neighbours share sectors there, and along the last
// dimension lie so many bytes apart, and twice as far as there; else -1.
int closest_dimension(const ElementwiseLaunch &launch, int operand, std::int64_t apart) noexcept {
    const int last = launch.ndim - 1;
    const auto bytes_apart = [&](int d) {
        return std::abs(launch.strides[operand][d]) * size_of(launch.types[operand]);
    };
    if (launch.immediate[operand] || bytes_apart(last) < apart) return -1;
    int closest = last;
    for (int d = last - 1; d >= 0; --d)
        if (launch.strides[operand][d] != 0 && bytes_apart(d) < bytes_apart(closest)) closest = d;
    return bytes_apart(closest) < kSector && 2 * bytes_apart(closest) <= bytes_apart(last) ? closest : -1;
}

// Finds an operand for tiles; else its number is -1. One whose neighbours share no sector goes first; of sectors
// that two share, one half is loaded twice.
Transposed find_transposed(const ElementwiseLaunch &launch) noexcept {
    constexpr std::int64_t kLeastElements = 1024;
    if (launch.count < kLeastElements) return {-1, -1};
    for (const std::int64_t apart : {kSector, kSector / 2})
        for (int j = 1; j < launch.num_operands; ++j)
            if (const int found = closest_dimension(launch, j, apart); found >= 0) return {j, found};
    return {-1, -1};
}

// The dimension that is cut into parts, each for one of a thread's elements: the slowest that is long enough to be
// cut evenly, else the longest.
int cut_dimension(const ElementwiseLaunch &launch) noexcept {
    constexpr std::int64_t kLong = 32;
    int longest = 0;
    for (int d = 0; d < launch.ndim; ++d) {
        if (launch.shape[d] >= kLong) return d;
        if (launch.shape[d] > launch.shape[longest]) longest = d;
    }
    return longest;
}

void plan_parts(const ElementwiseLaunch &launch, ThreadShare share, StridedPlan *plan) noexcept {
    constexpr std::int64_t kAligned = 32;  // elements: where parts of a long line begin
    plan->dimension = cut_dimension(launch);
    const std::int64_t rows = launch.shape[plan->dimension];
    plan->each = fitting(rows, share);
    plan->apart = divide_up(rows, plan->each);
    if (plan->each > 1 && plan->apart >= kAligned * kAligned)
        plan->apart = divide_up(plan->apart, kAligned) * kAligned;
    plan->columns = launch.count / rows * plan->apart;
    plan->blocks = static_cast<unsigned>(divide_up(plan->columns, kThreads));
}

// At most so many rows, along the dimension in which the operand lies closest, and about so many columns, in the
// order of out: up to half as many more are one tile. On an H200, in 274 cases, tiles of 8 columns took 1.04 of
// the time, of 32 columns 1.06, of 16 or 64 rows 1.02.
constexpr std::int64_t kTileRows = 32;
constexpr std::int64_t kTileColumns = 16;

// Where that dimension has a few elements, which fill a part of a sector, elements of other dimensions follow
// them. Then rows lie along the last dimension of out, if that is long, and columns in the order of the operand.
// With 4 columns it took 1.02 of the time, with 8 1.04: `pow` of a window of uint32 (16, 1886, 16, 5, 2) into a
// transposed result 96 us without this, and 27 with it.
constexpr std::int64_t kTurnedRows = 64;
constexpr std::int64_t kTurnedColumns = 2;

void plan_tiles(const ElementwiseLaunch &launch, ThreadShare share, const Transposed &transposed,
                StridedPlan *plan) noexcept {
    const bool is_turned = turns_tiles(launch, transposed.operand, transposed.dimension);
    plan->dimension = is_turned ? launch.ndim - 1 : transposed.dimension;
    plan->in_tiles = true;
    const std::int64_t rows = launch.shape[plan->dimension];
    plan->columns = launch.count / rows;
    const std::int64_t bands = divide_up(rows, is_turned ? kTurnedRows : kTileRows);
    plan->each = fitting(divide_up(rows, bands), share);
    plan->apart = divide_up(rows, bands * plan->each);
    const std::int64_t width = is_turned ? kTurnedColumns : kTileColumns;
    plan->width = plan->columns <= width * 3 / 2 ? plan->columns : width;
    plan->across = divide_up(plan->columns, plan->width);
    plan->blocks = static_cast<unsigned>(divide_up(bands * plan->across * plan->apart * plan->width, kThreads));
    if (!is_turned) return;
    const auto distance = [&](int d) {  // what is repeated comes last
        const std::int64_t stride = std::abs(launch.strides[transposed.operand][d]);
        return stride == 0 ? std::numeric_limits<std::int64_t>::max() : stride;
    };
    std::sort(plan->order, plan->order + launch.ndim,
              [&](int a, int b) { return distance(a) != distance(b) ? distance(a) < distance(b) : a > b; });
}

}  // namespace

bool turns_tiles(const ElementwiseLaunch &launch, int operand, int dimension) noexcept {
    constexpr std::int64_t kFew = 12;
    constexpr std::int64_t kTimesLonger = 8;
    const std::int64_t length = launch.shape[dimension];
    return length < kFew && length * size_of(launch.types[operand]) < kSector &&
           launch.shape[launch.ndim - 1] >= kTimesLonger * length;
}

StridedPlan plan_strided(const ElementwiseLaunch &launch) noexcept {
    StridedPlan plan{};
    const std::int64_t rounds = divide_up(launch.count, kElementsForOne);
    const int most = strided_elements(size_of(wide_type(launch.compute)));
    const ElementType type = wide_type(launch.compute);
    const bool in_pairs = rounds > 1 && kind_of(type) != 'c' && is_function(launch.op, type);
    ThreadShare share{static_cast<int>(std::clamp<std::int64_t>(rounds, 1, most)), in_pairs ? 2 : 1,
                      in_pairs ? 1 : 4};
    share.most -= share.most % share.step;
    for (int i = 0; i < launch.ndim; ++i) plan.order[i] = launch.ndim - 1 - i;
    const Transposed transposed = find_transposed(launch);
    if (transposed.operand < 0)
        plan_parts(launch, share, &plan);
    else
        plan_tiles(launch, share, transposed, &plan);
    return plan;
}

}  // namespace cukern::cuda
