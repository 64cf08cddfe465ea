// Which elements a thread of strided_kernel takes.
#include <algorithm>
#include <cstdlib>

#include "device/block_size.h"
#include "device/kernels.h"

namespace cukern::cuda {
namespace {

constexpr int kLaneBits = 5;
constexpr int kTileLaneBits = 4;  // of the lanes side by side, in tiles
constexpr int kWarpBits = kThreadBits - kLaneBits;
constexpr std::int64_t kSector = 32;  // bytes
// The fewer elements there are, the fewer a thread takes, so that all multiprocessors take part.
constexpr std::int64_t kElementsForOne = 1 << 16;  // of a launch: two blocks for each of 128 multiprocessors

int bits_for(std::int64_t n) noexcept {
    int bits = 0;
    while (bits < 31 && (std::int64_t{1} << bits) < n) ++bits;
    return bits;
}

std::int64_t divide_up(std::int64_t n, std::int64_t by) noexcept { return (n + by - 1) / by; }

// How many elements a thread takes.
struct ThreadShare {
    int most;
    int step;  // 2 where they are computed in pairs
};

// Returns share.most, or a little less if many threads would then have elements past the end of the line. A block
// takes `lines` times as many elements of a line as a thread.
int fitting(std::int64_t length, ThreadShare share, std::int64_t lines) noexcept {
    constexpr std::int64_t kWorthIt = 8;  // percent
    const auto used = [&](int each) { return 100 * length / (divide_up(length, each * lines) * each * lines); };
    int best = share.most;
    for (int each = best - share.step; each > 0 && 2 * each >= share.most; each -= share.step)
        if (used(each) > used(best) + kWorthIt) best = each;
    return best;
}

// Finds an operand whose neighbours along the last dimension lie in different sectors, and returns the dimension
// along which its elements lie closest, if they share sectors there; else -1.
int dimension_for_tiles(const ElementwiseLaunch &launch) noexcept {
    constexpr std::int64_t kLeastElements = 1024;
    const int last = launch.ndim - 1;
    if (launch.count < kLeastElements) return -1;
    for (int j = 1; j < launch.num_operands; ++j) {
        const int size = size_of(launch.types[j]);
        const auto bytes_apart = [&](int d) { return std::abs(launch.strides[j][d]) * size; };
        if (launch.immediate[j] || bytes_apart(last) < kSector) continue;
        int nearest = last;
        for (int d = last - 1; d >= 0; --d)
            if (launch.strides[j][d] != 0 && bytes_apart(d) < bytes_apart(nearest)) nearest = d;
        if (bytes_apart(nearest) < kSector) return nearest;
    }
    return -1;
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
    plan->each = fitting(rows, share, 1);
    plan->apart = divide_up(rows, plan->each);
    if (plan->each > 1 && plan->apart >= kAligned * kAligned)
        plan->apart = divide_up(plan->apart, kAligned) * kAligned;
    plan->columns = launch.count / rows * plan->apart;
    plan->blocks = static_cast<unsigned>(divide_up(plan->columns, kThreads));
}

// Tiles have about as many rows as columns. A warp takes 16 columns, if block
// and tile allow it, whatever the types: with 8 of 4 bytes and
// more transposed operands took 1.03 of the time, with 32 of one byte 1.04 to 1.12 (H200, 418 cases).
void plan_tiles(const ElementwiseLaunch &launch, ThreadShare share, StridedPlan *plan) noexcept {
    const std::int64_t rows = launch.shape[plan->dimension];
    plan->in_tiles = true;
    plan->columns = launch.count / rows;
    const int half = (kThreadBits + bits_for(share.most)) / 2;
    const int all_rows = kThreadBits - bits_for(divide_up(rows, share.most));
    plan->column_bits = std::min({std::max(half, all_rows), bits_for(plan->columns), kThreadBits});
    plan->lane_bits = std::clamp(kTileLaneBits, std::max(plan->column_bits - kWarpBits, 0),
                                 std::min(plan->column_bits, kLaneBits));
    plan->apart = kThreads >> plan->column_bits;
    plan->each = fitting(rows, share, plan->apart);
    plan->across = divide_up(plan->columns, std::int64_t{1} << plan->column_bits);
    plan->blocks = static_cast<unsigned>(plan->across * divide_up(rows, plan->each * plan->apart));
}

}  // namespace

StridedPlan plan_strided(const ElementwiseLaunch &launch) noexcept {
    StridedPlan plan{};
    const std::int64_t rounds = divide_up(launch.count, kElementsForOne);
    const int most = strided_elements(size_of(wide_type(launch.compute)));
    const ElementType type = wide_type(launch.compute);
    const bool in_pairs = rounds > 1 && kind_of(type) != 'c' && is_function(launch.op, type);
    ThreadShare share{static_cast<int>(std::clamp<std::int64_t>(rounds, 1, most)), in_pairs ? 2 : 1};
    share.most -= share.most % share.step;
    plan.across = 1;
    plan.dimension = dimension_for_tiles(launch);
    if (plan.dimension < 0)
        plan_parts(launch, share, &plan);
    else
        plan_tiles(launch, share, &plan);
    return plan;
}

}  // namespace cukern::cuda
