#include "device/matmul/tile_schedule.h"

#include <algorithm>

#include "plan/rounding.h"

namespace cukern::cuda {
namespace {

Divider divider_by(std::int64_t n) noexcept { return Divider::make(static_cast<std::uint32_t>(n)); }

// How tiles follow each other: in bands of rows of tiles, so that those in flight share rows and columns in L2.
void order_tiles(TileSchedule &s) noexcept {
    constexpr int kBand = 12;
    s.band = std::min(s.down, kBand);
    const int last = s.down % s.band;
    s.of_product = divider_by(std::int64_t{s.down} * s.across);
    s.of_band = divider_by(std::int64_t{s.band} * s.across);
    s.of_height = divider_by(s.band);
    s.of_last_height = divider_by(last == 0 ? s.band : last);
    s.of_steps = divider_by(s.steps);
}

// Into how many parts sums are cut; 1: they are left. `longest`: the steps of one now; `bytes`: of a tile.
std::int64_t cuts_for(std::int64_t tiles, std::int64_t steps, std::int64_t longest, std::int64_t blocks,
                      std::int64_t bytes, const Cuts &asked) noexcept {
    constexpr int kMore = 3;
    constexpr std::int64_t kMostScratch = std::int64_t{128} << 20;
    if (asked.parts == 0 || tiles > asked.most_tiles * blocks || tiles * steps > kMostTiles) return 1;
    const std::int64_t most = kMostScratch / (tiles * bytes) - 1;  // a tile has a part more than cuts
    const std::int64_t least = std::min({std::int64_t{asked.parts}, steps / asked.least_steps, most});
    const bool is_even = 10 * tiles >= 9 * blocks * divided_up(tiles, blocks);
    if (least < 2 || longest * least <= steps || (is_even && steps < asked.least_even)) return 1;
    std::int64_t best = least;  // by the time that it takes, in tiles
    for (std::int64_t cuts = least + 1; cuts < std::min(least + kMore, most + 1); ++cuts)
        if (divided_up(tiles * cuts, blocks) * best < divided_up(tiles * best, blocks) * cuts) best = cuts;
    return best;
}

}  // namespace

TileSchedule schedule_tiles(const MatmulLaunch &launch, int rows, int columns, int depth, std::int64_t blocks,
                            const Sharing &sharing) noexcept {
    TileSchedule s{};
    s.tile_rows = rows;
    s.tile_columns = columns;
    s.down = static_cast<int>(divided_up(launch.m, rows));
    s.across = static_cast<int>(divided_up(launch.n, columns));
    s.steps = static_cast<int>(divided_up(launch.k, depth));
    order_tiles(s);
    const std::int64_t tiles = std::int64_t{s.down} * s.across * launch.batch;
    std::int64_t rest = tiles % blocks;
    std::int64_t steps = rest * s.steps;
    const bool is_worth_it = (blocks - rest) * s.steps > sharing.cost * blocks;
    if (!is_worth_it || steps > kMostTiles || launch.saves_scratch) rest = 0;
    std::int64_t used = blocks;
    if (rest > 0 && tiles < blocks) {
        used = std::min(blocks, std::max<std::int64_t>(1, steps / sharing.least));
        // The same number of blocks for each tile: they have a part each, of one tile.
        const std::int64_t even = used / rest * rest;
        if (even * 8 >= used * 7) used = even;
        if (used <= rest) rest = 0;
    }
    if (rest == 0) used = std::min(blocks, tiles);
    const std::int64_t longest = rest < tiles ? s.steps : divided_up(steps, used);
    std::int64_t cuts = 1;
    if (!launch.saves_scratch)
        cuts = cuts_for(tiles, s.steps, longest, blocks, s.tile_elements() * size_of(launch.type), sharing.cuts);
    if (cuts > 1) {
        rest = tiles;
        steps = tiles * s.steps;
        used = tiles * cuts;
    }
    s.whole = static_cast<int>(tiles - rest);
    s.shared = static_cast<int>(rest);
    s.blocks = static_cast<int>(used);
    s.waves = static_cast<int>(divided_up(used, blocks));
    s.cluster = 1;
    if (rest > 0) {
        s.share = static_cast<int>(steps / used);
        s.longer = static_cast<int>(steps % used);
    }
    return s;
}

TileSchedule schedule_clusters(const TileSchedule &schedule, std::int64_t blocks, const Sharing &sharing,
                               int most) noexcept {
    constexpr int kCost = 2;  // in steps, of starting clusters, and waiting for them
    const std::int64_t tiles = std::int64_t{schedule.whole} + schedule.shared;
    int cluster = 1;
    while (2 * cluster <= most && 2 * cluster * tiles <= blocks && 2 * cluster <= schedule.steps) cluster *= 2;
    if (schedule.steps > kMostTiles / most) return schedule;  // the first step of a block is their product
    const int steps = schedule.shared > 0 ? schedule.share + sharing.cost : schedule.steps;
    if (cluster == 1 || divided_up(schedule.steps, cluster) + kCost >= steps) return schedule;
    TileSchedule s = schedule;
    s.cluster = cluster;
    s.blocks = static_cast<int>(tiles) * cluster;
    s.whole = static_cast<int>(tiles);
    s.shared = s.share = s.longer = 0;
    return s;
}

}  // namespace cukern::cuda
